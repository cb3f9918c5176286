"""
The trees of ClusterQueues and Cohorts: quotas, policies, and the workloads that hold quota.

A ``Queue`` is a ClusterQueue as the engine needs it. A ``CohortNode`` exists if there is a Cohort object, or if a queue
or another cohort names it. A changed spec only marks its tree; ``refresh`` recomputes all marked trees once. Quota
nodes of queues keep their identity, so the charges of a workload stay valid.

Called by: engine/state.py (changes), every rule of the engine (reads). Calls: engine/quota/amounts.py.
Kueue: pkg/cache/hierarchy, pkg/cache/scheduler/{cache,clusterqueue,cohort}.go
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kyu.api import quantity
from kyu.api.meta import LabelSelector
from kyu.api.queues import BACKFILL, QUEUEING_STRATEGY_ANNOTATION, ClusterQueue, Cohort, FairSharing, ResourceGroup
from kyu.engine.queueing.pending_queue import PendingQueue
from kyu.engine.quota import amounts
from kyu.engine.quota.amounts import FlavorResource, QuotaNode
from kyu.engine.quota.policies import Policies
from kyu.engine.workloads import AssignedPodSet, CandidateOrder, ReservedWorkload

# No tree is that high: a node with so many ancestors is in a cycle, and is its own root.
MAX_HEIGHT = 500


# Sorts after every evicted workload, and before all others.
_FIRST_TO_STAY: Any = ((True,),)


# The expected end of a workload that holds quota, its UID, the workload.
ExpectedEnd: TypeAlias = tuple[float, str, ReservedWorkload]


def is_backfilled(queue: ClusterQueue) -> bool:
    """Return whether a ClusterQueue asks for backfill, which only a StrictFIFO queue can."""
    wanted = queue.metadata.annotations.get(QUEUEING_STRATEGY_ANNOTATION) == BACKFILL
    return wanted and queue.spec.queueing_strategy == "StrictFIFO"


class TreeNode:
    """A ClusterQueue or Cohort in its tree, with a quota node for each flavor and resource."""

    __slots__ = ("name", "parent", "path", "quotas", "weight")

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = f"/{name}"
        """The names from the root down to this node."""
        self.parent: CohortNode | None = None
        self.quotas: dict[FlavorResource, QuotaNode] = {}
        self.weight = 1.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    def ancestors(self) -> Iterator[CohortNode]:
        """Yield the cohorts above the node, the parent first and the root last."""
        cohort = self.parent
        while cohort is not None:
            yield cohort
            cohort = cohort.parent

    @property
    def root(self) -> TreeNode:
        """The root of the node's tree; the node itself if its parents form a cycle."""
        node: TreeNode = self
        height = 0
        while node.parent is not None:
            node = node.parent
            height += 1
            if height > MAX_HEIGHT:
                return self
        return node

    def declare(self, groups: Iterable[ResourceGroup]) -> None:
        """Set the quotas from a spec. Quota nodes that are no longer declared stay while workloads use them."""
        for quota in self.quotas.values():
            quota.declared = False
            quota.nominal, quota.borrowing_limit, quota.lending_limit = 0, None, None
        for group in groups:
            for flavor in group.flavors:
                for resource in flavor.resources:
                    quota = self.quota(FlavorResource(flavor.name, resource.name))
                    quota.declared = True
                    quota.nominal = amounts.boundless(quantity.quota_amount(resource.name, resource.nominal_quota))
                    quota.borrowing_limit = _limit(resource.name, resource.borrowing_limit)
                    quota.lending_limit = _limit(resource.name, resource.lending_limit)

    def quota(self, key: FlavorResource) -> QuotaNode:
        quota = self.quotas.get(key)
        if quota is None:
            quota = self.quotas[key] = QuotaNode(key)
        return quota


def _limit(resource: str, value: quantity.QuantityValue | None) -> int | None:
    if value is None:
        return None
    amount = quantity.quota_amount(resource, value)
    return None if amount >= quantity.UNLIMITED else amount


def weight_of(sharing: FairSharing | None) -> float:
    if sharing is None or sharing.weight is None:
        return 1.0
    # A weight may have hundreds of digits, which no float has.
    return min(quantity.parse(sharing.weight).nanos, quantity.UNLIMITED * quantity.NANO) / quantity.NANO


class CohortNode(TreeNode):
    """A group of queues and cohorts that lend to each other."""

    __slots__ = ("children", "cyclic", "declared", "height", "lendable", "queues")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.children: list[CohortNode] = []
        self.queues: list[Queue] = []
        self.declared = False
        """There is a Cohort object, not only a reference by name."""
        self.cyclic = False
        """Its parents form a cycle."""
        self.height = 0
        self.lendable: dict[str, int] = {}
        """The most that the members could use of each resource, which fair sharing compares with."""

    def all_queues(self) -> Iterator[Queue]:
        """Yield the queues of the whole tree below; a cohort of a cycle yields only its own."""
        yield from self.queues
        for child in self.children:
            if not child.cyclic:
                yield from child.all_queues()


@dataclass(frozen=True, slots=True)
class Flavor:
    """One flavor of a resource group, with its quota nodes in the queue."""

    name: str
    quotas: dict[str, QuotaNode]


@dataclass(frozen=True, slots=True)
class FlavorGroup:
    """Resources that come from the same flavor, and the flavors in the order in which they are tried."""

    resources: frozenset[str]
    flavors: tuple[Flavor, ...]


class Queue(TreeNode):
    """A ClusterQueue."""

    __slots__ = (
        "_ends",
        "active",
        "backfills",
        "by_usage",
        "generation",
        "group_by_resource",
        "groups",
        "pending",
        "placed",
        "policies",
        "reserved_workloads",
        "selects_all",
        "spec",
        "strict",
        "terminating",
        "topology_only",
    )

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.spec = ClusterQueue().spec
        self.groups: tuple[FlavorGroup, ...] = ()
        self.group_by_resource: dict[str, FlavorGroup] = {}
        self.selects_all = False
        """The namespace selector matches every namespace."""
        self.policies = Policies()
        self.strict = False
        self.backfills = False
        """Later workloads may start if they do not delay the first one (``engine/backfill.py``)."""
        self._ends: list[ExpectedEnd] | None = None
        self.terminating = False
        self.by_usage = False
        """Past usage of the LocalQueues comes before priority (admission fair sharing)."""
        self.active = True
        """Cycles take heads from the queue, and its workloads may be preempted."""
        self.placed = False
        """Some flavor has a topology, so that workloads of other trees may share its nodes."""
        self.topology_only = False
        """Every flavor has a topology, so that every pod set uses it."""
        self.generation = 0
        """Grows when quota may have become free; a remembered scan of flavors is then out of date."""
        self.pending = PendingQueue()
        self.reserved_workloads: list[tuple[CandidateOrder, ReservedWorkload]] = []
        """The workloads that hold quota, in the order in which they would be preempted."""

    def read(self, queue: ClusterQueue) -> None:
        self.spec = spec = queue.spec
        self.terminating = queue.metadata.deletion_timestamp is not None
        self.declare(spec.resource_groups)
        self.weight = weight_of(spec.fair_sharing)
        self.policies = Policies.read(spec.preemption)
        self.strict = self.pending.strict = spec.queueing_strategy == "StrictFIFO"
        self.backfills = is_backfilled(queue)
        self.groups = tuple(
            FlavorGroup(
                frozenset(group.covered_resources),
                tuple(
                    Flavor(f.name, {r.name: self.quotas[FlavorResource(f.name, r.name)] for r in f.resources})
                    for f in group.flavors
                ),
            )
            for group in spec.resource_groups
        )
        self.group_by_resource = {resource: group for group in self.groups for resource in group.resources}
        self.selects_all = spec.namespace_selector == LabelSelector()

    def flavor_names(self) -> set[str]:
        return {flavor.name for group in self.groups for flavor in group.flavors}

    def charges_of(self, assigned: Iterable[AssignedPodSet]) -> tuple[tuple[QuotaNode, int], ...]:
        """Return the usage of pod sets by quota node, zeros included: an assigned flavor is in use."""
        total: dict[QuotaNode, int] = {}
        for pod_set in assigned:
            for resource, flavor in pod_set.flavors.items():
                quota = self.quota(FlavorResource(flavor, resource))
                total[quota] = total.get(quota, 0) + pod_set.usage.get(resource, 0)
        return tuple(total.items())

    def add(self, reserved: ReservedWorkload) -> None:
        insort(self.reserved_workloads, (reserved.order, reserved))
        if self._ends is not None:
            insort(self._ends, (reserved.ends_at, reserved.uid, reserved))
        for quota, amount in reserved.charges:
            quota.charge(amount)
            quota.count_priority(reserved.priority, amount)
        if reserved.admitted:
            self.count_admitted(reserved, +1)

    def remove(self, reserved: ReservedWorkload) -> None:
        del self.reserved_workloads[bisect_left(self.reserved_workloads, (reserved.order,))]
        if self._ends is not None:
            del self._ends[bisect_left(self._ends, (reserved.ends_at, reserved.uid))]
        for quota, amount in reserved.charges:
            quota.charge(-amount)
            quota.count_priority(reserved.priority, -amount)
        self.generation += 1
        if reserved.admitted:
            self.count_admitted(reserved, -1)

    def expected_ends(self) -> Sequence[ExpectedEnd]:
        """Return the workloads that hold quota in the order of their expected ends; kept from the first call on."""
        if self._ends is None:
            self._ends = sorted((reserved.ends_at, reserved.uid, reserved) for _, reserved in self.reserved_workloads)
        return self._ends

    def move_end(self, reserved: ReservedWorkload, end: float) -> None:
        """Set the expected end of a workload that holds quota."""
        if self._ends is not None:
            del self._ends[bisect_left(self._ends, (reserved.ends_at, reserved.uid))]
            insort(self._ends, (end, reserved.uid, reserved))
        reserved.ends_at = end

    @property
    def has_evicted(self) -> bool:
        """Some workload that holds quota is evicted."""
        return bool(self.reserved_workloads) and self.reserved_workloads[0][1].evicted

    def held(self, *, evicted: bool) -> Sequence[tuple[CandidateOrder, ReservedWorkload]]:
        """Return the workloads that hold quota and are evicted, or those that are not, in order."""
        if not self.has_evicted:
            return () if evicted else self.reserved_workloads
        first = bisect_left(self.reserved_workloads, _FIRST_TO_STAY)
        return self.reserved_workloads[:first] if evicted else self.reserved_workloads[first:]

    def reorder(self, reserved: ReservedWorkload) -> None:
        """Move a workload to its new place, after it was evicted or its priority has changed."""
        del self.reserved_workloads[bisect_left(self.reserved_workloads, (reserved.order,))]
        reserved.order = reserved.candidate_order()
        insort(self.reserved_workloads, (reserved.order, reserved))
        self.note_change(reserved)

    @staticmethod
    def note_change(reserved: ReservedWorkload) -> None:
        """Note that searches for preemption targets may find another answer, since a candidate has changed."""
        for quota, _ in reserved.charges:
            quota.root().changes += 1

    @staticmethod
    def count_priority(reserved: ReservedWorkload, sign: int) -> None:
        for quota, amount in reserved.charges:
            quota.count_priority(reserved.priority, sign * amount)

    @staticmethod
    def count_admitted(reserved: ReservedWorkload, sign: int) -> None:
        for quota, amount in reserved.charges:
            quota.admitted += sign * amount


@dataclass(slots=True)
class Hierarchy:
    """All ClusterQueues and Cohorts."""

    queues: dict[str, Queue] = field(default_factory=dict)
    cohorts: dict[str, CohortNode] = field(default_factory=dict)
    settled: int = 0
    """Grows when trees are recomputed; assignments that were compiled from their quotas are then out of date."""
    _changed: dict[str, TreeNode] = field(default_factory=dict)
    _members: dict[TreeNode, list[Queue]] = field(default_factory=dict)
    """The queues by root; a cache that ``members`` fills."""

    def put_queue(self, found: ClusterQueue) -> Queue:
        queue = self.queues.get(found.metadata.name)
        if queue is None:
            queue = self.queues[found.metadata.name] = Queue(found.metadata.name)
        queue.read(found)
        self._move(queue, found.spec.cohort_name)
        return queue

    def delete_queue(self, name: str) -> None:
        queue = self.queues.pop(name, None)
        if queue is not None:
            self._move(queue, "")
            self._changed.pop(f"queue {name}", None)

    def put_cohort(self, found: Cohort) -> CohortNode:
        cohort = self._cohort(found.metadata.name)
        cohort.declared = True
        cohort.declare(found.spec.resource_groups)
        cohort.weight = weight_of(found.spec.fair_sharing)
        self._move(cohort, found.spec.parent_name)
        return cohort

    def delete_cohort(self, name: str) -> None:
        cohort = self.cohorts.get(name)
        if cohort is not None:
            cohort.declared = False
            cohort.declare(())
            cohort.weight = 1.0
            self._move(cohort, "")

    def mark(self, node: TreeNode) -> None:
        """Mark the node's tree for the next refresh, after a spec or the activity of a queue has changed."""
        self._changed[f"{'queue' if isinstance(node, Queue) else 'cohort'} {node.name}"] = node

    @staticmethod
    def find_root(node: TreeNode) -> TreeNode:
        """Return the root of the node's tree; the node itself if its parents form a cycle."""
        parent = node if isinstance(node, CohortNode) else node.parent
        return node if parent is not None and parent.cyclic else node.root

    @property
    def has_changed(self) -> bool:
        """Some tree was marked since the last refresh."""
        return bool(self._changed)

    def refresh(self) -> set[TreeNode]:
        """Recompute the marked trees. Return their roots, and all cohorts of a cycle."""
        if not self._changed:
            return set()
        changed, self._changed = self._changed, {}
        self.settled += 1
        self._members.clear()
        roots: set[TreeNode] = set()
        for node in changed.values():
            root = self._find_root(node)
            if root is None:
                roots.update(_cycle_members(node if isinstance(node, CohortNode) else node.parent))
            elif root not in roots:
                roots.add(root)
                settle_tree(root)
        return roots

    def members(self, root: TreeNode) -> list[Queue]:
        """Return all queues of a tree, sorted by name."""
        found = self._members.get(root)
        if found is None:
            found = self._members[root] = sorted(queues_of(root), key=lambda queue: queue.name)
        return found

    def _cohort(self, name: str) -> CohortNode:
        cohort = self.cohorts.get(name)
        if cohort is None:
            cohort = self.cohorts[name] = CohortNode(name)
        return cohort

    def _move(self, node: TreeNode, parent: str) -> None:
        """Set the parent of a node, and mark the trees that it leaves and joins."""
        old = node.parent
        new = self._cohort(parent) if parent else None
        if old is not None and old is not new:
            _leave(old, node)
            self.mark(old)
        node.parent = new
        if new is not None and old is not new:
            _enter(new, node)
        self.mark(node)
        if old is not None:
            self._drop_if_unused(old)
        if isinstance(node, CohortNode):
            self._drop_if_unused(node)

    def _drop_if_unused(self, cohort: CohortNode) -> None:
        if not (cohort.declared or cohort.queues or cohort.children) and cohort.parent is None:
            self.cohorts.pop(cohort.name, None)
            self._changed.pop(f"cohort {cohort.name}", None)

    def _find_root(self, node: TreeNode) -> TreeNode | None:
        """Return the root of the node's tree. If its parents form a cycle, mark them cyclic and return None."""
        seen: set[TreeNode] = set()
        while node.parent is not None and node not in seen:
            seen.add(node)
            node = node.parent
        if node.parent is None:
            return node
        for member in _cycle_members(node):
            member.cyclic = True
            for queue in member.queues:
                for quota in queue.quotas.values():
                    quota.parent = None
                    quota.settle()
                    quota.settle_potential()
        return None


def _enter(cohort: CohortNode, node: TreeNode) -> None:
    """Insert a node into the members of a cohort, in the order of names."""
    if isinstance(node, Queue):
        insort(cohort.queues, node, key=_name)
    elif isinstance(node, CohortNode):
        insort(cohort.children, node, key=_name)


def _leave(cohort: CohortNode, node: TreeNode) -> None:
    if isinstance(node, Queue):
        cohort.queues.remove(node)
    elif isinstance(node, CohortNode):
        cohort.children.remove(node)


def _name(node: TreeNode) -> str:
    return node.name


def _cycle_members(start: TreeNode | None) -> set[CohortNode]:
    """Return the cohorts of a cycle and all cohorts below them."""
    found: set[CohortNode] = set()
    waiting = [start]
    while waiting:
        cohort = waiting.pop()
        if isinstance(cohort, CohortNode) and cohort not in found:
            found.add(cohort)
            waiting.extend(cohort.children)
    return found


def settle_tree(root: TreeNode) -> None:
    """Recompute the quotas of one tree from its specs, bottom up and top down."""
    _link(root)
    _settle_down(root, {quota.key for quota in root.quotas.values()})


def _link(node: TreeNode) -> None:
    if isinstance(node, Queue):
        node.generation += 1
        for key in [k for k, c in node.quotas.items() if not c.declared and not c.usage]:
            del node.quotas[key]
        height, children = 0, []
    else:
        assert isinstance(node, CohortNode)
        node.cyclic = False
        children = [*node.queues, *node.children]
        for child in children:
            _link(child)
        if node.children:
            height = 1 + max(child.height for child in node.children)
        else:
            height = int(any(queue.active for queue in node.queues))
        node.height = height
        for key in [key for key, quota in node.quotas.items() if not quota.declared]:
            del node.quotas[key]
        for quota in node.quotas.values():
            quota.children = []
            quota.usage = 0
            quota.by_priority = {}
    for child in children:
        for key, quota in child.quotas.items():
            parent = node.quota(key)
            quota.parent = parent
            parent.children.append(quota)
    for quota in node.quotas.values():
        quota.height = height
        if node.parent is None:
            quota.parent = None
        quota.settle()


def _settle_down(node: TreeNode, keys: set[FlavorResource]) -> None:
    node.path = f"/{node.name}" if node.parent is None else f"{node.parent.path}/{node.name}"
    for quota in node.quotas.values():
        quota.settle_potential()
    if not isinstance(node, CohortNode):
        return
    node.lendable = {}
    for key in keys:
        amount = min(potential(node, key), quantity.UNLIMITED)
        node.lendable[key.resource] = quantity.add(node.lendable.get(key.resource, 0), amount)
    for child in (*node.queues, *node.children):
        _settle_down(child, keys)


def potential(node: TreeNode, key: FlavorResource) -> int:
    """Return the most that a node could use. Without a quota node of its own, that is the most of its parent."""
    quota = node.quotas.get(key)
    if quota is not None:
        return quota.potential
    return potential(node.parent, key) if node.parent else 0


def queues_of(node: TreeNode) -> Iterator[Queue]:
    if isinstance(node, Queue):
        yield node
    elif isinstance(node, CohortNode):
        yield from node.all_queues()
