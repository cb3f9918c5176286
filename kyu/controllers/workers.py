"""
Connections to worker clusters: each MultiKueueCluster has one, and what we sent there is followed over it.

Of a cluster only objects with our origin are followed: Workloads, and the kinds of jobs that it serves. A connection
that breaks is made again, later each time, and everything listed anew; meanwhile its objects count as not known. A
kubeconfig that cannot be used is tried again when its Secret changes; one in a file, as often as a connection. Without
a MultiKueueCluster nothing here runs, unless a Workload is in one that was taken away.

Their rows have a loop of their own: a cluster that answers slowly must not hold up the work on this one.

Called by: plane.py. Calls: dispatch_rows.py, dispatch_metrics.py, worker_secrets.py.
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
from kyu.api.kueue import MultiKueueCluster, Workload
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.controllers import dispatch_rows
from kyu.controllers.dispatch_metrics import DispatchMetrics
from kyu.controllers.live import LiveView
from kyu.controllers.loop import Loop
from kyu.controllers.table import has_checks
from kyu.controllers.worker_secrets import Unusable, find_credentials
from kyu.kinds import metadata, table
from kyu.kube import errors, http
from kyu.kube.apply import Writer
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client
from kyu.kube.kubeconfig import Credentials
from kyu.plans.workers import Worker, is_ours

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 60.0
# Answers that say nothing about what was asked: who we are is not clear, it took too long, others came first.
PASSING = frozenset({401, 408, 409, 410, 425, 429})
REFUSED_SECONDS = 60.0
# A cluster that does not answer for so long counts as lost; it is longer than most webhooks may take.
WRITE_SECONDS = 15.0
SILENT = "no answer to a write"
# How often a cluster is asked something, so that one that hangs is noticed while nothing is written to it.
ASKED_EVERY_SECONDS = 15.0
# How often a cluster is asked for the kinds of jobs that it did not have.
NEW_KINDS_SECONDS = 60.0


class Link:
    """The connection to one cluster, and what is known of it."""

    def __init__(self, links: Links, name: str) -> None:
        self._links = links
        self._failures = 0
        # Writes that were not answered, since one was: a cluster that answers questions only is asked less often.
        self._silences = 0
        self.worker = Worker(name, False, links.clock(), "ClientConnectionFailed", "Connecting", Cache())
        self._writer: Writer | None = None
        # Set when a write was not answered.
        self._silence: asyncio.Event | None = None
        self._cache = Cache()
        self._refusals: dict[Key, str] = {}
        self.task: asyncio.Task[None] | None = None

    async def run(self, cluster: MultiKueueCluster) -> None:
        """Until it is cancelled; or until it is clear that the Secret has to change first, which we would hear of."""
        source = cluster.spec.cluster_source.kube_config
        is_file = source is not None and source.location_type == "Path"
        while True:
            fault: Exception | None = None
            try:
                credentials = find_credentials(cluster, self._links.secrets, self._links.view.configuration)
            except Unusable as error:
                self.lose(error.reason, str(error))
                if not is_file:
                    return
            else:
                try:
                    await self._hold(credentials)
                except* Exception as group:
                    # Whatever another cluster answers must not end the work on this one.
                    fault = group
            if self.task is not asyncio.current_task():
                # Cancelled together with the fault: up to Python 3.12 a TaskGroup forgets that. Another is at work.
                return
            if fault is not None:
                self.lose("ClientConnectionFailed", words_of(fault))
            delay = min(FIRST_DELAY_SECONDS * 2**self._failures, LONGEST_DELAY_SECONDS)
            self._failures = min(self._failures + 1, 10)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))

    async def _hold(self, credentials: Credentials) -> None:
        """Connect, and stay so until something breaks."""
        client = Client(await http.connect(credentials), "kyu")
        try:
            labels = f"{metadata.MULTI_KUEUE_ORIGIN}={self._links.view.configuration.multi_kueue.origin}"
            await self._ask(client, labels)
            kinds = await self._served(client, labels, self._links.job_kinds()) | {Workload.KIND}
            cache, silence = Cache(), asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for kind in kinds:
                    group.create_task(Reflector(client, cache, kind, labels=labels).follow())
                await cache.synced()
                self._connected(client, cache, kinds, silence)
                group.create_task(self._follow_new_kinds(group, client, cache, labels))
                group.create_task(self._keep_asking(client, labels))
                await silence.wait()
                raise errors.Unreachable(f"{credentials.server}: {SILENT}")
        finally:
            await client.close()

    async def _keep_asking(self, client: Client, labels: str) -> None:
        """A watch that is open says nothing about a server that has stopped."""
        while True:
            await asyncio.sleep(ASKED_EVERY_SECONDS)
            await self._ask(client, labels)

    async def _ask(self, client: Client, labels: str) -> None:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await client.page(Workload.KIND, None, labels=labels, limit=1)
        except TimeoutError as error:
            raise errors.Unreachable(f"cluster {self.worker.name}: no answer") from error

    async def _follow_new_kinds(self, group: asyncio.TaskGroup, client: Client, cache: Cache, labels: str) -> None:
        """Those that the cluster gets later, as when somebody installs their operator."""
        while missing := [kind for kind in self._links.job_kinds() if kind not in self.worker.kinds]:
            await asyncio.sleep(NEW_KINDS_SECONDS)
            if found := await self._served(client, labels, missing):
                for kind in found:
                    group.create_task(Reflector(client, cache, kind, labels=labels).follow())
                await cache.synced()
                self.worker = replace(self.worker, kinds=self.worker.kinds | found)
                self._links.flipped(self.worker.name)

    async def _served(self, client: Client, labels: str, wanted: Iterable[Kind]) -> frozenset[Kind]:
        """Those of the kinds that the cluster has."""
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
        self._writer = Writer(client, cache, self._links.clock)
        cache.subscribe(self._changed)
        name, now = self.worker.name, self._links.clock()
        self.worker = Worker(name, True, now, "Active", "Connected", cache, kinds, self._refusals)
        log.info("connected to cluster", cluster=name)
        self._links.flipped(name)
        for copy in cache.list_json(Workload.KIND):
            # Also of those that are not sent any more, since their queue has no check.
            self._links.concerns(key_of(copy))

    def lose(self, reason: str, message: str) -> None:
        """The time of the loss is that of the first failure."""
        known = self.worker
        since = self._links.clock() if known.is_connected else known.since
        self._writer = None
        self.worker = Worker(known.name, False, since, reason, message, Cache())
        if known.is_connected:
            log.warning("cluster lost", cluster=known.name, error=message)
            self._links.flipped(known.name)
        elif (known.reason, known.message) != (reason, message):
            self._links.told(known.name)

    def _changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        obj = new or old
        assert obj is not None
        self._links.concerns(workload_of(kind, obj))
        if kind != Workload.KIND:
            # The job here may be a later one, which waits for the name.
            self._links.concerns_job(kind, key_of(obj))

    async def write(self, action: Action) -> None:
        """What the cluster does not take, or has of somebody else, is asked again later: it is left out for a while."""
        writer, silence = self._writer, self._silence
        if writer is None or silence is None:
            raise errors.Unreachable(f"cluster {self.worker.name} is not connected")
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await writer([action])
            self._silences = 0
            if isinstance(action, Create):
                self._check_owner(action)
        except TimeoutError as error:
            if not silence.is_set():
                # Everybody who writes to it would wait as long.
                silence.set()
                self._silences = min(self._silences + 1, 10)
            raise errors.Unreachable(f"cluster {self.worker.name}: {SILENT}") from error
        except errors.ApiError as error:
            if not isinstance(action, Create) or not is_refusal(error):
                raise
            self._leave_out(workload_of(action.kind, action.body), str(error))

    def _check_owner(self, made: Create) -> None:
        """What is there of somebody else is not followed: nobody would hear when it is gone."""
        found = self._cache.find_json(made.kind, key_of(made.body))
        if found is not None and not is_ours(found, self._links.view.configuration.multi_kueue.origin):
            self._cache.drop(made.kind, key_of(found))
            words = f"a {made.kind.kind} {found['metadata']['name']} of somebody else is there"
            self._leave_out(workload_of(made.kind, made.body), words)

    def _leave_out(self, key: Key, why: str) -> None:
        log.warning("refused by cluster", cluster=self.worker.name, workload=key, error=why)
        self._refusals[key] = why
        asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._ask_again, self._refusals, key)
        self._links.concerns(key)

    def _ask_again(self, refusals: dict[Key, str], key: Key) -> None:
        refusals.pop(key, None)
        self._links.concerns(key)


class Links:
    """All connections of this process. ``changed`` follows the MultiKueueClusters; ``run`` runs until cancelled."""

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
        self._links: dict[str, Link] = {}
        # From the first cluster on, or the first Workload in one: what was sent to one that is gone is followed, too.
        self._is_used = False
        self._due: dict[str, None] = {}
        self._wakeup = asyncio.Event()
        self._write_here = Writer(client, cache, clock, component="multikueue")
        self._loop = Loop(view, self._write, dispatch_rows.controllers(self._workers), clock)
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
        link = self._links.get(name)
        if link is not None and link.task is not None:
            link.task.cancel()
            link.task = None
            link.lose("ClientConnectionFailed", "Connecting")
        if cluster is None or not self.view.configuration.gates.enabled("MultiKueue"):
            if self._links.pop(name, None) is not None:
                self.flipped(name)
            return
        self._is_used = True
        if link is None:
            link = self._links[name] = Link(self, name)
            # One that is not reached from the start on is given up in time, too.
            self.flipped(name)
        link.task = group.create_task(link.run(cluster))

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

    # For the rows.

    def _workers(self) -> Mapping[str, Worker]:
        return {name: link.worker for name, link in self._links.items()}

    async def _write(self, actions: Sequence[Action]) -> None:
        """Here first; then in each cluster by itself, so that one that hangs or fails is no trouble of the others."""
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
        link = self._links.get(cluster)
        if link is None:
            raise errors.Unreachable(f"cluster {cluster} is not known")
        for action in actions:
            await link.write(action)

    # For the links.

    def job_kinds(self) -> list[Kind]:
        enabled = self.view.configuration.integrations.frameworks
        return [kind.kind for kind in table.KINDS if kind.may_be_dispatched and kind.framework in enabled]

    def concerns(self, workload: Key) -> None:
        self._loop.again((dispatch_rows.WORKLOADS, workload))

    def concerns_job(self, kind: Kind, key: Key) -> None:
        if (job := self.view.find_json(kind, key)) is not None:
            for workload in dispatch_rows.workloads_of_job(self.view, job):
                self.concerns(workload)

    def told(self, name: str) -> None:
        self._loop.again((dispatch_rows.CLUSTERS, Key("", name)))

    def flipped(self, name: str) -> None:
        """A cluster was reached or lost: that concerns everything that may be there."""
        self.told(name)
        self._loop.again((dispatch_rows.GARBAGE, Key("", name)))
        for one in self.view.list_json(Workload.KIND):
            if has_checks(one):
                self.concerns(key_of(one))


def workload_of(kind: Kind, obj: Json) -> Key:
    """The Workload that an object which we sent stands for, or belongs to."""
    name = key_of(obj).name if kind == Workload.KIND else metadata.identifier(obj, metadata.PREBUILT_WORKLOAD)
    return Key(obj["metadata"]["namespace"], name)


def is_refusal(error: errors.ApiError) -> bool:
    """A namespace that is missing there, a right, a field, a webhook: somebody has to change something first."""
    return 400 <= error.code <= 500 and error.code not in PASSING


def is_away(workload: Json | None) -> bool:
    """A cluster has admitted it."""
    return bool(workload and (workload.get("status") or {}).get("clusterName"))


def spec_of(cluster: Json | None) -> Json | None:
    return cluster.get("spec") if cluster is not None else None


def words_of(fault: Exception) -> str:
    """What the first fault of a group says, which may hold groups itself."""
    if isinstance(fault, ExceptionGroup):
        return words_of(fault.exceptions[0])
    return str(fault) if isinstance(fault, errors.ApiError | OSError) else repr(fault)
