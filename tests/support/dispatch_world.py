"""A manager and its worker clusters in memory: the real plans of both, a stand-in for schedulers and for pods."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kyu.api.actions import Action, Create, Elsewhere, WakeAt
from kyu.api.config import file
from kyu.api.config.config import Configuration
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.kinds import conditions, metadata, table
from kyu.kinds.job import JOB
from kyu.plans.clusters import checks as dispatch_clusters
from kyu.plans.clusters import dispatch
from kyu.plans.clusters.workers import Worker
from kyu.plans.job import lifecycle
from kyu.plans.status import StatusEdit
from kyu.plans.workload import lifecycle as workload
from tests.support.memory_view import MemoryView

KUEUE = "kueue.x-k8s.io/v1beta2"
JOB_KEY = Key("team", "train")
START = datetime(2026, 1, 1, 10, tzinfo=UTC)
LOST_AFTER = timedelta(minutes=15)
MOST_ROUNDS = 60


def settings(**multi_kueue: Any) -> Configuration:
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "multiKueue": multi_kueue}
    return file.load(document).configuration


def kueue_object(kind: str, name: str, namespace: str = "", **spec: Any) -> Json:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": meta, "spec": spec}

# The status of the Job controller.
RUNNING: Json = {"active": 1, "ready": 1, "startTime": "2026-01-01T00:00:00Z"}
SUSPENDED: Json = {"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]}


class Cluster(MemoryView):
    """One cluster: a queue, and plans that run whenever ``settle`` is called."""

    def __init__(self, checks: Iterable[str] = (), configuration: Configuration | None = None) -> None:
        flavors = [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": "9"}]}]
        strategy = {"admissionChecks": [{"name": name} for name in checks]}
        group = {"coveredResources": ["cpu"], "flavors": flavors}
        queue = kueue_object("ClusterQueue", "all", resourceGroups=[group], admissionChecksStrategy=strategy)
        super().__init__([queue, kueue_object("LocalQueue", "all", "team", clusterQueue="all")], configuration)
        self._uids = itertools.count(1)

    def carry_out(self, action: Action) -> None:
        if isinstance(action, Create):
            if self.find_json(action.kind, key_of(action.body)) is not None:
                return
            meta = {**action.body["metadata"], "uid": f"{id(self)}-{next(self._uids)}"}
            action = Create(action.kind, {**action.body, "metadata": meta})
        super().carry_out(action)

    def workload(self) -> Json | None:
        return next(iter(self.list_json(Workload.KIND)), None)

    def job(self) -> Json | None:
        return self.find_json(JOB, JOB_KEY)

    def holds(self, type_: str) -> bool:
        found = self.workload()
        return found is not None and conditions.is_true(found, type_)

    def collect(self) -> None:
        """What belongs to a job that is gone goes too."""
        present = {one["metadata"]["uid"] for one in self.objects.values()}
        for one in list(self.list_json(Workload.KIND)):
            owners = one["metadata"].get("ownerReferences") or ()
            if owners and not any(owner["uid"] in present for owner in owners):
                del self.objects[Workload.KIND.group, "Workload", key_of(one)]

    # What somebody else does.

    def edit(self, kind: Kind, obj: Json, **status: Any) -> None:
        self.put({**obj, "status": {**(obj.get("status") or {}), **status}})

    def reserve(self, now: datetime) -> None:
        """The scheduler finds room for it, if it waits for some."""
        found = self.workload()
        waits = found is not None and found["spec"].get("active", True) and not metadata.is_deleted(found)
        if found is None or not waits or self.holds("QuotaReserved") or self.holds("Finished"):
            return
        requeued = conditions.find(found, "Requeued")
        if requeued is not None and requeued["status"] != "True":
            return
        edit = StatusEdit(found, now)
        assigned = {"name": "main", "count": 1, "flavors": {"cpu": "any"}}
        edit.status["admission"] = {"clusterQueue": "all", "podSetAssignments": [assigned]}
        edit.set_condition("QuotaReserved", "True", "QuotaReserved", "")
        if edit.condition("Evicted") is not None:
            edit.set_condition("Evicted", "False", "QuotaReserved", "")
        self.edit(Workload.KIND, found, **edit.status)

    def evict(self, now: datetime, reason: str = "Preempted") -> None:
        found = self.workload()
        if found is None or not self.holds("Admitted") or self.holds("Evicted") or self.holds("Finished"):
            return
        edit = StatusEdit(found, now)
        workload.evict(edit, reason, "others come first")
        self.put({**found, "status": edit.status})

    def run_pods(self) -> None:
        """Its Job controller: as many pods as it may have now."""
        found = self.job()
        if found is None or found["spec"].get("managedBy") or conditions.is_true(found, "Complete"):
            return
        status = SUSPENDED if found["spec"]["suspend"] else RUNNING
        if (found.get("status") or {}) != status:
            self.put({**found, "status": status})

    def end_job(self) -> None:
        found = self.job()
        if found is not None and (found.get("status") or {}).get("active"):
            done = {"type": "Complete", "status": "True", "reason": "CompletionsReached", "message": "done"}
            self.put({**found, "status": {"succeeded": 1, "conditions": [done]}})


@dataclass
class World:
    """A manager with the job `train`, and what it reaches."""

    names: tuple[str, ...] = ("east", "west")
    configuration: Configuration = field(default_factory=lambda: settings())
    kinds: frozenset[Kind] = frozenset({Workload.KIND, JOB})

    def __post_init__(self) -> None:
        self.now = START
        self.manager = Cluster(["away"], self.configuration)
        self.clusters = {name: Cluster() for name in self.names}
        self.lost: dict[str, datetime] = {}
        self.wakes: list[datetime] = []
        self.refusals: dict[Key, str] = {}
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
        check = kueue_object(
            "AdmissionCheck", "away", controllerName="kueue.x-k8s.io/multikueue", parameters=parameters
        )
        self.manager.put(check)
        self.manager.put(kueue_object("MultiKueueConfig", "all", clusters=list(self.names)))

    def submit(self, **changes: Any) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        meta = {"name": "train", "namespace": "team", "labels": {metadata.QUEUE_NAME: "all"}}
        spec = {"suspend": True, "managedBy": metadata.MULTI_KUEUE, "template": template}
        body = {"metadata": {**meta, **changes.pop("metadata", {})}, "spec": {**spec, **changes}}
        self.manager.carry_out(Create(JOB, body))
        self.settle()

    def workers(self) -> Mapping[str, Worker]:
        found = {}
        for name, cluster in self.clusters.items():
            if name in self.lost:
                found[name] = Worker(name, False, self.lost[name], "ClientConnectionFailed", "no answer", MemoryView())
            else:
                found[name] = Worker(name, True, START, "Active", "Connected", cluster, self.kinds, self.refusals)
        return found

    def plan(self) -> list[Action]:
        """For every Workload that somebody has."""
        views = (self.manager, *self.clusters.values())
        keys = sorted({key_of(one) for view in views for one in view.list_json(Workload.KIND)})
        return [action for key in keys for action in dispatch.plan(self.workers, self.manager, key, self.now)]

    def carry_out(self, action: Action) -> None:
        if isinstance(action, Elsewhere):
            assert action.cluster not in self.lost, f"{action} is for a cluster that cannot be reached"
            self.clusters[action.cluster].carry_out(action.action)
        elif isinstance(action, WakeAt):
            self.wakes.append(action.at)
        else:
            before = self.manager.workload() or {}
            self.manager.carry_out(action)
            after = self.manager.workload() or {}
            assert may_follow(before.get("status") or {}, after.get("status") or {}), f"{action} would be refused"

    def settle(self) -> None:
        """All plans and pods, until nothing changes any more; what a plan does is seen by the next one at once."""
        for _ in range(MOST_ROUNDS):
            before = self.state()
            self.one_round()
            if self.state() == before:
                return
        raise AssertionError(f"it goes on and on: {self.plan()}")

    def one_round(self) -> None:
        self.wakes.clear()
        for cluster in (self.manager, *self.clusters.values()):
            one_by_one(cluster, self.now)
            cluster.run_pods()
            cluster.collect()
        for action in self.plan():
            self.carry_out(action)
        for name in self.clusters:
            for action in dispatch_clusters.plan_garbage(self.workers, self.manager, Key("", name), self.now):
                self.carry_out(action)

    def state(self) -> object:
        views = (self.manager, *self.clusters.values())
        return [[(key, without_version(obj)) for key, obj in sorted(view.objects.items())] for view in views]

    # What happens.

    def reserve(self, *names: str) -> None:
        """The schedulers of these clusters find room; `manager` is the one here."""
        for name in names:
            (self.manager if name == "manager" else self.clusters[name]).reserve(self.now)
            self.settle()

    def lose(self, name: str) -> None:
        self.lost.setdefault(name, self.now)
        self.settle()

    def find(self, name: str) -> None:
        self.lost.pop(name, None)
        self.settle()

    def wait(self, time: timedelta) -> None:
        self.now += time
        self.settle()

    # What is seen.

    @property
    def check(self) -> Json:
        found = self.manager.workload()
        assert found is not None
        (state,) = found["status"]["admissionChecks"]
        return dict(state)

    @property
    def cluster_name(self) -> str:
        found = self.manager.workload() or {}
        return str((found.get("status") or {}).get("clusterName") or "")

    def copies(self) -> list[str]:
        return [name for name, cluster in self.clusters.items() if cluster.workload() is not None]

    def jobs(self) -> list[str]:
        return [name for name, cluster in self.clusters.items() if cluster.job() is not None]


def one_by_one(cluster: Cluster, now: datetime) -> None:
    """Each plan sees what the one before has written, as with a cache that writes go through."""
    for one in list(cluster.list_json(Workload.KIND)):
        for action in workload.plan(cluster, key_of(one), now):
            cluster.carry_out(action)
    for kind in table.KINDS:
        if kind.framework in cluster.configuration.integrations.frameworks:
            for one in list(cluster.list_json(kind.kind)):
                for action in lifecycle.plan(kind, cluster, key_of(one), now):
                    cluster.carry_out(action)


def may_follow(before: Json, after: Json) -> bool:
    """The rule of servers: the cluster that is written down was nominated before."""
    chosen = after.get("clusterName")
    known = (before.get("clusterName"), *(before.get("nominatedClusterNames") or ()))
    return not chosen or chosen in known


def without_version(obj: Json) -> Json:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}
