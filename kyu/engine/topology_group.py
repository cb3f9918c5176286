"""
One group of pod sets: a pod set alone, or a leader with its workers, from the request to its placement.

Called by: engine/topology.py, engine/topology_elastic.py, engine/topology_replace.py.
Kueue: tas_flavor_snapshot.go, FindTopologyAssignmentsForFlavor, findTopologyAssignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from kyu.api.placement import Domain
from kyu.engine import topology_balanced as balanced
from kyu.engine import topology_failures as failures
from kyu.engine import topology_placement as placement
from kyu.engine.topology_counts import Counts, Eligibility, Shape, shape_requests
from kyu.engine.topology_forest import Forest
from kyu.engine.topology_request import Ask, Reach, resolve
from kyu.engine.topology_shelf import Shelf
from kyu.engine.topology_tree import Tree
from kyu.engine.topology_types import PODS, Placement, PodSetRequest, Values
from kyu.engine.topology_walk import Share


@dataclass(frozen=True, slots=True)
class Group:
    """Pod sets that are placed together. A pod set alone is its own workers."""

    workers: PodSetRequest
    leader: PodSetRequest | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    workers: Placement
    leader: Placement | None = None


Answer: TypeAlias = Placed | failures.Failure


@dataclass(slots=True)
class Scene:
    """
    Where a workload is placed: on the forest as it is, or as if no workload with a placement ran; and what its pod
    sets placed before have taken. Flavors that share their hosts also share what is assumed on them.
    """

    forest: Forest
    empty: bool
    assumed: list[tuple[PodSetRequest, Placement]] = field(default_factory=list)

    def assume(self, request: PodSetRequest, placed: Placement) -> None:
        self.assumed.append((request, placed))

    def assumed_by_leaf(self, tree: Tree) -> dict[int, Counter[str]]:
        """What is assumed on a tree, by resource."""
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


def place_group(scene: Scene, group: Group) -> Answer:
    """Where the group goes; what it takes is assumed from then on."""
    shelf = scene.forest.find_shelf(group.workers.flavor)
    if shelf is None:
        return failures.FlavorUnknown(group.workers.flavor)
    answer = _recall_or_search(scene, shelf, group) if not scene.assumed else _resolve_and_search(scene, shelf, group)
    if isinstance(answer, Placed):
        scene.assume(group.workers, answer.workers)
        if group.leader is not None and answer.leader is not None:
            scene.assume(group.leader, answer.leader)
    return answer


def search(scene: Scene, shelf: Shelf, group: Group, ask: Ask, confined_to: range | None = None) -> Answer:
    """Where the group goes, on the leaves ``confined_to`` if given; nothing is assumed."""
    counts = _counts(scene, shelf, group, ask, confined_to)
    counts.sync(scene.assumed_by_leaf(shelf.tree))
    found: list[Share] | placement.Shortage | None = None
    if scene.forest.gates.balanced_placement and ask.reach is Reach.PREFERRED:
        found = balanced.find_balanced(counts, ask)
    if found is None:
        found = placement.search(counts, ask)
    if isinstance(found, placement.Shortage):
        return placement.explain(counts, ask, found, group.workers.count)
    workers = _placement(shelf.tree, ((share.domain, share.amount) for share in found))
    if group.leader is None:
        return Placed(workers)
    return Placed(workers, _placement(shelf.tree, ((share.domain, int(share.leader)) for share in found)))


def merge(tree: Tree, *placements: Placement) -> Placement:
    """All domains together, equal ones summed, in the order of the tree."""
    pods: Counter[Values] = Counter()
    for placed in placements:
        for domain in placed.domains:
            pods[domain.values] += domain.count
    ordered = sorted(pods, key=lambda values: tree.leaf_by_values[values])
    return Placement(tree.placement_levels, tuple(Domain(values, pods[values]) for values in ordered))


def _recall_or_search(scene: Scene, shelf: Shelf, group: Group) -> Answer:
    """An answer holds until its room changes."""
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


def _resolve_and_search(scene: Scene, shelf: Shelf, group: Group) -> Answer:
    ask = resolve(shelf.tree.levels, group.workers.topology, group.workers.count, scene.forest.gates)
    return search(scene, shelf, group, ask) if isinstance(ask, Ask) else ask


def _counts(scene: Scene, shelf: Shelf, group: Group, ask: Ask, confined_to: range | None) -> Counts:
    """Kept counts where the leaves are the usual ones; a confinement is too rare to keep."""
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
