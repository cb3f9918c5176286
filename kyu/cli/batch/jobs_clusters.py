"""The list of jobs of a hub and of all its worker clusters: `kyu jobs --all-clusters`."""

from __future__ import annotations

import argparse

from kyu.api.kueue import Workload
from kyu.api.meta import Json
from kyu.cli import output
from kyu.cli.batch import jobs, workers
from kyu.cli.batch.jobs import ENDED, JobRow, cluster_of
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput
from kyu.kinds import metadata
from kyu.kube.blocking import Unreachable
from kyu.kube.errors import ApiError

HUB = "-"


def run(args: argparse.Namespace, server: ServerConnection) -> int:
    if args.output not in ("table", "wide"):
        raise BadInput("kyu jobs: --all-clusters prints a table only; use -o with one cluster")
    namespace = None if args.all_namespaces else server.namespace
    rows = [(cluster_of(one) or HUB, one) for one in server.listed(Workload.KIND, namespace)]
    for name, there in workers.connect_to_all(server).items():
        if there is None:
            output.note(f"cluster {name}: you have no credentials for it, so only jobs of the hub are listed")
            continue
        try:
            rows += [(name, one) for one in there.client.list(Workload.KIND, namespace) if not is_sent(one)]
        except (Unreachable, ApiError) as error:
            output.note(f"cluster {name}: {error}")
        finally:
            there.client.close()
    shown = [(name, jobs.row_of_workload(one)) for name, one in sorted(rows, key=lambda row: created(row[1]))]
    kept = [(name, row) for name, row in shown if is_wanted(args, row)]
    if not kept:
        output.note("no jobs" + ("" if args.all else "; --all shows finished ones"))
        return 0
    room = None if args.output == "wide" else output.terminal_room()
    header = ["CLUSTER", *(["NAMESPACE"] if args.all_namespaces else [])]
    header += ["JOB", "KIND", "QUEUE", "STATE", "PODS", "AGE", "WHY"]
    cells = []
    for name, row in kept:
        place = [row.obj["metadata"]["namespace"]] if args.all_namespaces else []
        cells.append([name, *place, *row.cells(is_short=room is not None)])
    print(output.table(header, cells, room))
    return 0


def is_sent(workload: Json) -> bool:
    """Return whether a hub sent the Workload: it is in the list of the hub."""
    labels = metadata.labels_of(workload)
    return metadata.MULTI_KUEUE_ORIGIN in labels


def is_wanted(args: argparse.Namespace, row: JobRow) -> bool:
    return (not args.queue or row.queue == args.queue) and (args.all or row.state.word not in ENDED)


def created(workload: Json) -> str:
    return str(workload["metadata"].get("creationTimestamp"))
