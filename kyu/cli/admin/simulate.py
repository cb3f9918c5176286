"""
Run a load through the scheduler in virtual time, without a cluster, and report waits, shares and preemptions.

    kyu simulate -f queues/ --load scenario.yaml
    kyu simulate -f queues.yaml --load trace.swf --svg shares.svg --csv jobs.csv
    kyu simulate --compare before/ after/ --load week.yaml --svg change.svg

The load is a scenario (YAML), a CSV file, a log in the Standard Workload Format, or the pods of Alibaba's openb trace.
The decisions are those of the engine that runs live. docs/tasks/simulate.md describes the formats.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kyu.cli import output
from kyu.cli.main import BadInput

if TYPE_CHECKING:
    from kyu.simulation.load import SimulatedLoad
    from kyu.simulation.virtual_time import SimulationResult

FORMATS = ("scenario", "csv", "swf")
# The most groups that a table lists; JSON lists all of them.
MOST_ROWS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="manifests of queues and flavors: a file, a folder, or - for standard input",
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("BEFORE", "AFTER"),
        help="simulate twice, with these files or folders beside those of -f, and compare",
    )
    parser.add_argument("--load", required=True, metavar="FILE", help="the jobs: YAML, CSV or SWF, also with .gz")
    parser.add_argument("--format", choices=FORMATS, help="the format of the load (default: by its name and text)")
    parser.add_argument("--queue", default="", metavar="NAME", help="LocalQueue of jobs that name none")
    parser.add_argument("--config", metavar="FILE", help="Kueue Configuration")
    parser.add_argument("--until", metavar="DURATION", help="stop at this time of the load, such as 7d or 12h")
    parser.add_argument(
        "--starved-after", default="1d", metavar="DURATION", help="count jobs that wait longer (default: 1d)"
    )
    parser.add_argument("--resource", metavar="NAME", help="the resource of the plots (default: the one used most)")
    parser.add_argument("--csv", metavar="FILE", help="write one line for each job")
    parser.add_argument("--svg", metavar="FILE", help="write a picture of shares, pending jobs and waits")
    parser.add_argument("--no-plot", action="store_true", help="print no plot below the tables")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")


def run(args: argparse.Namespace) -> int:
    from kyu.simulation import pictures
    from kyu.simulation.report import jobs_as_csv, make_report

    if not (args.filename or args.compare):
        raise BadInput("-f FILE is missing: the manifests of the queues")
    starved_after = parse_duration(args.starved_after, "--starved-after")
    if args.compare:
        from kyu.cli.admin import simulate_compare

        return simulate_compare.run(args, starved_after)
    result, load = simulate(args, args.filename)
    report = {"load": {"jobs": len(load.jobs), "leftOut": load.left_out}, **make_report(result, starved_after)}
    resource = args.resource or pictures.main_resource(report)
    if resource not in report["resources"]:
        raise BadInput(f"--resource: no quota of {resource!r}; there is {', '.join(report['resources']) or 'none'}")
    if args.csv:
        Path(args.csv).write_text(jobs_as_csv(result))
    if args.svg:
        title = f"{Path(args.load).name}: {report['total']['jobs']:,} jobs"
        Path(args.svg).write_text(pictures.svg_plot(report, resource, title))
    if args.output == "json":
        print(json.dumps(report, indent=2))
        return 0
    print("\n".join(tables(report)))
    if not args.no_plot:
        print(f"\n{pictures.terminal_plot(report, resource)}")
    return 0


def parse_duration(text: str, option: str) -> float:
    """Return the seconds of an option such as 7d or 90m."""
    from kyu.simulation.jobs import LoadError
    from kyu.simulation.scenario import seconds

    try:
        return seconds(text, option)
    except LoadError as error:
        raise BadInput(str(error)) from None


def simulate(args: argparse.Namespace, filenames: list[str]) -> tuple[SimulationResult, SimulatedLoad]:
    """Run the load on the queues of some files."""
    from kyu.api.queues import LocalQueue
    from kyu.cli.admin.decide import decode_all, feed, in_namespace, load_configuration
    from kyu.cli.sources import read_manifests
    from kyu.engine import options
    from kyu.engine.state import State
    from kyu.simulation.virtual_time import Simulation

    until = parse_duration(args.until, "--until") if args.until else inf
    configuration = load_configuration(args.config)
    chosen = options.from_configuration(configuration)
    if chosen.block_admission:
        raise BadInput(f"{args.config}: waitForPodsReady.blockAdmission is not simulated: pods have no start-up time")
    manifests = [in_namespace(manifest) for name in filenames for manifest in read_manifests(name)]
    manifests = [manifest for manifest in manifests if manifest.kind not in ("Workload", "Pod")]
    objects = decode_all(manifests, configuration, validate=True)
    state = State(chosen)
    feed(state, objects)
    queues = [obj.key for obj in objects if isinstance(obj, LocalQueue)]
    load = load_jobs(args, queues)
    warn_inactive(state)
    # No object of the load is garbage before the end, so the collector need not look at them again and again.
    gc.collect()
    gc.freeze()
    try:
        return Simulation(state, load, until).run(), load
    finally:
        gc.unfreeze()


def load_jobs(args: argparse.Namespace, queues: list[Any]) -> SimulatedLoad:
    """Read the load, or raise BadInput."""
    from kyu.cli.sources import read_text
    from kyu.simulation.jobs import LoadError
    from kyu.simulation.load import find_format, read_load

    name = args.load
    if name.endswith(".gz"):
        try:
            text = gzip.decompress(Path(name).read_bytes()).decode()
        except (gzip.BadGzipFile, EOFError, UnicodeDecodeError, OSError) as error:
            raise BadInput(f"{name}: cannot be read: {error}") from None
    else:
        text = read_text(name)
    try:
        return read_load(text, args.format or find_format(name, text), queues, args.queue)
    except LoadError as error:
        raise BadInput(f"{name}: {error}") from None


def warn_inactive(state: Any) -> None:
    for name in state.queue_names():
        if (why := state.why_inactive(name)) is not None:
            output.note(f"warning: ClusterQueue {name} is inactive: {why}")


def tables(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the report as tables."""
    from kyu.api import duration

    total, starved = report["total"], report["starvation"]
    used = ", ".join(
        f"{found['utilisation']:.1%} of {found['quota']} {resource}"
        for resource, found in report["resources"].items()
        if found["utilisation"] is not None
    )
    yield f"{count_jobs(total['jobs'])} in {duration.short(report['seconds'])} of virtual time; used on average: {used}"
    if report["load"]["leftOut"]:
        yield f"left out of the load: {count_jobs(report['load']['leftOut'])} without a run or a request"
    if report["endlessPreemptions"]:
        yield f"ClusterQueues preempted each other in a circle at {report['endlessPreemptions']:,} moments"
    yield ""
    for title, group in (("CLUSTERQUEUE", "clusterQueues"), ("LOCALQUEUE", "localQueues"), ("CLASS", "classes"),
                         ("TEAM", "teams")):  # fmt: skip
        yield from group_table(title, report[group], total if group == "clusterQueues" else None)
    yield from quota_table(report["quotas"])
    yield f"{count_jobs(starved['waitedLonger'])} waited longer than {duration.short(starved['afterSeconds'])}" + (
        f"; the longest: {starved['longestWaits'][0]['job']}, {duration.short(starved['longestWaits'][0]['seconds'])}"
        if starved["longestWaits"]
        else ""
    )
    if starved["neverStarted"]:
        named = ", ".join(starved["neverStartedJobs"][:3])
        yield f"{count_jobs(starved['neverStarted'])} never started, such as {named}:"
        yield from (f"  {count:,} x {reason}" for reason, count in starved["reasons"].items())


def count_jobs(count: int) -> str:
    """Return a number of jobs in words."""
    return "1 job" if count == 1 else f"{count:,} jobs"


def group_table(title: str, groups: Mapping[str, Any], total: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a table of the figures by group; nothing if there is only one group and no total to show."""
    from kyu.api import duration

    if total is None and len(groups) < 2:
        return
    largest = sorted(groups, key=lambda name: (-groups[name]["jobs"], name))[:MOST_ROWS]
    rows = [(name, groups[name]) for name in groups if name in largest]
    if total is not None and len(groups) != 1:
        rows.append(("all", total))
    cells = []
    for name, found in rows:
        wait, slow = found["waitSeconds"], found["slowdown"]
        waits = [duration.short(wait[word]) for word in ("mean", "p50", "p90", "max")] if wait else [None] * 4
        slows = [f"{slow[word]:.1f}" for word in ("mean", "p90")] if slow else [None] * 2
        lost = duration.short(found["lostSeconds"]) if found["lostSeconds"] else None
        cells.append((name, found["jobs"], found["started"], *waits, *slows, found["preemptions"], lost))
    header = (title, "JOBS", "STARTED", "WAIT MEAN", "P50", "P90", "MAX", "SLOWDOWN", "P90", "PREEMPTED", "LOST")
    yield output.table(header, cells)
    if len(groups) > MOST_ROWS:
        yield f"… and {len(groups) - MOST_ROWS:,} more; `-o json` lists all"
    yield ""


def quota_table(quotas: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of the usage of each ClusterQueue."""
    rows = [
        (q["clusterQueue"], q["flavor"], q["resource"], q["nominal"], q["meanUsed"], q["mostUsed"],
         "-" if q["utilisation"] is None else f"{q['utilisation']:.0%}")
        for q in quotas
    ]  # fmt: skip
    yield output.table(
        ("CLUSTERQUEUE", "FLAVOR", "RESOURCE", "NOMINAL", "MEAN USED", "MOST USED", "OF NOMINAL"), rows[:60]
    )
    yield ""
