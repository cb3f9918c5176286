"""
The pages by their paths, and the changes that forms ask for. Every page reads with the client of the visitor.

Called by: cli/web/site.py. The navigation is in cli/web/pages/layout.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from kyu.api.kueue import ClusterQueue, Workload
from kyu.api.meta import Key
from kyu.api.workflows import Workflow
from kyu.cli.batch import cancel
from kyu.cli.connection import ServerConnection
from kyu.cli.web.html import Child
from kyu.cli.web.pages import clusters, doctor, job, jobs, now, usage, workflows
from kyu.cli.web.pages.layout import job_path
from kyu.cli.web.sessions import Session
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import NotFound


class WebPage(NamedTuple):
    """A page of its own path. A live page follows changes by itself."""

    content: Callable[[ServerConnection, Mapping[str, str]], list[Child]]
    is_live: bool = True


PAGES: Final[Mapping[str, WebPage]] = {
    "/": WebPage(lambda server, _: now.now(server)),
    "/queues": WebPage(lambda server, _: now.all_queues(server)),
    "/jobs": WebPage(jobs.all_jobs),
    "/workflows": WebPage(lambda server, _: workflows.all_workflows(server)),
    "/clusters": WebPage(lambda server, _: clusters.all_clusters(server)),
    "/usage": WebPage(usage.used, is_live=False),
    "/doctor": WebPage(lambda server, _: doctor.findings(server), is_live=False),
}


def object_page(server: ServerConnection, session: Session, words: Sequence[str]) -> list[Child]:
    """Return the page of an object, by the words of its path."""
    match words:
        case ["queues", name]:
            return now.one_queue(server, server.client.get(ClusterQueue.KIND, Key("", name)))
        case ["jobs", namespace, name]:
            return job.one_job(server, session, server.client.get(Workload.KIND, Key(namespace, name)))
        case ["jobs", namespace, name, "logs", pod]:
            return job.pod_log(server, server.client.get(Workload.KIND, Key(namespace, name)), pod)
        case ["workflows", namespace, name]:
            return workflows.one_workflow(server.client.get(Workflow.KIND, Key(namespace, name)))
    raise NotFound(404, "NotFound", "there is no such page")


def change(client: BlockingClient, words: Sequence[str]) -> str:
    """Carry out a change, and return the path of the page to show then."""
    match words:
        case ["jobs", namespace, name, "cancel"]:
            for kind, key in cancel.owners(client.get(Workload.KIND, Key(namespace, name))):
                client.delete(kind, key, propagation="Background")
            return "/jobs"
        case ["jobs", namespace, name, "hold" | "release" as word]:
            workload = client.get(Workload.KIND, Key(namespace, name))
            client.patch(Workload.KIND, Key(namespace, name), {"spec": {"active": word == "release"}})
            return job_path(workload)
        case _:
            raise NotFound(404, "NotFound", "there is no such page")
