"""The page of a job: its state, why it waits, its timeline, its pods and their output."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from kyu.api.meta import Json, Key
from kyu.cli import output
from kyu.cli.batch import jobs, jobs_pods, why
from kyu.cli.connection import ServerConnection
from kyu.cli.web.html import Child, Markup, table, tag
from kyu.cli.web.pages.layout import badge, csrf, job_path
from kyu.cli.web.sessions import Session
from kyu.kinds import metadata
from kyu.kube.errors import ApiError, Forbidden

MOST_EVENTS = 40
# With more pending workloads a page does not try changes: that takes seconds, and pages are shown again and again.
MOST_TRIED = 500
LOG_LINES = 200
LOG_BYTES = 256 * 1024
# Conditions in the order of a job's life, in words for people.
MOMENTS = {
    "QuotaReserved": "quota reserved",
    "Admitted": "admitted",
    "PodsReady": "pods ready",
    "Preempted": "preempted",
    "Evicted": "evicted",
    "Requeued": "queued again",
    "Finished": "finished",
}


class Moment(NamedTuple):
    """A moment of a job's life."""

    at: str
    word: str
    message: str


def one_job(server: ServerConnection, session: Session, workload: Json) -> list[Child]:
    """Return the page of a job."""
    answer = why.ask(server, workload, most_pending=MOST_TRIED)
    kind, name = jobs.owner_of(workload)
    title = tag("h1", name, " ", badge(answer.state.word))
    facts = (
        f"{kind} in namespace {workload['metadata']['namespace']}, queue {workload['spec'].get('queueName') or 'none'}"
    )
    pods = pods_seen(server, workload)
    return [
        title,
        tag("p", facts, class_="counts"),
        forms(session, workload) if answer.state.word not in jobs.ENDED else None,
        reason(workload, answer),
        tag("h2", "Timeline"),
        timeline(list(moments(server, workload))),
        tag("h2", "Pods"),
        pods_table(workload, pods),
    ]


def forms(session: Session, workload: Json) -> Markup:
    """Return the buttons of a job. The API server decides whether the visitor may."""
    is_held = (workload.get("spec") or {}).get("active") is False
    hold = ("release", "Release", "") if is_held else ("hold", "Hold", "Hold this job? If it runs, its pods end.")
    cancel = ("cancel", "Cancel", "Cancel this job? Its objects are deleted.")
    return tag("div", [button_form(session, workload, *each) for each in (hold, cancel)], class_="buttons")


def button_form(session: Session, workload: Json, word: str, label: str, question: str) -> Markup:
    style = "danger" if word == "cancel" else None
    button = tag("button", label, class_=style, data_confirm=question or None)
    return tag("form", csrf(session), button, method="post", action=f"{job_path(workload)}/{word}")


def reason(workload: Json, answer: why.WhyAnswer) -> Child:
    """Return why the job waits, with the numbers and the jobs that hold the quota."""
    if answer.found is None:
        lines = list(why.describe_state(workload, answer.state, answer.pods))
        return tag("section", tag("p", lines[0]), [tag("p", line.strip()) for line in lines[1:]], class_="why")
    body = why.to_json(workload, answer)
    parts: list[Child] = [
        tag("h2", "Why it waits"),
        tag("p", tag("strong", body["reason"]), ": ", jobs.LEAD_IN.sub("", body["message"])),
    ]
    for shortage in body["shortages"]:
        parts += shortage_parts(shortage)
    parts += [tag("p", line) for line in why.describe_position(answer.found, answer.names)]
    parts.append(tag("p", body["hint"]) if body["hint"] else None)
    changes = body.get("counterfactuals") or ()
    if changes:
        parts += [tag("p", "It would be admitted"), tag("ul", [tag("li", found["text"]) for found in changes])]
    parts.append(tag("p", answer.preempted) if answer.preempted else None)
    return tag("section", parts, class_="why")


def shortage_parts(shortage: Json) -> list[Child]:
    what = f"{shortage['resource']} of flavor {shortage['flavor']}"
    numbers = f"{shortage['requested']} requested, {shortage['free']} free; the queue owns {shortage['own']}"
    header = ["Held by", "Queue", "Priority", "Amount", ""]
    rows = [
        [holder["job"] or holder["workload"], holder["clusterQueue"], holder["priority"], holder["amount"],
         why.ENOUGH if holder["enough"] else ""]
        for holder in shortage["holders"]
    ]  # fmt: skip
    held = table(header, rows, label=f"Jobs that hold {what}") if rows else None
    return [tag("p", tag("strong", what), f": {numbers}, uses {shortage['used']}"), held]


def moments(server: ServerConnection, workload: Json) -> Iterator[Moment]:
    """Yield what happened to the job, oldest first: its conditions, and the events of its objects."""
    meta = workload["metadata"]
    found = [Moment(str(meta.get("creationTimestamp") or ""), "created", "")]
    for type_, condition in jobs.conditions_of(workload).items():
        if condition.get("status") == "True":
            at = str(condition.get("lastTransitionTime") or "")
            found.append(Moment(at, MOMENTS.get(type_, type_), condition.get("message", "")))
    uids = {metadata.uid_of(workload), *(owner["uid"] for owner in meta.get("ownerReferences") or ())}
    try:
        events = server.client.list(jobs.EVENT, meta["namespace"])
    except Forbidden:
        events = ()
    for event in events:
        if (event.get("involvedObject") or {}).get("uid") in uids:
            at = event.get("lastTimestamp") or event.get("eventTime") or ""
            found.append(Moment(str(at), str(event.get("reason", "")), str(event.get("message", ""))))
    yield from sorted(found, key=lambda moment: moment.at)[-MOST_EVENTS:]


def timeline(found: list[Moment]) -> Markup:
    entries = [
        tag("li", tag("time", output.age(each.at), datetime=each.at, title=each.at), " ", tag("strong", each.word), " ",
            each.message)
        for each in found
    ]  # fmt: skip
    return tag("ol", entries, class_="timeline")


def pods_seen(server: ServerConnection, workload: Json) -> list[Json]:
    try:
        return jobs_pods.pods_of(server, workload)
    except Forbidden:
        return []


def pods_table(workload: Json, pods: list[Json]) -> Child:
    if not pods:
        return tag("p", "The job has no pods now.", class_="empty")
    rows: list[list[Child]] = []
    for pod in pods:
        name, status = metadata.name_of(pod), pod.get("status") or {}
        link = tag("a", "output", href=f"{job_path(workload)}/logs/{name}")
        node = (pod.get("spec") or {}).get("nodeName", "")
        rows.append([name, status.get("phase", ""), node, jobs_pods.trouble_of(pod), link])
    return table(["Pod", "Phase", "Node", "Trouble", "Output"], rows, label="Pods of the job")


def pod_log(server: ServerConnection, workload: Json, pod: str) -> list[Child]:
    """Return the page with the last lines of a pod's output."""
    key = Key(workload["metadata"]["namespace"], pod)
    try:
        lines = server.client.logs(key, {"tailLines": str(LOG_LINES), "limitBytes": str(LOG_BYTES)})
        text = b"".join(itertools.islice(lines, LOG_LINES)).decode(errors="replace")
    except ApiError as error:
        text = f"The output cannot be read: {error}"
    back = tag("a", jobs.owner_of(workload)[1], href=job_path(workload))
    note = tag(
        "p", f"The last {LOG_LINES} lines. ", tag("code", f"kyu logs {jobs.owner_of(workload)[1]}"), " prints all."
    )
    return [
        tag("h1", f"Output of {pod}"),
        tag("p", "Job ", back),
        note,
        tag("pre", text or "(no output)", class_="log"),
    ]
