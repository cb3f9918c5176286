"""
The difference between two simulations of one load: the groups of jobs that wait less or more, and how much.

Both simulations have the same jobs, so each job is compared with itself. A group wins or loses if its mean wait changes
by at least 5 % and ten seconds. A job that never started counts with its wait until the end.

Called by: cli/admin/simulate_compare.py, simulation/comparison_pictures.py. Calls: simulation/report.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kyu.simulation.report import GROUPS, natural_order, spread, summarize
from kyu.simulation.virtual_time import JobRun, SimulationResult

LEAST_SHARE: Final = 0.05
LEAST_SECONDS: Final = 10.0
# A start that moves by less is the same start.
SAME_START: Final = 1.0


def compare(before: SimulationResult, after: SimulationResult) -> dict[str, Any]:
    """Return the figures of both simulations by group, and the verdict for each group."""
    pairs = list(zip(before.runs, after.runs, strict=True))
    ends = (before.end, after.end)
    found: dict[str, Any] = {"total": compare_group(pairs, ends)}
    for name, group_of in GROUPS.items():
        groups: dict[str, list[tuple[JobRun, JobRun]]] = {}
        for pair in pairs:
            # A job that never started is in no ClusterQueue, so the simulation in which it did names the group.
            group = group_of(pair[0]) or group_of(pair[1])
            groups.setdefault(group, []).append(pair)
        found[name] = {
            group: compare_group(groups[group], ends) for group in sorted(groups, key=natural_order) if group
        }
    return found


def compare_group(pairs: Sequence[tuple[JobRun, JobRun]], ends: tuple[float, float]) -> dict[str, Any]:
    """Return the figures of some jobs in both simulations."""
    waits = [(waited(old, ends[0]), waited(new, ends[1])) for old, new in pairs]
    means = [sum(wait) / len(waits) for wait in zip(*waits, strict=True)]
    return {
        "jobs": len(pairs),
        "before": figures([old for old, _ in pairs], [wait for wait, _ in waits]),
        "after": figures([new for _, new in pairs], [wait for _, wait in waits]),
        "earlier": sum(new < old - SAME_START for old, new in waits),
        "later": sum(new > old + SAME_START for old, new in waits),
        "meanWaitChangeSeconds": means[1] - means[0],
        "verdict": verdict(*means),
    }


def waited(run: JobRun, end: float) -> float:
    """Return the wait of a job; until the end of the simulation if it never started."""
    return end - run.job.submitted if run.wait is None else run.wait


def figures(runs: Sequence[JobRun], waits: Sequence[float]) -> dict[str, Any]:
    found = summarize(runs)
    return {**{name: found[name] for name in ("started", "slowdown", "preemptions", "lostSeconds")},
            "waitSeconds": spread(waits)}  # fmt: skip


def verdict(before: float, after: float) -> str:
    """Return whether a group wins or loses by a change of its mean wait."""
    change = after - before
    if abs(change) < max(LEAST_SECONDS, LEAST_SHARE * before):
        return "same"
    return "loses" if change > 0 else "wins"
