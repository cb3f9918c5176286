"""
The state of the engine: queues, cohorts, pending workloads and workloads that hold quota.

Objects change the state as they arrive; every rule reads it. A cycle makes no copy. A what-if takes workloads out and
puts them back. An admission is *assumed* at once. The object that comes back confirms it, and a failed write undoes it.
A change wakes only its own tree, so a cycle costs as much as what has changed.

START HERE for the engine's API: ``State(options)``, ``put``, ``delete``, ``forget``, ``stats``, ``pending``, ``check``;
then ``schedule.schedule``. Kueue: pkg/cache/scheduler, pkg/cache/queue
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kyu.api.checks import AdmissionCheck
from kyu.api.core import LimitRange, Namespace, Node, Pod, RuntimeClass
from kyu.api.meta import Key, Kind, Object
from kyu.api.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, WorkloadPriorityClass
from kyu.api.workloads import Workload
from kyu.engine import invariants, requests, stats, workloads
from kyu.engine.cluster import Cluster, Inactive
from kyu.engine.options import Options
from kyu.engine.pending_workloads import PendingWorkloads
from kyu.engine.preemption import classical, fair
from kyu.engine.preemption.candidates import Demand, PreemptionTarget
from kyu.engine.queueing.pending_workload import PendingGroup, PendingWorkload
from kyu.engine.quota.amounts import FlavorResource
from kyu.engine.quota.obtainable import obtainable_quota
from kyu.engine.request_shape import RequestShapes
from kyu.engine.reserved_workloads import ReservedWorkloads
from kyu.engine.stats import QuotaReport, Stats
from kyu.engine.topology.forest import Forest
from kyu.engine.tree import Hierarchy, Queue, TreeNode, is_backfilled, queues_of
from kyu.engine.wakes import Wakes
from kyu.engine.workloads import ReservedWorkload

ADMISSION_FAIR_SHARING = "UsageBasedAdmissionFairSharing"


@dataclass(slots=True)
class State:
    """The objects that decisions depend on, as the engine keeps them."""

    options: Options
    hierarchy: Hierarchy = field(default_factory=Hierarchy)
    queues: dict[str, Queue] = field(init=False)
    """The ClusterQueues of the hierarchy, by name."""
    forest: Forest = field(init=False)
    """The nodes of the cluster, by topology."""
    cluster: Cluster = field(init=False)
    shapes: RequestShapes = field(init=False)
    pending: PendingWorkloads = field(init=False)
    wakes: Wakes = field(init=False)
    reserved: ReservedWorkloads = field(init=False)
    cycles: int = 0
    """The number of the current cycle; between cycles, of the next."""
    backfilling: int = 0
    """The number of ClusterQueues with backfill."""
    placing: int = 0
    """The number of ClusterQueues that have a flavor with a topology."""
    _assumed: dict[Key, PendingWorkload] = field(default_factory=dict)
    """Admissions that no object has confirmed yet."""
    _limit_ranges: dict[Key, LimitRange] = field(default_factory=dict)
    search_targets: Callable[[ReservedWorkloads, Demand], list[PreemptionTarget]] = classical.search
    """Returns the workloads to preempt, under the rules that are configured."""
    compiled_assignments: dict[object, Any] = field(default_factory=dict)
    """The cache of ``engine/flavors/compiled.py``."""
    _compiled_at: int = 0

    def __post_init__(self) -> None:
        if self.options.fair_sharing:
            self.search_targets = fair.search
        self.queues = self.hierarchy.queues
        self.forest = Forest(self.options.topology_gates)
        self.cluster = Cluster(self.forest)
        self.shapes = RequestShapes(self.options)
        self.pending = PendingWorkloads(self.options, self.queues)
        self.wakes = Wakes(self.hierarchy, self.cluster, self.pending)
        self.reserved = ReservedWorkloads(self.options, self.hierarchy, self.cluster, self.pending, self.wakes)

    # Objects

    def put(self, obj: Object) -> None:
        """Add or update an object. Putting the same object again changes nothing."""
        match obj:
            case Workload():
                self._put_workload(obj)
            case ClusterQueue():
                self._put_cluster_queue(obj)
            case LocalQueue():
                self.pending.put_local_queue(obj)
            case Cohort():
                self.wakes.add(self.hierarchy.put_cohort(obj))
            case ResourceFlavor():
                if self.cluster.put_flavor(obj):
                    self._review(q for q in self.queues.values() if obj.metadata.name in q.flavor_names())
            case Topology():
                if self.cluster.put_topology(obj):
                    self._review(self.queues.values())
            case AdmissionCheck():
                if self.cluster.put_check(obj):
                    self._review(self.queues.values())
            case Node():
                if self.cluster.put_node(obj):
                    self.wakes.add_topologies()
            case Pod():
                if self.cluster.put_pod(obj):
                    self.wakes.add_topologies()
            case Namespace():
                if self.cluster.put_namespace(obj):
                    self.wakes.add_namespace(obj.metadata.name)
            case LimitRange():
                self._limit_ranges[obj.key] = obj
                self._fold_limit_ranges(obj.metadata.namespace)
            case RuntimeClass():
                self.shapes.overhead_by_class[obj.metadata.name] = obj.overhead.pod_fixed
                self.shapes.forget_parsed()
            case WorkloadPriorityClass():
                pass  # workloads carry the number
            case _:
                raise TypeError(f"the engine does not know the kind {type(obj).__name__}")

    def delete(self, kind: Kind, key: Key) -> None:
        """Remove an object. Deleting an unknown object changes nothing."""
        match kind.kind:
            case "Workload":
                workload = self.pending.workloads.get(key)
                queue = None if workload is None else self.pending.find_queue(workload)
                self._remove_workload(key)
                if queue is not None:
                    # The workload held no quota, so no wake condition is met. Other heads may follow it.
                    self.wakes.add(queue, set())
            case "ClusterQueue":
                self._delete_cluster_queue(key.name)
            case "LocalQueue":
                self.pending.delete_local_queue(key)
            case "Cohort":
                if (cohort := self.hierarchy.cohorts.get(key.name)) is not None:
                    self.wakes.add(cohort)
                    self.hierarchy.delete_cohort(key.name)
            case "ResourceFlavor":
                if self.cluster.delete_flavor(key.name):
                    self._review(q for q in self.queues.values() if key.name in q.flavor_names())
            case "Topology":
                if self.cluster.delete_topology(key.name):
                    self._review(self.queues.values())
            case "AdmissionCheck":
                if self.cluster.checks.pop(key.name, None) is not None:
                    self._review(self.queues.values())
            case "Node":
                if self.cluster.delete_node(key.name):
                    self.wakes.add_topologies()
            case "Pod":
                if self.cluster.delete_pod(key):
                    self.wakes.add_topologies()
            case "Namespace":
                if self.cluster.labels_by_namespace.pop(key.name, None) is not None:
                    for queue in self.queues.values():
                        self.wakes.add_head(queue, key.name)
            case "LimitRange":
                if self._limit_ranges.pop(key, None) is not None:
                    self._fold_limit_ranges(key.namespace)
            case "RuntimeClass":
                self.shapes.overhead_by_class.pop(key.name, None)
                self.shapes.forget_parsed()
            case "WorkloadPriorityClass":
                pass
            case _:
                raise TypeError(f"the engine does not know the kind {kind.kind}")

    def _fold_limit_ranges(self, namespace: str) -> None:
        found = [r for key, r in sorted(self._limit_ranges.items()) if key.namespace == namespace]
        if found:
            self.shapes.limits_by_namespace[namespace] = requests.fold_limit_ranges(found)
        else:
            self.shapes.limits_by_namespace.pop(namespace, None)
        self.shapes.forget_parsed()

    # Workloads

    def _put_workload(self, found: Workload) -> None:
        match workloads.phase(found, self.options):
            case "idle":
                self._remove_workload(found.key)
            case "reserved":
                self._put_reserved(found)
            case "waiting":
                self._put_pending(found)

    def _put_pending(self, found: Workload) -> None:
        workload = workloads.make_pending(found, self.shapes.find(found), self.options)
        key = workload.key
        if key in self._assumed:
            self._assumed[key] = workload
            return
        if key in self.reserved.by_key:
            self._remove_workload(key)
        old = self.pending.workloads.get(key)
        if old is not None:
            if workloads.is_same(old, workload):
                return
            if self.options.flavor_fungibility_preserve_scan_progress:
                workload.memory = old.memory
            self.pending.replace(old, workload)
            return
        self.pending.add(workload)

    def _put_reserved(self, found: Workload) -> None:
        admission = found.status.admission
        assert admission is not None
        self._assumed.pop(found.key, None)
        if (waiting := self.pending.workloads.get(found.key)) is not None:
            self.pending.remove(waiting)
        shape = self.shapes.find(found)
        assigned = tuple(workloads.read_assigned(a, shape) for a in admission.pod_set_assignments)
        workload = workloads.make_pending(found, shape, self.options)
        old = self.reserved.by_key.get(found.key)
        if old is not None and (old.assigned != assigned or old.cluster_queue != admission.cluster_queue):
            self._remove_workload(found.key)
            old = None
        if old is None:
            self.reserved.read(workload, assigned, found)
        else:
            self.reserved.update(old, workload, found)

    def _remove_workload(self, key: Key) -> None:
        self._assumed.pop(key, None)
        if (workload := self.pending.workloads.get(key)) is not None:
            self.pending.remove(workload)
            self.pending.drop_penalty(workload)
        if (reserved := self.reserved.by_key.get(key)) is not None:
            self.reserved.remove(reserved)

    def assume(self, workload: PendingWorkload, reserved: ReservedWorkload, *, first: bool) -> None:
        """Reserve quota for a workload as the cycle decided, before its object says so."""
        if first:
            self._assumed[workload.key] = workload
            self.pending.remove(workload)
            self.pending.note_penalty(workload, self.queues[reserved.cluster_queue])
        self.reserved.add(reserved)

    def confirm(self, key: Key) -> None:
        """Count a workload that holds quota as admitted, before its object says so."""
        self.reserved.confirm(key)

    def release(self, key: Key, *, queued_at: float | None = None) -> None:
        """
        Release the quota of an evicted workload that has stopped, and queue it again.

        The workload keeps its queue time unless ``queued_at`` is given.
        """
        reserved = self.reserved.by_key[key]
        self.reserved.remove(reserved)
        self._assumed.pop(key, None)
        time = reserved.time if queued_at is None else queued_at
        self.pending.add(
            PendingWorkload(
                key,
                reserved.uid,
                reserved.priority,
                time,
                reserved.shape,
                reserved.local_queue,
                reserved.rare,
                limit=reserved.limit,
            )
        )

    def forget(self, key: Key) -> None:
        """Undo an assumed admission or eviction, after its write failed."""
        workload = self._assumed.pop(key, None)
        reserved = self.reserved.by_key.get(key)
        if reserved is None:
            return
        if workload is None:
            self.reserved.forget_eviction(reserved)
            return
        self.reserved.remove(reserved)
        self.pending.drop_penalty(workload)
        self.pending.add(workload)

    def assumed_workload(self, key: Key) -> PendingWorkload:
        """Return a workload as it was pending, before the cycle that admitted it."""
        return self._assumed[key]

    def forget_assumed(self, workload: PendingWorkload) -> None:
        """Forget that a workload was admitted. The caller has released its quota."""
        self._assumed.pop(workload.key, None)
        self.pending.drop_penalty(workload)

    # Queues

    def _put_cluster_queue(self, found: ClusterQueue) -> None:
        name = found.metadata.name
        old = self.queues.get(name)
        terminating = found.metadata.deletion_timestamp is not None
        backfills = is_backfilled(found)
        if old is not None and old.spec == found.spec and old.terminating == terminating and old.backfills == backfills:
            return
        if old is not None:
            self.wakes.add(old)
            if old.backfills != backfills:
                # Only workloads with equal limits are equivalent there, so the classes change.
                self.pending.close_queue(old)
        was_backfilled = old is not None and old.backfills
        queue = self.hierarchy.put_queue(found)
        self.backfilling += queue.backfills - was_backfilled
        scope = found.spec.admission_scope
        by_usage = scope is not None and scope.admission_mode == ADMISSION_FAIR_SHARING
        queue.by_usage = by_usage and self.options.admission_fair_sharing is not None
        queue.pending.obtainable = obtainable_quota(
            queue.policies, in_cohort=queue.parent is not None, fair_sharing=self.options.fair_sharing
        )
        queue.pending.past_usage = self.pending.order_by_usage(queue) if queue.by_usage else None
        self._review((queue,))
        if old is not None and was_backfilled != backfills:
            self.pending.open_queue(name)
        if old is None:
            for reserved in [h for h in self.reserved.by_key.values() if h.cluster_queue == name]:
                self.reserved.charge(queue, reserved)
            self.pending.open_queue(name)

    def _delete_cluster_queue(self, name: str) -> None:
        queue = self.queues.get(name)
        if queue is None:
            return
        self.wakes.add(queue)
        self.placing -= queue.placed
        self.backfilling -= queue.backfills
        self.pending.close_queue(queue)
        for _, reserved in list(queue.reserved_workloads):
            queue.remove(reserved)
            reserved.charges = ()
        self.hierarchy.delete_queue(name)

    def _review(self, queues: Iterable[Queue]) -> None:
        """Find again whether queues are active and which flavors have a topology, after a change of the cluster."""
        self.compiled_assignments.clear()
        for queue in list(queues):
            active = self.cluster.why_inactive(queue) is None
            if active != queue.active:
                queue.active = active
                self.hierarchy.mark(queue)
            flavors = queue.flavor_names()
            self.placing -= queue.placed
            queue.placed = any(map(self.cluster.has_topology, flavors))
            self.placing += queue.placed
            queue.topology_only = bool(flavors) and all(map(self.cluster.has_topology, flavors))
            self.wakes.add(queue)

    # Cycles

    def begin(self, now: float) -> None:
        """Prepare a cycle: settle changed trees, end backoffs, sample past usage."""
        if self.hierarchy.has_changed or self.hierarchy.settled != self._compiled_at:
            for root in self.hierarchy.refresh():
                self._review(queues_of(root))
            self.hierarchy.refresh()
            self.compiled_assignments.clear()
            self._compiled_at = self.hierarchy.settled
        self.pending.end_backoffs(now)
        self.pending.sample_usage(now)
        self.wakes.apply(now)

    # Looking

    def stats(self, cluster_queue: str) -> Stats:
        """Return the counts and usage of a ClusterQueue."""
        self.hierarchy.refresh()
        return stats.of_queue(self.queues[cluster_queue], self.reserved.admitted_by_queue)

    def local_queue_stats(self, key: Key) -> Stats:
        """Return the counts and usage of a LocalQueue."""
        return stats.of_local_queue(self.pending.record(key))

    def consumed_resources(self, key: Key, now: float) -> Mapping[str, float] | None:
        """Sample and return the past usage of a LocalQueue; None without AdmissionFairSharing."""
        rules = self.options.admission_fair_sharing
        if rules is None:
            return None
        record = self.pending.record(key)
        record.sample(now, rules)
        return record.consumed

    def cohort_stats(self, name: str) -> Stats:
        """Return the counts and usage of a Cohort with all queues below it."""
        self.hierarchy.refresh()
        return stats.of_cohort(self.hierarchy.cohorts[name], self.reserved.admitted_by_queue)

    def why_inactive(self, cluster_queue: str) -> Inactive | None:
        """Return the reason why a ClusterQueue admits no workload; None if it is active."""
        return self.cluster.why_inactive(self.queues[cluster_queue])

    def find_pending(self, key: Key) -> PendingWorkload | None:
        """Return a pending workload; None if it is not pending."""
        return self.pending.workloads.get(key)

    def find_reserved(self, key: Key) -> ReservedWorkload | None:
        """Return a workload that holds quota; None if it holds none."""
        return self.reserved.by_key.get(key)

    def all_pending(self) -> list[PendingWorkload]:
        """Return all pending workloads, sorted by key."""
        return [workload for _, workload in sorted(self.pending.workloads.items())]

    def all_reserved(self) -> list[ReservedWorkload]:
        """Return all workloads that hold quota, sorted by key."""
        return [reserved for _, reserved in sorted(self.reserved.by_key.items())]

    def reserved_in(self, cluster_queue: str) -> list[ReservedWorkload]:
        """Return the workloads that hold quota of a ClusterQueue, the first to be preempted first."""
        return [reserved for _, reserved in self.queues[cluster_queue].reserved_workloads]

    def pending_count(self) -> int:
        """Return the number of pending workloads of all queues."""
        return len(self.pending.workloads)

    def usage_in(self, cluster_queue: str) -> list[tuple[FlavorResource, int]]:
        """Return the usage of a ClusterQueue by flavor and resource."""
        return [(key, quota.usage) for key, quota in self.queues[cluster_queue].quotas.items()]

    def pending_in(self, cluster_queue: str, *, limit: int = 1000, offset: int = 0) -> list[PendingWorkload]:
        """Return the pending workloads of a ClusterQueue, in the order of the queue."""
        queue = self.queues.get(cluster_queue)
        return [] if queue is None else queue.pending.waiting()[offset : offset + limit]

    def active_in(self, cluster_queue: str) -> list[PendingWorkload]:
        """Return the pending workloads of a ClusterQueue that the next cycles try, in order."""
        return self.queues[cluster_queue].pending.left()

    def inadmissible_in(self, cluster_queue: str) -> list[PendingWorkload]:
        """Return the pending workloads of a ClusterQueue that wait for a change, in order."""
        return self.queues[cluster_queue].pending.inadmissible()

    def pending_groups(self, cluster_queue: str) -> list[PendingGroup]:
        """Return the pending workloads of a ClusterQueue by request shape. The cost is that of the shapes."""
        return list(self.queues[cluster_queue].pending.groups())

    def past_usage_of(self, key: Key) -> float | None:
        """Return the past usage of a LocalQueue, with penalties; None without AdmissionFairSharing."""
        rules = self.options.admission_fair_sharing
        return None if rules is None else self.pending.record(key).past_usage(rules)

    def cohorts_above(self, cluster_queue: str) -> list[str]:
        """Return the Cohorts of a ClusterQueue, the parent first and the root last; none within a cycle."""
        return _names_above(self.queues[cluster_queue])

    def cohorts_above_cohort(self, cohort: str) -> list[str]:
        """Return the Cohorts of a Cohort, the parent first and the root last; none within a cycle."""
        return _names_above(self.hierarchy.cohorts[cohort])

    def has_queue(self, cluster_queue: str) -> bool:
        """Return whether the ClusterQueue exists."""
        return cluster_queue in self.queues

    def cohort_of(self, cluster_queue: str) -> str:
        """Return the name of the cohort of a ClusterQueue; empty without one."""
        parent = self.queues[cluster_queue].parent
        return "" if parent is None else parent.name

    def queue_phase(self, cluster_queue: str) -> Literal["pending", "active", "terminating"]:
        """Return whether a ClusterQueue admits workloads, cannot do so yet, or is being deleted."""
        queue = self.queues[cluster_queue]
        return "terminating" if queue.terminating else "active" if queue.active else "pending"

    def has_cohort(self, cohort: str) -> bool:
        """Return whether the Cohort exists, by an object or by a reference to it."""
        return cohort in self.hierarchy.cohorts

    def queue_names(self) -> list[str]:
        """Return the names of all ClusterQueues, sorted."""
        return sorted(self.queues)

    def cohort_names(self) -> list[str]:
        """Return the names of all Cohorts, sorted, with those that are only referred to."""
        return sorted(self.hierarchy.cohorts)

    def tree_of(self, cluster_queue: str) -> str:
        """Return the path of the root of a ClusterQueue's tree."""
        root = self.queues[cluster_queue].root
        return f"{type(root).__name__}/{root.name}"

    def queue_quotas(self, cluster_queue: str) -> list[QuotaReport]:
        """Return the quota and usage of a ClusterQueue, by flavor and resource."""
        return stats.quotas_of(self.queues[cluster_queue])

    def cohort_quotas(self, cohort: str) -> list[QuotaReport]:
        """Return the quota and usage of a Cohort, by flavor and resource."""
        return stats.quotas_of(self.hierarchy.cohorts[cohort])

    def check(self) -> None:
        """Raise AssertionError unless counts, usage and queues agree with the workloads."""
        self.hierarchy.refresh()
        invariants.check(self.hierarchy, self.pending, self.reserved.by_key)
        self.forest.check()


def _names_above(node: TreeNode) -> list[str]:
    return [] if node.parent is not None and node.root is node else [cohort.name for cohort in node.ancestors()]
