"""
The connections to worker clusters, one for each MultiKueueCluster.

Only objects with our origin label are watched there: Workloads, and the kinds of jobs that the cluster serves. A broken
connection is made again with back-off and lists everything anew; until then its objects count as unknown. Unusable
credentials are read again when their Secret changes, or, from a file, at each attempt. Without a MultiKueueCluster
nothing here runs, unless a Workload was dispatched to a cluster that is deleted.

The rows have a loop of their own, so that a slow worker cluster does not delay local work.

Kueue: pkg/controller/admissionchecks/multikueue/multikueuecluster.go
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from kyu import log
from kyu.api.actions import Action, Create, Elsewhere
from kyu.api.core import SECRET
from kyu.api.kueue import ClusterQueue, LocalQueue, MultiKueueCluster, Workload
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.controllers.clusters import rows
from kyu.controllers.clusters.metrics import DispatchMetrics
from kyu.controllers.clusters.secrets import Unusable, find_credentials
from kyu.controllers.live_view import LiveView
from kyu.controllers.loop import Loop
from kyu.controllers.table import has_checks
from kyu.kinds import metadata, table
from kyu.kube import errors, http
from kyu.kube.apply import Writer
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client
from kyu.kube.kubeconfig import Credentials
from kyu.plans.clusters import worker_quotas
from kyu.plans.clusters.workers import Worker, is_ours

# Followed in worker clusters if the manager's quotas depend on them.
QUEUES = (ClusterQueue.KIND, LocalQueue.KIND)
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 60.0
# Codes that do not refuse the object: authentication, timeouts, conflicts, throttling.
PASSING = frozenset({401, 408, 409, 410, 425, 429})
REFUSED_SECONDS = 60.0
# A cluster without an answer for this long counts as lost. Longer than the timeout of most webhooks.
WRITE_SECONDS = 15.0
SILENT = "no answer to a write"
# Period of a probe request, which finds a hanging cluster while nothing is written to it.
ASKED_EVERY_SECONDS = 15.0
# Period of the check for job kinds that the cluster did not serve before.
NEW_KINDS_SECONDS = 60.0


class WorkerConnection:
    """The connection to a worker cluster, and its state."""

    def __init__(self, connections: WorkerConnections, name: str) -> None:
        self._connections = connections
        self._failures = 0
        # Consecutive writes without an answer; they lengthen the back-off even if reads are answered.
        self._silences = 0
        self.worker = Worker(name, False, connections.clock(), "ClientConnectionFailed", "Connecting", Cache())
        self._writer: Writer | None = None
        # Set when a write got no answer.
        self._silence: asyncio.Event | None = None
        self._cache = Cache()
        self._refusals: dict[Key, str] = {}
        self.task: asyncio.Task[None] | None = None

    async def run(self, cluster: MultiKueueCluster) -> None:
        """Connect until cancelled, or until only a change of the Secret can help."""
        source = cluster.spec.cluster_source.kube_config
        is_file = source is not None and source.location_type == "Path"
        while True:
            fault: Exception | None = None
            try:
                credentials = find_credentials(cluster, self._connections.secrets, self._connections.view.configuration)
            except Unusable as error:
                self.lose(error.reason, str(error))
                if not is_file:
                    return
            else:
                try:
                    await self._stay_connected(credentials)
                except* Exception as group:
                    # No answer of a worker cluster may end local work.
                    fault = group
            if self.task is not asyncio.current_task():
                # Cancelled together with the failure, which a TaskGroup forgets up to Python 3.12.
                return
            if fault is not None:
                self.lose("ClientConnectionFailed", words_of(fault))
            delay = min(FIRST_DELAY_SECONDS * 2**self._failures, LONGEST_DELAY_SECONDS)
            self._failures = min(self._failures + 1, 10)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))

    async def _stay_connected(self, credentials: Credentials) -> None:
        """Connect, and stay connected until something breaks."""
        client = Client(await http.connect(credentials), "kyu")
        try:
            labels = f"{metadata.MULTI_KUEUE_ORIGIN}={self._connections.view.configuration.multi_kueue.origin}"
            await self._ask(client, labels)
            kinds = await self._served(client, labels, self._connections.job_kinds()) | {Workload.KIND}
            cache, silence = Cache(), asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for kind in kinds:
                    group.create_task(Reflector(client, cache, kind, labels=labels).follow())
                queues = await self._follow_queues(group, client)
                await cache.synced()
                self._connected(client, cache, kinds, silence)
                self._follow_quotas(queues)
                group.create_task(self._follow_new_kinds(group, client, cache, labels))
                group.create_task(self._keep_asking(client, labels))
                await silence.wait()
                raise errors.NoAnswer(f"{credentials.server}: {SILENT}")
        finally:
            await client.close()

    async def _follow_queues(self, group: asyncio.TaskGroup, client: Client) -> Cache | None:
        """Follow the queues of the cluster, if quotas depend on them and the manager may read them."""
        if not self._connections.view.configuration.gates.enabled(worker_quotas.GATE):
            return None
        queues = Cache()
        try:
            for kind in QUEUES:
                await client.page(kind, None, limit=1)
        except (errors.NotFound, errors.Forbidden) as error:
            log.warning("queues of cluster cannot be read", cluster=self.worker.name, error=str(error))
            return None
        for kind in QUEUES:
            group.create_task(Reflector(client, queues, kind).follow())
        await queues.synced()
        return queues

    def _follow_quotas(self, queues: Cache | None) -> None:
        self.worker = replace(self.worker, queues=queues)
        self._connections.enqueue_quotas()
        if queues is not None:
            queues.subscribe(self._queue_changed)

    def _queue_changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        if spec_of(old) != spec_of(new):
            self._connections.enqueue_quotas()

    async def _keep_asking(self, client: Client, labels: str) -> None:
        """Probe the cluster: an open watch does not show that its server has stopped."""
        while True:
            await asyncio.sleep(ASKED_EVERY_SECONDS)
            await self._ask(client, labels)

    async def _ask(self, client: Client, labels: str) -> None:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await client.page(Workload.KIND, None, labels=labels, limit=1)
        except TimeoutError as error:
            raise errors.NoAnswer(f"cluster {self.worker.name}: no answer") from error

    async def _follow_new_kinds(self, group: asyncio.TaskGroup, client: Client, cache: Cache, labels: str) -> None:
        """Watch kinds that the cluster serves later, after an operator was installed."""
        while missing := [kind for kind in self._connections.job_kinds() if kind not in self.worker.kinds]:
            await asyncio.sleep(NEW_KINDS_SECONDS)
            if found := await self._served(client, labels, missing):
                for kind in found:
                    group.create_task(Reflector(client, cache, kind, labels=labels).follow())
                await cache.synced()
                self.worker = replace(self.worker, kinds=self.worker.kinds | found)
                self._connections.reachability_changed(self.worker.name)

    async def _served(self, client: Client, labels: str, wanted: Iterable[Kind]) -> frozenset[Kind]:
        """Return those of the kinds that the cluster serves."""
        kinds = set()
        for kind in wanted:
            try:
                await client.page(kind, None, labels=labels, limit=1)
            except errors.NotFound:
                continue
            kinds.add(kind)
        return frozenset(kinds)

    def _connected(self, client: Client, cache: Cache, kinds: frozenset[Kind], silence: asyncio.Event) -> None:
        self._failures = self._silences
        self._refusals = {}
        self._silence = silence
        self._cache = cache
        self._writer = Writer(client, cache, self._connections.clock)
        cache.subscribe(self._changed)
        name, now = self.worker.name, self._connections.clock()
        self.worker = Worker(name, True, now, "Active", "Connected", cache, kinds, self._refusals)
        log.info("connected to cluster", cluster=name)
        self._connections.reachability_changed(name)
        for copy in cache.list_json(Workload.KIND):
            # Includes copies of Workloads whose queue has no check any more.
            self._connections.enqueue(key_of(copy))

    def lose(self, reason: str, message: str) -> None:
        """Mark the cluster as lost since its first failure."""
        known = self.worker
        since = self._connections.clock() if known.is_connected else known.since
        self._writer = None
        self.worker = Worker(known.name, False, since, reason, message, Cache())
        if known.is_connected:
            self._connections.enqueue_quotas()
            log.warning("cluster lost", cluster=known.name, error=message)
            self._connections.reachability_changed(known.name)
        elif (known.reason, known.message) != (reason, message):
            self._connections.enqueue_status(known.name)

    def _changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        obj = new or old
        assert obj is not None
        self._connections.enqueue(workload_of(kind, obj))
        if kind != Workload.KIND:
            # A newer local job may wait for the name.
            self._connections.enqueue_job(kind, key_of(obj))

    async def write(self, action: Action) -> None:
        """Run an action in the cluster. A refused object is not sent again for a while."""
        writer, silence = self._writer, self._silence
        if writer is None or silence is None:
            raise errors.NoAnswer(f"cluster {self.worker.name} is not connected")
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await writer([action])
            self._silences = 0
            if isinstance(action, Create):
                self._check_owner(action)
        except TimeoutError as error:
            if not silence.is_set():
                # All other writes to the cluster would wait as long.
                silence.set()
                self._silences = min(self._silences + 1, 10)
            raise errors.NoAnswer(f"cluster {self.worker.name}: {SILENT}") from error
        except errors.ApiError as error:
            if not isinstance(action, Create) or not is_refusal(error):
                raise
            self._pause_sending(workload_of(action.kind, action.body), str(error))

    def _check_owner(self, made: Create) -> None:
        """Stop following an object of another origin: its deletion would not be delivered to our watch."""
        found = self._cache.find_json(made.kind, key_of(made.body))
        if found is not None and not is_ours(found, self._connections.view.configuration.multi_kueue.origin):
            self._cache.drop(made.kind, key_of(found))
            words = f"a {made.kind.kind} {found['metadata']['name']} of another origin exists there"
            self._pause_sending(workload_of(made.kind, made.body), words)

    def _pause_sending(self, key: Key, why: str) -> None:
        log.warning("refused by cluster", cluster=self.worker.name, workload=key, error=why)
        self._refusals[key] = why
        asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._resume_sending, self._refusals, key)
        self._connections.enqueue(key)

    def _resume_sending(self, refusals: dict[Key, str], key: Key) -> None:
        refusals.pop(key, None)
        self._connections.enqueue(key)


class WorkerConnections:
    """All connections of this process. ``changed`` follows MultiKueueClusters and Workloads."""

    def __init__(
        self,
        view: LiveView,
        client: Client,
        cache: Cache,
        clock: Callable[[], datetime],
        metrics: DispatchMetrics,
    ) -> None:
        self.view = view
        self._metrics = metrics
        self.clock = clock
        self.secrets = Cache()
        self._client = client
        self._connections: dict[str, WorkerConnection] = {}
        # True from the first MultiKueueCluster, or the first Workload dispatched to one, even if it is deleted.
        self._is_used = False
        self._due: dict[str, None] = {}
        self._wakeup = asyncio.Event()
        self._write_here = Writer(client, cache, clock, component="multikueue")
        self._loop = Loop(view, self._write, rows.controllers(self._workers), clock)
        self.secrets.subscribe(self._secret_changed)

    def changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        if kind == MultiKueueCluster.KIND and spec_of(old) != spec_of(new):
            obj = new or old
            assert obj is not None
            self._connect_anew(obj["metadata"]["name"])
        if not self._is_used and kind == Workload.KIND and is_away(new):
            self._is_used = True
            self._wakeup.set()
        if self._is_used:
            self._loop.changed(kind, old, new)
            if kind == Workload.KIND:
                self._metrics.note(old, new)

    def settings_changed(self) -> None:
        for obj in self.view.list_json(MultiKueueCluster.KIND):
            self._connect_anew(obj["metadata"]["name"])

    async def run(self) -> None:
        await self._wakeup.wait()
        async with asyncio.TaskGroup() as group:
            namespace = self.view.configuration.namespace
            group.create_task(Reflector(self._client, self.secrets, SECRET, namespace).run())
            await self.secrets.synced()
            group.create_task(self._loop.run())
            while True:
                self._wakeup.clear()
                while self._due:
                    self._restart(group, next(iter(self._due)))
                await self._wakeup.wait()

    def _restart(self, group: asyncio.TaskGroup, name: str) -> None:
        del self._due[name]
        cluster = self.view.get(MultiKueueCluster, Key("", name))
        connection = self._connections.get(name)
        if connection is not None and connection.task is not None:
            connection.task.cancel()
            connection.task = None
            connection.lose("ClientConnectionFailed", "Connecting")
        if cluster is None or not self.view.configuration.gates.enabled("MultiKueue"):
            if self._connections.pop(name, None) is not None:
                self.reachability_changed(name)
            return
        self._is_used = True
        if connection is None:
            connection = self._connections[name] = WorkerConnection(self, name)
            # A cluster that was never reached is also given up in time.
            self.reachability_changed(name)
        connection.task = group.create_task(connection.run(cluster))

    def _connect_anew(self, name: str) -> None:
        self._due[name] = None
        self._wakeup.set()

    def _secret_changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        if old is not None and new is not None and old.get("data") == new.get("data"):
            return
        obj = new or old
        assert obj is not None
        for cluster in self.view.list(MultiKueueCluster):
            source = cluster.spec.cluster_source.kube_config
            if source and source.location_type == "Secret" and source.location == obj["metadata"]["name"]:
                self._connect_anew(cluster.metadata.name)

    def _workers(self) -> Mapping[str, Worker]:
        return {name: connection.worker for name, connection in self._connections.items()}

    async def _write(self, actions: Sequence[Action]) -> None:
        """Write locally, then in each cluster independently, so that a failing cluster does not affect others."""
        here: list[Action] = []
        there: dict[str, list[Action]] = {}
        for action in actions:
            if isinstance(action, Elsewhere):
                there.setdefault(action.cluster, []).append(action.action)
            else:
                here.append(action)
        if here:
            await self._write_here(here)
        answers = await asyncio.gather(*itertools.starmap(self._write_there, there.items()), return_exceptions=True)
        for answer in answers:
            if answer is not None:
                raise answer

    async def _write_there(self, cluster: str, actions: Sequence[Action]) -> None:
        connection = self._connections.get(cluster)
        if connection is None:
            raise errors.NoAnswer(f"cluster {cluster} is not known")
        for action in actions:
            await connection.write(action)

    def job_kinds(self) -> list[Kind]:
        enabled = self.view.configuration.integrations.frameworks
        return [kind.kind for kind in table.KINDS if kind.may_be_dispatched and kind.framework in enabled]

    def enqueue(self, workload: Key) -> None:
        self._loop.again((rows.WORKLOADS, workload))

    def enqueue_job(self, kind: Kind, key: Key) -> None:
        if (job := self.view.find_json(kind, key)) is not None:
            for workload in rows.workloads_of_job(self.view, job):
                self.enqueue(workload)

    def enqueue_quotas(self) -> None:
        for one in self.view.list_json(ClusterQueue.KIND):
            self._loop.again((rows.QUOTAS, key_of(one)))

    def enqueue_status(self, name: str) -> None:
        self._loop.again((rows.CLUSTERS, Key("", name)))

    def reachability_changed(self, name: str) -> None:
        """Enqueue all that may concern a cluster that was reached or lost."""
        self.enqueue_status(name)
        self._loop.again((rows.GARBAGE, Key("", name)))
        for one in self.view.list_json(Workload.KIND):
            if has_checks(one):
                self.enqueue(key_of(one))


def workload_of(kind: Kind, obj: Json) -> Key:
    """Return the key of the Workload that a dispatched object is, or belongs to."""
    name = key_of(obj).name if kind == Workload.KIND else metadata.identifier(obj, metadata.PREBUILT_WORKLOAD)
    return Key(obj["metadata"]["namespace"], name)


def is_refusal(error: errors.ApiError) -> bool:
    """Return whether the object is refused until something changes: a namespace, a permission, a field, a webhook."""
    return 400 <= error.code <= 500 and error.code not in PASSING


def is_away(workload: Json | None) -> bool:
    """Return whether a worker cluster has admitted the Workload."""
    return bool(workload and (workload.get("status") or {}).get("clusterName"))


def spec_of(obj: Json | None) -> Json | None:
    return obj.get("spec") if obj is not None else None


def words_of(fault: Exception) -> str:
    """Return the message of the first error of a possibly nested group."""
    if isinstance(fault, ExceptionGroup):
        return words_of(fault.exceptions[0])
    return str(fault) if isinstance(fault, errors.ApiError | OSError) else repr(fault)
