"""
The figures of a simulation: waits, slowdowns, utilisation, shares over time, preemptions, starvation.

The slowdown of a job is its time in the system over its run time. It is bounded: a run time below 10 seconds counts as
10 seconds, and no slowdown is below 1. The figures are plain values, which JSON, tables and plots show.

Called by: cli/admin/simulate.py, simulation/pictures.py. Calls: simulation/usage.py.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kyu.api import quantity
from kyu.engine.quota.amounts import FlavorResource
from kyu.engine.state import State
from kyu.simulation.usage import UsageSeries
from kyu.simulation.virtual_time import JobRun, SimulationResult

SLOWDOWN_BOUND: Final = 10.0
POINTS: Final = 120
"""The number of spans of time for which shares are given."""
NAMED: Final = 10
"""The most jobs that are named in a list."""
GROUPS: Final[dict[str, Callable[[JobRun], str]]] = {
    "clusterQueues": lambda run: run.cluster_queue,
    "localQueues": lambda run: str(run.local_queue),
    "classes": lambda run: run.job.job_class,
    "teams": lambda run: run.job.team,
}
CSV_COLUMNS: Final = (
    "job", "team", "class", "local_queue", "cluster_queue", "priority", "pods", "submit_s", "run_s", "limit_s",
    "start_s", "end_s", "wait_s", "slowdown", "preemptions", "lost_s",
)  # fmt: skip


def slowdown(run: JobRun) -> float | None:
    """Return the bounded slowdown of a finished job."""
    if run.end is None:
        return None
    return max(1.0, (run.end - run.job.submitted) / max(run.job.run_seconds, SLOWDOWN_BOUND))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least such a share of the values does not exceed."""
    index = -(-len(ordered) * round(share * 1000) // 1000) - 1
    return ordered[max(0, min(len(ordered) - 1, index))]


def spread(values: Iterable[float]) -> dict[str, float] | None:
    """Return the mean, quantiles and maximum of some values; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return {
        "mean": sum(ordered) / len(ordered),
        "p50": quantile(ordered, 0.5),
        "p90": quantile(ordered, 0.9),
        "p99": quantile(ordered, 0.99),
        "max": ordered[-1],
    }


def summarize(runs: Sequence[JobRun]) -> dict[str, Any]:
    """Return the figures of some jobs together."""
    return {
        "jobs": len(runs),
        "started": sum(run.first_start is not None for run in runs),
        "finished": sum(run.end is not None for run in runs),
        "waitSeconds": spread(run.wait for run in runs if run.wait is not None),
        "slowdown": spread(found for run in runs if (found := slowdown(run)) is not None),
        "preemptions": sum(run.preemptions for run in runs),
        "lostSeconds": sum(run.lost for run in runs),
    }


def make_report(result: SimulationResult, starved_after: float) -> dict[str, Any]:
    """Return all figures of a simulation."""
    runs = result.runs
    begin = runs[0].job.submitted if runs else 0.0
    report: dict[str, Any] = {
        "seconds": result.end - begin,
        "begin": begin,
        "events": result.events,
        "endlessPreemptions": result.endless,
        "total": summarize(runs),
    }
    for name, group_of in GROUPS.items():
        groups: dict[str, list[JobRun]] = {}
        for run in runs:
            groups.setdefault(group_of(run), []).append(run)
        order = sorted(groups, key=natural_order)
        report[name] = {group: summarize(groups[group]) for group in order if group}
    report["resources"] = measure_resources(result, begin)
    report["quotas"] = measure_quotas(result, begin)
    report["shares"] = measure_shares(result, begin)
    report["starvation"] = find_starved(runs, result.end, starved_after)
    return report


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts `9-32 cpu` before `33-128 cpu`."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def capacity(state: State) -> dict[FlavorResource, int]:
    """Return the nominal quota of all ClusterQueues and Cohorts together."""
    found: Counter[FlavorResource] = Counter()
    reports = [report for name in state.queue_names() for report in state.queue_quotas(name)]
    reports += [report for name in state.cohort_names() for report in state.cohort_quotas(name)]
    for report in reports:
        if report.declared:
            found[report.key] += report.nominal
    return dict(found)


def measure_resources(result: SimulationResult, begin: float) -> dict[str, dict[str, Any]]:
    """Return the utilisation of each resource, over all flavors."""
    total, used = Counter[str](), Counter[str]()
    for key, amount in capacity(result.usage.state).items():
        total[key.resource] += amount
    for (_, key), series in result.usage.series.items():
        used[key.resource] += round(series.integral)
    seconds = result.end - begin
    return {
        resource: {
            "quota": quantity.render(resource, min(amount, quantity.UNLIMITED)),
            "utilisation": used[resource] / (amount * seconds) if amount and seconds else None,
        }
        for resource, amount in sorted(total.items())
    }


def measure_quotas(result: SimulationResult, begin: float) -> list[dict[str, Any]]:
    """Return the mean and highest usage of each ClusterQueue, by flavor and resource."""
    state, seconds = result.usage.state, result.end - begin
    rows: list[dict[str, Any]] = []
    for name in state.queue_names():
        for quota in state.queue_quotas(name):
            if not quota.declared:
                continue
            series = result.usage.series.get((name, quota.key), UsageSeries())
            mean = series.integral / seconds if seconds else 0.0
            rows.append(
                {
                    "clusterQueue": name,
                    "flavor": quota.key.flavor,
                    "resource": quota.key.resource,
                    "nominal": quantity.render(quota.key.resource, min(quota.nominal, quantity.UNLIMITED)),
                    "meanUsed": render_mean(quota.key.resource, mean),
                    "mostUsed": quantity.render(quota.key.resource, series.highest),
                    "utilisation": mean / quota.nominal if quota.nominal else None,
                }
            )
    return rows


def render_mean(resource: str, mean: float) -> str:
    """Return a mean amount with one decimal, in cores, gibibytes or units."""
    if resource == "cpu":
        return f"{mean / 1000:.1f}"
    return f"{mean / 2**30:.1f}Gi" if quantity.is_byte_like(resource) else f"{mean:.1f}"


def measure_shares(result: SimulationResult, begin: float) -> dict[str, Any]:
    """Return the share of each ClusterQueue in the quota of all, by resource, in equal spans of time."""
    total = Counter[str]()
    for key, amount in capacity(result.usage.state).items():
        total[key.resource] += amount
    by_resource: dict[str, dict[str, list[float]]] = {}
    for (queue, key), series in result.usage.series.items():
        if not total[key.resource]:
            continue
        shares = by_resource.setdefault(key.resource, {}).setdefault(queue, [0.0] * POINTS)
        for index, value in enumerate(series.sampled(begin, result.end, POINTS)):
            shares[index] += value / total[key.resource]
    return {
        "spanSeconds": (result.end - begin) / POINTS,
        "resources": {
            resource: {queue: [round(share, 4) for share in shares] for queue, shares in sorted(queues.items())}
            for resource, queues in sorted(by_resource.items())
        },
        "pending": [round(value, 2) for value in result.usage.pending.sampled(begin, result.end, POINTS)],
    }


def find_starved(runs: Sequence[JobRun], end: float, after: float) -> dict[str, Any]:
    """Return the jobs that never started, by reason, and those that waited longer than a time."""
    never = [run for run in runs if run.first_start is None]
    waits = [(end - run.job.submitted if run.wait is None else run.wait, run.job.name) for run in runs]
    longest = sorted(waits, key=lambda wait: (-wait[0], wait[1]))[:NAMED]
    return {
        "afterSeconds": after,
        "waitedLonger": sum(wait > after for wait, _ in waits),
        "neverStarted": len(never),
        "reasons": dict(Counter(run.reason for run in never).most_common(NAMED)),
        "neverStartedJobs": [run.job.name for run in never[:NAMED]],
        "longestWaits": [{"job": name, "seconds": wait} for wait, name in longest if wait > 0],
    }


def jobs_as_csv(result: SimulationResult) -> str:
    """Return one line for each job, in order of arrival."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for run in result.runs:
        job = run.job
        values: tuple[Any, ...] = (
            job.name, job.team, job.job_class, run.local_queue, run.cluster_queue, job.priority, job.request.pods,
            job.submitted, job.runtime, job.limit, run.first_start, run.end, run.wait, slowdown(run), run.preemptions,
            run.lost,
        )  # fmt: skip
        writer.writerow([cell(value) for value in values])
    return text.getvalue()


def cell(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value == int(value) else round(value, 6)
    return "" if value is None else value
