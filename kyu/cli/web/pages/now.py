"""The pages Now, Queues and one queue: the cohort tree with its usage, and the jobs of a queue in order."""

from __future__ import annotations

from collections.abc import Iterator

from kyu.api import quantity
from kyu.api.kueue import ClusterQueue, Cohort, LocalQueue, Workload
from kyu.api.meta import Json
from kyu.cli.batch import jobs, queues, top
from kyu.cli.connection import ServerConnection
from kyu.cli.web.html import Child, Markup, table, tag
from kyu.cli.web.pages.layout import JOB_HEADER, bar, job_cells, queue_path
from kyu.kube.errors import Forbidden

MOST_JOBS = 25


def now(server: ServerConnection) -> list[Child]:
    """Return the page Now: the cohort tree, then the jobs that run or wait."""
    rows = unfinished(server)
    running = sum(row.state.word in ("Running", "Starting") for row in rows)
    waiting = sum(row.state.word in ("Queued", "Reserved") for row in rows)
    counts = tag("p", f"{running} running, {waiting} waiting", class_="counts")
    return [tag("h1", "Now"), counts, tree(server), tag("h2", "Jobs"), jobs_list(rows)]


def tree(server: ServerConnection) -> Child:
    """Return the cohorts and ClusterQueues; for a user who may not read these, the own LocalQueues."""
    try:
        cohorts, cluster_queues = list(server.client.list(Cohort.KIND)), list(server.client.list(ClusterQueue.KIND))
    except Forbidden:
        return own_queues(server)
    if not cluster_queues:
        hint = tag("code", "kyu ctl create clusterqueue")
        return tag("p", "There are no queues yet. ", hint, " creates one.", class_="empty")
    return tag("div", [branch(root) for root in top.tree(cohorts, cluster_queues)], class_="tree")


def own_queues(server: ServerConnection) -> Child:
    found = server.client.list(LocalQueue.KIND, server.namespace)
    if not found:
        return tag("p", f"Namespace {server.namespace} has no queue. An administrator creates one.", class_="empty")
    header = ["Queue", "ClusterQueue", "Waiting", "Running", "Used", "State"]
    return table(header, [local_queue_cells(item) for item in found], label="Queues of your namespace")


def local_queue_cells(item: Json) -> list[Child]:
    status = item.get("status") or {}
    return [
        item["metadata"]["name"],
        item["spec"].get("clusterQueue"),
        status.get("pendingWorkloads", 0),
        status.get("admittedWorkloads", 0),
        queues.used(item, None),
        queues.state(status),
    ]


def branch(found: top.CohortBranch) -> Markup:
    content = [*(branch(child) for child in found.cohorts), *(queue_card(queue) for queue in found.queues)]
    if not found.name:
        return tag("div", content, class_="cards")
    return tag("section", tag("h2", f"Cohort {found.name}"), tag("div", content, class_="cards"), class_="cohort")


def queue_card(queue: Json) -> Markup:
    status = queue.get("status") or {}
    name = queue["metadata"]["name"]
    counts = f"{status.get('admittedWorkloads', 0)} running, {status.get('pendingWorkloads', 0)} waiting"
    active = jobs.conditions_of(queue).get("Active", {"status": "True"})
    stopped = tag("p", active.get("message", ""), class_="bad") if active["status"] != "True" else None
    title = tag("h3", tag("a", name, href=queue_path(name)))
    return tag("article", title, tag("p", counts, class_="counts"), stopped, list(usage(queue)), class_="card")


def usage(queue: Json) -> Iterator[Markup]:
    """Yield a bar for each flavor and resource of a ClusterQueue."""
    status = queue.get("status") or {}
    used = {
        (flavor["name"], resource["name"]): resource
        for flavor in status.get("flavorsReservation") or ()
        for resource in flavor.get("resources") or ()
    }
    for group in queue["spec"].get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for quota in flavor["resources"]:
                yield usage_bar(flavor["name"], quota, used.get((flavor["name"], quota["name"]), {}))


def usage_bar(flavor: str, quota: Json, used: Json) -> Markup:
    name = quota["name"]
    total, nominal = quantity.amount(name, used.get("total", "0")), quantity.amount(name, quota["nominalQuota"])
    borrowed = quantity.amount(name, used.get("borrowed", "0"))
    shown = f"{quantity.render(name, total)} of {quantity.render(name, nominal)}"
    if borrowed:
        shown += f", {quantity.render(name, borrowed)} borrowed"
    return bar(total, nominal, shown, f"{name} ({flavor})")


def unfinished(server: ServerConnection) -> list[jobs.JobRow]:
    """Return the unfinished jobs that the visitor may see, running ones first."""
    rows = [row for row in map(jobs.row_of_workload, workloads(server)) if row.state.word not in jobs.ENDED]
    return sorted(rows, key=lambda row: (row.state.word == "Queued", row.created))


def workloads(server: ServerConnection) -> list[Json]:
    """Return the Workloads of all namespaces, or of the own one if the visitor may not see more."""
    try:
        return list(server.client.list(Workload.KIND))
    except Forbidden:
        return list(server.client.list(Workload.KIND, server.namespace))


def jobs_list(rows: list[jobs.JobRow]) -> Child:
    if not rows:
        example = tag("code", "kyu submit --cpu 1 -- python train.py")
        return tag("p", "No jobs run or wait. ", example, " queues one.", class_="empty")
    shown = table(JOB_HEADER, [job_cells(row) for row in rows[:MOST_JOBS]], label="Jobs that run or wait")
    more = len(rows) - MOST_JOBS
    return [shown, tag("p", tag("a", f"{more} more jobs", href="/jobs")) if more > 0 else None]


def all_queues(server: ServerConnection) -> list[Child]:
    """Return the page Queues."""
    return [tag("h1", "Queues"), tree(server)]


def one_queue(server: ServerConnection, queue: Json) -> list[Child]:
    """Return the page of a ClusterQueue: quotas, usage, settings, and its jobs."""
    name, spec = queue["metadata"]["name"], queue["spec"]
    local = {
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in server.client.list(LocalQueue.KIND)
        if item["spec"].get("clusterQueue") == name
    }
    rows = [row for row in unfinished(server) if (row.obj["metadata"]["namespace"], row.queue) in local]
    preemption = spec.get("preemption") or {}
    facts = [
        ("Cohort", spec.get("cohortName") or "none"),
        ("Queueing strategy", spec.get("queueingStrategy", "BestEffortFIFO")),
        ("Preemption", ", ".join(f"{key}: {value}" for key, value in preemption.items() if isinstance(value, str))),
        ("LocalQueues", ", ".join(f"{namespace}/{own}" for namespace, own in sorted(local)) or "none"),
    ]
    listed = tag("dl", [[tag("dt", word), tag("dd", value or "none")] for word, value in facts])
    return [tag("h1", f"Queue {name}"), queue_card(queue), listed, tag("h2", "Jobs"), jobs_list(rows)]
