"""Controllers on a real server in this process: a whole control plane without sockets and pods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from kyu.api.config import file
from kyu.api.config.config import Configuration
from kyu.api.core import Job
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Object
from kyu.app import clock, connect
from kyu.controllers.plane import Plane
from kyu.kinds import conditions
from kyu.kube.client import Client
from kyu.server.api import Api
from tests.support.manifests import flavor, queues
from tests.support.servers import serving

T = TypeVar("T")
LONGEST_SECONDS = 10.0


def settings(**fields: Any) -> Configuration:
    version = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    return file.load({**version, **fields}).configuration


@contextlib.asynccontextmanager
async def controlled(client: Client, configuration: Configuration) -> AsyncIterator[Plane]:
    """Run the controllers while the context is open."""
    plane = Plane(client, configuration, clock, connect)
    task = asyncio.create_task(plane.run())
    try:
        yield plane
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def seen(api: Api, ask: Callable[[], Awaitable[T | None]]) -> T:
    """Call ``ask`` after each change of this cluster until it returns something."""
    changed = asyncio.Event()
    stop = api.store.listen(lambda _: changed.set())
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            while True:
                changed.clear()
                if answer := await ask():
                    return answer
                await changed.wait()
    finally:
        stop()


class Cluster:
    """A server, and a client with all rights."""

    def __init__(self, api: Api, client: Client) -> None:
        self.api = api
        self.client = client

    async def create(self, *objects: Json) -> None:
        for obj in objects:
            resource = self.api.registry.find_kind(obj["apiVersion"], obj["kind"])
            assert resource is not None, obj["kind"]
            await self.client.create(resource.kind, obj)

    async def until(self, type_: type[Object], key: Key, holds: Callable[[Json], object]) -> Json:
        """Return the object once it exists and the condition holds."""

        async def ask() -> Json | None:
            found = await self.client.find(type_.KIND, key)
            return found if found is not None and holds(found) else None

        return await seen(self.api, ask)

    async def workloads(self) -> list[Json]:
        found, _ = await self.client.list(Workload.KIND)
        return found

    async def until_job_starts(self, name: str) -> None:
        await self.until(Job, Key("default", name), lambda job: not job["spec"]["suspend"])

    async def until_waiting(self, name: str, message: str) -> None:
        """Wait until the Workload of the job has this message in QuotaReserved."""

        async def ask() -> bool:
            return any(
                one["metadata"]["ownerReferences"][0]["name"] == name
                and (conditions.find(one, "QuotaReserved") or {}).get("message") == message
                for one in await self.workloads()
            )

        await seen(self.api, ask)


def is_true(type_: str) -> Callable[[Json], bool]:
    return lambda obj: (conditions.find(obj, type_) or {}).get("status") == "True"


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Serve a cluster with the queue `main` of four CPUs in the namespace `default`."""
    async with serving(folder) as (api, client):
        made = Cluster(api, client)
        await made.create(flavor("main"), *queues("main"))
        yield made
