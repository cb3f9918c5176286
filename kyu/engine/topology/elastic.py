"""
Placement of the new slice of an elastic workload: running pods stay in their domains.

Called by: engine/topology/search.py. Kueue: tas_elastic_workloads.go, KEP-77.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kyu.api.placement import Domain
from kyu.engine.topology.group import Answer, Placed, PlacementGroup, Scene, merge, place_group
from kyu.engine.topology.tree import Tree
from kyu.engine.topology.types import Placement


def grow(scene: Scene, group: PlacementGroup, previous: Mapping[str, Placement]) -> Answer:
    """Keep the old placement and place only the additional pods. Assume both for the following pod sets."""
    tree = scene.forest.find_tree(group.workers.flavor)
    old = _previous(tree, group, previous) if tree is not None else None
    if tree is None or old is None:
        return place_group(scene, group)
    kept = truncate(old.workers, group.workers.count)
    scene.assume(group.workers, kept)
    more = group.workers.count - kept.count
    if group.leader is not None and old.leader is not None:
        scene.assume(group.leader, old.leader)
    wanted = PlacementGroup(replace(group.workers, count=more), group.leader if old.leader is None else None)
    if not more and wanted.leader is None:
        return Placed(kept, old.leader)
    added = place_group(scene, wanted)
    if not isinstance(added, Placed):
        return added
    return Placed(merge(tree, kept, added.workers), old.leader or added.leader)


def truncate(placed: Placement, count: int) -> Placement:
    """Return the first ``count`` pods of a placement, in order of its domains."""
    domains: list[Domain] = []
    for domain in placed.domains:
        taken = min(count, domain.count)
        if taken:
            domains.append(Domain(domain.values, taken))
        count -= taken
    return Placement(placed.levels, tuple(domains))


def _previous(tree: Tree, group: PlacementGroup, previous: Mapping[str, Placement]) -> Placed | None:
    """Return the placement to keep. Return None without one, or if the tree no longer has one of its domains."""
    workers = previous.get(group.workers.name)
    leader = previous.get(group.leader.name) if group.leader is not None else None
    if workers is None:
        return None
    domains = (*workers.domains, *(leader.domains if leader is not None else ()))
    if any(domain.values not in tree.leaf_by_values for domain in domains):
        return None
    return Placed(workers, leader)
