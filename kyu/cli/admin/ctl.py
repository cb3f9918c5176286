"""
Administer queues, with the words of kueuectl: create, list, stop, resume, delete.

    kyu ctl create resourceflavor spot --node-labels instance=spot
    kyu ctl create clusterqueue team-a --cohort lab --nominal-quota "spot:cpu=8;memory=32Gi"
    kyu ctl create localqueue main -c team-a -n team-a
    kyu ctl stop clusterqueue team-a --keep-already-running
    kyu ctl list workload --status pending
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from kyu.api import quantity
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Json, Key, Kind
from kyu.cli import connection, output
from kyu.cli.batch import cancel, jobs
from kyu.cli.main import BadInput

SHORT_NAMES = {
    "clusterqueue": ["cq"],
    "localqueue": ["lq"],
    "resourceflavor": ["rf"],
    "workload": ["kwl", "wl"],
}
# The spellings of each kind, such as `workload`, `workloads` and `wl`.
ALIASES = {word: name for name, short in SHORT_NAMES.items() for word in (name, f"{name}s", *short)}
KINDS: dict[str, Kind] = {
    "clusterqueue": ClusterQueue.KIND,
    "localqueue": LocalQueue.KIND,
    "resourceflavor": ResourceFlavor.KIND,
    "workload": Workload.KIND,
}
STATUSES = {"pending": "Queued", "quotareserved": "Reserved", "admitted": "Running", "finished": "Succeeded"}


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    create_arguments(verbs.add_parser("create", help="create a queue or a flavor"))
    list_arguments(verbs.add_parser("list", help="list queues, flavors or workloads"))
    for verb, text in (("stop", "stop admission"), ("resume", "resume admission")):
        one = verbs.add_parser(verb, help=f"{text} of a clusterqueue, localqueue or workload")
        connection.arguments(one)
        one.add_argument("kind", choices=sorted(ALIASES), metavar="KIND")
        one.add_argument("name", metavar="NAME")
        if verb == "stop":
            one.add_argument("--keep-already-running", action="store_true", help="do not evict running workloads")
    delete = verbs.add_parser("delete", help="delete workloads with their jobs")
    connection.arguments(delete)
    delete.add_argument("kind", choices=["workload", "workloads", "kwl", "wl"], metavar="workload")
    delete.add_argument("names", nargs="+", metavar="NAME")


def create_arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument(
        "kind", choices=sorted(ALIASES), metavar="KIND", help="clusterqueue, localqueue, resourceflavor"
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--cohort", default="", help="cohort of the ClusterQueue")
    parser.add_argument("--queuing-strategy", choices=["BestEffortFIFO", "StrictFIFO"], default="BestEffortFIFO")
    parser.add_argument("--namespace-selector", default="", metavar="k=v,…", help="default: all namespaces")
    parser.add_argument("--reclaim-within-cohort", choices=["Never", "LowerPriority", "Any"], default="Never")
    parser.add_argument(
        "--preemption-within-cluster-queue",
        choices=["Never", "LowerPriority", "LowerOrNewerEqualPriority"],
        default="Never",
    )
    for limit in ("nominal-quota", "borrowing-limit", "lending-limit"):
        parser.add_argument(f"--{limit}", default="", metavar="FLAVOR:RES=N;RES=N,…")
    parser.add_argument("-c", "--clusterqueue", default="", help="ClusterQueue of the LocalQueue")
    parser.add_argument("-i", "--ignore-unknown-cq", action="store_true", help="the ClusterQueue need not exist yet")
    parser.add_argument("--node-labels", default="", metavar="k=v,…", help="node labels of the ResourceFlavor")
    parser.add_argument("--dry-run", action="store_true", help="print the object instead of creating it")


def list_arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser, all_namespaces=True)
    parser.add_argument("kind", choices=sorted(ALIASES), metavar="KIND")
    parser.add_argument("-l", "--selector", default="", help="label selector")
    parser.add_argument("-c", "--clusterqueue", default="", help="only objects of this ClusterQueue")
    parser.add_argument("-q", "--localqueue", default="", help="only objects of this LocalQueue")
    parser.add_argument(
        "--status",
        action="append",
        choices=[*STATUSES, "all"],
        default=[],
        help="only workloads in this state; repeatable",
    )
    output.add_format(parser)


def run(args: argparse.Namespace) -> int:
    verbs: dict[str, Callable[[argparse.Namespace], int]] = {
        "create": create,
        "list": list_objects,
        "stop": stop,
        "resume": stop,
        "delete": delete,
    }
    return verbs[args.verb](args)


def create(args: argparse.Namespace) -> int:
    kind = KINDS[ALIASES[args.kind]]
    bodies: dict[str, Callable[[argparse.Namespace], Json]] = {
        "clusterqueue": cluster_queue,
        "localqueue": local_queue,
        "resourceflavor": resource_flavor,
    }
    if ALIASES[args.kind] not in bodies:
        raise BadInput("kyu ctl create: Kyu creates the Workloads of jobs itself; `kyu submit` creates a job")
    body = bodies[ALIASES[args.kind]](args)
    typed = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
    if args.dry_run:
        print(output.objects([typed], "yaml", is_list=False))
        return 0
    server = connection.connect(args)
    if kind == LocalQueue.KIND:
        body["metadata"]["namespace"] = server.namespace
        if not args.ignore_unknown_cq and server.client.find(ClusterQueue.KIND, Key("", args.clusterqueue)) is None:
            raise BadInput(f"there is no ClusterQueue {args.clusterqueue!r}; -i creates the LocalQueue anyway")
    output.note(f"on {server.description}")
    server.client.create(kind, body)
    print(f"{kind.kind.lower()}.{kind.group}/{args.name} created")
    return 0


def cluster_queue(args: argparse.Namespace) -> Json:
    spec: Json = {
        "queueingStrategy": args.queuing_strategy,
        "namespaceSelector": {"matchLabels": pairs(args.namespace_selector)} if args.namespace_selector else {},
        "preemption": {
            "reclaimWithinCohort": args.reclaim_within_cohort,
            "withinClusterQueue": args.preemption_within_cluster_queue,
        },
    }
    if args.cohort:
        spec["cohortName"] = args.cohort
    quotas = {
        "nominalQuota": flavor_amounts(args.nominal_quota, "--nominal-quota"),
        "borrowingLimit": flavor_amounts(args.borrowing_limit, "--borrowing-limit"),
        "lendingLimit": flavor_amounts(args.lending_limit, "--lending-limit"),
    }
    if groups := resource_groups(quotas):
        spec["resourceGroups"] = groups
    return {"metadata": {"name": args.name}, "spec": spec}


def resource_groups(quotas: dict[str, dict[str, dict[str, str]]]) -> list[Json]:
    """Group the flavors that have the same resources, in the given order."""
    nominal = quotas["nominalQuota"]
    for limits in quotas.values():
        for flavor, name in ((flavor, name) for flavor, amounts in limits.items() for name in amounts):
            if name not in nominal.get(flavor, {}):
                quota = f'--nominal-quota "{flavor}:{name}=0"'
                raise BadInput(f"kyu ctl create: {flavor}:{name} has a limit but no quota; add {quota}")
    by_resources: dict[tuple[str, ...], list[Json]] = {}
    for flavor, amounts in nominal.items():
        resources = [
            {
                "name": name,
                **{field: table[flavor][name] for field, table in quotas.items() if name in table.get(flavor, {})},
            }
            for name in amounts
        ]
        by_resources.setdefault(tuple(amounts), []).append({"name": flavor, "resources": resources})
    return [{"coveredResources": list(names), "flavors": flavors} for names, flavors in by_resources.items()]


def flavor_amounts(text: str, option: str) -> dict[str, dict[str, str]]:
    """Parse `spot:cpu=8;memory=32Gi,on-demand:cpu=2`."""
    found: dict[str, dict[str, str]] = {}
    for part in filter(None, text.split(",")):
        flavor, colon, amounts = part.partition(":")
        values = dict(item.partition("=")[::2] for item in amounts.split(";"))
        if not flavor or not colon or not all(name and value for name, value in values.items()):
            raise BadInput(f"kyu ctl create: {option} {part}: write it as FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT")
        for value in values.values():
            try:
                quantity.parse(value)
            except ValueError as error:
                raise BadInput(f"kyu ctl create: {option} {part}: {error}") from None
        found.setdefault(flavor, {}).update(values)
    return found


def local_queue(args: argparse.Namespace) -> Json:
    if not args.clusterqueue:
        raise BadInput("kyu ctl create localqueue: name its ClusterQueue with -c")
    return {"metadata": {"name": args.name}, "spec": {"clusterQueue": args.clusterqueue}}


def resource_flavor(args: argparse.Namespace) -> Json:
    return {
        "metadata": {"name": args.name},
        "spec": {"nodeLabels": pairs(args.node_labels)} if args.node_labels else {},
    }


def pairs(text: str) -> dict[str, str]:
    values = dict(item.partition("=")[::2] for item in filter(None, text.split(",")))
    if not all(values.values()):
        raise BadInput(f"{text}: write it as key=value,key=value")
    return values


def list_objects(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    kind = KINDS[ALIASES[args.kind]]
    namespace = None if args.all_namespaces else server.namespace
    items = [item for item in server.listed(kind, namespace, args.selector) if wanted(args, item)]
    if args.output in ("json", "yaml", "name"):
        typed = [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in items]
        print(output.objects(typed, args.output, is_list=True))
        return 0
    if not items:
        output.note(
            f"No resources found in {namespace} namespace." if kind.namespaced and namespace else "No resources found"
        )
        return 0
    room = None if args.output == "wide" else output.terminal_room()
    if kind == Workload.KIND:
        lines = [jobs.full_row(server, jobs.row_of_workload(item)) for item in items]
        print(jobs.jobs_table(lines, namespaces=args.all_namespaces, room=room))
    else:
        print(queues_table(kind, items, namespaces=args.all_namespaces, room=room))
    return 0


def wanted(args: argparse.Namespace, item: Json) -> bool:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if args.clusterqueue:
        held = (status.get("admission") or {}).get("clusterQueue")
        if args.clusterqueue not in (spec.get("clusterQueue"), held):
            return False
    if args.localqueue and spec.get("queueName") != args.localqueue:
        return False
    if not args.status or "all" in args.status:
        return True
    word = jobs.state_of(item).word
    shown = {"Starting": "Running", "Failed": "Succeeded"}.get(word, word)
    return shown in {STATUSES[status] for status in args.status}


def queues_table(kind: Kind, items: list[Json], *, namespaces: bool, room: int | None) -> str:
    header, rows = ["NAME"], []
    for item in items:
        spec, status = item.get("spec") or {}, item.get("status") or {}
        counts = [status.get("pendingWorkloads", 0), status.get("admittedWorkloads", 0)]
        age = output.age(item["metadata"].get("creationTimestamp"))
        if kind == ClusterQueue.KIND:
            header = ["NAME", "COHORT", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE", "AGE"]
            active = any(c["type"] == "Active" and c["status"] == "True" for c in status.get("conditions") or ())
            rows.append([item["metadata"]["name"], spec.get("cohortName"), *counts, str(active).lower(), age])
        elif kind == LocalQueue.KIND:
            header = ["NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "AGE"]
            rows.append([item["metadata"]["name"], spec.get("clusterQueue"), *counts, age])
        else:
            header = ["NAME", "NODE LABELS", "AGE"]
            labels = ", ".join(f"{k}={v}" for k, v in (spec.get("nodeLabels") or {}).items())
            rows.append([item["metadata"]["name"], labels, age])
    if namespaces and kind.namespaced:
        header = ["NAMESPACE", *header]
        rows = [[item["metadata"]["namespace"], *row] for item, row in zip(items, rows, strict=True)]
    return output.table(header, rows, room)


def stop(args: argparse.Namespace) -> int:
    stops = args.verb == "stop"
    kind = KINDS[ALIASES[args.kind]]
    if kind == ResourceFlavor.KIND:
        raise BadInput(f"kyu ctl {args.verb}: name a clusterqueue, localqueue or workload")
    policy = ("Hold" if args.keep_already_running else "HoldAndDrain") if stops else "None"
    spec = {"active": not stops} if kind == Workload.KIND else {"stopPolicy": policy}
    server = connection.connect(args)
    output.note(f"on {server.description}")
    server.client.patch(kind, Key(server.namespace if kind.namespaced else "", args.name), {"spec": spec})
    print(f"{kind.kind.lower()}.{kind.group}/{args.name} {'stopped' if stops else 'resumed'}")
    return 0


def delete(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    output.note(f"on {server.description}")
    for name in args.names:
        workload = server.client.get(Workload.KIND, Key(server.namespace, name))
        for kind, key in cancel.owners(workload):
            server.client.delete(kind, key)
            print(f"{kind.kind.lower()}/{key.name} deleted")
    return 0
