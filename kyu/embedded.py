"""
What makes the embedded API server a control plane: controllers, and this machine as a node that runs pods.

The controllers are those of a cluster, on a client without sockets. The rows of controllers/stand_ins.py do what the
controllers of a cluster would do; the agent runs the pods as processes.

Called by: app.py. Calls: controllers/plane.py, runtime/agent.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kyu import log
from kyu.api import config_file, documents, rules
from kyu.api.config import Configuration
from kyu.api.core import Node
from kyu.api.kueue import ClusterQueue
from kyu.api.meta import Json, Key
from kyu.controllers import live, stand_ins
from kyu.controllers.plane import Plane
from kyu.kinds import table
from kyu.kube.apply import Writer
from kyu.kube.client import Client
from kyu.kube.direct import Direct
from kyu.plans import webhooks
from kyu.runtime import isolation, logs, node, podplan
from kyu.runtime.agent import Agent
from kyu.runtime.processes import Machine, Runtime
from kyu.server import errors
from kyu.server.api import Api
from kyu.server.exchange import Stream
from kyu.server.pods import LogOptions
from kyu.server.writes import Attempt

HEARTBEAT_SECONDS = 10.0


class ControlPlane:
    """Everything beside the server; ``run`` runs until it is cancelled, and the pods run on."""

    def __init__(
        self, data: Path, configuration: Configuration, clock: Callable[[], datetime], options: podplan.Options
    ) -> None:
        self._folder = data / "runtime"
        self._folder.mkdir(mode=0o711, exist_ok=True)
        self._configuration = configuration
        self._clock = clock
        self._options = options
        self._facts = node.read_facts(str(self._folder))
        self._name = self._facts.hostname or "localhost"
        self._runtime: Runtime | None = None

    async def run(self, api: Api) -> None:
        client = Client(Direct(api.serve), "kyu")
        plane = Plane(client, self._configuration, self._clock, stand_ins.controllers(), api.metrics.registry)
        write = Writer(client, plane.cache, self._clock, component="kyu-node")
        agent = Agent(client, plane.cache, write, lambda name: name == self._name)
        resources = node.resources(self._facts)
        machine = Machine(self._name, resources, gpus=self._facts.gpus)
        self._runtime = Runtime(str(self._folder), machine, agent.on_status, self._options)
        api.admission.further = Doorkeeper(plane).admit
        async with asyncio.TaskGroup() as group:
            group.create_task(plane.run())
            group.create_task(agent.run(self._runtime))
            group.create_task(self._keep_node(client))

    async def _keep_node(self, client: Client) -> None:
        """Register this machine, and keep its lease."""
        assert self._runtime is not None
        abilities = node.Abilities(
            limits_refused=self._runtime.cgroup_root.reason,
            mounts_refused=self._runtime.mounts_refused,
            isolation=isolation.isolation_level(self._options),
        )
        body = node.make_node(self._name, self._facts, abilities, self._clock())
        status = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._name}, "status": body.pop("status")}
        known = await client.find(Node.KIND, Key("", self._name))
        if known is None:
            await client.create(Node.KIND, {**body, "status": status["status"]})
        await client.apply(Node.KIND, status, manager="kyu-node", subresource="status")
        # A new node is tainted until it is ready, as Kubernetes does it.
        await client.patch(Node.KIND, Key("", self._name), {"spec": {"taints": None}})
        while True:
            await client.apply(node.LEASE, node.make_lease(self._name, self._clock()), manager="kyu-node")
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def read_logs(self, pod: Json, wanted: LogOptions) -> bytes | Stream:
        """What a container of a pod printed, for the server."""
        if self._runtime is None:
            raise errors.unavailable("the runtime is starting")
        folder = self._runtime.folder(pod["metadata"]["uid"])
        found = logs.find_log(folder, pod["metadata"]["name"], wanted.container, previous=wanted.previous)
        if isinstance(found, logs.NoLog):
            raise errors.bad_request(found.message)
        options = logs.LogOptions(
            follow=wanted.follow,
            tail_lines=wanted.tail_lines,
            since=since(wanted, self._clock()),
            timestamps=wanted.timestamps,
            limit_bytes=wanted.limit_bytes,
        )
        return LogStream(found, options)


def since(wanted: LogOptions, now: datetime) -> datetime | None:
    if wanted.since_seconds is not None:
        return now - timedelta(seconds=wanted.since_seconds)
    return datetime.fromisoformat(wanted.since_time).astimezone(UTC) if wanted.since_time else None


class LogStream:
    """A log as an answer of the server."""

    def __init__(self, source: logs.Log, options: logs.LogOptions) -> None:
        self._source = source
        self._options = options
        self._closed = asyncio.Event()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        async for part in logs.stream(self._source, self._options):
            yield part
            if self._closed.is_set():
                return

    def close(self) -> None:
        self._closed.set()


class Doorkeeper:
    """What webhooks do on a cluster, at the door of the embedded server."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def admit(self, attempt: Attempt) -> None:
        kind = attempt.resource.kind
        typed = {"apiVersion": kind.api_version, "kind": kind.kind}
        old = None if attempt.old is None else {**typed, **attempt.old}
        if kind.group == ClusterQueue.KIND.group and old is None:
            changed = rules.prepare_create({**typed, **attempt.new}, self._plane.view.configuration.gates)
        elif table.find_kind(kind) is not None:
            verdict = webhooks.admit(self._plane.view, {**typed, **attempt.new}, old)
            if verdict.errors:
                raise errors.invalid(kind, attempt.new["metadata"].get("name", ""), list(verdict.errors))
            changed = verdict.obj
        else:
            return
        attempt.new.clear()
        attempt.new.update({name: value for name, value in changed.items() if name not in typed})


def first_objects() -> list[Json]:
    """What a fresh data folder has: Kueue's settings in its ConfigMap, and the definitions of the job kinds."""
    key = live.SETTINGS
    settings: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "data": {live.SETTINGS_FILE: first_settings()},
    }
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": key.namespace}}, settings]


def first_settings() -> str:
    """Every kind of job is queued."""
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": list(table.FRAMEWORKS)},
    }
    return documents.render([settings]).removeprefix("---\n")


def read_configuration(path: Path | None) -> Configuration:
    """The settings that hold until the ConfigMap says otherwise."""
    text = first_settings() if path is None else path.read_text()
    loaded = config_file.load(documents.parse(text)[0].value)
    for warning in loaded.warnings:
        log.warning("settings", source=path, warning=warning)
    return loaded.configuration
