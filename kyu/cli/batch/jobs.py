"""
List jobs with their state, and the reason why they wait. All kinds of jobs with a Workload are listed, and Jobs that
have none because they name no queue.

    kyu jobs                 unfinished jobs of the namespace
    kyu jobs --all           finished jobs too
    kyu jobs -A              jobs of all namespaces
    kyu jobs --eta           when waiting jobs are expected to start
    kyu jobs --all-clusters  jobs of a hub and of all its worker clusters
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.cli import connection, output
from kyu.cli.batch import jobs_pods, short_reasons
from kyu.cli.connection import ServerConnection
from kyu.kinds import job_order, metadata
from kyu.kube.errors import Forbidden

# Not imported from kyu.kinds, which would slow the start of the command.
JOB = Kind("batch", "v1", "Job", "jobs")
EVENT = Kind("", "v1", "Event", "events")
STARTING = "Starting"
GATED = "AdmissionGated"
NO_WORKLOAD = "it has no Workload yet; are the controllers running?"
# The state of a Workload slice of an elastic job that a newer slice has replaced.
REPLACED = "Replaced"
ENDED = ("Succeeded", "Failed", REPLACED)
# Kueue's messages begin with this. A table has room for the reason only.
LEAD_IN = re.compile(
    r"(Bypassed scheduling evaluation because an equivalent workload recently failed: )?"
    r"couldn't assign flavors to pod set main: "
)


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser, all_namespaces=True)
    parser.add_argument("-q", "--queue", default="", help="only jobs of this LocalQueue")
    parser.add_argument("--all", action="store_true", help="finished jobs too")
    parser.add_argument("--eta", action="store_true", help="when waiting jobs are expected to start")
    parser.add_argument("--all-clusters", action="store_true", help="jobs that were submitted in worker clusters too")
    output.add_format(parser)


def run(args: argparse.Namespace) -> int:
    from kyu.cli.batch import preemptions

    server = connection.connect(args)
    if args.all_clusters:
        from kyu.cli.batch import jobs_clusters

        return jobs_clusters.run(args, server)
    namespace = None if args.all_namespaces else server.namespace
    workloads = server.listed(Workload.KIND, namespace)
    lines = [row_of_workload(item) for item in workloads] + [
        row_of_job(job) for job in unqueued(server, namespace, workloads)
    ]
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
    rows = with_pods(server, namespace, [full_row(server, line) for line in shown])
    rows = preemptions.with_preemptors(server, workloads, rows)
    room = None if args.output == "wide" else output.terminal_room()
    starts = starts_of(server, rows) if args.eta else None
    print(jobs_table(rows, namespaces=args.all_namespaces, room=room, starts=starts))
    return 0


def starts_of(server: ServerConnection, rows: Iterable[JobRow]) -> list[str]:
    """Return the expected start of each row that waits for quota."""
    from kyu.cli.batch import expected_starts

    found = expected_starts.texts(server, datetime.now(UTC))
    return [found.get(key_of(row.obj), "") if row.is_queued else "" for row in rows]


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job in a word, and the reason for it in a sentence."""

    word: str
    why: str = ""
    reason: str = ""
    """The reason of the QuotaReserved condition, for a waiting job."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A row of the table of jobs; ``obj`` is the Workload, or a Job without one."""

    obj: Json
    name: str
    kind: str
    queue: str
    state: JobState
    pods: int
    is_queued: bool = True

    @property
    def created(self) -> str:
        return str(self.obj["metadata"].get("creationTimestamp"))

    def typed(self) -> Json:
        kind = Workload.KIND if self.is_queued else JOB
        return {"apiVersion": kind.api_version, "kind": kind.kind, **self.obj}

    def cells(self, *, is_short: bool) -> list[object]:
        why = " ".join(self.state.why.split())
        why = short_reasons.shorten(why) if is_short else why
        return [self.name, self.kind, self.queue, self.state.word, self.pods, output.age(self.created), why]


def jobs_table(
    lines: Iterable[JobRow], *, namespaces: bool, room: int | None, starts: Sequence[str] | None = None
) -> str:
    header = ["JOB", "KIND", "QUEUE", "STATE", "PODS", "AGE", "WHY"]
    cells = [(line.obj["metadata"]["namespace"], line.cells(is_short=room is not None)) for line in lines]
    if starts is not None:
        header.insert(-1, "START")
        cells = [(place, [*row[:-1], start, row[-1]]) for (place, row), start in zip(cells, starts, strict=True)]
    rows = [[namespace, *row] if namespaces else row for namespace, row in cells]
    return output.table(["NAMESPACE", *header] if namespaces else header, rows, room)


def row_of_workload(workload: Json) -> JobRow:
    kind, name = owner_of(workload)
    return JobRow(workload, name, kind, workload["spec"].get("queueName", ""), state_of(workload), pods(workload))


def full_row(server: ServerConnection, line: JobRow) -> JobRow:
    """Complete the state of a row with details that its object does not hold."""
    return replace(line, state=(full_state if line.is_queued else full_state_of_job)(server, line.obj))


# Jobs without a Workload.


def unqueued(server: ServerConnection, namespace: str | None, workloads: Iterable[Json]) -> list[Json]:
    """Return the Jobs without a Workload and without a controller, or none if the user may not list Jobs."""
    queued = {owner["uid"] for item in workloads for owner in item["metadata"].get("ownerReferences") or ()}
    try:
        found = server.client.list(JOB, namespace)
    except Forbidden:
        return []
    return [job for job in found if metadata.uid_of(job) not in queued and not is_controlled(job)]


def is_controlled(job: Json) -> bool:
    return any(owner.get("controller") for owner in job["metadata"].get("ownerReferences") or ())


def row_of_job(job: Json) -> JobRow:
    count = (job.get("spec") or {}).get("parallelism", 1)
    return JobRow(
        job, metadata.name_of(job), "Job", metadata.queue_name(job), state_of_job(job), count, is_queued=False
    )


def state_of_job(job: Json) -> JobState:
    ended = {type_ for type_, c in conditions_of(job).items() if c.get("status") == "True"}
    missing = f"not queued: it has no label {metadata.QUEUE_NAME}"
    why = NO_WORKLOAD if metadata.queue_name(job) else missing
    if "Complete" in ended or "Failed" in ended:
        return JobState("Succeeded" if "Complete" in ended else "Failed", why)
    if (job.get("spec") or {}).get("suspend"):
        return JobState("Suspended", why)
    return JobState("Running" if (job.get("status") or {}).get("ready") else STARTING, why)


def full_state_of_job(server: ServerConnection, job: Json) -> JobState:
    """Return the state of a Job without a Workload, with the reason why it has none."""
    plain = state_of_job(job)
    return replace(plain, why=why_no_workload(server, job) or plain.why) if plain.why == NO_WORKLOAD else plain


def why_no_workload(server: ServerConnection, job: Json) -> str:
    """Return why a Job has no Workload: its WorkloadPriorityClass does not exist, or its last warning event."""
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


# States of Workloads.


def conditions_of(obj: Json) -> dict[str, Json]:
    return {c["type"]: c for c in (obj.get("status") or {}).get("conditions") or ()}


def state_of(workload: Json) -> JobState:
    conditions = conditions_of(workload)

    def holds(type_: str) -> bool:
        return type_ in conditions and conditions[type_].get("status") == "True"

    if holds("Finished"):
        ended = conditions["Finished"]
        if ended.get("reason") == "WorkloadSliceReplaced":
            return JobState(REPLACED, ended.get("message", ""))
        return JobState("Succeeded" if ended.get("reason") == "Succeeded" else "Failed", ended.get("message", ""))
    if workload["spec"].get("active") is False:
        return JobState("Stopped", conditions.get("Evicted", {}).get("message", "deactivated"))
    if holds("Evicted") and holds("QuotaReserved"):
        return JobState("Stopping", conditions["Evicted"].get("message", ""))
    if holds("Admitted"):
        cluster = cluster_of(workload)
        return JobState("Running" if holds("PodsReady") else STARTING, f"in cluster {cluster}" if cluster else "")
    if holds("QuotaReserved") and holds("ClusterAssigned"):
        # KubeStellar runs it elsewhere. Its check never becomes ready, so that nothing runs here.
        return JobState("Running", f"in cluster {cluster_of(workload)}")
    if holds("QuotaReserved"):
        waiting = [c["name"] for c in workload["status"].get("admissionChecks") or () if c["state"] != "Ready"]
        return JobState("Reserved", f"waits for admission check {', '.join(waiting)}" if waiting else "")
    reserved = conditions.get("QuotaReserved", {})
    return JobState("Queued", LEAD_IN.sub("", reserved.get("message", "")), reserved.get("reason", ""))


def full_state(server: ServerConnection, workload: Json) -> JobState:
    """Return the state. For a Job of `kyu submit --after`, name the jobs that it waits for."""
    plain = state_of(workload)
    kind, name = owner_of(workload)
    if plain.reason != GATED or kind != "Job":
        return plain
    job = server.client.find(JOB, Key(workload["metadata"]["namespace"], name)) or {}
    waits = [f"{before}{trouble}" for before, trouble in waits_for(server, job)]
    if job and job_order.is_singleton(job):
        waits.append(f"earlier jobs named {job_order.prefix_of(job).rstrip('-')}")
    return JobState(plain.word, f"waits for {'; '.join(waits)}", plain.reason) if waits else plain


def with_pods(server: ServerConnection, namespace: str | None, lines: list[JobRow]) -> list[JobRow]:
    """Add details from the pods, if the user may list them: why they do not start, or how they failed."""
    if all(line.state.word not in (STARTING, "Failed") for line in lines):
        return lines
    try:
        everything = server.client.list(jobs_pods.POD, namespace, fields="status.phase!=Succeeded")
    except Forbidden:
        return lines

    def told(line: JobRow) -> JobRow:
        if line.state.word == "Failed" and line.is_queued:
            ends = jobs_pods.troubles(jobs_pods.own_pods(line.obj, everything))
            return replace(line, state=replace(line.state, why="; ".join([*ends, line.state.why])))
        if line.state.word != STARTING or not line.is_queued or cluster_of(line.obj):
            return line
        why = jobs_pods.why_starting(line.pods, jobs_pods.own_pods(line.obj, everything))
        return replace(line, state=JobState(STARTING, why))

    return [told(line) for line in lines]


def waits_for(server: ServerConnection, waiting: Json) -> Iterator[tuple[str, str]]:
    """Yield the Jobs that have not ended as a Job wants, each with the problem if they never will."""
    for wanted in job_order.dependencies(waiting) if waiting else ():
        job = server.client.find(JOB, Key(waiting["metadata"]["namespace"], wanted.job))
        ended = {type_ for type_, c in conditions_of(job or {}).items() if c.get("status") == "True"}
        if job is None:
            if wanted.condition != "any":
                yield wanted.job, ", which does not exist"
        elif "Failed" in ended:
            if wanted.condition == "ok":
                yield wanted.job, ", which has failed"
        elif "Complete" in ended:
            if wanted.condition == "notok":
                yield wanted.job, " to fail, and it has succeeded"
        else:
            yield wanted.job, ""


def cluster_of(workload: Json) -> str:
    """Return the worker cluster of the job, or an empty text for this cluster."""
    return str((workload.get("status") or {}).get("clusterName") or "")


def where_pods_are(workload: Json) -> str:
    """Return how to read the logs of a job in a worker cluster, or an empty text for this cluster."""
    cluster, name = cluster_of(workload), owner_of(workload)[1]
    if not cluster:
        return ""
    command = f"kyu logs {name} -n {workload['metadata']['namespace']} --kubeconfig FILE"
    if state_of(workload).word in ENDED:
        return f"it ran in cluster {cluster}, which keeps its logs: `{command}`, with a kubeconfig of that cluster"
    return f"its pods and their logs are in cluster {cluster}: `{command}`, with a kubeconfig of that cluster"


def owner_of(workload: Json) -> tuple[str, str]:
    """Return the kind and name of the job. A Workload without an owner is its own job."""
    owners = workload["metadata"].get("ownerReferences") or []
    if len(owners) == 1:
        return owners[0]["kind"], owners[0]["name"]
    return ("PodGroup" if owners else "Workload"), workload["metadata"]["name"]


def pods(workload: Json) -> int:
    """Return the admitted number of pods, or the wanted number if an elastic job has shrunk since."""
    wanted = {s.get("name"): s.get("count", 1) for s in workload["spec"]["podSets"]}
    admission = (workload.get("status") or {}).get("admission") or {}
    admitted = {item.get("name"): item.get("count") for item in admission.get("podSetAssignments") or ()}
    return sum(min(count, admitted.get(name) or count) for name, count in wanted.items())
