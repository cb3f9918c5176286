"""
Moving the pods of an unhealthy node, and nothing else.

What is left of the placement stays. The lost pods are placed by the ordinary search, but confined where the request
would otherwise be broken: to the domain of the required level that holds the rest, or to the domain whose slice the
lost pods were a part of.

Called by: engine/topology.py. Kueue: tas_flavor_snapshot.go, findReplacementAssignment, requiredReplacementDomain.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from kyu.engine.topology_failures import DoesNotFit, DomainGone, Exclusions, FlavorUnknown
from kyu.engine.topology_group import Answer, Group, Placed, Scene, merge, search
from kyu.engine.topology_request import Ask, Reach, resolve
from kyu.engine.topology_tree import Tree
from kyu.engine.topology_types import Placement, PodSetRequest


@dataclass(frozen=True, slots=True)
class Confinement:
    """How the lost pods are searched: as what, and on which leaves (None: anywhere)."""

    ask: Ask
    leaves: range | None


def repair(scene: Scene, request: PodSetRequest, placed: Placement, unhealthy_node: str) -> Answer:
    """The placement without the node, plus a new place for what was there; only the new part is assumed."""
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
    group = Group(replace(request, count=lost))
    answer = search(scene, shelf, group, confinement.ask, confinement.leaves)
    if not isinstance(answer, Placed):
        return answer
    if not answer.workers.domains:
        return DoesNotFit(tree.flavor.topology, 0, lost, 1, Exclusions(len(tree.leaf_values)))
    scene.assume(request, answer.workers)
    return Placed(merge(tree, remaining, answer.workers))


def confine(tree: Tree, ask: Ask, remaining: Placement, lost: int) -> Confinement:
    """Where the lost pods must go for the whole to be what was asked for."""
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
    A part of a slice is gone: only the domain that holds the other part can make it whole again.

    That is a domain of the innermost layer that the lost pods do not fill; the first, in order of the tree, whose pods
    are then a multiple of the layer's size. Inside it the lost pods keep together as the innermost layer that they do
    fill says, else each pod goes for itself.
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
