"""
The parts that make the embedded API server a control plane: controllers, and nodes that run pods.

The controllers are those of a cluster, with an in-process client. The rows of controllers/embedded/rows.py replace the
controllers of Kubernetes. This machine is a node whose pods are processes; simulated nodes may be beside it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

from kyu.accounting.bookkeeper import Bookkeeper
from kyu.accounting.ledger import Ledger, LedgerLimits
from kyu.accounting.resource import AttemptsPage, make_resource
from kyu.api import rules
from kyu.api.config.config import Configuration
from kyu.api.config.file import SETTINGS, SETTINGS_FILE, InvalidConfiguration, load_config_map
from kyu.api.core import CONFIG_MAP, SECRET, Namespace, Node
from kyu.api.errors import FieldError
from kyu.api.kueue import ClusterQueue, LocalQueue, Workload
from kyu.api.meta import Json, Key
from kyu.api.workflows import Workflow
from kyu.bus import signing
from kyu.bus.connector import Connect
from kyu.controllers.embedded import rows
from kyu.controllers.plane import Plane
from kyu.controllers.workflows import rows as workflow_rows
from kyu.kube.apply import Writer
from kyu.kube.client import Client
from kyu.kube.direct import Direct
from kyu.plans import pods_of_jobs
from kyu.plans.job import outside_queues, webhook
from kyu.plans.pools.nodes import VIRTUAL_LABEL
from kyu.plans.workflows import webhook as workflow_webhook
from kyu.plans.workload import edits as workload_edits
from kyu.pools.pods import PoolRuntime, with_simulated_mark
from kyu.runtime import log_archive, logs, podplan
from kyu.runtime.agent import Agent, PodRuntime
from kyu.runtime.identity.account_access import AccountAccess
from kyu.runtime.identity.service_account import ServerAddress
from kyu.runtime.interactive.commands import CommandStreams, NoCommand, RunningCommand
from kyu.runtime.interactive.pipes import Descriptor
from kyu.runtime.log_archive import ArchiveLimits, LogArchive
from kyu.runtime.nodes import heartbeat, node, simulate
from kyu.runtime.nodes.simulated_nodes import SIMULATED_LABEL
from kyu.runtime.podman.plan import RuntimeChoice
from kyu.runtime.processes import Machine, Runtime
from kyu.server import errors, representations
from kyu.server.admission import submitters, workflow_rights, wrapping
from kyu.server.admission.request import AdmissionRequest
from kyu.server.api import INTERNAL, Api
from kyu.server.auth import auth, rbac, tokens
from kyu.server.exchange import Request, Response, ResponseStream, json_response
from kyu.server.paths import Target
from kyu.server.storage.store import Store
from kyu.server.streams.command import CannotRun
from kyu.server.streams.pods import StreamOptions
from kyu.server.verbs.pod_subresources import PodLogOptions
from kyu.visibility.pending import SUBRESOURCE, QueueVisibility
from kyu.visibility.resources import resources
from kyu.write_fairness import WriteFairness

# The reason of a node that serves one user only.
NOT_ISOLATED = "all pods run as the same user"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The options of nodes.

    ``path``: where commands are looked up. ``cores``: the CPUs of this machine that are offered, all if None.
    ``trust_users``: all pods run as one user. ``host_paths``: pods may use hostPath volumes. ``mount_over``: folders of
    the system that volumes may cover. ``pod_network``: the machine's network, or none. ``simulated``: simulated nodes.
    ``virtual_node``: whether pods on virtual nodes of MasterQueues go to pools, run on this machine, or are simulated.
    ``kept_logs``: the bounds of the logs of deleted pods. ``ledger``: the bounds of the accounts. ``runtime``: whether
    pods run as processes of this machine or from images.
    """

    path: str = podplan.DEFAULT_PATH
    cores: int | None = None
    trust_users: bool = False
    host_paths: bool = False
    mount_over: tuple[str, ...] = ()
    pod_network: Literal["host", "none"] = "host"
    simulated: tuple[Json, ...] = ()
    virtual_node: Literal["pools", "local", "simulate"] = "pools"
    kept_logs: ArchiveLimits = field(default_factory=ArchiveLimits)
    ledger: LedgerLimits = field(default_factory=LedgerLimits)
    runtime: RuntimeChoice = "process"


class ControlPlane:
    """Everything beside the server. Pods outlive ``run``."""

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
        self._options = podplan.RuntimeOptions(
            path=settings.path,
            host_paths=host_paths(settings),
            mount_over=settings.mount_over,
            network=settings.pod_network,
            runtime=settings.runtime,
            tenants=not settings.trust_users and is_for_others(data),
        )
        facts = node.read_facts(str(self._folder))
        self._facts = facts if settings.cores is None else replace(facts, cores=settings.cores)
        self._name = self._facts.hostname or "localhost"
        self._runtime: Runtime | None = None
        self._archive = LogArchive(str(self._folder / "kept-logs"), settings.kept_logs, time.time)
        self._ledger = Ledger(str(data / "ledger"), settings.ledger, time.time)
        self._client: Client | None = None
        self._pools: PoolRuntime | None = None
        self._signer = signing.load_or_make(data / "pool.key")
        self._simulated = {body["metadata"]["name"] for body in settings.simulated}
        # The address of the server for pods; None if they cannot reach it. Set before ``run``.
        self.server_address: ServerAddress | None = None
        # Set when new jobs are queued and this machine accepts pods.
        self.ready = asyncio.Event()

    @property
    def isolates_tenants(self) -> bool:
        """Whether pods of different namespaces run isolated from each other, or not at all."""
        return self._options.tenants

    async def run(self, api: Api, fairness: WriteFairness) -> None:
        client = self._client = Client(Direct(api), "kyu")
        plane = Plane(
            client,
            self._configuration,
            self._clock,
            self._connect,
            (*rows.controllers(), *workflow_rows.controllers()),
            api.metrics.registry,
            fairness,
        )
        write = Writer(client, plane.cache, self._clock, component="kyu-node")
        mode = self._settings.virtual_node
        is_virtual = partial(is_virtual_node, plane)
        access = AccountAccess(client, self.server_address)
        agent = Agent(
            client,
            plane.cache,
            write,
            lambda name: name == self._name or (mode == "local" and is_virtual(name)),
            access,
        )
        pretender = Agent(client, plane.cache, write, self._simulated.__contains__)
        far = Agent(client, plane.cache, write, lambda name: mode != "local" and is_virtual(name))
        machine = Machine(self._name, node.resources(self._facts), gpus=self._facts.gpus)
        if not self._settings.trust_users and await has_users(client):
            self._options = replace(self._options, tenants=True)
        self._ledger.open()
        accounts = Bookkeeper(plane.view, self._ledger, self._clock)
        self._runtime = Runtime(
            str(self._folder), machine, agent.on_status, self._options, self._archive, agent.on_event, accounts
        )
        attempts = AttemptsPage(self._ledger, partial(created_at, api.store))
        api.add_collection(make_resource(), attempts.list)
        api.admission.webhook = EmbeddedAdmission(plane, api).admit
        pending = QueueVisibility(plane.scheduler.current_state, plane.view)
        await self._register_simulated(client)
        async with asyncio.TaskGroup() as group:
            group.create_task(plane.run())
            # An agent that does not see all pods yet would end those that it should adopt.
            await plane.started.wait()
            # By now the queues of kueue.x-k8s.io are served, which clients mean by "clusterqueues".
            if self._configuration.gates.enabled("VisibilityOnDemand"):
                api.add_subresource(SUBRESOURCE, {"GET": partial(show_pending, pending)}, resources())
            group.create_task(agent.run(self._runtime))
            group.create_task(pretender.run(simulate.SimulatedRuntime(simulate.RealClock(), pretender.on_status)))
            group.create_task(far.run(self._virtual_runtime(plane, far)))
            group.create_task(self._keep_machine(client, self._runtime))
            group.create_task(access.keep_renewed(self._runtime, time.time))

    def _virtual_runtime(self, plane: Plane, agent: Agent) -> PodRuntime:
        """Return the runtime for pods of virtual nodes."""
        if self._settings.virtual_node == "simulate":
            clock = simulate.RealClock()
            return simulate.SimulatedRuntime(
                clock, lambda pod, status: agent.on_status(pod, with_simulated_mark(status))
            )
        self._pools = PoolRuntime(plane.view, plane.pools, self._signer, agent.on_status)
        return self._pools

    async def _keep_machine(self, client: Client, runtime: Runtime) -> None:
        """Register this machine once its capacity is known, and renew its lease."""
        await runtime.opened.wait()
        abilities = node.Abilities(
            limits_refused=runtime.cgroup_root.reason,
            mounts_refused=runtime.mounts_refused,
            isolation_refused=runtime.isolation.refused if self._options.tenants else NOT_ISOLATED,
            isolation_missing=runtime.isolation.missing,
            trusts_users=self._settings.trust_users,
            refuses_pods=bool(runtime.isolation.refused),
            images_refused=runtime.images.refused if self._settings.runtime != "process" else None,
        )
        await heartbeat.register(client, [node.make_node(self._name, self._facts, abilities, self._clock())])
        self.ready.set()
        await heartbeat.keep_alive(client, self._name, self._clock)

    async def _register_simulated(self, client: Client) -> None:
        """Create the nodes of the file, and delete those of an earlier file; their pods follow."""
        known, _ = await client.list(Node.KIND, labels=f"{SIMULATED_LABEL}=true")
        for name in {body["metadata"]["name"] for body in known} - self._simulated:
            await client.delete(Node.KIND, Key("", name))
        await heartbeat.register(client, self._settings.simulated)

    async def read_logs(self, pod: Json, wanted: PodLogOptions) -> bytes | ResponseStream:
        """Return the log of a container, for the server."""
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
        return LogStream(found, log_options(wanted, self._clock()))

    def check_streams(self, pod: Json, container: str) -> None:
        """Reject a stream into a pod whose container does not run as a process of this machine."""
        if pod["spec"].get("nodeName") in self._simulated:
            raise errors.bad_request("the pod is simulated: no process runs in it")
        if self._pools is not None and self._pools.owns(pod):
            raise errors.not_implemented("the pod runs in a pool, which offers its output only; use `kubectl logs`")
        if self._runtime is None:
            raise errors.unavailable("the runtime is starting")
        if not self._runtime.runs(pod["metadata"]["uid"], container):
            raise errors.StatusError(404, "NotFound", f'container not found ("{container}")')

    async def run_command(self, pod: Json, command: list[str], wanted: StreamOptions) -> RunningCommand:
        """Start a command in a container, for the server."""
        assert self._runtime is not None, "check_streams was called"
        streams = CommandStreams(wanted.stdin, wanted.stdout, wanted.stderr, wanted.tty)
        try:
            return await self._runtime.run_command(pod["metadata"]["uid"], wanted.container, command, streams)
        except NoCommand as error:
            raise CannotRun(str(error), error.exit_code) from error

    async def attach(self, pod: Json, wanted: StreamOptions) -> RunningCommand:
        """Connect with the program of a container, for the server."""
        assert self._runtime is not None, "check_streams was called"
        streams = CommandStreams(wanted.stdin, wanted.stdout, wanted.stderr)
        try:
            return await self._runtime.attach(pod["metadata"]["uid"], wanted.container, streams)
        except NoCommand as error:
            raise CannotRun(str(error)) from error

    async def connect(self, pod: Json, port: int) -> Descriptor:
        """Connect with a port of a pod, for the server."""
        assert self._runtime is not None, "check_streams was called"
        try:
            return await self._runtime.connect(pod["metadata"]["uid"], port)
        except (NoCommand, OSError, TimeoutError) as error:
            name = pod["metadata"]["name"]
            raise CannotRun(f"error forwarding port {port} to pod {name}: {error}") from error

    async def read_kept_logs(
        self, namespace: str, name: str, wanted: PodLogOptions, may_read: Callable[[str], bool]
    ) -> bytes | None:
        """Return the output of a deleted pod, or the list of the kept pods of a job; None if there is none."""
        # A deleted namespace takes its logs with it: another user may have made a new one of that name.
        found = None if self._client is None else await self._client.find(Namespace.KIND, Key("", namespace))
        if found is None:
            return None
        pods = self._archive.pods(namespace, found["metadata"]["creationTimestamp"])
        if name.startswith(log_archive.JOB_PREFIX):
            return log_archive.list_pods(pods, name.removeprefix(log_archive.JOB_PREFIX))
        pod = log_archive.find_pod(pods, name)
        if pod is None or not may_read(pod.submitter):
            return None
        path = self._archive.find_log(pod, wanted.container, previous=wanted.previous)
        if isinstance(path, logs.NoLog):
            raise errors.bad_request(path.message)
        return await asyncio.to_thread(log_archive.read_log, path, log_options(wanted, self._clock()))


async def show_pending(pending: QueueVisibility, request: Request, target: Target) -> Response:
    """Answer a request for the pending workloads of a queue."""
    kind = target.resource.kind
    return json_response(200, pending.summary(kind.version, kind.plural, Key(*target.key), request.query))


def is_virtual_node(plane: Plane, name: str) -> bool:
    found = plane.cache.find_json(Node.KIND, Key("", name))
    return found is not None and VIRTUAL_LABEL in (found["metadata"].get("labels") or {})


def created_at(store: Store, namespace: str) -> str:
    """Return the time of a namespace's creation, or a time after all others if there is none."""
    found = store.latest("namespaces", "", namespace)
    created = representations.decode(found.value)["metadata"]["creationTimestamp"] if found is not None else "Z"
    return str(created)


def is_for_others(data: Path) -> bool:
    """Return whether pods get users of their own: root gives them, unless the data folder lies in a private place."""
    if os.geteuid() != 0:
        return False
    return all(folder.stat().st_mode & 0o001 for folder in data.absolute().parents)


async def has_users(client: Client) -> bool:
    """Return whether other people have access. Then their pods run isolated or not at all."""
    found, _ = await client.list(SECRET, tokens.NAMESPACE)
    users = [tokens.read_secret(secret) for secret in found if secret.get("type") == tokens.SECRET_TYPE]
    return any(auth.MASTERS not in user.groups for user in users)


def host_paths(settings: NodeSettings) -> tuple[str, ...]:
    """Return the folders that hostPath may name: all by choice, else the home folder of the user that runs Kyu."""
    if settings.host_paths:
        return ("/",)
    return () if os.geteuid() == 0 else (os.path.expanduser("~"),)


def log_options(wanted: PodLogOptions, now: datetime) -> logs.LogOptions:
    return logs.LogOptions(
        follow=wanted.follow,
        tail_lines=wanted.tail_lines,
        since=since(wanted, now),
        timestamps=wanted.timestamps,
        limit_bytes=wanted.limit_bytes,
    )


def since(wanted: PodLogOptions, now: datetime) -> datetime | None:
    if wanted.since_seconds is not None:
        return now - timedelta(seconds=wanted.since_seconds)
    return datetime.fromisoformat(wanted.since_time).astimezone(UTC) if wanted.since_time else None


def check_settings(request: AdmissionRequest) -> None:
    """Reject settings of the controllers that cannot be used, for example a misspelt name."""
    meta = request.new["metadata"]
    if (meta.get("namespace"), meta.get("name")) != (SETTINGS.namespace, SETTINGS.name):
        return
    field = f"data[{SETTINGS_FILE}]"
    try:
        load_config_map(request.new)
    except InvalidConfiguration as error:
        faults = [FieldError(one.type, f"{field}.{one.field}", one.value, one.detail) for one in error.errors]
        raise errors.invalid(request.resource.kind, SETTINGS.name, faults) from error
    except (ValueError, AttributeError) as error:
        fault = FieldError("Invalid", field, "", f"the settings cannot be read: {error}")
        raise errors.invalid(request.resource.kind, SETTINGS.name, [fault]) from error


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


class EmbeddedAdmission:
    """The admission of the embedded server: the checks and defaults of Kueue's webhooks."""

    def __init__(self, plane: Plane, api: Api) -> None:
        self._plane = plane
        self._api = api

    def admit(self, request: AdmissionRequest) -> None:
        self._prepare(request)
        submitters.record(request, self._api.registry, self._api.store, INTERNAL)

    def _prepare(self, request: AdmissionRequest) -> None:
        kind = request.resource.kind
        typed = {"apiVersion": kind.api_version, "kind": kind.kind}
        old = None if request.old is None else {**typed, **request.old}
        if (kind.group, kind.kind) == (Workload.KIND.group, Workload.KIND.kind) and not self._may_bypass(request):
            self._check_edit(request, old)
        if kind == Workflow.KIND:
            self._check_workflow(request, typed)
            return
        if kind.group == ClusterQueue.KIND.group and old is None:
            changed = rules.prepare_create({**typed, **request.new}, self._plane.view.configuration.gates)
        elif pods_of_jobs.kind_of(typed) is not None:
            view = self._plane.view
            name = request.new["metadata"].get("name", "")
            if request.resource.is_custom and (found := webhook.shape_errors({**typed, **request.new})):
                raise errors.invalid(kind, name, found)
            given = self._without_placement(request, {**typed, **request.new}, old)
            verdict = webhook.admit(view, given, old)
            by_hand = [] if request.user == INTERNAL else webhook.assigned_by_hand(given, old)
            wrapped = wrapping.find_faults(request, self._api.registry, self._api.authorizer)
            unknown = webhook.not_run_here({**typed, **request.new}, old)
            if not self._may_bypass(request) and (found := outside_queues.find_errors(view, verdict.obj, old)):
                raise errors.forbidden(kind, name, "; ".join(map(str, found)))
            if faults := [*by_hand, *wrapped, *unknown]:
                raise errors.invalid(kind, name, [*faults, *verdict.errors])
            if verdict.errors:
                raise errors.denied(kind, verdict.errors)
            changed = verdict.obj
        else:
            if kind.kind == CONFIG_MAP.kind and not kind.group:
                check_settings(request)
            return
        self._replace(request, changed, typed)

    def _check_edit(self, request: AdmissionRequest, old: Json | None) -> None:
        """Reject a change of a Workload that would free the quota of running pods."""
        if found := workload_edits.find_errors(request.new, old):
            name = request.new["metadata"].get("name", "")
            raise errors.forbidden(request.resource.kind, name, "; ".join(map(str, found)))
        if old is None:
            workload_edits.prepare_create(request.new)

    def _check_workflow(self, request: AdmissionRequest, typed: Json) -> None:
        """Reject a Workflow that is invalid, or whose steps its user may not create."""
        faults = workflow_webhook.find_errors(self._plane.view, {**typed, **request.new}, request.old)
        faults += workflow_rights.find_faults(request, self._api.authorizer)
        if faults:
            raise errors.invalid(Workflow.KIND, request.new["metadata"].get("name", ""), faults)

    def _without_placement(self, request: AdmissionRequest, given: Json, old: Json | None) -> Json:
        """Return the object, with the label of a cluster as a wish unless the user may place it now."""
        if request.user == INTERNAL:
            return given
        wished = webhook.with_wish(given, old)
        if wished is given or (
            self._may(webhook.PLACE, request) and webhook.may_be_placed(self._plane.view, given, old)
        ):
            return given
        return wished

    def _may_bypass(self, request: AdmissionRequest) -> bool:
        """Return whether the user may run work outside the queues."""
        return self._may(outside_queues.BYPASS, request)

    def _may(self, verb: str, request: AdmissionRequest) -> bool:
        """Return whether the user has a right that is a verb on localqueues."""
        namespace = request.new["metadata"].get("namespace", "")
        right = rbac.Attributes(verb, LocalQueue.KIND.group, LocalQueue.KIND.plural, "", namespace)
        return request.user == INTERNAL or self._api.authorizer.is_allowed(request.user, right)

    def _replace(self, request: AdmissionRequest, changed: Json, typed: Json) -> None:
        request.new.clear()
        request.new.update({name: value for name, value in changed.items() if name not in typed})
