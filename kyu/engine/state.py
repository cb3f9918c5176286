"""
The live state: what there is, who waits, who holds quota. Changed by objects as they come, read by every rule.

Nothing is copied for a cycle. A what-if takes workloads out and puts them back; admissions that a cycle decides are
*assumed* at once and either confirmed by the object that comes back or forgotten when the write failed. A change wakes
only the tree that it concerns, so the cost of a cycle is that of what has changed.

START HERE for the engine's API: ``State(options)``, ``put``, ``delete``, ``forget``, ``stats``, ``pending``, ``check``;
then ``cycle.schedule``. Kueue: pkg/cache/scheduler, pkg/cache/queue
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kyu.api import placement as stored
from kyu.api.checks import AdmissionCheck
from kyu.api.core import LimitRange, Namespace, Node, Pod, RuntimeClass
from kyu.api.meta import Key, Kind, Object, selects
from kyu.api.quantity import amount
from kyu.api.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, WorkloadPriorityClass
from kyu.api.workloads import PodSetAssignment, Workload
from kyu.engine import fair_preemption, invariants, preemption, requests, stats, workload
from kyu.engine.asks import Ask
from kyu.engine.cluster import Cluster, Inactive
from kyu.engine.options import Options
from kyu.engine.preemption import Demand, Stage, Target
from kyu.engine.quota import FlavorResource, charge
from kyu.engine.reach import reach_of
from kyu.engine.shapes import Shape, Shapes
from kyu.engine.stats import Stats
from kyu.engine.topology_forest import Forest
from kyu.engine.topology_types import DomainUsage, Placement
from kyu.engine.tree import Hierarchy, Queue, TreeNode, queues_of
from kyu.engine.waiting import WaitingRoom
from kyu.engine.workload import AssignedPodSet, Holding

ADMISSION_FAIR_SHARING = "UsageBasedAdmissionFairSharing"


@dataclass(slots=True)
class State:
    """All that decisions depend on."""

    options: Options
    hierarchy: Hierarchy = field(default_factory=Hierarchy)
    queues: dict[str, Queue] = field(init=False)
    """Those of the hierarchy, by name."""
    forest: Forest = field(init=False)
    """The nodes of the cluster, by topology."""
    cluster: Cluster = field(init=False)
    shapes: Shapes = field(init=False)
    waiting: WaitingRoom = field(init=False)
    holdings: dict[Key, Holding] = field(default_factory=dict)
    cycles: int = 0
    """How many there were: the number of the one that is on, or is next."""
    not_ready: int = 0
    """Workloads that hold quota and whose pods are not all ready."""
    placing: int = 0
    """How many queues have a flavor with a topology."""
    second_passes: dict[Key, Holding] = field(default_factory=dict)
    _assumed: dict[Key, Ask] = field(default_factory=dict)
    """What was admitted here and not seen in an object yet."""
    _limit_ranges: dict[Key, LimitRange] = field(default_factory=dict)
    _admitted_by_queue: dict[str, int] = field(default_factory=dict)
    find_targets: Callable[[Stage, Demand], list[Target]] = preemption.find_targets
    """Whom to preempt, under the rules that are configured."""
    _wakes: dict[TreeNode, set[FlavorResource] | None] = field(default_factory=dict)
    """Nodes of trees that are to be woken, with what has become free there; None for anything."""

    def __post_init__(self) -> None:
        if self.options.fair_sharing:
            self.find_targets = fair_preemption.find_targets
        self.queues = self.hierarchy.queues
        self.forest = Forest(self.options.topology_gates)
        self.cluster = Cluster(self.forest)
        self.shapes = Shapes(self.options)
        self.waiting = WaitingRoom(self.options, self.queues)

    # Objects

    def put(self, obj: Object) -> None:
        """An object was created or changed. Putting the same again changes nothing."""
        match obj:
            case Workload():
                self._put_workload(obj)
            case ClusterQueue():
                self._put_cluster_queue(obj)
            case LocalQueue():
                self.waiting.put_local_queue(obj)
            case Cohort():
                self._wake_tree(self.hierarchy.put_cohort(obj))
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
                    self._wake_topologies()
            case Pod():
                if self.cluster.put_pod(obj):
                    self._wake_topologies()
            case Namespace():
                if self.cluster.put_namespace(obj):
                    self._wake_held(obj.metadata.name)
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
        """An object is gone. Deleting what is not there changes nothing."""
        match kind.kind:
            case "Workload":
                ask = self.waiting.asks.get(key)
                queue = None if ask is None else self.waiting.find_queue(ask)
                self._remove_workload(key)
                if queue is not None:
                    # It held nothing, so nobody who waits for quota is asked; whoever waits for a turn gets one.
                    self._wake_tree(queue, set())
            case "ClusterQueue":
                self._delete_cluster_queue(key.name)
            case "LocalQueue":
                self.waiting.delete_local_queue(key)
            case "Cohort":
                if (cohort := self.hierarchy.cohorts.get(key.name)) is not None:
                    self._wake_tree(cohort)
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
                    self._wake_topologies()
            case "Pod":
                if self.cluster.delete_pod(key):
                    self._wake_topologies()
            case "Namespace":
                if self.cluster.labels_by_namespace.pop(key.name, None) is not None:
                    for queue in self.queues.values():
                        self._wake_head(queue, key.name)
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
        match workload.phase(found, self.options):
            case "idle":
                self._remove_workload(found.key)
            case "holding":
                self._put_holding(found)
            case "waiting":
                self._put_ask(found)

    def _put_ask(self, found: Workload) -> None:
        ask = workload.make_ask(found, self.shapes.find(found), self.options)
        key = ask.key
        if key in self._assumed:
            self._assumed[key] = ask
            return
        if key in self.holdings:
            self._remove_workload(key)
        old = self.waiting.asks.get(key)
        if old is not None:
            if workload.is_same(old, ask):
                return
            if self.options.flavor_fungibility_preserve_scan_progress:
                ask.memory = old.memory
            self.waiting.replace(old, ask)
            return
        self.waiting.add(ask)

    def _put_holding(self, found: Workload) -> None:
        admission = found.status.admission
        assert admission is not None
        self._assumed.pop(found.key, None)
        if (waiting := self.waiting.asks.get(found.key)) is not None:
            self.waiting.remove(waiting)
        shape = self.shapes.find(found)
        assigned = tuple(self._read_assigned(a, shape) for a in admission.pod_set_assignments)
        ask = workload.make_ask(found, shape, self.options)
        old = self.holdings.get(found.key)
        if old is not None and (old.assigned != assigned or old.cluster_queue != admission.cluster_queue):
            self._remove_workload(found.key)
            old = None
        if old is None:
            holding = Holding(ask, admission.cluster_queue, assigned, workload.reservation_time(found))
            self._note_status(holding, found)
            holding.order = holding.candidate_order()
            self.add_holding(holding)
        else:
            self._update_holding(old, ask, found)

    def _note_status(self, holding: Holding, found: Workload) -> None:
        holding.admitted = workload.is_admitted(found)
        holding.evicted = holding.preempting or workload.is_evicted(found)
        holding.ready = workload.is_ready(found)
        holding.second_pass = workload.second_pass(found, self.options)

    def _update_holding(self, holding: Holding, ask: Ask, found: Workload) -> None:
        """The same quota as before; what may differ is how far the workload has come."""
        queue = self.queues.get(holding.cluster_queue)
        was_admitted, was_ready, old_priority = holding.admitted, holding.ready, holding.priority
        if ask.priority != old_priority:
            Queue.count_priority(holding, -1)
            holding.priority = ask.priority
            Queue.count_priority(holding, +1)
        if holding.time != ask.time and queue is not None:
            # Who waits for its place may preempt those who came later than itself.
            self.waiting.awake.add(queue)
        holding.time, holding.special = ask.time, ask.special
        holding.reserved_at = workload.reservation_time(found)
        self._note_status(holding, found)
        if holding.order != holding.candidate_order():
            if queue is not None:
                queue.reorder(holding)
                self.waiting.awake.add(queue)
            holding.order = holding.candidate_order()
        self._note_second_pass(holding)
        self.not_ready += was_ready - holding.ready
        if was_admitted != holding.admitted:
            self._count_admitted(holding, +1 if holding.admitted else -1)
        if holding.priority != old_priority:
            self._wake_queue_tree(holding.cluster_queue)

    def _read_assigned(self, found: PodSetAssignment, shape: Shape) -> AssignedPodSet:
        """What the status says the pod set holds, less what its finished pods no longer need."""
        pod_set = next((p for p in shape.pod_sets if p.name == found.name), None)
        held = found.count if found.count is not None else pod_set.spec_count if pod_set else 0
        count = held if pod_set is None else min(held, pod_set.count)
        usage = {r: amount(r, value) for r, value in found.resource_usage.items()}
        if 0 <= count < held:
            usage = {r: value // held * count for r, value in usage.items()}
        placed = None
        if found.topology_assignment is not None:
            where = found.topology_assignment
            placed = Placement(where.levels, stored.domains(where))
        return AssignedPodSet(
            found.name, count, dict(found.flavors), usage, placed, found.delayed_topology_request == "Pending"
        )

    def _remove_workload(self, key: Key) -> None:
        self._assumed.pop(key, None)
        if (ask := self.waiting.asks.get(key)) is not None:
            self.waiting.remove(ask)
            self.waiting.drop_penalty(ask)
        if (holding := self.holdings.get(key)) is not None:
            self.remove_holding(holding)

    def add_holding(self, holding: Holding) -> None:
        """The workload has quota from now on."""
        self.holdings[holding.key] = holding
        queue = self.queues.get(holding.cluster_queue)
        if queue is not None:
            self._charge(queue, holding)
            self.waiting.awake.add(queue)
        holding.topology = self.topology_usage(holding)
        self.forest.add(holding.topology)
        record = self.waiting.record(holding.local_queue)
        record.count(holding, +1)
        if holding.admitted:
            self._admitted_by_queue[holding.cluster_queue] = self._admitted_by_queue.get(holding.cluster_queue, 0) + 1
        self.not_ready += not holding.ready
        if holding.second_pass is not None:
            self._note_second_pass(holding)

    def _charge(self, queue: Queue, holding: Holding) -> None:
        holding.charges = holding.charges or queue.charges_of(holding.assigned)
        queue.add(holding)
        for cell, _ in holding.charges:
            if not cell.declared:
                # A flavor that the queue no longer lists: its cell must find its place in the tree.
                self.hierarchy.mark(queue)

    def remove_holding(self, holding: Holding) -> None:
        """The workload returned its quota: those who wait in its tree may try again."""
        del self.holdings[holding.key]
        self.second_passes.pop(holding.key, None)
        queue = self.queues.get(holding.cluster_queue)
        if queue is not None:
            queue.remove(holding)
            self._wake_tree(queue, {cell.key for cell, _ in holding.charges})
        self.forest.remove(holding.topology)
        record = self.waiting.record(holding.local_queue)
        record.count(holding, -1)
        if holding.admitted:
            self._admitted_by_queue[holding.cluster_queue] -= 1
        self.not_ready -= not holding.ready

    def _note_second_pass(self, holding: Holding) -> None:
        if holding.second_pass is None:
            self.second_passes.pop(holding.key, None)
        elif holding.key not in self.second_passes:
            self.second_passes[holding.key] = holding
            if (queue := self.queues.get(holding.cluster_queue)) is not None:
                self.waiting.awake.add(queue)

    def _count_admitted(self, holding: Holding, sign: int) -> None:
        name = holding.cluster_queue
        self._admitted_by_queue[name] = self._admitted_by_queue.get(name, 0) + sign
        Queue.count_admitted(holding, sign)
        record = self.waiting.record(holding.local_queue)
        record.count_admitted(holding, sign)
        if sign > 0:
            record.fold_penalty(holding.key)

    def topology_usage(self, holding: Holding) -> tuple[DomainUsage, ...]:
        """The room on nodes that a workload takes, a line for each pod set and domain."""
        placed = [(one, one.placement) for one in holding.assigned if one.placement is not None]
        if not placed:
            return ()
        raw = {pod_set.name: pod_set.raw for pod_set in holding.shape.pod_sets}
        return tuple(
            DomainUsage(flavor, domain.values, domain.count, raw.get(assigned.name, ()))
            for assigned, placement in placed
            for flavor in sorted({f for f in assigned.flavors.values() if self.cluster.has_topology(f)})[:1]
            for domain in placement.domains
        )

    def reassign(self, holding: Holding, assigned: tuple[AssignedPodSet, ...]) -> None:
        """A second pass has placed, or moved, a workload that keeps its quota or, with fewer pods, a part of it."""
        queue = self.queues[holding.cluster_queue]
        record = self.waiting.record(holding.local_queue)
        queue.remove(holding)
        record.count(holding, -1)
        self.forest.remove(holding.topology)
        holding.assigned, holding.charges, holding.second_pass = assigned, queue.charges_of(assigned), None
        holding.topology = self.topology_usage(holding)
        queue.add(holding)
        record.count(holding, +1)
        self.forest.add(holding.topology)
        self.second_passes.pop(holding.key, None)

    def assume(self, ask: Ask, holding: Holding, *, first: bool) -> None:
        """The cycle gave the workload quota; the object that says so comes later."""
        if first:
            self._assumed[ask.key] = ask
            self.waiting.remove(ask)
            self.waiting.note_penalty(ask, self.queues[holding.cluster_queue])
        self.add_holding(holding)

    def confirm(self, key: Key) -> None:
        """As if the object had come back that says that the workload is admitted, and not only has quota."""
        holding = self.holdings.get(key)
        if holding is not None and not holding.admitted:
            holding.admitted = True
            self._count_admitted(holding, +1)

    def release(self, key: Key, *, queued_at: float | None = None) -> None:
        """
        A workload that was evicted has stopped: return its quota and queue it again.

        It queues at the place that it had, unless it is said from when it queues.
        """
        holding = self.holdings[key]
        self.remove_holding(holding)
        self._assumed.pop(key, None)
        time = holding.time if queued_at is None else queued_at
        self.waiting.add(
            Ask(key, holding.uid, holding.priority, time, holding.shape, holding.local_queue, holding.special)
        )

    def forget(self, key: Key) -> None:
        """The decision could not be written: undo the admission, or the eviction, that was assumed."""
        ask = self._assumed.pop(key, None)
        holding = self.holdings.get(key)
        if holding is None:
            return
        if ask is None:
            self._forget_eviction(holding)
            return
        self.remove_holding(holding)
        self.waiting.drop_penalty(ask)
        self.waiting.add(ask)

    def _forget_eviction(self, holding: Holding) -> None:
        queue = self.queues.get(holding.cluster_queue)
        if holding.preempting and queue is not None:
            holding.preempting = holding.evicted = False
            queue.reorder(holding)
            self.waiting.awake.add(queue)

    # Queues

    def _put_cluster_queue(self, found: ClusterQueue) -> None:
        name = found.metadata.name
        old = self.queues.get(name)
        terminating = found.metadata.deletion_timestamp is not None
        if old is not None and old.spec == found.spec and old.terminating == terminating:
            return
        if old is not None:
            self._wake_tree(old)
        queue = self.hierarchy.put_queue(found)
        scope = found.spec.admission_scope
        by_usage = scope is not None and scope.admission_mode == ADMISSION_FAIR_SHARING
        queue.by_usage = by_usage and self.options.admission_fair_sharing is not None
        queue.line.reach = reach_of(queue, fair_sharing=self.options.fair_sharing)
        queue.line.past_usage = self.waiting.order_by_usage(queue) if queue.by_usage else None
        self._review((queue,))
        if old is None:
            for holding in [h for h in self.holdings.values() if h.cluster_queue == name]:
                self._charge(queue, holding)
            self.waiting.open_queue(name)

    def _delete_cluster_queue(self, name: str) -> None:
        queue = self.queues.get(name)
        if queue is None:
            return
        self._wake_tree(queue)
        self.placing -= queue.placed
        self.waiting.close_queue(queue)
        for _, holding in list(queue.holdings):
            queue.remove(holding)
            holding.charges = ()
        self.hierarchy.delete_queue(name)

    def _review(self, queues: Iterable[Queue]) -> None:
        """What the queues stand on has changed: are they active, do all their flavors have a topology?"""
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
            self._wake_tree(queue)

    # Waking

    def _wake_tree(self, node: TreeNode, grown: set[FlavorResource] | None = None) -> None:
        """Something in the tree may have become possible, by more quota being free or otherwise."""
        if node in self._wakes:
            known = self._wakes[node]
            grown = None if known is None or grown is None else known | grown
        self._wakes[node] = grown

    def _apply_wakes(self, now: float) -> None:
        """Everybody in the trees that were woken gets another turn."""
        while self._wakes:
            wakes, self._wakes = self._wakes, {}
            by_root: dict[TreeNode, set[FlavorResource] | None] = {}
            for node, grown in wakes.items():
                root = self.hierarchy.find_root(node)
                if root in by_root:
                    known = by_root[root]
                    grown = None if known is None or grown is None else known | grown
                by_root[root] = grown
            self.waiting.awake.update(by_root)
            for root, grown in by_root.items():
                for queue in self.hierarchy.members(root):
                    line = queue.line
                    if line.size:
                        line.wake(grown)
                        if line.held:
                            self._let_in(queue, now)

    def _let_in(self, queue: Queue, now: float) -> None:
        for ask in list(queue.line.held.values()):
            if ask.special.may_queue(now) and self.is_selected(queue, ask):
                self.waiting.let_in(queue, ask)

    @property
    def has_wakes(self) -> bool:
        return bool(self._wakes)

    def _wake_queue_tree(self, name: str) -> None:
        if (queue := self.queues.get(name)) is not None:
            self._wake_tree(queue)

    def _wake_topologies(self) -> None:
        """Nodes have changed: wake every tree with a flavor that is placed."""
        for queue in self.queues.values():
            if queue.placed:
                self._wake_tree(queue)

    def _wake_held(self, namespace: str) -> None:
        """The labels of a namespace have changed: workloads that a queue did not select may be selected now."""
        for queue in self.queues.values():
            if any(key.namespace == namespace for key in queue.line.held):
                self._wake_tree(queue)
            else:
                self._wake_head(queue, namespace)

    def _wake_head(self, queue: Queue, namespace: str) -> None:
        """Who keeps the head of a line, be it strict or a preemptor, may be served now, or has to make way."""
        head = queue.line.head()
        if head is not None and head.key.namespace == namespace:
            self.waiting.awake.add(queue)

    def begin(self, now: float) -> None:
        """What time has brought: settled trees, ended backoffs, another sample of past usage."""
        if self.hierarchy.has_changed:
            for root in self.hierarchy.refresh():
                self._review(queues_of(root))
            self.hierarchy.refresh()
        self.waiting.end_backoffs(now)
        self.waiting.sample_usage(now)
        self._apply_wakes(now)

    def is_selected(self, queue: Queue, ask: Ask) -> bool:
        """Whether the queue serves the workload's namespace."""
        labels = self.cluster.labels_by_namespace.get(ask.key.namespace)
        if queue.selects_all:
            return labels is not None
        return labels is not None and selects(queue.spec.namespace_selector, labels)

    # What-ifs

    def take_out(self, holding: Holding) -> None:
        """As if the workload were gone. The caller puts it back."""
        for cell, used in holding.charges:
            charge(cell, -used)
        if holding.topology:
            self.forest.release(holding.topology)
        holding.present = False

    def put_back(self, holding: Holding) -> None:
        for cell, used in holding.charges:
            charge(cell, used)
        if holding.topology:
            self.forest.charge(holding.topology)
        holding.present = True

    def past_usage(self, queue: Queue, local_queue: Key) -> float:
        return self.waiting.past_usage(queue, local_queue)

    # Looking

    def stats(self, cluster_queue: str) -> Stats:
        """Counts and usage of a ClusterQueue."""
        self.hierarchy.refresh()
        return stats.of_queue(self.queues[cluster_queue], self._admitted_by_queue)

    def local_queue_stats(self, key: Key) -> Stats:
        """Counts and usage of a LocalQueue."""
        return stats.of_local_queue(self.waiting.record(key))

    def cohort_stats(self, name: str) -> Stats:
        """Counts and usage of a Cohort with everything below it."""
        self.hierarchy.refresh()
        return stats.of_cohort(self.hierarchy.cohorts[name], self._admitted_by_queue)

    def why_inactive(self, cluster_queue: str) -> Inactive | None:
        """Why a ClusterQueue admits nothing; None if it does."""
        return self.cluster.why_inactive(self.queues[cluster_queue])

    def pending(self, cluster_queue: str, *, limit: int = 1000, offset: int = 0) -> list[Ask]:
        """Who waits in a ClusterQueue, in order."""
        queue = self.queues.get(cluster_queue)
        return [] if queue is None else queue.line.waiting()[offset : offset + limit]

    def check(self) -> None:
        """Raise AssertionError unless everything that is kept agrees with what it is kept for."""
        self.hierarchy.refresh()
        invariants.check(self.hierarchy, self.waiting, self.holdings)
        self.forest.check()
