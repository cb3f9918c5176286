"""
How many pods, and how many slices, each domain could still host: phase one of placement.

A leaf counts pods by its scarcest resource; a domain sums its children. Equal requests share one Counts, which is kept
between placements and catches up with its room by the leaves that changed, each at the cost of one path to the top.
A leader is one further pod of another shape: the counts "with leader" say what is left for workers if the leader goes
there too. Orders (see engine/topology_walk.py) are sorted lists that move one entry per changed domain.

Called by: engine/topology_placement.py. Kueue: tas_flavor_snapshot.go, fillInCounts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kyu.engine import topology_filter as node_filter
from kyu.engine.topology_failures import Exclusions
from kyu.engine.topology_tree import Room, Tree
from kyu.engine.topology_types import PODS, PodFilter, Requests

# Sorts domains without a leader: slices in the direction of the algorithm, then pods, then the place in the tree.
OrderKey: TypeAlias = tuple[int, int, int]
# What is taken from leaves on top of what the room says: by leaf, then by resource.
Assumed: TypeAlias = Mapping[int, Mapping[str, int]]

WHOLE_LEVEL = -1
TOPOLOGY_DOMAIN = "topologyDomain"
# Kept counts cost some 200 bytes a leaf: about 200 MB for the largest trees; small ones never reach the bounds.
LEAVES_KEPT = 1_000_000
FEWEST_KEPT = 16
FILTERS_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """What counts depend on besides the room and the leaves that may be used."""

    requests: Requests
    leader: Requests | None
    slice_level: int
    slice_size: int
    units: tuple[int, ...]  # by level: pods go to a domain of this level in multiples of it
    best_fit: bool


@dataclass(slots=True)
class LevelCounts:
    """Counts by domain of one level. Without a leader the counts with leader are the plain ones, the same lists."""

    pods: list[int]
    slices: list[int]
    pods_with_leader: list[int]
    slices_with_leader: list[int]
    hosts_leader: list[bool]

    def copy(self) -> LevelCounts:
        return LevelCounts(
            self.pods.copy(),
            self.slices.copy(),
            self.pods_with_leader.copy(),
            self.slices_with_leader.copy(),
            self.hosts_leader.copy(),
        )


class Eligibility:
    """The leaves that a pod filter lets through, and how much the filter prefers each domain."""

    def __init__(self, tree: Tree, pod_filter: PodFilter, *, scored: bool, confined_to: range | None = None) -> None:
        self.excluded = [False] * len(tree.leaf_values)
        self.reasons: Counter[str] = Counter()
        for leaf, node in enumerate(tree.node):
            reason = node_filter.find_miss(node, pod_filter, tree.flavor.tolerations) if tree.flavor.by_host else None
            if reason is None and confined_to is not None and leaf not in confined_to:
                reason = TOPOLOGY_DOMAIN
            if reason is not None:
                self.excluded[leaf] = True
                self.reasons[reason] += 1
        self.scores: list[list[int]] | None = None
        if scored and tree.flavor.by_host and pod_filter.preferred_terms:
            self.scores = self._sum_scores(tree, pod_filter)

    def _sum_scores(self, tree: Tree, pod_filter: PodFilter) -> list[list[int]]:
        scores = [[0] * len(values) for values in tree.values]
        for leaf, node in enumerate(tree.node):
            if not self.excluded[leaf]:
                scores[-1][leaf] = node_filter.preference(node, pod_filter)
        for level in range(tree.leaf_level, 0, -1):
            for domain, parent in enumerate(tree.parent[level]):
                scores[level - 1][parent] += scores[level][domain]
        return scores


class Counts:
    """The counts of one shape in one room. ``sync`` before reading."""

    def __init__(self, tree: Tree, room: Room, shape: Shape, eligibility: Eligibility) -> None:
        self.tree = tree
        self.room = room
        self.shape = shape
        self.eligibility = eligibility
        self.levels: list[LevelCounts] = []
        self._epoch = -1
        self._seen = 0
        self._stale: set[int] = set()
        self._limit_by_leaf: list[str] = []
        self._limits: Counter[str] = Counter()
        self._order_by_place: dict[tuple[int, int], list[OrderKey]] = {}

    def sync(self, assumed: Assumed) -> None:
        """Be the counts of the room as it is now, less what is assumed."""
        changes = self.room.changes
        if self._epoch != self.room.epoch or len(changes) - self._seen > self.room.size:
            self._recount()
            behind: set[int] = set()
        else:
            behind = self._stale.union(changes[self._seen :])
        self._epoch, self._seen, self._stale = self.room.epoch, len(changes), set(assumed)
        for leaf in behind.union(assumed):
            if not self.eligibility.excluded[leaf]:
                self._refresh(leaf, assumed.get(leaf, {}))

    def domains(self, level: int, parent: int) -> range:
        """The children of a domain, or the WHOLE_LEVEL, by place in the tree."""
        return self.tree.children(level - 1, parent) if parent != WHOLE_LEVEL else range(len(self.tree.values[level]))

    def order(self, level: int, parent: int) -> list[OrderKey]:
        """The children of a domain, or the WHOLE_LEVEL, in order: first the one to be used first."""
        keys = self._order_by_place.get((level, parent))
        if keys is None:
            counts = self.levels[level]
            domains = self.domains(level, parent)
            keys = sorted(self._key(counts.slices[domain], counts.pods[domain], domain) for domain in domains)
            self._order_by_place[level, parent] = keys
        return keys

    def exclusions(self) -> Exclusions:
        """Why leaves can host nothing; each is counted once."""
        counts = dict(self.eligibility.reasons)
        counts.update({f'resource "{resource}"': count for resource, count in self._limits.items() if count})
        return Exclusions(len(self.tree.leaf_values), tuple(sorted(counts.items())))

    def _key(self, slices: int, pods: int, domain: int) -> OrderKey:
        return (-slices if self.shape.best_fit else slices, pods, domain)

    def _recount(self) -> None:
        """All of it, column by column, which is far cheaper than leaf by leaf."""
        self._order_by_place.clear()
        size = self.room.size
        zeros = [0] * size
        columns = [(self.room.columns.get(resource, zeros), amount) for resource, amount in self.shape.requests]
        quotients = [[have // amount for have in column] for column, amount in columns]
        fewest = list(map(min, *quotients)) if len(quotients) > 1 else quotients[0]
        excluded = self.eligibility.excluded
        pods = [0 if excluded[leaf] or count < 0 else count for leaf, count in enumerate(fewest)]
        self._limit_by_leaf = [""] * size
        for leaf, count in enumerate(pods):
            if count == 0 and not excluded[leaf]:
                self._limit_by_leaf[leaf] = self._count(leaf, {})[1]
        self._limits = Counter(limit for limit in self._limit_by_leaf if limit)
        self.levels = self._sum(pods)

    def _sum(self, leaf_pods: list[int]) -> list[LevelCounts]:
        """The levels above the leaves, and the slices of all levels."""
        tree, shape = self.tree, self.shape
        levels: list[LevelCounts] = []
        pods = leaf_pods
        slices: list[int] = []
        for level in range(tree.leaf_level, -1, -1):
            if level == shape.slice_level:
                slices = [count // shape.slice_size for count in pods]
            elif level > shape.slice_level:
                slices = [0] * len(pods)
            levels.insert(0, LevelCounts(pods, slices, pods, slices, [True] * len(pods)))
            if level:
                unit, first = shape.units[level], tree.first_child[level - 1]
                rounded = pods if unit == 1 else [count // unit * unit for count in pods]
                pods = [sum(rounded[first[d] : first[d + 1]]) for d in range(len(first) - 1)]
                slices = [sum(slices[first[d] : first[d + 1]]) for d in range(len(first) - 1)]
        if shape.leader is not None:
            self._sum_leader(levels, shape.leader)
        return levels

    def _sum_leader(self, levels: list[LevelCounts], leader: Requests) -> None:
        for counts in levels:
            counts.pods_with_leader = counts.pods.copy()
            counts.slices_with_leader = counts.slices.copy()
            counts.hosts_leader = [False] * len(counts.pods)
        for leaf in range(self.room.size):
            if not self.eligibility.excluded[leaf]:
                self._set_leader_leaf(levels[-1], leaf, leader, {})
        for level in range(self.tree.leaf_level - 1, -1, -1):
            for domain in range(len(levels[level].pods)):
                self._set_leader(levels, level, domain)

    def _refresh(self, leaf: int, assumed: Mapping[str, int]) -> None:
        """One leaf may have changed: set it, and the path above it."""
        pods, limit = self._count(leaf, assumed)
        if limit != self._limit_by_leaf[leaf]:
            for resource, change in ((self._limit_by_leaf[leaf], -1), (limit, +1)):
                if resource:
                    self._limits[resource] += change
            self._limit_by_leaf[leaf] = limit
        self._bubble(leaf, pods)
        if self.shape.leader is not None:
            self._set_leader_leaf(self.levels[-1], leaf, self.shape.leader, assumed)
            domain = leaf
            for level in range(self.tree.leaf_level, 0, -1):
                domain = self.tree.parent[level][domain]
                self._set_leader(self.levels, level - 1, domain)

    def _count(self, leaf: int, assumed: Mapping[str, int]) -> tuple[int, str]:
        """The pods that fit, and which resource is to blame if none does; requests are sorted by name."""
        fewest, scarcest = -1, ""
        for resource, amount in self.shape.requests:
            pods = max(0, self._remaining(leaf, resource, assumed) // amount)
            if fewest < 0 or pods < fewest:
                fewest, scarcest = pods, resource
        return fewest, "" if fewest else scarcest

    def _remaining(self, leaf: int, resource: str, assumed: Mapping[str, int]) -> int:
        column = self.room.columns.get(resource)
        return (column[leaf] if column is not None else 0) - assumed.get(resource, 0)

    def _bubble(self, leaf: int, pods: int) -> None:
        """Set the pods of a leaf and pass the difference up, as far as there is one."""
        tree, shape = self.tree, self.shape
        domain, slice_change = leaf, 0
        for level in range(tree.leaf_level, -1, -1):
            counts = self.levels[level]
            old_pods, old_slices = counts.pods[domain], counts.slices[domain]
            slices = pods // shape.slice_size if level == shape.slice_level else old_slices + slice_change
            if pods == old_pods and slices == old_slices:
                return
            parent = tree.parent[level][domain] if level else WHOLE_LEVEL
            self._move(level, parent, self._key(old_slices, old_pods, domain), self._key(slices, pods, domain))
            counts.pods[domain], counts.slices[domain] = pods, slices
            if level:
                unit = shape.units[level]
                slice_change = slices - old_slices
                pods = self.levels[level - 1].pods[parent] + pods // unit * unit - old_pods // unit * unit
                domain = parent

    def _move(self, level: int, parent: int, old: OrderKey, new: OrderKey) -> None:
        for place in {WHOLE_LEVEL, parent}:
            keys = self._order_by_place.get((level, place))
            if keys is not None:
                del keys[bisect_left(keys, old)]
                insort(keys, new)

    def _set_leader_leaf(self, counts: LevelCounts, leaf: int, leader: Requests, assumed: Mapping[str, int]) -> None:
        """A leaf that cannot host the leader offers all of its pods to workers."""
        hosts = all(self._remaining(leaf, resource, assumed) >= amount for resource, amount in leader)
        counts.hosts_leader[leaf] = hosts
        pods = counts.pods[leaf]
        if hosts:
            taken = {resource: amount + assumed.get(resource, 0) for resource, amount in leader}
            pods = self._count(leaf, {**assumed, **taken})[0]
        counts.pods_with_leader[leaf] = pods
        if self.shape.slice_level == self.tree.leaf_level:
            counts.slices_with_leader[leaf] = pods // self.shape.slice_size

    def _set_leader(self, levels: list[LevelCounts], level: int, domain: int) -> None:
        """The leader goes to the child that loses least by it; with no child to host it nothing is left."""
        shape, counts, below = self.shape, levels[level], levels[level + 1]
        unit = shape.units[level + 1]
        capable = [child for child in self.tree.children(level, domain) if below.hosts_leader[child]]
        counts.hosts_leader[domain] = bool(capable)
        counts.pods_with_leader[domain] = counts.slices_with_leader[domain] = 0
        if not capable:
            return
        lost = min(below.pods[c] // unit * unit - below.pods_with_leader[c] // unit * unit for c in capable)
        counts.pods_with_leader[domain] = counts.pods[domain] - lost
        if level == shape.slice_level:
            counts.slices_with_leader[domain] = counts.pods_with_leader[domain] // shape.slice_size
        elif level < shape.slice_level:
            lost = min(below.slices[child] - below.slices_with_leader[child] for child in capable)
            counts.slices_with_leader[domain] = counts.slices[domain] - lost


class Shelf:
    """The counts that are kept of one tree, the least recently used ones dropped."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._eligibility_by_filter: dict[tuple[PodFilter, bool], Eligibility] = {}
        self._counts_by_shape: OrderedDict[tuple[Shape, PodFilter, bool, bool], Counts] = OrderedDict()

    def counts(self, shape: Shape, pod_filter: PodFilter, *, empty: bool, scored: bool) -> Counts:
        """On the base room if ``empty``, else on the free one; with preferred affinity if ``scored``."""
        key = (shape, pod_filter, empty, scored)
        counts = self._counts_by_shape.get(key)
        if counts is None:
            eligibility = self._eligibility(pod_filter, scored=scored)
            counts = Counts(self.tree, self.tree.base if empty else self.tree.free, shape, eligibility)
            self._counts_by_shape[key] = counts
            while len(self._counts_by_shape) > max(FEWEST_KEPT, LEAVES_KEPT // max(1, self.tree.free.size)):
                self._counts_by_shape.popitem(last=False)
        else:
            self._counts_by_shape.move_to_end(key)
        return counts

    def _eligibility(self, pod_filter: PodFilter, *, scored: bool) -> Eligibility:
        eligibility = self._eligibility_by_filter.get((pod_filter, scored))
        if eligibility is None:
            if len(self._eligibility_by_filter) >= FILTERS_KEPT:
                self._eligibility_by_filter.clear()
            eligibility = Eligibility(self.tree, pod_filter, scored=scored)
            self._eligibility_by_filter[pod_filter, scored] = eligibility
        return eligibility


def shape_requests(requests: Requests) -> Requests:
    """What limits a leaf: the positive requests and the pod itself, by name."""
    return tuple(sorted({**{r: amount for r, amount in requests if amount > 0}, PODS: 1}.items()))
