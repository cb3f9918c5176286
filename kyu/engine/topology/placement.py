"""
The choice of domains: phase two of placement, for one pod set or one leader with its workers.

``pick`` chooses the tightest single domain of the requested level that holds all pods. A preferred request may go up to
coarser levels, and an unconstrained request may take several domains. ``descend`` then distributes the pods level by
level to the leaves. Down to the slice level, all slices are distributed over the children of all chosen domains. Below
it, the pods of each domain are distributed over its own children.

Called by: engine/topology/group.py. Kueue: tas_flavor_snapshot.go, findLevelWithFitDomains, updateSliceCountsToMinimum.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from kyu.engine.topology import failures
from kyu.engine.topology.counts import WHOLE_LEVEL, Counts
from kyu.engine.topology.order import candidates, in_first_order, in_second_order, pod_capacity, slice_capacity
from kyu.engine.topology.request import Ask, Reach
from kyu.engine.topology.walk import Capacity, DomainShare, Keyed, Listed, SortedDomains, walk


@dataclass(frozen=True, slots=True)
class PlacementShortage:
    """The number of slices that fit at the last searched level, if not all fit."""

    level: int
    fitting: int


def search(counts: Counts, ask: Ask) -> list[DomainShare] | PlacementShortage:
    """Return the leaves with their pods, in order of the tree. The counts must be current."""
    if not counts.room.size:
        return PlacementShortage(ask.level, 0)
    level = ask.level
    picked = pick(counts, ask, level)
    while isinstance(picked, PlacementShortage) and ask.reach is Reach.PREFERRED and level > 0:
        level -= 1
        picked = pick(counts, ask, level)
    if isinstance(picked, PlacementShortage):
        return picked
    shares = descend(counts, ask, picked, level)
    return PlacementShortage(level, 0) if shares is None else shares


def pick(counts: Counts, ask: Ask, level: int) -> list[DomainShare] | PlacementShortage:
    """Return the domains of one level that hold all slices, with their shares."""
    capacity = slice_capacity(counts, level)
    leader = counts.shape.leader is not None
    if leader:
        domains = in_first_order(counts, level, counts.domains(level, WHOLE_LEVEL))
        choice: SortedDomains = Listed(domains, capacity)
    else:
        choice = candidates(counts, level, WHOLE_LEVEL, capacity)
    single = find_single(choice, capacity, ask, leader=leader)
    if single is not None:
        return [DomainShare(single, ask.slices, leader)]
    if ask.reach is Reach.REQUIRED or (ask.reach is Reach.PREFERRED and level > 0):
        return PlacementShortage(level, capacity.offer(choice[0], leader=False))
    if leader:
        return pick_with_leader(counts, ask, level, Listed(domains, capacity))
    if (fitting := sum(counts.levels[0].slices)) < ask.slices:
        return PlacementShortage(level, fitting)
    taken, missing = take(choice, capacity, ask.slices, best_fit=ask.best_fit)
    if missing > 0:
        return PlacementShortage(level, ask.slices - missing)
    return fix_shares(ask, level, taken, capacity, leader=False)


def find_single(choice: SortedDomains, capacity: Capacity, ask: Ask, *, leader: bool) -> int | None:
    """Return the tightest, or the first, single domain that holds all slices. Return None if no domain does."""
    start = 0
    if not ask.best_fit or (ask.reach is Reach.REQUIRED and capacity.scores is not None):
        start = first_sufficient(choice, capacity, ask.slices, leader=leader)
    if start == len(choice) or not capacity.can_finish(choice[start], ask.slices, leader=leader):
        return None
    return choice[choice.tightest(start, ask.slices, leader=leader) if ask.best_fit else start]


def first_sufficient(choice: SortedDomains, capacity: Capacity, amount: int, *, leader: bool) -> int:
    if isinstance(choice, Keyed):
        return bisect_left(choice.keys, (amount,))
    positions = range(len(choice))
    return next((p for p in positions if capacity.can_finish(choice[p], amount, leader=leader)), len(choice))


def take(choice: SortedDomains, capacity: Capacity, amount: int, *, best_fit: bool) -> tuple[list[int], int]:
    """Return domains that cover the amount, and the missing amount. Best fit takes the tightest as the last domain."""
    taken: list[int] = []
    for position in range(choice.start(), len(choice)):
        if amount <= 0:
            break
        domain = choice[position]
        if best_fit and capacity.can_finish(domain, amount, leader=False):
            domain = choice[choice.tightest(position, amount, leader=False)]
        taken.append(domain)
        amount -= capacity.offer(domain, leader=False)
    return taken, amount


def pick_with_leader(counts: Counts, ask: Ask, level: int, ordered: Listed) -> list[DomainShare] | PlacementShortage:
    """Return several domains with their shares: the leader's first, then the others, sorted without the leader."""
    capacity = ordered.capacity
    ordered = ordered.leader_first(ask.slices)
    if not capacity.hosts_leader[ordered[0]]:
        return PlacementShortage(level, 0)
    host = ordered[0]
    if ask.best_fit and capacity.can_finish(host, ask.slices, leader=True):
        host = ordered[ordered.tightest(0, ask.slices, leader=True)]
    missing = ask.slices - capacity.offer(host, leader=True)
    others = in_second_order(counts, level, (domain for domain in ordered.domains if domain != host))
    taken, missing = take(Listed(others, capacity), capacity, missing, best_fit=ask.best_fit)
    if missing > 0:
        return PlacementShortage(level, ask.slices - missing)
    return fix_shares(ask, level, [host, *taken], capacity, leader=True)


def fix_shares(
    ask: Ask, level: int, taken: list[int], capacity: Capacity, *, leader: bool
) -> list[DomainShare] | PlacementShortage:
    shares = walk(Listed(taken, capacity), capacity, ask.slices, leader=leader, best_fit=ask.best_fit)
    return PlacementShortage(level, 0) if shares is None else shares


def descend(counts: Counts, ask: Ask, shares: list[DomainShare], level: int) -> list[DomainShare] | None:
    """Distribute the slices of the chosen domains as pods to the leaves. Return None if a part does not fit."""
    while level < ask.slice_level:
        level += 1
        spread = spread_slices(counts, ask, shares, level)
        if spread is None:
            return None
        shares = spread
    shares = [DomainShare(share.domain, share.amount * ask.slice_size, share.leader) for share in shares]
    while level < counts.tree.leaf_level:
        level += 1
        capacity = pod_capacity(counts, level, ask.units[level])
        handed: list[DomainShare] = []
        for share in shares:
            below = hand_down(counts, ask, share, level, capacity)
            if below is None:
                return None
            handed.extend(below)
        shares = handed
    return sorted(shares)


def spread_slices(counts: Counts, ask: Ask, shares: list[DomainShare], level: int) -> list[DomainShare] | None:
    """Distribute all slices over the children of all domains, above the slice level."""
    leader = any(share.leader for share in shares)
    capacity = slice_capacity(counts, level)
    if len(shares) == 1 and not leader:
        children = candidates(counts, level, shares[0].domain, capacity)
    else:
        pool = [child for share in shares for child in counts.domains(level, share.domain)]
        children = Listed(in_second_order(counts, level, pool), capacity)
    return walk(children, capacity, ask.slices, leader=leader, best_fit=ask.best_fit)


def hand_down(counts: Counts, ask: Ask, share: DomainShare, level: int, capacity: Capacity) -> list[DomainShare] | None:
    """Distribute the pods of one domain over its children, in units of the inner slice, below the slice level."""
    if share.leader:
        domains = in_second_order(counts, level, counts.domains(level, share.domain))
        children: SortedDomains = Listed(domains, capacity)
    else:
        children = candidates(counts, level, share.domain, capacity)
    unit = capacity.unit
    below = walk(children, capacity, share.amount // unit, leader=share.leader, best_fit=ask.best_fit)
    return None if below is None else [DomainShare(s.domain, s.amount * unit, s.leader) for s in below]


def explain(counts: Counts, ask: Ask, shortage: PlacementShortage, count: int) -> failures.Failure:
    """Return the failure that describes a shortage."""
    tree = counts.tree
    if not counts.room.size:
        return failures.NoDomains(tree.levels[ask.level])
    topology = tree.flavor.topology
    if len(ask.layers) < 2:
        return failures.DoesNotFit(topology, shortage.fitting, ask.slices, ask.slice_size, counts.exclusions())
    slices = counts.levels[shortage.level].slices
    leaves = tree.leaves(shortage.level, slices.index(max(slices)))
    fits: list[failures.LayerFit] = []
    for layer in ask.layers:
        level = tree.levels.index(layer.level)
        first, last = tree.ancestor(leaves[0], level), tree.ancestor(leaves[-1], level)
        fitting = sum(pods // layer.size for pods in counts.levels[level].pods[first : last + 1])
        fits.append(failures.LayerFit(layer.level, fitting, count // layer.size))
    return failures.LayersDoNotFit(topology, tuple(fits), counts.exclusions())
