"""
Why a job waits: the one thing that holds it back, with the numbers, who has what it lacks, and what would help.

    kyu why train            for people
    kyu why train -o json    the same for programs

The answer is computed here from the objects on the server, with the functions that schedule them, so it works on any
cluster that runs Kueue or Kyu. Those who may not see the workloads of others get what the job's own status says.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

from kyu.api import codec, quantity
from kyu.api.kueue import ClusterQueue, LocalQueue
from kyu.api.meta import Json, Key, key_of
from kyu.cli import connection, jobs, jobs_pods, live, lookup, output
from kyu.cli.connection import Server
from kyu.engine import explain, options, reasons
from kyu.engine.cluster import Inactive
from kyu.engine.explain import Explanation, Shortage
from kyu.engine.reasons import QueueMissing, QueueStopped, Untried
from kyu.engine.state import State
from kyu.kube.errors import Forbidden

MOST_NAMES = 8
ENOUGH = "its end would be enough"
Names = Mapping[Key, str]
# Why a ClusterQueue admits nothing, and what to do.
INACTIVE: dict[Inactive, str] = {
    "Stopped": "the queue is stopped: `kyu ctl resume clusterqueue {queue}` starts it again",
    "FlavorNotFound": "the queue lists a ResourceFlavor that does not exist",
    "AdmissionCheckNotFound": "the queue lists an AdmissionCheck that does not exist",
    "AdmissionCheckInactive": "a check of the queue is not active: `kubectl describe admissionchecks` says why",
    "MultipleMultiKueueAdmissionChecks": "the queue has more than one MultiKueue check",
    "MultiKueueAdmissionCheckAppliedPerFlavor": "the MultiKueue check of the queue must be for all its flavors",
    "MultiKueueWithProvisioningRequest": "the queue has a MultiKueue and a provisioning check; only one is possible",
    "TopologyNotFound": "the Topology of a flavor of the queue does not exist",
    "Terminating": "the queue is being deleted, and goes when its last job has ended",
    "CohortCycle": "the parents of cohort {path} lead back to it: take one of them off",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("job", metavar="JOB", help="name of the job")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="how to print (default: text)")


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    workload = lookup.find_workload(server, args.job)
    state = jobs.full_state(server, workload)
    found: Explanation | None = None
    remedy = ""
    names: Names = {}
    if state.word == "Queued":
        try:
            objects = live.read_objects(server)
            names = names_of(objects)
            known = read_state(server, objects)
            found = explain.why(known, key_of(workload), datetime.now(UTC))
            remedy = remedy_of(server, known, workload, found)
        except Forbidden:
            output.note("you may not see what others use; this is what the job itself was told")
    is_here = not jobs.cluster_of(workload)
    pods = jobs_pods.pods_of(server, workload) if is_here and state.word in (jobs.STARTING, "Failed") else []
    if args.output == "json":
        print(json.dumps(to_json(workload, state, found, remedy, jobs_pods.troubles(pods), names), indent=2))
    elif found is not None:
        print("\n".join(told(workload, state, found, remedy, names)))
    else:
        print("\n".join(told_state(workload, state, pods)))
    return 0


def names_of(objects: Iterable[Json]) -> Names:
    """Of each Workload the job, as `kyu jobs` calls it."""
    return {
        key_of(obj): str(Key(obj["metadata"]["namespace"], jobs.owner_of(obj)[1]))
        for obj in objects
        if obj["kind"] == "Workload"
    }


def read_state(server: Server, objects: Iterable[Json]) -> State:
    """The engine's state as of now, from the objects."""
    state = State(options.from_configuration(live.read_configuration(server)))
    for obj in objects:
        if obj["kind"] != "PriorityClass":
            state.put(codec.decode(obj))
    return state


def remedy_of(server: Server, known: State, workload: Json, found: Explanation | None) -> str:
    """What to do about a queue that admits nothing, and what it says itself; else what the engine has to say."""
    if found is None or found.position is not None:
        return found.hint if found else ""
    if isinstance(found.reason, QueueStopped):
        return f"`kyu ctl resume localqueue {found.reason.name} -n {workload['metadata']['namespace']}` starts it again"
    if isinstance(found.reason, QueueMissing):
        return queues_there_are(server, workload, found.reason)
    why = known.why_inactive(found.path[0]) if found.path else None
    if why is None:
        return found.hint
    remedy = INACTIVE[why].format(queue=found.path[0], path=" / ".join(found.path[1:]))
    queue = server.client.find(ClusterQueue.KIND, Key("", found.path[0])) or {}
    said = jobs.conditions_of(queue).get("Active", {}).get("message", "")
    return f"{remedy}\n  it says: {said}" if said else remedy


def queues_there_are(server: Server, workload: Json, missing: QueueMissing) -> str:
    """For a name that may be misspelt: those that can be meant."""
    namespace = workload["metadata"]["namespace"]
    if missing.kind == "LocalQueue":
        found, place = server.client.list(LocalQueue.KIND, namespace), f"namespace {namespace} has"
    else:
        queue = workload["spec"].get("queueName", "")
        found, place = server.client.list(ClusterQueue.KIND), f"LocalQueue {queue} asks for {missing.name}; there are"
    names = sorted(str(item["metadata"]["name"]) for item in found)
    more = " …" if len(names) > MOST_NAMES else ""
    return f"{place} {missing.kind}s: {', '.join(names[:MOST_NAMES]) or 'none'}{more}"


def told(workload: Json, state: jobs.State, found: Explanation, remedy: str, names: Names) -> Iterator[str]:
    """Of a job that waits; if nothing that can be seen stands in its way, with what it was told at its last turn."""
    word, message = reasons.render(found.reason)
    yield f"{jobs.owner_of(workload)[1]} waits: {word}"
    if not found.shortages:
        yield f"  {jobs.LEAD_IN.sub('', message)}"
    if isinstance(found.reason, Untried) and state.why:
        yield f"  at its last turn: {state.why}"
    for shortage in found.shortages:
        yield from told_shortage(shortage, names)
    yield ""
    yield from (f"  {line}" for line in told_place(found, names))
    yield f"  {remedy}"


def told_state(workload: Json, state: jobs.State, pods: list[Json]) -> Iterator[str]:
    """Of a job that does not wait for quota, or of which no more can be seen."""
    yield f"{jobs.owner_of(workload)[1]}: {state.word.lower()}{': ' + state.why if state.why else ''}"
    if state.word == jobs.STARTING:
        yield "  it has its quota; its pods are not all ready yet"
    if there := jobs.where_pods_are(workload):
        yield f"  {there}"
    if state.word == "Reserved":
        for check in workload["status"].get("admissionChecks") or ():
            if check["state"] != "Ready":
                yield f"  {check['name']}: {check['state']}{': ' + check['message'] if check.get('message') else ''}"
    if state.reason == jobs.GATED:
        yield f"  `kyu cancel {jobs.owner_of(workload)[1]}` gives it up; it goes on when all of these have succeeded"
    yield from (f"  {trouble}" for trouble in jobs_pods.troubles(pods))


def told_shortage(shortage: Shortage, names: Names) -> Iterator[str]:
    amount = partial(render, shortage.resource)
    what = f"{shortage.resource} of flavor {shortage.flavor}"
    if shortage.is_final:
        yield f"  {what}: {amount(shortage.requested)} wanted, at most {amount(shortage.most)} can ever be used here"
        return
    missing = amount(shortage.requested - shortage.free)
    yield f"  {what}: {amount(shortage.requested)} wanted, {amount(shortage.free)} free, {missing} missing"
    most = "as much as there is" if shortage.most >= quantity.UNLIMITED else amount(shortage.most)
    yield f"    the queue owns {amount(shortage.own)}, uses {amount(shortage.used)}, and may use up to {most}"
    if shortage.free:
        yield f"    it would fit if it asked for {amount(shortage.free)}"
    rows = [
        [names.get(h.key, str(h.key)), h.cluster_queue, str(h.priority), amount(h.amount), ENOUGH if h.enough else ""]
        for h in shortage.holders
    ]
    if rows:
        header = ["HELD BY", "QUEUE", "PRIORITY", shortage.resource.upper(), ""]
        yield from (f"    {line}" for line in output.table(header, rows).replace(" - ", "   ").splitlines())
    if shortage.other_holders:
        yield f"    and {shortage.other_holders} more"


def render(resource: str, amount: int) -> str:
    return quantity.render(resource, min(amount, quantity.UNLIMITED))


def told_place(found: Explanation, names: Names) -> Iterator[str]:
    if found.position is None:
        return
    above = f" in cohort {' / '.join(found.path[1:])}" if len(found.path) > 1 else ""
    yield f"number {found.position + 1} of {found.length} that wait in ClusterQueue {found.path[0]}{above}"
    if found.ahead:
        more = found.position - len(found.ahead)
        ahead = [names.get(key, str(key)) for key in found.ahead]
        yield f"before it: {', '.join(ahead)}{f' and {more} more' if more else ''}"
        if found.is_strict:
            yield f"nobody overtakes in this queue, so first of all: kyu why {ahead[0].rpartition('/')[2]}"


def to_json(
    workload: Json, state: jobs.State, found: Explanation | None, remedy: str, troubles: list[str], names: Names
) -> Json:
    kind, name = jobs.owner_of(workload)
    body: Json = {"job": name, "kind": kind, "workload": str(key_of(workload)), "state": state.word}
    if found is None:
        cluster = jobs.cluster_of(workload)
        return {**body, "message": state.why, "pods": troubles, **({"cluster": cluster} if cluster else {})}
    word, message = reasons.render(found.reason)
    return {
        **body,
        "reason": word,
        "message": message,
        "lastMessage": state.why,
        "hint": remedy,
        "path": list(found.path),
        "position": found.position,
        "pending": found.length,
        "ahead": [str(key) for key in found.ahead],
        "shortages": [shortage_json(shortage, names) for shortage in found.shortages],
    }


def shortage_json(shortage: Shortage, names: Names) -> Json:
    amount = partial(render, shortage.resource)
    return {
        "podSet": shortage.pod_set,
        "flavor": shortage.flavor,
        "resource": shortage.resource,
        "requested": amount(shortage.requested),
        "free": amount(shortage.free),
        "own": amount(shortage.own),
        "used": amount(shortage.used),
        "most": amount(shortage.most),
        "final": shortage.is_final,
        "holders": [
            {
                "workload": str(holder.key),
                "job": names.get(holder.key, ""),
                "clusterQueue": holder.cluster_queue,
                "priority": holder.priority,
                "amount": amount(holder.amount),
                "enough": holder.enough,
            }
            for holder in shortage.holders
        ],
        "otherHolders": shortage.other_holders,
    }
