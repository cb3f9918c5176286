"""
The number of pods and slices that each domain can still host: phase one of placement.

A leaf counts pods by its scarcest resource; a domain sums its children. Equal requests share one Counts, which is kept
between placements. Only the leaves that changed since are counted again, each with its ancestors. A leader is one more
pod with other requests. The counts "with leader" are the capacity for workers if the domain also hosts the leader.
Orders (see engine/topology/walk.py) are sorted lists that move one entry per changed domain.

Called by: engine/topology/placement.py. Kueue: tas_flavor_snapshot.go, fillInCounts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kyu.engine.topology import filter as node_filter
from kyu.engine.topology.failures import Exclusions
from kyu.engine.topology.tree import Room, Tree
from kyu.engine.topology.types import PODS, PodFilter, Requests

# Sorts domains without a leader: by slices (falling for best fit), then by pods, then by index in the tree.
OrderKey: TypeAlias = tuple[int, int, int]
# Amounts that earlier pod sets of the workload take beyond the usage in the room: by leaf, then by resource.
Assumed: TypeAlias = Mapping[int, Mapping[str, int]]

WHOLE_LEVEL = -1
TOPOLOGY_DOMAIN = "topologyDomain"
NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Shape:
    """The part of a request that determines its counts, together with the room and the eligible leaves."""

    requests: Requests
    leader: Requests | None
    slice_level: int
    slice_size: int
    units: tuple[int, ...]  # by level: a domain gets pods in multiples of this
    best_fit: bool


@dataclass(slots=True)
class LevelCounts:
    """The counts of the domains of one level. Without a leader, the counts with leader are the same lists."""

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
    """The leaves that a pod filter excludes, and the preferred affinity score of each domain."""

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
    """The counts of one shape in one room. They are current after ``sync``."""

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
        # By level and parent, sorted on first use.
        self._orders: list[dict[int, list[OrderKey]]] = [{} for _ in tree.levels]

    def sync(self, assumed: Assumed) -> None:
        """Update the counts to the present room, less the assumed amounts."""
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
        """Return the children of a domain, or the WHOLE_LEVEL, by index in the tree."""
        return self.tree.children(level - 1, parent) if parent != WHOLE_LEVEL else range(len(self.tree.values[level]))

    def order(self, level: int, parent: int) -> list[OrderKey]:
        """Return the keys of the children of a domain, or of the WHOLE_LEVEL, in the order of use."""
        keys = self._orders[level].get(parent)
        if keys is None:
            counts = self.levels[level]
            domains = self.domains(level, parent)
            keys = sorted(self._key(counts.slices[domain], counts.pods[domain], domain) for domain in domains)
            self._orders[level][parent] = keys
        return keys

    def exclusions(self) -> Exclusions:
        """Return the number of leaves that can host no pod, by reason. Each leaf is counted once."""
        counts = dict(self.eligibility.reasons)
        counts.update(
            {f'resource "{resource}"': count for resource, count in self._limits.items() if resource and count}
        )
        return Exclusions(len(self.tree.leaf_values), tuple(sorted(counts.items())))

    def _key(self, slices: int, pods: int, domain: int) -> OrderKey:
        return (-slices if self.shape.best_fit else slices, pods, domain)

    def _recount(self) -> None:
        """Count all leaves, column by column, which is far cheaper than leaf by leaf."""
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
        """Return the counts of all levels, summed from the pods of the leaves."""
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
        """Count some leaves again, and update their ancestors."""
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
        """Set the pods of some domains and add their slice changes. Return the same two values for the level above."""
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
        """Return the number of pods that fit, and the scarcest resource if none fits. The first by name breaks ties."""
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
        """Set the counts with leader of a leaf. A leaf that cannot host the leader keeps its plain counts."""
        pods = counts.pods[leaf]
        counts.hosts_leader[leaf] = self._hosts(leaf, leader, assumed)
        if counts.hosts_leader[leaf]:
            taken = {resource: amount + assumed.get(resource, 0) for resource, amount in leader}
            pods = self._count(leaf, {**assumed, **taken})[0]
        counts.pods_with_leader[leaf] = pods
        if self.shape.slice_level == self.tree.leaf_level:
            counts.slices_with_leader[leaf] = pods // self.shape.slice_size

    def _set_leader(self, levels: list[LevelCounts], level: int, domain: int) -> None:
        """Set the counts with leader of a domain. The capable child that loses the fewest pods hosts the leader."""
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
    """Return the positive requests and the pod itself, sorted by name: the amounts that limit a leaf."""
    return tuple(sorted({**{r: amount for r, amount in requests if amount > 0}, PODS: 1}.items()))


def _move(orders: dict[int, list[OrderKey]], place: int, old: OrderKey, new: OrderKey) -> None:
    keys = orders.get(place)
    if keys is not None:
        del keys[bisect_left(keys, old)]
        insort(keys, new)
