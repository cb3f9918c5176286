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
from collections import Counter
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
NOTHING: Mapping[str, int] = {}


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
        # By level and parent; only those that were asked for.
        self._orders: list[dict[int, list[OrderKey]]] = [{} for _ in tree.levels]

    def sync(self, assumed: Assumed) -> None:
        """Be the counts of the room as it is now, less what is assumed."""
        changes = self.room.changes
        if self._epoch != self.room.epoch or len(changes) - self._seen > self.room.size:
            self._recount()
            behind: set[int] = set()
        else:
            behind = self._stale.union(changes[self._seen :])
        self._epoch, self._seen, self._stale = self.room.epoch, len(changes), set(assumed)
        excluded = self.eligibility.excluded
        if leaves := [leaf for leaf in behind.union(assumed) if not excluded[leaf]]:
            self._refresh(leaves, assumed)

    def domains(self, level: int, parent: int) -> range:
        """The children of a domain, or the WHOLE_LEVEL, by place in the tree."""
        return self.tree.children(level - 1, parent) if parent != WHOLE_LEVEL else range(len(self.tree.values[level]))

    def order(self, level: int, parent: int) -> list[OrderKey]:
        """The children of a domain, or the WHOLE_LEVEL, in order: first the one to be used first."""
        keys = self._orders[level].get(parent)
        if keys is None:
            counts = self.levels[level]
            domains = self.domains(level, parent)
            keys = sorted(self._key(counts.slices[domain], counts.pods[domain], domain) for domain in domains)
            self._orders[level][parent] = keys
        return keys

    def exclusions(self) -> Exclusions:
        """Why leaves can host nothing; each is counted once."""
        counts = dict(self.eligibility.reasons)
        counts.update(
            {f'resource "{resource}"': count for resource, count in self._limits.items() if resource and count}
        )
        return Exclusions(len(self.tree.leaf_values), tuple(sorted(counts.items())))

    def _key(self, slices: int, pods: int, domain: int) -> OrderKey:
        return (-slices if self.shape.best_fit else slices, pods, domain)

    def _recount(self) -> None:
        """All of it, column by column, which is far cheaper than leaf by leaf."""
        self._orders = [{} for _ in self.tree.levels]
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
                self._limit_by_leaf[leaf] = self._count(leaf, NOTHING)[1]
        self._limits = Counter(self._limit_by_leaf)
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
                self._set_leader_leaf(levels[-1], leaf, leader, NOTHING)
        for level in range(self.tree.leaf_level - 1, -1, -1):
            for domain in range(len(levels[level].pods)):
                self._set_leader(levels, level, domain)

    def _refresh(self, leaves: list[int], assumed: Assumed) -> None:
        """Some leaves may have changed: set them, and what is above them."""
        pods_by_leaf: dict[int, int] = {}
        for leaf in leaves:
            pods_by_leaf[leaf], limit = self._count(leaf, assumed.get(leaf, NOTHING))
            if limit != self._limit_by_leaf[leaf]:
                self._limits[self._limit_by_leaf[leaf]] -= 1
                self._limits[limit] += 1
                self._limit_by_leaf[leaf] = limit
        pods_by_domain = pods_by_leaf
        slice_changes: dict[int, int] = {}
        for level in range(self.tree.leaf_level, -1, -1):
            pods_by_domain, slice_changes = self._set_level(level, pods_by_domain, slice_changes)
        if self.shape.leader is not None:
            self._refresh_leader(leaves, self.shape.leader, assumed)

    def _set_level(
        self, level: int, pods_by_domain: dict[int, int], slice_changes: dict[int, int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Set pods of one level, and slices by how they changed below; the same for the level above, to be set next."""
        counts, parents, unit = self.levels[level], self.tree.parent[level], self.shape.units[level]
        orders = self._orders[level]
        above = self.levels[level - 1].pods if level else []
        pods_above: dict[int, int] = {}
        slice_changes_above: dict[int, int] = {}
        for domain, pods in pods_by_domain.items():
            old_pods, old_slices = counts.pods[domain], counts.slices[domain]
            slices = old_slices + slice_changes.get(domain, 0)
            if level == self.shape.slice_level:
                slices = pods // self.shape.slice_size
            if pods == old_pods and slices == old_slices:
                continue
            parent = parents[domain] if level else WHOLE_LEVEL
            if orders:
                old, new = self._key(old_slices, old_pods, domain), self._key(slices, pods, domain)
                _move(orders, WHOLE_LEVEL, old, new)
                if level:
                    _move(orders, parent, old, new)
            counts.pods[domain], counts.slices[domain] = pods, slices
            if level:
                difference = pods - old_pods if unit == 1 else pods // unit * unit - old_pods // unit * unit
                pods_above[parent] = pods_above.get(parent, above[parent]) + difference
                slice_changes_above[parent] = slice_changes_above.get(parent, 0) + slices - old_slices
        return pods_above, slice_changes_above

    def _refresh_leader(self, leaves: list[int], leader: Requests, assumed: Assumed) -> None:
        for leaf in leaves:
            self._set_leader_leaf(self.levels[-1], leaf, leader, assumed.get(leaf, NOTHING))
        domains = set(leaves)
        for level in range(self.tree.leaf_level, 0, -1):
            domains = {self.tree.parent[level][domain] for domain in domains}
            for domain in domains:
                self._set_leader(self.levels, level - 1, domain)

    def _count(self, leaf: int, assumed: Mapping[str, int]) -> tuple[int, str]:
        """The pods that fit, and which resource is to blame if none does; requests are sorted by name."""
        columns = self.room.columns
        fewest, scarcest = -1, ""
        for resource, amount in self.shape.requests:
            have = columns[resource][leaf] if resource in columns else 0
            if assumed:
                have -= assumed.get(resource, 0)
            pods = have // amount if have > 0 else 0
            if pods < fewest or fewest < 0:
                fewest, scarcest = pods, resource
        return fewest, "" if fewest else scarcest

    def _hosts(self, leaf: int, leader: Requests, assumed: Mapping[str, int]) -> bool:
        columns = self.room.columns
        return all(
            resource in columns and columns[resource][leaf] - assumed.get(resource, 0) >= amount
            for resource, amount in leader
        )

    def _set_leader_leaf(self, counts: LevelCounts, leaf: int, leader: Requests, assumed: Mapping[str, int]) -> None:
        """A leaf that cannot host the leader offers all of its pods to workers."""
        pods = counts.pods[leaf]
        counts.hosts_leader[leaf] = self._hosts(leaf, leader, assumed)
        if counts.hosts_leader[leaf]:
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


def shape_requests(requests: Requests) -> Requests:
    """What limits a leaf: the positive requests and the pod itself, by name."""
    return tuple(sorted({**{r: amount for r, amount in requests if amount > 0}, PODS: 1}.items()))


def _move(orders: dict[int, list[OrderKey]], place: int, old: OrderKey, new: OrderKey) -> None:
    keys = orders.get(place)
    if keys is not None:
        del keys[bisect_left(keys, old)]
        insort(keys, new)
