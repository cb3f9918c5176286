"""
Placement of one group of pod sets: a single pod set, or a leader with its workers.

Called by: engine/topology/search.py, engine/topology/elastic.py, engine/topology/replace.py.
Kueue: tas_flavor_snapshot.go, FindTopologyAssignmentsForFlavor, findTopologyAssignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from kyu.api.placement import Domain
from kyu.engine.topology import balanced, failures, placement
from kyu.engine.topology.counts import Counts, Eligibility, Shape, shape_requests
from kyu.engine.topology.forest import Forest
from kyu.engine.topology.request import Ask, Reach, resolve
from kyu.engine.topology.shelf import Shelf
from kyu.engine.topology.tree import Tree
from kyu.engine.topology.types import PODS, Placement, PlacementRequest, Values
from kyu.engine.topology.walk import DomainShare


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """Pod sets that are placed together. A single pod set is stored as the workers."""

    workers: PlacementRequest
    leader: PlacementRequest | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    workers: Placement
    leader: Placement | None = None


Answer: TypeAlias = Placed | failures.Failure


@dataclass(slots=True)
class Scene:
    """
    The forest on which a workload is placed, and the usage assumed for its pod sets placed before.

    ``empty`` ignores the usage of all workloads that have a placement. Flavors that share their hosts also share the
    assumed usage.
    """

    forest: Forest
    empty: bool
    assumed: list[tuple[PlacementRequest, Placement]] = field(default_factory=list)

    def assume(self, request: PlacementRequest, placed: Placement) -> None:
        self.assumed.append((request, placed))

    def assumed_by_leaf(self, tree: Tree) -> dict[int, Counter[str]]:
        """Return the assumed usage of a tree, by leaf and resource."""
        amounts: dict[int, Counter[str]] = {}
        for request, placed in self.assumed:
            if self._owner(request.flavor) != self._owner(tree.flavor.name):
                continue
            for domain in placed.domains:
                if (leaf := tree.leaf_by_values.get(domain.values)) is not None:
                    taken = {resource: amount * domain.count for resource, amount in request.requests}
                    amounts.setdefault(leaf, Counter()).update({**taken, PODS: domain.count})
        return amounts

    def _owner(self, flavor: str) -> str:
        return "" if self.forest.is_shared(flavor) else flavor


def place_group(scene: Scene, group: PlacementGroup) -> Answer:
    """Place a group, and assume its usage for the following groups."""
    shelf = scene.forest.find_shelf(group.workers.flavor)
    if shelf is None:
        return failures.FlavorUnknown(group.workers.flavor)
    answer = _recall_or_search(scene, shelf, group) if not scene.assumed else _resolve_and_search(scene, shelf, group)
    if isinstance(answer, Placed):
        scene.assume(group.workers, answer.workers)
        if group.leader is not None and answer.leader is not None:
            scene.assume(group.leader, answer.leader)
    return answer


def search(scene: Scene, shelf: Shelf, group: PlacementGroup, ask: Ask, confined_to: range | None = None) -> Answer:
    """Return the placement of a group, on the leaves ``confined_to`` if given. Its usage is not assumed."""
    counts = _counts(scene, shelf, group, ask, confined_to)
    counts.sync(scene.assumed_by_leaf(shelf.tree))
    found: list[DomainShare] | placement.PlacementShortage | None = None
    if scene.forest.gates.balanced_placement and ask.reach is Reach.PREFERRED:
        found = balanced.find_balanced(counts, ask)
    if found is None:
        found = placement.search(counts, ask)
    if isinstance(found, placement.PlacementShortage):
        return placement.explain(counts, ask, found, group.workers.count)
    workers = _placement(shelf.tree, ((share.domain, share.amount) for share in found))
    if group.leader is None:
        return Placed(workers)
    return Placed(workers, _placement(shelf.tree, ((share.domain, int(share.leader)) for share in found)))


def merge(tree: Tree, *placements: Placement) -> Placement:
    """Return the sum of several placements, with domains in the order of the tree."""
    pods: Counter[Values] = Counter()
    for placed in placements:
        for domain in placed.domains:
            pods[domain.values] += domain.count
    ordered = sorted(pods, key=lambda values: tree.leaf_by_values[values])
    return Placement(tree.placement_levels, tuple(Domain(values, pods[values]) for values in ordered))


def _recall_or_search(scene: Scene, shelf: Shelf, group: PlacementGroup) -> Answer:
    """Return the cached answer for an equal group, which is valid until its room changes."""
    workers, leader = group.workers, group.leader
    room = shelf.tree.base if scene.empty else shelf.tree.free
    leader_requests = leader.requests if leader is not None else None
    question = (workers.count, workers.requests, workers.topology, workers.pod_filter, leader_requests)
    answer = room.recall(question)
    if answer is None:
        answer = _resolve_and_search(scene, shelf, group)
        room.remember(question, answer)
    assert isinstance(answer, Answer)
    return answer


def _resolve_and_search(scene: Scene, shelf: Shelf, group: PlacementGroup) -> Answer:
    ask = resolve(shelf.tree.levels, group.workers.topology, group.workers.count, scene.forest.gates)
    return search(scene, shelf, group, ask) if isinstance(ask, Ask) else ask


def _counts(scene: Scene, shelf: Shelf, group: PlacementGroup, ask: Ask, confined_to: range | None) -> Counts:
    """Return cached counts, or new ones for confined leaves, which are too rare to cache."""
    leader = shape_requests(group.leader.requests) if group.leader is not None else None
    shape = Shape(
        shape_requests(group.workers.requests), leader, ask.slice_level, ask.slice_size, ask.units, ask.best_fit
    )
    pod_filter, scored = group.workers.pod_filter, scene.forest.gates.preferred_affinity
    if confined_to is None:
        return shelf.counts(shape, pod_filter, empty=scene.empty, scored=scored)
    eligibility = Eligibility(shelf.tree, pod_filter, scored=scored, confined_to=confined_to)
    return Counts(shelf.tree, shelf.tree.base if scene.empty else shelf.tree.free, shape, eligibility)


def _placement(tree: Tree, pods_by_leaf: Iterable[tuple[int, int]]) -> Placement:
    domains = tuple(Domain(tree.leaf_values[leaf], pods) for leaf, pods in pods_by_leaf if pods)
    return Placement(tree.placement_levels, domains)
