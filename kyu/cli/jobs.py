"""
Jobs in the queue: what runs, what waits and why. Every kind of job that is queued is listed, and Jobs that no queue
knows, since they lack its label.

    kyu jobs                 those of the namespace that are not over
    kyu jobs --all           the finished ones too
    kyu jobs -A              of all namespaces
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Kind
from kyu.cli import connection, jobs_pods, output
from kyu.cli.connection import Server
from kyu.kinds import metadata
from kyu.kube.errors import Forbidden

# Not imported from the kinds: a command that starts in no time loads no kinds.
JOB = Kind("batch", "v1", "Job", "jobs")
EVENT = Kind("", "v1", "Event", "events")
STARTING = "Starting"
GATED = "AdmissionGated"
NO_WORKLOAD = "it has no Workload yet; do the controllers run?"
# A Workload of an elastic job whose place another has taken.
REPLACED = "Replaced"
ENDED = ("Succeeded", "Failed", REPLACED)
# What Kueue's messages begin with; in a table the reason itself comes first.
LEAD_IN = re.compile(
    r"(Bypassed scheduling evaluation because an equivalent workload recently failed: )?"
    r"couldn't assign flavors to pod set main: "
)


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser, all_namespaces=True)
    parser.add_argument("-q", "--queue", default="", help="only of this LocalQueue")
    parser.add_argument("--all", action="store_true", help="also those that are over")
    output.add_format(parser)


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    namespace = None if args.all_namespaces else server.namespace
    workloads = server.listed(Workload.KIND, namespace)
    lines = [line_of(item) for item in workloads] + [line_of_job(job) for job in unqueued(server, namespace, workloads)]
    shown = [
        line
        for line in sorted(lines, key=lambda line: line.created)
        if (not args.queue or line.queue == args.queue) and (args.all or line.state.word not in ENDED)
    ]
    if args.queue and not shown:
        server.check_queue(args.queue, namespace)
    if args.output in ("json", "yaml", "name"):
        print(output.objects([line.typed() for line in shown], args.output, is_list=True))
        return 0
    if not shown:
        place = "any namespace" if args.all_namespaces else f"namespace {server.namespace}"
        output.note(f"no jobs in {place}" + ("" if args.all else "; --all shows finished ones"))
        return 0
    told = with_pods(server, namespace, [full_line(server, line) for line in shown])
    room = None if args.output == "wide" else output.terminal_room()
    print(jobs_table(told, namespaces=args.all_namespaces, room=room))
    return 0


@dataclass(frozen=True, slots=True)
class State:
    """Where a job is on its way, in a word, and why if it does not move."""

    word: str
    why: str = ""
    reason: str = ""
    """Of one that waits: the reason as programs know it."""


@dataclass(frozen=True, slots=True)
class Line:
    """A job in a list; ``obj`` is its Workload, or a Job that has none."""

    obj: Json
    name: str
    kind: str
    queue: str
    state: State
    pods: int
    is_queued: bool = True

    @property
    def created(self) -> str:
        return str(self.obj["metadata"].get("creationTimestamp"))

    def typed(self) -> Json:
        kind = Workload.KIND if self.is_queued else JOB
        return {"apiVersion": kind.api_version, "kind": kind.kind, **self.obj}

    def cells(self) -> list[object]:
        why = " ".join(self.state.why.split())
        return [self.name, self.kind, self.queue, self.state.word, self.pods, output.age(self.created), why]


def jobs_table(lines: Iterable[Line], *, namespaces: bool, room: int | None) -> str:
    header = ["JOB", "KIND", "QUEUE", "STATE", "PODS", "AGE", "WHY"]
    rows = [[line.obj["metadata"]["namespace"], *line.cells()] if namespaces else line.cells() for line in lines]
    return output.table(["NAMESPACE", *header] if namespaces else header, rows, room)


def line_of(workload: Json) -> Line:
    kind, name = owner_of(workload)
    return Line(workload, name, kind, workload["spec"].get("queueName", ""), state_of(workload), pods(workload))


def full_line(server: Server, line: Line) -> Line:
    """The line; of one that waits for other jobs with their names, of one without a Workload with what it lacks."""
    return replace(line, state=(full_state if line.is_queued else full_state_of_job)(server, line.obj))


# Jobs that no queue knows.


def unqueued(server: Server, namespace: str | None, workloads: Iterable[Json]) -> list[Json]:
    """The Jobs without a Workload; none where the user may not see Jobs. Those of a controller belong to that."""
    queued = {owner["uid"] for item in workloads for owner in item["metadata"].get("ownerReferences") or ()}
    try:
        found = server.client.list(JOB, namespace)
    except Forbidden:
        return []
    return [job for job in found if metadata.uid_of(job) not in queued and not is_controlled(job)]


def is_controlled(job: Json) -> bool:
    return any(owner.get("controller") for owner in job["metadata"].get("ownerReferences") or ())


def line_of_job(job: Json) -> Line:
    count = (job.get("spec") or {}).get("parallelism", 1)
    return Line(job, metadata.name_of(job), "Job", metadata.queue_name(job), state_of_job(job), count, is_queued=False)


def state_of_job(job: Json) -> State:
    ended = {type_ for type_, c in conditions_of(job).items() if c.get("status") == "True"}
    missing = f"not queued: it has no label {metadata.QUEUE_NAME}"
    why = NO_WORKLOAD if metadata.queue_name(job) else missing
    if "Complete" in ended or "Failed" in ended:
        return State("Succeeded" if "Complete" in ended else "Failed", why)
    if (job.get("spec") or {}).get("suspend"):
        return State("Suspended", why)
    return State("Running" if (job.get("status") or {}).get("ready") else STARTING, why)


def full_state_of_job(server: Server, job: Json) -> State:
    """The state; of one that its queue should know with what keeps it from that."""
    plain = state_of_job(job)
    return replace(plain, why=held_back(server, job) or plain.why) if plain.why == NO_WORKLOAD else plain


def held_back(server: Server, job: Json) -> str:
    """Why a Job gets no Workload, as far as its user may know: its class does not exist, or what it was warned of."""
    wanted = metadata.labels_of(job).get(metadata.PRIORITY_CLASS)
    if wanted and (missing := server.why_no_priority(wanted)):
        return missing
    try:
        about = f"involvedObject.kind=Job,involvedObject.name={metadata.name_of(job)},type=Warning"
        events = server.client.list(EVENT, job["metadata"]["namespace"], fields=about)
    except Forbidden:
        return ""
    own = [event for event in events if event["involvedObject"].get("uid") == metadata.uid_of(job)]
    last = max(own, key=lambda event: str(event.get("lastTimestamp")), default=None)
    return str(last.get("message", "")) if last else ""


# Of all.


def conditions_of(obj: Json) -> dict[str, Json]:
    return {c["type"]: c for c in (obj.get("status") or {}).get("conditions") or ()}


def state_of(workload: Json) -> State:
    conditions = conditions_of(workload)

    def holds(type_: str) -> bool:
        return type_ in conditions and conditions[type_].get("status") == "True"

    if holds("Finished"):
        ended = conditions["Finished"]
        if ended.get("reason") == "WorkloadSliceReplaced":
            return State(REPLACED, ended.get("message", ""))
        return State("Succeeded" if ended.get("reason") == "Succeeded" else "Failed", ended.get("message", ""))
    if workload["spec"].get("active") is False:
        return State("Stopped", conditions.get("Evicted", {}).get("message", "deactivated"))
    if holds("Evicted") and holds("QuotaReserved"):
        return State("Stopping", conditions["Evicted"].get("message", ""))
    if holds("Admitted"):
        cluster = cluster_of(workload)
        return State("Running" if holds("PodsReady") else STARTING, f"in cluster {cluster}" if cluster else "")
    if holds("QuotaReserved"):
        waiting = [c["name"] for c in workload["status"].get("admissionChecks") or () if c["state"] != "Ready"]
        return State("Reserved", f"waits for admission check {', '.join(waiting)}" if waiting else "")
    reserved = conditions.get("QuotaReserved", {})
    return State("Queued", LEAD_IN.sub("", reserved.get("message", "")), reserved.get("reason", ""))


def full_state(server: Server, workload: Json) -> State:
    """The state; of a job of `kyu submit --after` with the jobs that it waits for, which its Workload does not name."""
    plain = state_of(workload)
    kind, name = owner_of(workload)
    if plain.reason != GATED or kind != "Job":
        return plain
    namespace = workload["metadata"]["namespace"]
    job = server.client.find(JOB, Key(namespace, name)) or {}
    waits = [f"{before}{trouble}" for before, trouble in waits_for(server, namespace, metadata.jobs_before(job))]
    return State(plain.word, f"waits for {'; '.join(waits)}", plain.reason) if waits else plain


def with_pods(server: Server, namespace: str | None, lines: list[Line]) -> list[Line]:
    """
    The lines, with what the pods tell if the user may see them: those of jobs that are starting what they wait for,
    those of jobs that have failed how they ended.
    """
    if all(line.state.word not in (STARTING, "Failed") for line in lines):
        return lines
    try:
        everything = server.client.list(jobs_pods.POD, namespace, fields="status.phase!=Succeeded")
    except Forbidden:
        return lines

    def told(line: Line) -> Line:
        if line.state.word == "Failed" and line.is_queued:
            ends = jobs_pods.troubles(jobs_pods.own_pods(line.obj, everything))
            return replace(line, state=replace(line.state, why="; ".join([*ends, line.state.why])))
        if line.state.word != STARTING or not line.is_queued or cluster_of(line.obj):
            return line
        why = jobs_pods.why_starting(line.pods, jobs_pods.own_pods(line.obj, everything))
        return replace(line, state=State(STARTING, why))

    return [told(line) for line in lines]


def waits_for(server: Server, namespace: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those of the Jobs that have not succeeded, and what stands in the way if waiting alone will not help."""
    for name in names:
        job = server.client.find(JOB, Key(namespace, name))
        ended = {type_ for type_, c in conditions_of(job or {}).items() if c.get("status") == "True"}
        if job is None:
            yield name, ", which does not exist"
        elif "Failed" in ended:
            yield name, ", which has failed"
        elif "Complete" not in ended:
            yield name, ""


def cluster_of(workload: Json) -> str:
    """The worker cluster that runs the job, or ran it; empty where it is this one."""
    return str((workload.get("status") or {}).get("clusterName") or "")


def where_pods_are(workload: Json) -> str:
    """How to see the pods of a job that another cluster runs, or ran; empty for one of this cluster."""
    cluster, name = cluster_of(workload), owner_of(workload)[1]
    if not cluster:
        return ""
    if state_of(workload).word in ENDED:
        return f"it ran in cluster {cluster}; its pods and their logs were deleted there when it was over"
    namespace = workload["metadata"]["namespace"]
    command = f"kyu logs {name} -n {namespace} --kubeconfig FILE"
    return f"its pods and their logs are in cluster {cluster}: `{command}`, with a kubeconfig of that cluster"


def owner_of(workload: Json) -> tuple[str, str]:
    """Kind and name of the job; a Workload that nobody owns is its own job."""
    owners = workload["metadata"].get("ownerReferences") or []
    if len(owners) == 1:
        return owners[0]["kind"], owners[0]["name"]
    return ("PodGroup" if owners else "Workload"), workload["metadata"]["name"]


def pods(workload: Json) -> int:
    """As many as were admitted; of an elastic job that has shrunk since, as many as it wants now."""
    wanted = {s.get("name"): s.get("count", 1) for s in workload["spec"]["podSets"]}
    admission = (workload.get("status") or {}).get("admission") or {}
    admitted = {item.get("name"): item.get("count") for item in admission.get("podSetAssignments") or ()}
    return sum(min(count, admitted.get(name) or count) for name, count in wanted.items())
