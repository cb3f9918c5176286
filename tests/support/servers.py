"""An API server for tests: real, in this process, without a socket, in a folder that goes with the test."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

from kyu.api.meta import Json, Kind
from kyu.app import running_parts
from kyu.kube.client import Client
from kyu.kube.direct import Direct
from kyu.server import bootstrap
from kyu.server.api import Api
from kyu.server.exchange import Request, Response, User, parse_query
from kyu.server.storage.database import back_up
from kyu.server.storage.records import Change

CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SECRET = Kind("", "v1", "Secret", "secrets")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
POD = Kind("", "v1", "Pod", "pods")
JOB = Kind("batch", "v1", "Job", "jobs")
WORKLOAD = Kind("kueue.x-k8s.io", "v1beta2", "Workload", "workloads")
DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
ADMIN = User("admin", ("system:masters",))

# The store as it is after the first start: made once, copied for each test.
_FOLDER = tempfile.TemporaryDirectory(prefix="kyu-tests-")
_TEMPLATE = Path(_FOLDER.name, "kyu.db")


@contextlib.asynccontextmanager
async def serving(
    folder: Path, *, controllers: bool = False, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> AsyncIterator[tuple[Api, Client]]:
    """The API, and a client with all rights; with ``controllers`` also garbage collection and namespace cleaning."""
    _copy_template(folder / "kyu.db")
    api = Api(folder / "kyu.db", clock)
    try:
        await bootstrap.ensure(api)
        _keep_template(folder / "kyu.db")
        parts = [api.definitions.run]
        if controllers:
            parts += [api.collector.run, api.cleaner.run]
        async with running_parts(*parts):
            yield api, Client(Direct(api), "tests")
    finally:
        await api.close()


def _copy_template(database: Path) -> None:
    if _TEMPLATE.exists() and not database.exists():
        shutil.copyfile(_TEMPLATE, database)


def _keep_template(database: Path) -> None:
    if not _TEMPLATE.exists():
        back_up(database, _TEMPLATE)


async def ask(api: Api, method: str, target: str, body: bytes = b"", *, user: User = ADMIN, **headers: str) -> Response:
    """One request as it comes from a socket; underscores in header names are dashes."""
    path, _, query = target.partition("?")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.handle(Request(method, path, parse_query(query), named, body, user))


def config_map(name: str, namespace: str = "default", **metadata: object) -> Json:
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "data": {"k": "1"}}


def workload(name: str, namespace: str = "default") -> Json:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_set = {"name": "main", "count": 1, "template": template}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"queueName": "main", "podSets": [pod_set]}}


class Followed:
    """What a client in this process was told of a kind after a version: types and objects."""

    def __init__(self, client: Client, kind: Kind, version: str) -> None:
        self.told: list[tuple[str, Json]] = []
        self.task = asyncio.create_task(client.follow(kind, version=version, tell=self.tell))

    def tell(self, type_: str, obj: Json) -> None:
        self.told.append((type_, obj))

    @property
    def names(self) -> list[tuple[str, str]]:
        return [(type_, obj["metadata"].get("name", "")) for type_, obj in self.told]

    @property
    def objects(self) -> list[Json]:
        return [obj for _, obj in self.told]


@contextlib.asynccontextmanager
async def started(api: Api, *followed: Followed) -> AsyncIterator[None]:
    """While they follow; afterwards the server has forgotten them."""
    before = api.hub.count()
    # One round: the tasks begin.
    await asyncio.sleep(0)
    assert api.hub.count() == before + len(followed)
    try:
        yield
    finally:
        for one in followed:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in followed), return_exceptions=True)
    assert api.hub.count() == before


@contextlib.asynccontextmanager
async def following(api: Api, client: Client, *kinds: Kind) -> AsyncIterator[list[Followed]]:
    """Clients that follow these kinds from now on."""
    followed = [Followed(client, kind, str(api.store.version)) for kind in kinds]
    async with started(api, *followed):
        yield followed


async def until(api: Api, holds: Callable[[], bool]) -> None:
    """Wait for a change that makes it true."""
    changed = asyncio.Event()

    def heard(_: Change) -> None:
        changed.set()

    stop = api.store.listen(heard)
    try:
        while not holds():
            changed.clear()
            await asyncio.wait_for(changed.wait(), 60)
    finally:
        stop()
