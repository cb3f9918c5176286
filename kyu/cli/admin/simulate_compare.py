"""
The comparison of two simulations of `kyu simulate --compare`: one load, the queues before and after a change.

Called by: cli/admin/simulate.py. Calls: simulation/comparison.py, simulation/comparison_pictures.py.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kyu.api import duration
from kyu.cli import output
from kyu.cli.admin import simulate
from kyu.cli.main import BadInput
from kyu.simulation import comparison, comparison_pictures, pictures
from kyu.simulation.report import cell, make_report
from kyu.simulation.virtual_time import SimulationResult

GROUPS = (("CLUSTERQUEUE", "clusterQueues"), ("LOCALQUEUE", "localQueues"), ("CLASS", "classes"), ("TEAM", "teams"))
HEADER = ("JOBS", "WAIT BEFORE", "AFTER", "P90 BEFORE", "AFTER", "EARLIER", "LATER", "PREEMPTED", "VERDICT")


def run(args: argparse.Namespace, starved_after: float) -> int:
    """Simulate twice, and print which groups win and which lose."""
    before, after = (simulate.simulate(args, [*args.filename, name])[0] for name in args.compare)
    found = comparison.compare(before, after)
    reports = (make_report(before, starved_after), make_report(after, starved_after))
    resource = args.resource or pictures.main_resource(reports[0])
    if resource not in reports[0]["resources"]:
        raise BadInput(f"--resource: no quota of {resource!r}; there is {', '.join(reports[0]['resources']) or 'none'}")
    if args.csv:
        Path(args.csv).write_text(jobs_as_csv(before, after))
    if args.svg:
        Path(args.svg).write_text(comparison_pictures.svg_plot(found, reports, resource))
    if args.output == "json":
        print(json.dumps({"comparison": found, "before": reports[0], "after": reports[1]}, indent=2))
        return 0
    print("\n".join(tables(found, reports)))
    if not args.no_plot:
        print(f"\n{comparison_pictures.terminal_plot(found)}")
    return 0


def tables(found: Mapping[str, Any], reports: tuple[Mapping[str, Any], Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the comparison as tables."""
    total = found["total"]
    lengths = [duration.short(report["seconds"]) for report in reports]
    yield f"{simulate.count_jobs(total['jobs'])}, in {lengths[0]} before and {lengths[1]} after the change"
    for resource in reports[0]["resources"]:
        shares = [report["resources"].get(resource, {}).get("utilisation") for report in reports]
        if None not in shares:
            yield f"used on average: {shares[0]:.1%} of all {resource} before, {shares[1]:.1%} after"
    yield ""
    for title, name in GROUPS:
        groups = found[name]
        # Groups that repeat the queues tell nothing new.
        if name != "clusterQueues" and (len(groups) < 2 or _same_groups(groups, found["clusterQueues"])):
            continue
        largest = sorted(groups, key=lambda group: (-groups[group]["jobs"], group))[: simulate.MOST_ROWS]
        rows = [row(group, groups[group]) for group in groups if group in largest]
        if name == "clusterQueues":
            rows.append(row("all", total))
        yield output.table((title, *HEADER), rows)
        yield ""
    winners, losers = ([n for n, g in found["teams"].items() if g["verdict"] == word] for word in ("wins", "loses"))
    if winners or losers:
        yield f"wins: {', '.join(winners[:8]) or 'no team'}; loses: {', '.join(losers[:8]) or 'no team'}"


def _same_groups(groups: Mapping[str, Any], queues: Mapping[str, Any]) -> bool:
    return sorted(group["jobs"] for group in groups.values()) == sorted(q["jobs"] for q in queues.values()) and len(
        groups
    ) == len(queues) and all(name.rpartition("/")[2] in queues for name in groups)  # fmt: skip


def row(name: str, group: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the row of a group."""
    old, new = group["before"], group["after"]
    waits = [duration.short(side["waitSeconds"][word]) for word in ("mean", "p90") for side in (old, new)]
    preempted = f"{old['preemptions']} → {new['preemptions']}"
    return (name, group["jobs"], *waits, group["earlier"], group["later"], preempted,
            comparison_pictures.change_text(group))  # fmt: skip


def jobs_as_csv(before: SimulationResult, after: SimulationResult) -> str:
    """Return one line for each job, with both waits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("job", "team", "class", "local_queue", "submit_s", "wait_before_s", "wait_after_s"))
    for old, new in zip(before.runs, after.runs, strict=True):
        waits = (cell(run.wait) for run in (old, new))
        job = old.job
        writer.writerow((job.name, job.team, job.job_class, old.local_queue, job.submitted, *waits))
    return text.getvalue()
