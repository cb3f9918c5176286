"""
Jobs in the queue: what runs, what waits and why. Every kind of job that is queued is listed.

    kyu jobs                 those of the namespace that are not over
    kyu jobs --all           the finished ones too
    kyu jobs -A              of all namespaces
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from kyu.api.kueue import Workload
from kyu.api.meta import Json
from kyu.cli import connection, output

# What Kueue's messages begin with; in a table the reason itself comes first.
LEAD_IN = re.compile(r"couldn't assign flavors to pod set main: ")


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser, all_namespaces=True)
    parser.add_argument("-q", "--queue", default="", help="only of this LocalQueue")
    parser.add_argument("--all", action="store_true", help="also those that are over")
    output.add_format(parser)


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    workloads = server.client.list(Workload.KIND, None if args.all_namespaces else server.namespace)
    shown = [
        item
        for item in sorted(workloads, key=lambda item: str(item["metadata"].get("creationTimestamp")))
        if (not args.queue or item["spec"].get("queueName") == args.queue)
        and (args.all or state_of(item).word not in ("Succeeded", "Failed", "Cancelled"))
    ]
    if args.output in ("json", "yaml", "name"):
        typed = [{"apiVersion": Workload.KIND.api_version, "kind": "Workload", **item} for item in shown]
        print(output.objects(typed, args.output))
        return 0
    if not shown:
        place = "any namespace" if args.all_namespaces else f"namespace {server.namespace}"
        output.note(f"no jobs in {place}" + ("" if args.all else "; --all shows finished ones"))
        return 0
    table = jobs_table(shown, namespaces=args.all_namespaces)
    print(table if args.output == "wide" else output.fitted(table))
    return 0


@dataclass(frozen=True, slots=True)
class State:
    """Where a job is on its way, in a word, and why if it does not move."""

    word: str
    why: str = ""


def jobs_table(workloads: list[Json], *, namespaces: bool) -> str:
    header = ["JOB", "KIND", "QUEUE", "STATE", "PODS", "AGE", "WHY"]
    rows = []
    for item in workloads:
        state = state_of(item)
        kind, name = owner_of(item)
        age = output.age(item["metadata"].get("creationTimestamp"))
        row = [name, kind, item["spec"].get("queueName"), state.word, pods(item), age, " ".join(state.why.split())]
        rows.append([item["metadata"]["namespace"], *row] if namespaces else row)
    return output.table(["NAMESPACE", *header] if namespaces else header, rows)


def conditions_of(workload: Json) -> dict[str, Json]:
    return {c["type"]: c for c in (workload.get("status") or {}).get("conditions") or ()}


def state_of(workload: Json) -> State:
    conditions = conditions_of(workload)

    def holds(type_: str) -> bool:
        return type_ in conditions and conditions[type_].get("status") == "True"

    if holds("Finished"):
        ended = conditions["Finished"]
        return State("Succeeded" if ended.get("reason") == "Succeeded" else "Failed", ended.get("message", ""))
    if workload["spec"].get("active") is False:
        return State("Stopped", conditions.get("Evicted", {}).get("message", "deactivated"))
    if holds("Evicted") and holds("QuotaReserved"):
        return State("Stopping", conditions["Evicted"].get("message", ""))
    if holds("Admitted"):
        return State("Running" if holds("PodsReady") else "Starting")
    if holds("QuotaReserved"):
        waiting = [c["name"] for c in workload["status"].get("admissionChecks") or () if c["state"] != "Ready"]
        return State("Reserved", f"waits for admission check {', '.join(waiting)}" if waiting else "")
    reserved = conditions.get("QuotaReserved", {})
    return State("Queued", LEAD_IN.sub("", reserved.get("message", "")))


def owner_of(workload: Json) -> tuple[str, str]:
    """Kind and name of the job; a Workload that nobody owns is its own job."""
    owners = workload["metadata"].get("ownerReferences") or []
    if len(owners) == 1:
        return owners[0]["kind"], owners[0]["name"]
    return ("PodGroup" if owners else "Workload"), workload["metadata"]["name"]


def pods(workload: Json) -> int:
    admission = (workload.get("status") or {}).get("admission") or {}
    admitted = [item.get("count") for item in admission.get("podSetAssignments") or ()]
    return sum(count for count in admitted if count) or sum(s.get("count", 1) for s in workload["spec"]["podSets"])


def shortened(text: str, length: int = 70) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"
