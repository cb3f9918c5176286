"""Failing connections to worker clusters: a manager in this process, and workers behind sockets that can fail."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from prometheus_client import CollectorRegistry

from kyu.api import codec
from kyu.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue, MultiKueueCluster, MultiKueueConfig, ResourceFlavor
from kyu.api.meta import Json, Key, key_of
from kyu.app import clock
from kyu.controllers.clusters import secrets, workers
from kyu.controllers.clusters.metrics import DispatchMetrics
from kyu.controllers.clusters.workers import WorkerConnection, WorkerConnections
from kyu.controllers.live_view import LiveView
from kyu.kinds import conditions, metadata
from kyu.kube.cache import Cache
from kyu.kube.client import Client
from kyu.plans.status import StatusEdit
from kyu.server.api import Api
from kyu.server.exchange import Request, Response, text_response
from kyu.server.http.connection import Connection
from kyu.server.http.site import Site
from tests.controllers.test_workers import kubeconfig
from tests.support.dispatch_world import settings
from tests.support.planes import controlled, seen
from tests.support.servers import ADMIN, JOB, NAMESPACE, SECRET, WORKLOAD, serving, workload

T = TypeVar("T")
# Well below the time after which a hanging cluster would be given up anyway.
LONGEST_SECONDS = 30.0
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
TEMPLATE = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
Trouble = Callable[[Request], Awaitable[Response | None]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("manager", "east", "west"):
        (tmp_path / name).mkdir()
    return tmp_path


def put(path: Path, text: str) -> None:
    if text:
        path.write_text(text)


async def none(request: Request) -> Response | None:
    return None


class Far:
    """A worker cluster: its API behind a socket, and its trouble."""

    def __init__(self, api: Api, client: Client) -> None:
        self.api = api
        self.client = client
        self.trouble: Trouble = none
        self.port = 0

    async def handle(self, request: Request) -> Response:
        return await self.trouble(request) or await self.api.handle(request)

    @property
    def kubeconfig(self) -> str:
        return kubeconfig({"server": f"http://127.0.0.1:{self.port}"})


@asynccontextmanager
async def far(folder: Path) -> AsyncIterator[Far]:
    async with serving(folder) as (api, client):
        worker = Far(api, client)
        site = Site(worker.handle, lambda _: ADMIN)
        listening = await asyncio.get_running_loop().create_server(lambda: Connection(site), "127.0.0.1", 0)
        worker.port = listening.sockets[0].getsockname()[1]
        try:
            yield worker
        finally:
            listening.close()
            site.abort()


class Manager:
    """A cluster whose queue `all` sends the job `train` to these workers."""

    def __init__(self, api: Api, client: Client) -> None:
        self.api = api
        self.client = client

    async def set_up(self, **clusters: str) -> None:
        """Create MultiKueueClusters with these names and kubeconfigs."""
        create = self.client.create
        await create(NAMESPACE, {"metadata": {"name": "kueue-system"}})
        for name, text in clusters.items():
            source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
            await create(MultiKueueCluster.KIND, {"metadata": {"name": name}, "spec": {"clusterSource": source}})
            await self.let_in(name, text)
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
        spec = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
        await create(AdmissionCheck.KIND, {"metadata": {"name": "away"}, "spec": spec})
        await create(MultiKueueConfig.KIND, {"metadata": {"name": "all"}, "spec": {"clusters": sorted(clusters)}})
        await create(ResourceFlavor.KIND, {"metadata": {"name": "any"}})
        flavor = {"name": "any", "resources": [{"name": "cpu", "nominalQuota": "9"}]}
        queue = {
            "namespaceSelector": {},
            "admissionChecksStrategy": {"admissionChecks": [{"name": "away"}]},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
        }
        await create(ClusterQueue.KIND, {"metadata": {"name": "all"}, "spec": queue})
        meta = {"name": "all", "namespace": "default"}
        await create(LocalQueue.KIND, {"metadata": meta, "spec": {"clusterQueue": "all"}})

    async def is_sent(self, cluster: str) -> bool:
        """Return whether the worker cluster has the Workload."""
        status = (await workload_of(self.client) or {}).get("status") or {}
        return (status.get("clusterName") or "") == cluster

    async def is_started(self) -> bool:
        job = await self.client.get(JOB, Key("default", "train"))
        return not job["spec"]["suspend"]

    async def says(self, words: str) -> bool:
        """Return whether the Workload's check has this message."""
        status = (await workload_of(self.client) or {}).get("status") or {}
        return any(one.get("message") == words for one in status.get("admissionChecks") or ())

    async def is_active(self, cluster: str, status: str) -> bool:
        found = await self.client.get(MultiKueueCluster.KIND, Key("", cluster))
        return (conditions.find(found, "Active") or {}).get("status") == status

    async def let_in(self, name: str, text: str) -> None:
        meta = {"name": name, "namespace": "kueue-system"}
        data = {"kubeconfig": base64.b64encode(text.encode()).decode()}
        await self.client.create(SECRET, {"metadata": meta, "data": data})

    async def submit(self) -> None:
        meta = {"name": "train", "namespace": "default", "labels": {metadata.QUEUE_NAME: "all"}}
        spec = {"suspend": True, "managedBy": metadata.MULTI_KUEUE, "template": TEMPLATE}
        await self.client.create(JOB, {"metadata": meta, "spec": spec})


@asynccontextmanager
async def managing(folder: Path) -> AsyncIterator[Manager]:
    async with serving(folder) as (api, client):
        yield Manager(api, client)


async def workload_of(client: Client) -> Json | None:
    found, _ = await client.list(WORKLOAD)
    return found[0] if found else None


async def has_no_workload(client: Client) -> bool:
    return await workload_of(client) is None


async def copy_in(worker: Far) -> Json:
    return await seen(worker.api, lambda: workload_of(worker.client))


async def admit(worker: Far) -> None:
    """Admit the Workload in the worker cluster, as its scheduler would."""
    copy = await copy_in(worker)
    edit = StatusEdit(copy, clock())
    assigned = {"name": "main", "count": 1, "flavors": {"cpu": "any"}}
    edit.status["admission"] = {"clusterQueue": "all", "podSetAssignments": [assigned]}
    edit.set_condition("QuotaReserved", "True", "QuotaReserved", "")
    edit.set_condition("Admitted", "True", "Admitted", "")
    await worker.client.merge(WORKLOAD, key_of(copy), {"status": edit.status}, subresource="status")


@pytest.mark.parametrize("is_taken_away", [False, True])
async def test_a_job_of_a_cluster_that_is_gone_when_the_manager_starts_is_given_up_in_time(
    folder: Path, is_taken_away: bool
) -> None:
    async with managing(folder / "manager") as manager:
        async with far(folder / "west") as west:
            await manager.set_up(west=west.kubeconfig)
            async with controlled(manager.client, settings()):
                await manager.submit()
                await admit(west)
                await seen(manager.api, manager.is_started)
            assert await manager.is_sent("west")
        if is_taken_away:
            await manager.client.delete(MultiKueueCluster.KIND, Key("", "west"))
        async with controlled(manager.client, settings(workerLostTimeout="100ms")):
            await seen(manager.api, lambda: manager.is_sent(""))


def is_new_workload(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/workloads")


async def broken(request: Request) -> Response | None:
    return text_response(500, "a webhook does not answer") if is_new_workload(request) else None


async def hanging(request: Request) -> Response | None:
    if is_new_workload(request):
        await asyncio.Event().wait()
    return None


@asynccontextmanager
async def submitted(folder: Path, trouble: Trouble) -> AsyncIterator[tuple[Manager, Far, Far]]:
    """Yield a manager with a job, a worker with this trouble, and another worker."""
    async with (
        managing(folder / "manager") as manager,
        far(folder / "east") as east,
        far(folder / "west") as west,
    ):
        east.trouble = trouble
        await manager.set_up(east=east.kubeconfig, west=west.kubeconfig)
        async with controlled(manager.client, settings()):
            await manager.submit()
            yield manager, east, west


@pytest.mark.parametrize("trouble", [broken, hanging])
async def test_a_cluster_that_takes_no_copies_does_not_keep_a_job_from_the_others(
    folder: Path, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "WRITE_SECONDS", 1.0)
    async with submitted(folder, trouble) as (manager, _, west):
        await admit(west)
        await seen(manager.api, manager.is_started)
        assert await manager.is_sent("west")


@pytest.mark.parametrize("code", [400, 403, 405, 413, 422, 500])
async def test_a_cluster_that_refuses_the_job_itself_does_not_keep_it_from_the_others(folder: Path, code: int) -> None:
    """A webhook that denies without a code of its own answers 400; one that cannot be reached is a 500."""

    async def refusing(request: Request) -> Response | None:
        is_new_job = request.method == "POST" and request.path.endswith("/jobs")
        return text_response(code, "denied the request") if is_new_job else None

    async with submitted(folder, refusing) as (manager, east, west):
        await admit(east)
        await seen(east.api, lambda: has_no_workload(east.client))
        await admit(west)
        await seen(manager.api, manager.is_started)
        assert await manager.is_sent("west")


async def test_a_cluster_that_does_not_answer_a_write_counts_as_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "WRITE_SECONDS", 1.0)
    async with managing(folder / "manager") as manager, far(folder / "east") as east:
        east.trouble = hanging
        await manager.set_up(east=east.kubeconfig)
        async with controlled(manager.client, settings()):
            await seen(manager.api, lambda: manager.is_active("east", "True"))
            await manager.submit()
            await seen(manager.api, lambda: manager.is_active("east", "False"))
            east.trouble = none
            await copy_in(east)


async def test_a_cluster_that_hangs_while_nothing_is_written_to_it_counts_as_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watches stay open without events."""
    monkeypatch.setattr(workers, "ASKED_EVERY_SECONDS", 0.2, raising=False)
    monkeypatch.setattr(workers, "WRITE_SECONDS", 1.0)

    async def stopped(request: Request) -> Response | None:
        await asyncio.Event().wait()
        return None

    async with managing(folder / "manager") as manager, far(folder / "east") as east:
        await manager.set_up(east=east.kubeconfig)
        async with controlled(manager.client, settings()):
            await seen(manager.api, lambda: manager.is_active("east", "True"))
            east.trouble = stopped
            await seen(manager.api, lambda: manager.is_active("east", "False"))
            east.trouble = none
            await seen(manager.api, lambda: manager.is_active("east", "True"))


async def test_a_job_waits_until_an_earlier_one_of_its_name_is_gone(folder: Path) -> None:
    async with managing(folder / "manager") as manager, far(folder / "west") as west:
        labels = {metadata.MULTI_KUEUE_ORIGIN: "multikueue", metadata.PREBUILT_WORKLOAD: "earlier"}
        meta = {"name": "train", "namespace": "default", "labels": labels, "finalizers": ["example.com/slow"]}
        await west.client.create(JOB, {"metadata": meta, "spec": {"suspend": True, "template": TEMPLATE}})
        await manager.set_up(west=west.kubeconfig)
        async with controlled(manager.client, settings()):
            await manager.submit()
            await seen(manager.api, lambda: manager.says("west: an earlier Job train is still there"))
            assert await workload_of(west.client) is None
            await west.client.merge(JOB, Key("default", "train"), {"metadata": {"finalizers": None}})
            await copy_in(west)


async def test_a_cluster_is_tried_again_when_a_job_of_another_origin_by_that_name_is_gone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "REFUSED_SECONDS", 0.5)
    async with managing(folder / "manager") as manager, far(folder / "west") as west:
        meta = {"name": "train", "namespace": "default"}
        await west.client.create(JOB, {"metadata": meta, "spec": {"suspend": True, "template": TEMPLATE}})
        await manager.set_up(west=west.kubeconfig)
        async with controlled(manager.client, settings()):
            await manager.submit()
            await admit(west)
            await seen(manager.api, lambda: manager.says("west: a Job train of another origin exists there"))
            await admit(west)
            await seen(west.api, lambda: has_no_workload(west.client))
            await west.client.delete(JOB, Key("default", "train"))
            await admit(west)
            await seen(manager.api, manager.is_started)
            assert await manager.is_sent("west")


async def test_a_kind_of_job_that_a_cluster_gets_later_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "NEW_KINDS_SECONDS", 0.2, raising=False)

    async def without_jobs(request: Request) -> Response | None:
        return text_response(404, "no such kind") if request.path.endswith("/jobs") else None

    async with managing(folder / "manager") as manager, far(folder / "west") as west:
        west.trouble = without_jobs
        await manager.set_up(west=west.kubeconfig)
        async with controlled(manager.client, settings()):
            await manager.submit()
            await seen(manager.api, lambda: manager.says("west: it has no jobs"))
            west.trouble = none
            await admit(west)
            await seen(manager.api, manager.is_started)
            assert await manager.is_sent("west")


async def test_a_kubeconfig_in_a_file_may_come_and_change_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "FOLDER", folder)
    async with managing(folder / "manager") as manager, far(folder / "west") as west:
        source = {"kubeConfig": {"location": str(folder / "file"), "locationType": "Path"}}
        body = {"metadata": {"name": "west"}, "spec": {"clusterSource": source}}
        await manager.client.create(MultiKueueCluster.KIND, body)
        await manager.client.create(NAMESPACE, {"metadata": {"name": "kueue-system"}})
        async with controlled(manager.client, settings()):
            for text, status in (("", "False"), ("{", "False"), (west.kubeconfig, "True")):
                put(folder / "file", text)
                await seen(manager.api, partial(manager.is_active, "west", status))


async def test_a_connection_whose_end_was_lost_together_with_a_fault_ends_with_that(folder: Path) -> None:
    """Python 3.11 loses the cancellation of a TaskGroup that fails at the same time."""
    async with managing(folder / "manager") as manager:
        cache = Cache()
        view = LiveView(cache, settings(), lambda: None)
        connections = WorkerConnections(
            view, manager.client, cache, clock, DispatchMetrics(CollectorRegistry(), "standalone")
        )
        async with far(folder / "west") as west:
            text = west.kubeconfig
        source = {"kubeConfig": {"location": "west", "locationType": "Secret"}}
        body = {"metadata": {"name": "west"}, "spec": {"clusterSource": source}}
        cluster = codec.decode_as(MultiKueueCluster, body)
        data = {"kubeconfig": base64.b64encode(text.encode()).decode()}
        connections.secrets.observe(SECRET, {"metadata": {"name": "west", "namespace": "kueue-system"}, "data": data})
        connection = WorkerConnection(connections, "west")
        before = connection.worker
        async with asyncio.timeout(LONGEST_SECONDS):
            await connection.run(cluster)
        assert connection.worker is before, "what its successor knows stays"


async def test_copies_of_a_workload_that_is_not_dispatched_any_more_are_removed(folder: Path) -> None:
    """Its queue has lost its check while the cluster was away."""
    async with managing(folder / "manager") as manager, far(folder / "west") as west:
        body = workload("kept")
        await manager.client.create(WORKLOAD, body)
        labels = {metadata.MULTI_KUEUE_ORIGIN: "multikueue"}
        await west.client.create(WORKLOAD, {**body, "metadata": {**body["metadata"], "labels": labels}})
        await manager.set_up(west=west.kubeconfig)
        async with controlled(manager.client, settings()):
            await seen(west.api, lambda: has_no_workload(west.client))
