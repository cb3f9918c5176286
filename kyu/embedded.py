"""
What makes the embedded API server a control plane: controllers, and nodes that run pods.

The controllers are those of a cluster, on a client without sockets. The rows of controllers/stand_ins.py do what the
controllers of a cluster would do. This machine is a node whose pods are processes; simulated nodes are beside it.

Called by: app.py. Calls: controllers/plane.py, runtime/agent.py, pools/pods.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

from kyu import log
from kyu.api import rules
from kyu.api.config import Configuration
from kyu.api.core import Node
from kyu.api.kueue import ClusterQueue
from kyu.api.meta import Json, Key
from kyu.bus import signing
from kyu.bus.connector import Connect
from kyu.controllers import stand_ins
from kyu.controllers.plane import Plane
from kyu.kinds import table
from kyu.kube.apply import Writer
from kyu.kube.client import Client
from kyu.kube.direct import Direct
from kyu.plans import door
from kyu.plans.pool_nodes import VIRTUAL_LABEL
from kyu.pools.pods import PoolRuntime, with_simulated_mark
from kyu.runtime import heartbeat, isolation, logs, node, podplan, simulate
from kyu.runtime.agent import Agent, PodRuntime
from kyu.runtime.processes import Machine, Runtime
from kyu.runtime.simulated_nodes import SIMULATED_LABEL
from kyu.server import errors, wrapping
from kyu.server.api import INTERNAL, Api
from kyu.server.attempts import Attempt
from kyu.server.exchange import Stream
from kyu.server.pods import LogOptions
from kyu.turns import Turns


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What runs pods.

    ``path``: where commands are looked for. ``cores``: what this machine offers, all it has if None. ``trust_users``:
    all pods run as one user. ``host_paths``: they may have places of this machine as volumes. ``simulated``: nodes that
    do not exist. ``virtual_node``: what the virtual nodes of MasterQueues do with their pods: hand them to pools, run
    them on this machine, or pretend.
    """

    path: str = podplan.DEFAULT_PATH
    cores: int | None = None
    trust_users: bool = False
    host_paths: bool = False
    simulated: tuple[Json, ...] = ()
    virtual_node: Literal["pools", "local", "simulate"] = "pools"


class ControlPlane:
    """Everything beside the server; ``run`` runs until it is cancelled, and the pods run on."""

    def __init__(
        self,
        data: Path,
        configuration: Configuration,
        clock: Callable[[], datetime],
        connect: Connect,
        settings: NodeSettings,
    ) -> None:
        self._folder = data / "runtime"
        self._folder.mkdir(mode=0o711, exist_ok=True)
        self._configuration = configuration
        self._clock = clock
        self._connect = connect
        self._settings = settings
        separate = not settings.trust_users and lets_others_pass(data, self._folder)
        self._options = podplan.Options(path=settings.path, host_paths=settings.host_paths, user_per_namespace=separate)
        facts = node.read_facts(str(self._folder))
        self._facts = facts if settings.cores is None else replace(facts, cores=settings.cores)
        self._name = self._facts.hostname or "localhost"
        self._runtime: Runtime | None = None
        self._pools: PoolRuntime | None = None
        self._signer = signing.load_or_make(data / "pool.key")
        self._simulated = {body["metadata"]["name"] for body in settings.simulated}
        # Set when jobs are queued from their first moment on, and this machine takes pods.
        self.ready = asyncio.Event()

    @property
    def isolation(self) -> isolation.Level:
        """How far pods of different namespaces are kept apart."""
        return isolation.isolation_level(self._options)

    async def run(self, api: Api, turns: Turns) -> None:
        client = Client(Direct(api), "kyu")
        plane = Plane(
            client,
            self._configuration,
            self._clock,
            self._connect,
            stand_ins.controllers(),
            api.metrics.registry,
            turns,
        )
        write = Writer(client, plane.cache, self._clock, component="kyu-node")
        mode = self._settings.virtual_node
        is_virtual = partial(is_virtual_node, plane)
        agent = Agent(
            client, plane.cache, write, lambda name: name == self._name or (mode == "local" and is_virtual(name))
        )
        pretender = Agent(client, plane.cache, write, self._simulated.__contains__)
        far = Agent(client, plane.cache, write, lambda name: mode != "local" and is_virtual(name))
        machine = Machine(self._name, node.resources(self._facts), gpus=self._facts.gpus)
        self._runtime = Runtime(str(self._folder), machine, agent.on_status, self._options)
        api.admission.further = Doorkeeper(plane, api).admit
        await self._register_simulated(client)
        async with asyncio.TaskGroup() as group:
            group.create_task(plane.run())
            # An agent that did not see all pods yet would end those that it adopts.
            await plane.started.wait()
            group.create_task(agent.run(self._runtime))
            group.create_task(pretender.run(simulate.SimulatedRuntime(simulate.RealClock(), pretender.on_status)))
            group.create_task(far.run(self._virtual_runtime(plane, far)))
            group.create_task(self._keep_machine(client, self._runtime))

    def _virtual_runtime(self, plane: Plane, agent: Agent) -> PodRuntime:
        """What the pods of virtual nodes are given to."""
        if self._settings.virtual_node == "simulate":
            clock = simulate.RealClock()
            return simulate.SimulatedRuntime(
                clock, lambda pod, status: agent.on_status(pod, with_simulated_mark(status))
            )
        self._pools = PoolRuntime(plane.view, plane.pools, self._signer, agent.on_status)
        return self._pools

    async def _keep_machine(self, client: Client, runtime: Runtime) -> None:
        """Register this machine when it is known what it can do, and keep its lease."""
        await runtime.opened.wait()
        abilities = node.Abilities(
            limits_refused=runtime.cgroup_root.reason,
            mounts_refused=runtime.mounts_refused,
            isolation=self.isolation,
            trusts_users=self._settings.trust_users,
        )
        await heartbeat.register(client, [node.make_node(self._name, self._facts, abilities, self._clock())])
        self.ready.set()
        await heartbeat.keep_alive(client, self._name, self._clock)

    async def _register_simulated(self, client: Client) -> None:
        """Those of the file are there, those of an earlier file go, and their pods soon after them."""
        known, _ = await client.list(Node.KIND, labels=f"{SIMULATED_LABEL}=true")
        for name in {body["metadata"]["name"] for body in known} - self._simulated:
            await client.delete(Node.KIND, Key("", name))
        await heartbeat.register(client, self._settings.simulated)

    async def read_logs(self, pod: Json, wanted: LogOptions) -> bytes | Stream:
        """What a container of a pod printed, for the server."""
        if pod["spec"].get("nodeName") in self._simulated:
            return b""
        if self._pools is not None and self._pools.owns(pod):
            return await self._pools.read_logs(pod, wanted)
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


def is_virtual_node(plane: Plane, name: str) -> bool:
    found = plane.cache.find_json(Node.KIND, Key("", name))
    return found is not None and VIRTUAL_LABEL in (found["metadata"].get("labels") or {})


def lets_others_pass(data: Path, folder: Path) -> bool:
    """Whether pods can have users of their own: only root can give them, and they must reach their files."""
    if os.geteuid() != 0:
        return False
    # Others may pass through, not look around: the files in it are for their owner only.
    data.chmod(0o711)
    barrier = isolation.find_barrier(str(folder))
    if barrier is not None:
        data.chmod(0o700)
        log.info("pods have no users of their own", barrier=barrier)
    return barrier is None


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
        async for part in logs.stream(self._source, self._options, self._closed):
            yield part

    def close(self) -> None:
        self._closed.set()


class Doorkeeper:
    """What webhooks do on a cluster, at the door of the embedded server."""

    def __init__(self, plane: Plane, api: Api) -> None:
        self._plane = plane
        self._api = api

    def admit(self, attempt: Attempt) -> None:
        kind = attempt.resource.kind
        typed = {"apiVersion": kind.api_version, "kind": kind.kind}
        old = None if attempt.old is None else {**typed, **attempt.old}
        if kind.group == ClusterQueue.KIND.group and old is None:
            changed = rules.prepare_create({**typed, **attempt.new}, self._plane.view.configuration.gates)
        elif table.find_kind(kind) is not None:
            verdict = door.admit(self._plane.view, {**typed, **attempt.new}, old)
            by_hand = [] if attempt.user == INTERNAL else door.assigned_by_hand({**typed, **attempt.new}, old)
            wrapped = wrapping.find_faults(attempt, self._api.registry, self._api.authorizer)
            unknown = door.not_run_here({**typed, **attempt.new}, old)
            if faults := [*by_hand, *wrapped, *unknown, *verdict.errors]:
                raise errors.invalid(kind, attempt.new["metadata"].get("name", ""), faults)
            changed = verdict.obj
        else:
            return
        attempt.new.clear()
        attempt.new.update({name: value for name, value in changed.items() if name not in typed})
