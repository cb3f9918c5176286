"""
Explain why a job waits: the missing quota with its numbers, the jobs that hold it, and what would help.

    kyu why train            as text
    kyu why train -o json    for programs

It also names the smallest changes that would admit the job: each was tried by running the scheduler with it.

The command reads the objects of the server and uses the scheduler's own functions, so it works on any cluster that
runs Kueue or Kyu. Users who may not read the Workloads of others see the status of the job only.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from kyu.api import codec, quantity
from kyu.api.kueue import ClusterQueue, LocalQueue
from kyu.api.meta import Json, Key, Object, key_of
from kyu.cli import connection, output, server_state
from kyu.cli.batch import jobs, jobs_pods, lookup, preemptions
from kyu.cli.batch.jobs import JobState
from kyu.cli.batch.preemptions import Preemption
from kyu.cli.connection import ServerConnection
from kyu.engine import explain, options, reasons
from kyu.engine.cluster import Inactive
from kyu.engine.explain import Explanation, MissingQuota, Reservation
from kyu.engine.reasons import QueueMissing, QueueStopped, Untried
from kyu.engine.state import State
from kyu.engine.what_if import words
from kyu.engine.what_if.changes import Later
from kyu.engine.what_if.counterfactuals import Prospects, WhatIf
from kyu.kube.errors import Forbidden

MOST_NAMES = 8
TIME = "%Y-%m-%d %H:%M UTC"
ENOUGH = "would free enough"
Names = Mapping[Key, str]
# The reasons why a ClusterQueue is inactive, with their remedies.
INACTIVE: dict[Inactive, str] = {
    "Stopped": "the queue is stopped; `kyu ctl resume clusterqueue {queue}` resumes it",
    "FlavorNotFound": "the queue lists a ResourceFlavor that does not exist",
    "AdmissionCheckNotFound": "the queue lists an AdmissionCheck that does not exist",
    "AdmissionCheckInactive": "an AdmissionCheck is not active; `kubectl describe admissionchecks` says why",
    "MultipleMultiKueueAdmissionChecks": "the queue has more than one MultiKueue check",
    "MultiKueueAdmissionCheckAppliedPerFlavor": "the MultiKueue check of the queue must apply to all its flavors",
    "MultiKueueWithProvisioningRequest": "the queue has a MultiKueue and a provisioning check; only one is possible",
    "TopologyNotFound": "the Topology of a flavor of the queue does not exist",
    "Terminating": "the queue is being deleted; it disappears when its last job has finished",
    "CohortCycle": "the parents of cohort {path} form a cycle; remove one of them",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("job", metavar="JOB", help="name of the job")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="output format (default: text)"
    )


@dataclass(frozen=True, slots=True)
class WhyAnswer:
    """The state of a job and, if it waits for quota, what the engine says about it."""

    state: JobState
    found: Explanation | None
    remedy: str
    names: Names
    pods: list[Json]
    preempted: str
    prospects: Prospects | None = None
    """The admission without a change, or the smallest changes that would admit the job."""
    is_partial: bool = False
    """The user may not see what others use, so only the status of the job is known."""


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    workload = lookup.find_workload(server, args.job)
    answer = ask(server, workload)
    if answer.is_partial:
        output.note("you may not see the usage of others; this is the status of the job itself")
    print(json.dumps(to_json(workload, answer), indent=2) if args.output == "json" else describe(workload, answer))
    return 0


def describe(workload: Json, answer: WhyAnswer) -> str:
    """Explain the state of a job in words."""
    if answer.found is not None:
        lines = describe_waiting(workload, answer, answer.found)
    else:
        lines = describe_state(workload, answer.state, answer.pods)
    return "\n".join([*lines, *indented(answer.preempted)])


def ask(server: ServerConnection, workload: Json, *, most_pending: int | None = None) -> WhyAnswer:
    """
    Return all that is known about why a job waits, for the rights of the user.

    Changes that would admit it are tried unless more workloads than ``most_pending`` wait.
    """
    state = jobs.full_state(server, workload)
    found: Explanation | None = None
    remedy, is_partial = "", False
    names: Names = {}
    prospects: Prospects | None = None
    if state.word == "Queued":
        try:
            objects = server_state.read_objects(server)
            names = names_of(objects)
            decoded = decode_objects(objects)
            known = state_of(server, decoded)
            now = datetime.now(UTC)
            found = explain.why(known, key_of(workload), now)
            remedy = remedy_of(server, known, workload, found)
            if found is not None and (most_pending is None or known.pending_count() <= most_pending):
                prospects = WhatIf(known, decoded, now.timestamp()).find(key_of(workload))
        except Forbidden:
            is_partial = True
    preemption = preemptions.find(workload)
    preempted = describe_preemption(server, workload, preemption) if preemption else ""
    is_here = not jobs.cluster_of(workload)
    pods = jobs_pods.pods_of(server, workload) if is_here and state.word in (jobs.STARTING, "Failed") else []
    return WhyAnswer(state, found, remedy, names, pods, preempted, prospects, is_partial)


def describe_preemption(server: ServerConnection, workload: Json, preemption: Preemption) -> str:
    """Return by which job, when and why the job was preempted."""
    names = preemptions.preemptors(server, [workload])
    again = "; it has its quota again" if preemption.is_over else ""
    return f"{preemptions.describe(preemption, names)} {output.age(preemption.at)} ago: {preemption.cause}{again}"


def indented(line: str) -> list[str]:
    return [f"  {line}"] if line else []


def names_of(objects: Iterable[Json]) -> Names:
    """Return the name of the job of each Workload, as `kyu jobs` shows it."""
    return {
        key_of(obj): str(Key(obj["metadata"]["namespace"], jobs.owner_of(obj)[1]))
        for obj in objects
        if obj["kind"] == "Workload"
    }


def decode_objects(objects: Iterable[Json]) -> list[Object]:
    """Return the objects that the engine knows as typed values."""
    return [codec.decode(obj) for obj in objects if obj["kind"] != "PriorityClass"]


def state_of(server: ServerConnection, objects: Iterable[Object]) -> State:
    """Build the state of the engine from the objects."""
    state = State(options.from_configuration(server_state.read_configuration(server)))
    for obj in objects:
        state.put(obj)
    return state


def remedy_of(server: ServerConnection, known: State, workload: Json, found: Explanation | None) -> str:
    """Return the remedy for a queue that admits nothing, with its own message; else the hint of the engine."""
    if found is None or found.position is not None:
        return found.hint if found else ""
    if isinstance(found.reason, QueueStopped):
        return f"`kyu ctl resume localqueue {found.reason.name} -n {workload['metadata']['namespace']}` resumes it"
    if isinstance(found.reason, QueueMissing):
        return queues_there_are(server, workload, found.reason)
    why = known.why_inactive(found.path[0]) if found.path else None
    if why is None:
        return found.hint
    remedy = INACTIVE[why].format(queue=found.path[0], path=" / ".join(found.path[1:]))
    queue = server.client.find(ClusterQueue.KIND, Key("", found.path[0])) or {}
    said = jobs.conditions_of(queue).get("Active", {}).get("message", "")
    return f"{remedy}\n  it says: {said}" if said else remedy


def queues_there_are(server: ServerConnection, workload: Json, missing: QueueMissing) -> str:
    """List the existing queues for a name that may be misspelt."""
    namespace = workload["metadata"]["namespace"]
    if missing.kind == "LocalQueue":
        found, place = server.client.list(LocalQueue.KIND, namespace), f"namespace {namespace} has"
    else:
        queue = workload["spec"].get("queueName", "")
        found, place = server.client.list(ClusterQueue.KIND), f"LocalQueue {queue} names {missing.name}; there are"
    names = sorted(str(item["metadata"]["name"]) for item in found)
    more = " …" if len(names) > MOST_NAMES else ""
    return f"{place} {missing.kind}s: {', '.join(names[:MOST_NAMES]) or 'none'}{more}"


def describe_waiting(workload: Json, answer: WhyAnswer, found: Explanation) -> Iterator[str]:
    """Describe a waiting job. If nothing visible holds it back, include the reason of its last attempt."""
    word, message = reasons.render(found.reason)
    yield f"{jobs.owner_of(workload)[1]} waits: {word}"
    if not found.shortages:
        yield f"  {jobs.LEAD_IN.sub('', message)}"
    if isinstance(found.reason, Untried) and answer.state.why:
        yield f"  at its last attempt: {answer.state.why}"
    for shortage in found.shortages:
        yield from describe_shortage(shortage, answer.names)
    yield ""
    yield from (f"  {line}" for line in describe_position(found, answer.names))
    if found.reservation is not None:
        yield f"  {describe_reservation(workload, found.reservation, answer.names)}"
    yield f"  {answer.remedy}"
    if answer.prospects is not None:
        yield from describe_prospects(answer.prospects, answer.names)


def describe_prospects(prospects: Prospects, names: Names) -> Iterator[str]:
    """Describe what would admit a waiting job, as the engine found by trying it."""
    if prospects.admit is not None:
        victims = [names.get(preempt.victim, str(preempt.victim)) for preempt in prospects.preempts]
        yield f"  it needs no change{': it preempts ' + ', '.join(victims) if victims else ''}"
    at_once = [found for found in prospects.counterfactuals if not isinstance(found.change, Later)]
    for found in prospects.counterfactuals:
        if isinstance(found.change, Later):
            yield f"  unless jobs come before it, it is admitted {words.render_counterfactual(found, names)}"
    if at_once:
        yield ""
        yield "  it would be admitted now"
        yield from (f"    {words.render_counterfactual(found, names)}" for found in at_once)


def describe_state(workload: Json, state: JobState, pods: list[Json]) -> Iterator[str]:
    """Describe a job that does not wait for quota, or whose queue the user may not read."""
    yield f"{jobs.owner_of(workload)[1]}: {state.word.lower()}{': ' + state.why if state.why else ''}"
    if state.word == jobs.STARTING:
        yield "  its quota is reserved; not all of its pods are ready yet"
    if there := jobs.where_pods_are(workload):
        yield f"  {there}"
    if state.word == "Reserved":
        for check in workload["status"].get("admissionChecks") or ():
            if check["state"] != "Ready":
                yield f"  {check['name']}: {check['state']}{': ' + check['message'] if check.get('message') else ''}"
    if state.reason == jobs.GATED:
        yield f"  `kyu cancel {jobs.owner_of(workload)[1]}` gives it up; it continues when all of these have succeeded"
    yield from (f"  {trouble}" for trouble in jobs_pods.troubles(pods))


def describe_shortage(shortage: MissingQuota, names: Names) -> Iterator[str]:
    amount = partial(render, shortage.resource)
    what = f"{shortage.resource} of flavor {shortage.flavor}"
    if shortage.is_final:
        most = amount(shortage.most)
        yield f"  {what}: {amount(shortage.requested)} requested, but the queue can never use more than {most}"
        return
    missing = amount(shortage.requested - shortage.free)
    yield f"  {what}: {amount(shortage.requested)} requested, {amount(shortage.free)} free, {missing} missing"
    most = "any amount" if shortage.most >= quantity.UNLIMITED else amount(shortage.most)
    yield f"    the queue owns {amount(shortage.own)}, uses {amount(shortage.used)}, and may use up to {most}"
    if shortage.free:
        yield f"    a request of {amount(shortage.free)} would fit now"
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


def describe_position(found: Explanation, names: Names) -> Iterator[str]:
    if found.position is None:
        return
    above = f" in cohort {' / '.join(found.path[1:])}" if len(found.path) > 1 else ""
    yield f"position {found.position + 1} of {found.length} in ClusterQueue {found.path[0]}{above}"
    if found.ahead:
        more = found.position - len(found.ahead)
        ahead = [names.get(key, str(key)) for key in found.ahead]
        yield f"before it: {', '.join(ahead)}{f' and {more} more' if more else ''}"
        if found.is_strict and found.reservation is None:
            yield f"this queue is StrictFIFO, so the first job decides: kyu why {ahead[0].rpartition('/')[2]}"


def describe_reservation(workload: Json, reservation: Reservation, names: Names) -> str:
    """Describe the reservation of a queue with backfill, as its holder or another job sees it."""
    holder = names.get(reservation.key, str(reservation.key)).rpartition("/")[2]
    time = None if reservation.start is None else datetime.fromtimestamp(reservation.start, UTC).strftime(TIME)
    if reservation.key == key_of(workload):
        if time is None:
            return "no start is reserved: jobs without a maximum execution time hold the quota that it needs"
        return f"reserved: it starts by {time}, unless another queue of the cohort takes the quota"
    if time is None:
        return f"it may pass {holder}, which is first, if it takes no quota that {holder} needs"
    return f"{holder} is first, and starts by {time}; jobs that end by then, or leave it enough quota, may pass it"


def to_json(workload: Json, answer: WhyAnswer) -> Json:
    kind, name = jobs.owner_of(workload)
    state, found = answer.state, answer.found
    body: Json = {"job": name, "kind": kind, "workload": str(key_of(workload)), "state": state.word}
    preempted = {"preemption": answer.preempted} if answer.preempted else {}
    if found is None:
        cluster = jobs.cluster_of(workload)
        where = {"cluster": cluster} if cluster else {}
        return {**body, "message": state.why, "pods": jobs_pods.troubles(answer.pods), **where, **preempted}
    word, message = reasons.render(found.reason)
    return {
        **body,
        "reason": word,
        "message": message,
        "lastMessage": state.why,
        "hint": answer.remedy,
        "path": list(found.path),
        "position": found.position,
        "pending": found.length,
        "ahead": [str(key) for key in found.ahead],
        "shortages": [shortage_json(shortage, answer.names) for shortage in found.shortages],
        **({"reservation": reservation_json(found.reservation)} if found.reservation else {}),
        **prospects_json(answer.prospects, answer.names),
        **preempted,
    }


def prospects_json(prospects: Prospects | None, names: Names) -> Json:
    """Return what would admit the job: ``needsNoChange``, or ``counterfactuals``."""
    if prospects is None:
        return {}
    body: Json = {"needsNoChange": prospects.admit is not None}
    if prospects.admit is not None:
        body["preempts"] = [
            {"workload": str(p.victim), "job": names.get(p.victim, ""), "rule": p.reason} for p in prospects.preempts
        ]
    body["counterfactuals"] = [words.counterfactual_json(found, names) for found in prospects.counterfactuals]
    return body


def reservation_json(reservation: Reservation) -> Json:
    start = reservation.start
    time = None if start is None else datetime.fromtimestamp(start, UTC).isoformat(timespec="seconds")
    return {"workload": str(reservation.key), "start": time}


def shortage_json(shortage: MissingQuota, names: Names) -> Json:
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
