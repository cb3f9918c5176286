"""
Replacement of the pods of an unhealthy node.

The other pods keep their domains. The ordinary search places the lost pods, confined to the leaves that keep the
request satisfied. These are the leaves of the required domain that holds the other pods, or of the domain whose slice
lost pods.

Called by: engine/topology/search.py. Kueue: tas_flavor_snapshot.go, findReplacementAssignment,
requiredReplacementDomain.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from kyu.engine.topology.failures import DoesNotFit, DomainGone, Exclusions, FlavorUnknown
from kyu.engine.topology.group import Answer, Placed, PlacementGroup, Scene, merge, search
from kyu.engine.topology.request import Ask, Reach, resolve
from kyu.engine.topology.tree import Tree
from kyu.engine.topology.types import Placement, PlacementRequest


@dataclass(frozen=True, slots=True)
class Confinement:
    """The request for the lost pods, and the leaves that they may use (None for all leaves)."""

    ask: Ask
    leaves: range | None


def repair(scene: Scene, request: PlacementRequest, placed: Placement, unhealthy_node: str) -> Answer:
    """Return the placement with the pods of the node moved to other domains. Assume only the moved pods."""
    shelf = scene.forest.find_shelf(request.flavor)
    if shelf is None:
        return FlavorUnknown(request.flavor)
    tree = shelf.tree
    rest = tuple(domain for domain in placed.domains if domain.values[-1] != unhealthy_node)
    lost = placed.count - sum(domain.count for domain in rest)
    if not lost or not tree.flavor.by_host:
        return Placed(placed)
    for domain in rest:
        if domain.values not in tree.leaf_by_values:
            return DomainGone(domain.values)
    remaining = Placement(tree.placement_levels, rest)
    ask = resolve(tree.levels, request.topology, lost, scene.forest.gates)
    if not isinstance(ask, Ask):
        return ask
    confinement = confine(tree, ask, remaining, lost)
    group = PlacementGroup(replace(request, count=lost))
    answer = search(scene, shelf, group, confinement.ask, confinement.leaves)
    if not isinstance(answer, Placed):
        return answer
    if not answer.workers.domains:
        return DoesNotFit(tree.flavor.topology, 0, lost, 1, Exclusions(len(tree.leaf_values)))
    scene.assume(request, answer.workers)
    return Placed(merge(tree, remaining, answer.workers))


def confine(tree: Tree, ask: Ask, remaining: Placement, lost: int) -> Confinement:
    """Return the leaves to which the topology request confines the lost pods."""
    anywhere = Confinement(ask, None)
    if not remaining.domains:
        return anywhere
    if lost % ask.slice_size:
        return _complete_slice(tree, ask, remaining, lost) or anywhere
    if ask.reach is Reach.REQUIRED:
        first = tree.leaf_by_values[remaining.domains[0].values]
        return Confinement(ask, tree.leaves(ask.level, tree.ancestor(first, ask.level)))
    return anywhere


def _complete_slice(tree: Tree, ask: Ask, remaining: Placement, lost: int) -> Confinement | None:
    """
    Return the domain that holds the other part of a slice that lost pods, or None if no domain completes a slice.

    The broken layer is the innermost layer of which the lost pods are not a multiple. Its first domain, in order of
    the tree, that has whole slices with the lost pods gets them. Within that domain, the innermost layer of which the
    lost pods are a multiple still applies. Without one, each pod is placed separately.
    """
    broken = next(layer for layer in reversed(ask.layers) if lost % layer.size)
    level = tree.levels.index(broken.level)
    pods: Counter[int] = Counter()
    for domain in remaining.domains:
        pods[tree.ancestor(tree.leaf_by_values[domain.values], level)] += domain.count
    home = next((domain for domain in sorted(pods) if (pods[domain] + lost) % broken.size == 0), None)
    if home is None:
        return None
    whole = next((layer for layer in reversed(ask.layers) if lost % layer.size == 0), None)
    slice_level = tree.leaf_level if whole is None else tree.levels.index(whole.level)
    slice_size = 1 if whole is None else whole.size
    inner = replace(
        ask,
        layers=() if whole is None else (whole,),
        slice_level=slice_level,
        slice_size=slice_size,
        units=(1,) * len(tree.levels),
        slices=lost // slice_size,
    )
    return Confinement(inner, tree.leaves(level, home))
