"""Kyu's client, cache and writer on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from kyu.api.actions import Bind, Create, Delete, Event, Patch
from kyu.api.meta import Json, Key, Kind, Ref
from kyu.kube import errors, http, kubeconfig
from kyu.kube.apply import Writer
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client
from tests.cluster.controlplane import ControlPlane

CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
POD = Kind("", "v1", "Pod", "pods")
EVENT = Kind("", "v1", "Event", "events")


async def test_the_cache_follows_and_survives_a_restart_of_the_server(plane: ControlPlane) -> None:
    async with connected(plane) as client, mirror(client, CONFIG_MAP) as cache:
        await client.create(CONFIG_MAP, config_map("before"))
        await until(cache, lambda: find(cache, "before") is not None)

        await asyncio.to_thread(plane.restart_server)
        plane.admin.create(config_map("after"))
        plane.admin.delete("v1", "ConfigMap", "before")

        await until(cache, lambda: find(cache, "after") is not None and find(cache, "before") is None)
        with pytest.raises(errors.Gone):
            async for _ in client.watch(CONFIG_MAP, version="1"):
                pass


async def test_refusals_have_their_types(plane: ControlPlane) -> None:
    async with connected(plane) as client:
        created = await client.create(CONFIG_MAP, config_map("once"))
        with pytest.raises(errors.AlreadyExists):
            await client.create(CONFIG_MAP, config_map("once"))
        with pytest.raises(errors.Invalid):
            await client.create(CONFIG_MAP, config_map("Not_A_Name"))
        await client.patch(CONFIG_MAP, Key("default", "once"), {"data": {"changed": "yes"}})
        with pytest.raises(errors.Conflict):
            await client.update(CONFIG_MAP, created)
        with pytest.raises(errors.NotFound):
            await client.get(CONFIG_MAP, Key("default", "never"))


async def test_actions_are_carried_out(plane: ControlPlane) -> None:
    plane.add_nodes(["for-actions"], {"cpu": "4", "memory": "8Gi"})
    pod = Ref(POD, Key("default", "by-hand"))
    container = {"name": "main", "image": "none"}
    body: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "by-hand", "namespace": "default"},
        "spec": {"schedulerName": "nobody", "restartPolicy": "Never", "containers": [container]},
    }
    async with connected(plane) as client, mirror(client, POD) as cache, mirror(client, EVENT) as events:
        write = Writer(client, cache, lambda: datetime.now(UTC))
        await write([Create(POD, body), Create(POD, body), Patch(pod, {"metadata": {"labels": {"seen": "yes"}}})])
        await write([Bind(pod, "for-actions"), Event(pod, "Normal", "Bound", "to its node")])
        await until(cache, lambda: phase(cache, pod.key) == "Running")
        # Events are written beside everything else, when there is time.
        await until(events, lambda: "to its node" in messages(events, "by-hand"))

        await write([Delete(pod), Delete(pod)])

        await until(cache, lambda: cache.find_json(POD, pod.key) is None)


@contextlib.asynccontextmanager
async def connected(plane: ControlPlane) -> AsyncIterator[Client]:
    client = Client(await http.connect(kubeconfig.load(plane.kubeconfig)))
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def mirror(client: Client, kind: Kind) -> AsyncIterator[Cache]:
    """A cache that follows one kind while the context is open."""
    cache = Cache()
    following = asyncio.create_task(Reflector(client, cache, kind).run())
    try:
        await cache.synced()
        yield cache
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def until(cache: Cache, wanted: Callable[[], bool]) -> None:
    """Wait for changes of the cache until it is as wanted."""
    changed = asyncio.Event()
    cache.subscribe(lambda _kind, _old, _new: changed.set())
    async with asyncio.timeout(60):
        while not wanted():
            changed.clear()
            await changed.wait()


def messages(events: Cache, name: str) -> list[str]:
    return [event["message"] for event in events.list_json(EVENT) if event["involvedObject"]["name"] == name]


def find(cache: Cache, name: str) -> Json | None:
    return cache.find_json(CONFIG_MAP, Key("default", name))


def phase(cache: Cache, key: Key) -> str:
    pod = cache.find_json(POD, key) or {}
    found: str = pod.get("status", {}).get("phase", "")
    return found


def config_map(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
