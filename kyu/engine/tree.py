"""
Queues and cohorts: who lends to whom, with which policies, and who holds quota where.

A ``Queue`` is a ClusterQueue as the engine needs it; a ``Cohort`` exists when an object says so or when a queue or
another cohort names it. The tree is changed lazily: a changed spec marks its tree, and ``refresh`` recomputes the
marked trees once, however many specs have changed. Cells of queues keep their identity, so what a workload holds
stays valid.

Called by: state.py (changes), every rule of the engine (reads). Calls: quota.py.
Kueue: pkg/cache/hierarchy, pkg/cache/scheduler/{cache,clusterqueue,cohort}.go
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kyu.api import quantity
from kyu.api.meta import LabelSelector
from kyu.api.queues import ClusterQueue, ClusterQueuePreemption, Cohort, FairSharing, ResourceGroup
from kyu.engine import quota
from kyu.engine.queues import Line
from kyu.engine.quota import Cell, FlavorResource
from kyu.engine.topology_types import PODS
from kyu.engine.workload import AssignedPodSet, CandidateOrder, Holding

# No tree is that high: a node with so many ancestors is its own.
MAX_HEIGHT = 500


# Stands before every holding that is not evicted, and after those that are.
_FIRST_TO_STAY: Any = ((True,),)


class TreeNode:
    """What queues and cohorts have in common: a place in the tree, and a cell per flavor and resource."""

    __slots__ = ("cells", "name", "parent", "path", "weight")

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = f"/{name}"
        """The names from the root down to it."""
        self.parent: CohortNode | None = None
        self.cells: dict[FlavorResource, Cell] = {}
        self.weight = 1.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    def ancestors(self) -> Iterator[CohortNode]:
        """The parent first, the root last."""
        cohort = self.parent
        while cohort is not None:
            yield cohort
            cohort = cohort.parent

    @property
    def root(self) -> TreeNode:
        """The top of the node's tree; the node itself if its parents form a cycle."""
        node: TreeNode = self
        height = 0
        while node.parent is not None:
            node = node.parent
            height += 1
            if height > MAX_HEIGHT:
                return self
        return node

    def is_within(self, needed: Iterable[FlavorResource]) -> bool:
        """The node uses no more than it and its children have, of all of these."""
        cells = self.cells
        for key in needed:
            cell = cells.get(key)
            if cell is not None and cell.usage > cell.subtree:
                return False
        return True

    def declare(self, groups: Iterable[ResourceGroup]) -> None:
        """Take over the quotas of a spec. Cells that are no longer declared stay while something uses them."""
        for cell in self.cells.values():
            cell.declared = False
            cell.nominal, cell.borrowing_limit, cell.lending_limit = 0, None, None
        for group in groups:
            for flavor in group.flavors:
                for resource in flavor.resources:
                    cell = self.cell(FlavorResource(flavor.name, resource.name))
                    cell.declared = True
                    cell.nominal = quota.boundless(quantity.quota_amount(resource.name, resource.nominal_quota))
                    cell.borrowing_limit = _limit(resource.name, resource.borrowing_limit)
                    cell.lending_limit = _limit(resource.name, resource.lending_limit)

    def cell(self, key: FlavorResource) -> Cell:
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Cell(key)
        return cell


def _limit(resource: str, value: quantity.QuantityValue | None) -> int | None:
    if value is None:
        return None
    amount = quantity.quota_amount(resource, value)
    return None if amount >= quantity.UNLIMITED else amount


def weight_of(sharing: FairSharing | None) -> float:
    if sharing is None or sharing.weight is None:
        return 1.0
    return quantity.parse(sharing.weight).nanos / quantity.NANO


class CohortNode(TreeNode):
    """A group of queues and cohorts that lend to each other."""

    __slots__ = ("children", "cyclic", "declared", "height", "lendable", "queues")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.children: list[CohortNode] = []
        self.queues: list[Queue] = []
        self.declared = False
        """Whether there is an object for it, rather than only a mention."""
        self.cyclic = False
        """Its chain of parents comes back to itself."""
        self.height = 0
        self.lendable: dict[str, int] = {}
        """What the members could use of each resource at the very most."""

    def all_queues(self) -> Iterator[Queue]:
        """Of the whole tree below; of a cohort whose parents form a cycle, its own only."""
        yield from self.queues
        for child in self.children:
            if not child.cyclic:
                yield from child.all_queues()


@dataclass(frozen=True, slots=True)
class Flavor:
    """One flavor of a resource group, with the queue's cells for it."""

    name: str
    cells: dict[str, Cell]


@dataclass(frozen=True, slots=True)
class Group:
    """Resources that come from the same flavor, and the flavors in the order in which they are tried."""

    resources: frozenset[str]
    flavors: tuple[Flavor, ...]


@dataclass(frozen=True, slots=True)
class Policies:
    """Whom a workload of a queue may preempt. An absent policy finds nobody, like Never."""

    within: str = "Never"
    reclaim: str = "Never"
    borrow: str = "Never"
    threshold: int | None = None
    listed: bool = False
    """There is a preemption block at all: then an absent policy is not the word Never."""

    @classmethod
    def read(cls, preemption: ClusterQueuePreemption | None) -> Policies:
        if preemption is None:
            return cls()
        borrow = preemption.borrow_within_cohort
        return cls(
            within=preemption.within_cluster_queue or "",
            reclaim=preemption.reclaim_within_cohort or "",
            borrow=(borrow.policy or "") if borrow else "Never",
            threshold=borrow.max_priority_threshold if borrow else None,
            listed=True,
        )

    @property
    def reclaims(self) -> bool:
        """Workloads of other queues may be preempted."""
        return self.reclaim in ("Any", "LowerPriority")

    @property
    def borrow_forbidden(self) -> bool:
        return self.borrow in ("", "Never")

    def may_preempt_while_borrowing(self, *, fair_sharing: bool) -> bool:
        """Only the literal word Never is excluded here."""
        return self.borrow != "Never" or (fair_sharing and self.reclaim != "Never")


class Queue(TreeNode):
    """A ClusterQueue."""

    __slots__ = (
        "active",
        "by_usage",
        "counts_pods",
        "flat",
        "generation",
        "group_by_resource",
        "groups",
        "holdings",
        "line",
        "placed",
        "policies",
        "selects_all",
        "spec",
        "strict",
        "terminating",
        "topology_only",
    )

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.spec = ClusterQueue().spec
        self.groups: tuple[Group, ...] = ()
        self.group_by_resource: dict[str, Group] = {}
        self.counts_pods = False
        """There is a quota for pods, so that no workload asks for one resource only."""
        self.selects_all = False
        """It serves every namespace."""
        self.policies = Policies()
        self.strict = False
        self.terminating = False
        self.by_usage = False
        """Past usage of the LocalQueues comes before priority."""
        self.active = True
        """Whether heads are taken from it, and its workloads may be preempted."""
        self.placed = False
        """Some flavor has a topology, so that workloads of other trees may share its nodes."""
        self.topology_only = False
        """Every flavor has a topology, so that every pod set uses it."""
        self.generation = 0
        """Grows when quota may have become free; a remembered scan of flavors is then out of date."""
        self.flat = False
        """It is directly under the only cohort of its tree, and takes from others only what is its own."""
        self.line = Line()
        self.holdings: list[tuple[CandidateOrder, Holding]] = []
        """Who has quota, in the order in which they would be preempted."""

    def read(self, queue: ClusterQueue) -> None:
        self.spec = spec = queue.spec
        self.terminating = queue.metadata.deletion_timestamp is not None
        self.declare(spec.resource_groups)
        self.weight = weight_of(spec.fair_sharing)
        self.policies = Policies.read(spec.preemption)
        self.strict = self.line.strict = spec.queueing_strategy == "StrictFIFO"
        self.groups = tuple(
            Group(
                frozenset(group.covered_resources),
                tuple(
                    Flavor(f.name, {r.name: self.cells[FlavorResource(f.name, r.name)] for r in f.resources})
                    for f in group.flavors
                ),
            )
            for group in spec.resource_groups
        )
        self.group_by_resource = {resource: group for group in self.groups for resource in group.resources}
        self.counts_pods = PODS in self.group_by_resource
        self.selects_all = spec.namespace_selector == LabelSelector()

    def is_flat(self) -> bool:
        parent, policies = self.parent, self.policies
        if parent is None or parent.parent is not None or parent.children or self.strict or self.by_usage:
            return False
        return policies.reclaim == "Any" and policies.borrow_forbidden

    def flavor_names(self) -> set[str]:
        return {flavor.name for group in self.groups for flavor in group.flavors}

    def charges_of(self, assigned: Iterable[AssignedPodSet]) -> tuple[tuple[Cell, int], ...]:
        """What pod sets use, by cell; also zeros, since a workload uses every flavor that it is assigned."""
        total: dict[Cell, int] = {}
        for pod_set in assigned:
            for resource, flavor in pod_set.flavors.items():
                cell = self.cell(FlavorResource(flavor, resource))
                total[cell] = total.get(cell, 0) + pod_set.usage.get(resource, 0)
        return tuple(total.items())

    def add(self, holding: Holding) -> None:
        self.line.weighed = False
        insort(self.holdings, (holding.order, holding))
        for cell, amount in holding.charges:
            quota.charge(cell, amount)
            quota.count_priority(cell, holding.priority, amount)
            self.line.grown.add(cell.key)
        if holding.admitted:
            self.count_admitted(holding, +1)

    def remove(self, holding: Holding) -> None:
        del self.holdings[bisect_left(self.holdings, (holding.order,))]
        for cell, amount in holding.charges:
            quota.charge(cell, -amount)
            quota.count_priority(cell, holding.priority, -amount)
        self.line.weighed = False
        self.generation += 1
        if holding.admitted:
            self.count_admitted(holding, -1)

    @property
    def has_evicted(self) -> bool:
        """Whether somebody who has quota is on the way out."""
        return bool(self.holdings) and self.holdings[0][1].evicted

    def held(self, *, evicted: bool) -> Sequence[tuple[CandidateOrder, Holding]]:
        """Who has quota and is on the way out, or who is not; in order."""
        if not self.has_evicted:
            return () if evicted else self.holdings
        first = bisect_left(self.holdings, _FIRST_TO_STAY)
        return self.holdings[:first] if evicted else self.holdings[first:]

    def reorder(self, holding: Holding) -> None:
        """The holding was evicted or its priority has changed."""
        del self.holdings[bisect_left(self.holdings, (holding.order,))]
        holding.order = holding.candidate_order()
        insort(self.holdings, (holding.order, holding))

    @staticmethod
    def count_priority(holding: Holding, sign: int) -> None:
        for cell, amount in holding.charges:
            quota.count_priority(cell, holding.priority, sign * amount)

    @staticmethod
    def count_admitted(holding: Holding, sign: int) -> None:
        for cell, amount in holding.charges:
            cell.admitted += sign * amount


@dataclass(slots=True)
class Hierarchy:
    """All queues and cohorts."""

    queues: dict[str, Queue] = field(default_factory=dict)
    cohorts: dict[str, CohortNode] = field(default_factory=dict)
    _changed: dict[str, TreeNode] = field(default_factory=dict)
    _members: dict[TreeNode, list[Queue]] = field(default_factory=dict)
    """By root: its queues, as far as somebody has asked."""

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
        """Something about the node's tree has changed: which of its queues are active, for example."""
        self._changed[f"{'queue' if isinstance(node, Queue) else 'cohort'} {node.name}"] = node

    @staticmethod
    def find_root(node: TreeNode) -> TreeNode:
        """The root of the node's tree; the node itself if its parents form a cycle."""
        parent = node if isinstance(node, CohortNode) else node.parent
        return node if parent is not None and parent.cyclic else node.root

    @property
    def has_changed(self) -> bool:
        """Whether something was marked since the last refresh."""
        return bool(self._changed)

    def refresh(self) -> set[TreeNode]:
        """Recompute the trees of all that was marked; the roots of those trees, and all cohorts of a cycle."""
        if not self._changed:
            return set()
        changed, self._changed = self._changed, {}
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
        """All queues of a tree, by name."""
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
        """Hang the node under another parent, and mark the trees that it leaves and joins."""
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
        """The root of the node's tree, or None if its parents form a cycle; then its queues are told so."""
        seen: set[TreeNode] = set()
        while node.parent is not None and node not in seen:
            seen.add(node)
            node = node.parent
        if node.parent is None:
            return node
        for member in _cycle_members(node):
            member.cyclic = True
            for queue in member.queues:
                for cell in queue.cells.values():
                    cell.parent = None
                    quota.settle(cell)
                    quota.settle_potential(cell)
        return None


def _enter(cohort: CohortNode, node: TreeNode) -> None:
    """Among the members of its kind, in the order of their names."""
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
    """Everything below the cycle, the cycle included."""
    found: set[CohortNode] = set()
    waiting = [start]
    while waiting:
        cohort = waiting.pop()
        if isinstance(cohort, CohortNode) and cohort not in found:
            found.add(cohort)
            waiting.extend(cohort.children)
    return found


def settle_tree(root: TreeNode) -> None:
    """Recompute all that follows from the specs of one tree, bottom up and top down."""
    _link(root)
    _settle_down(root, {cell.key for cell in root.cells.values()})


def _link(node: TreeNode) -> None:
    if isinstance(node, Queue):
        node.generation += 1
        node.flat = node.is_flat()
        for key in [k for k, c in node.cells.items() if not c.declared and not c.usage]:
            del node.cells[key]
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
        for key in [key for key, cell in node.cells.items() if not cell.declared]:
            del node.cells[key]
        for cell in node.cells.values():
            cell.children = []
            cell.usage = 0
            cell.by_priority = {}
    for child in children:
        for key, cell in child.cells.items():
            parent = node.cell(key)
            cell.parent = parent
            parent.children.append(cell)
    for cell in node.cells.values():
        cell.height = height
        if node.parent is None:
            cell.parent = None
        quota.settle(cell)


def _settle_down(node: TreeNode, keys: set[FlavorResource]) -> None:
    node.path = f"/{node.name}" if node.parent is None else f"{node.parent.path}/{node.name}"
    for cell in node.cells.values():
        quota.settle_potential(cell)
    if not isinstance(node, CohortNode):
        return
    node.lendable = {}
    for key in keys:
        amount = min(potential(node, key), quantity.UNLIMITED)
        node.lendable[key.resource] = quantity.add(node.lendable.get(key.resource, 0), amount)
    for child in (*node.queues, *node.children):
        _settle_down(child, keys)


def potential(node: TreeNode, key: FlavorResource) -> int:
    """What the node could use at most; where it has no cell of its own, whatever its parent could."""
    cell = node.cells.get(key)
    if cell is not None:
        return cell.potential
    return potential(node.parent, key) if node.parent else 0


def queues_of(node: TreeNode) -> Iterator[Queue]:
    if isinstance(node, Queue):
        yield node
    elif isinstance(node, CohortNode):
        yield from node.all_queues()
