"""
Choosing domains: phase two of placement, for one pod set or one leader with its workers.

First pick: the tightest single domain that holds everything, at the level that was asked for; a preferred level may
widen, an unconstrained one may take several. Then descend: hand the amounts down, level by level, to the leaves. Above
the slice level only the chosen set is kept and the slices are spread anew over all of its children; from the slice
level down each domain hands its own pods to its own children.

Called by: engine/topology_group.py. Kueue: tas_flavor_snapshot.go, findLevelWithFitDomains, updateSliceCountsToMinimum.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from kyu.engine import topology_failures as failures
from kyu.engine.topology_counts import WHOLE_LEVEL, Counts
from kyu.engine.topology_order import candidates, in_first_order, in_second_order, pod_capacity, slice_capacity
from kyu.engine.topology_request import Ask, Reach
from kyu.engine.topology_walk import Candidates, Capacity, Keyed, Listed, Share, walk


@dataclass(frozen=True, slots=True)
class Shortage:
    """Nothing suffices: how many slices would have found a place, at the level that was searched last."""

    level: int
    fitting: int


def search(counts: Counts, ask: Ask) -> list[Share] | Shortage:
    """The leaves, in order of the tree, with their pods; the counts must be in step with their room."""
    if not counts.room.size:
        return Shortage(ask.level, 0)
    level = ask.level
    picked = pick(counts, ask, level)
    while isinstance(picked, Shortage) and ask.reach is Reach.PREFERRED and level > 0:
        level -= 1
        picked = pick(counts, ask, level)
    if isinstance(picked, Shortage):
        return picked
    shares = descend(counts, ask, picked, level)
    return Shortage(level, 0) if shares is None else shares


def pick(counts: Counts, ask: Ask, level: int) -> list[Share] | Shortage:
    """The domains of one level that hold all slices, with their shares."""
    capacity = slice_capacity(counts, level)
    leader = counts.shape.leader is not None
    if leader:
        domains = in_first_order(counts, level, counts.domains(level, WHOLE_LEVEL))
        choice: Candidates = Listed(domains, capacity)
    else:
        choice = candidates(counts, level, WHOLE_LEVEL, capacity)
    single = find_single(choice, capacity, ask, leader=leader)
    if single is not None:
        return [Share(single, ask.slices, leader)]
    if ask.reach is Reach.REQUIRED or (ask.reach is Reach.PREFERRED and level > 0):
        return Shortage(level, capacity.offer(choice[0], leader=False))
    if leader:
        return pick_with_leader(counts, ask, level, Listed(domains, capacity))
    if (fitting := sum(counts.levels[0].slices)) < ask.slices:
        return Shortage(level, fitting)
    taken, missing = take(choice, capacity, ask.slices, best_fit=ask.best_fit)
    return (
        Shortage(level, ask.slices - missing) if missing > 0 else fix_shares(ask, level, taken, capacity, leader=False)
    )


def find_single(choice: Candidates, capacity: Capacity, ask: Ask, *, leader: bool) -> int | None:
    """The one domain that holds everything, if there is one where this kind of request looks."""
    start = 0
    if not ask.best_fit or (ask.reach is Reach.REQUIRED and capacity.scores is not None):
        start = first_sufficient(choice, capacity, ask.slices, leader=leader)
    if start == len(choice) or not capacity.can_finish(choice[start], ask.slices, leader=leader):
        return None
    return choice[choice.tightest(start, ask.slices, leader=leader) if ask.best_fit else start]


def first_sufficient(choice: Candidates, capacity: Capacity, amount: int, *, leader: bool) -> int:
    if isinstance(choice, Keyed):
        return bisect_left(choice.keys, (amount,))
    positions = range(len(choice))
    return next((p for p in positions if capacity.can_finish(choice[p], amount, leader=leader)), len(choice))


def take(choice: Candidates, capacity: Capacity, amount: int, *, best_fit: bool) -> tuple[list[int], int]:
    """Domains until the amount is covered, the last one the tightest that still suffices; and what is missing."""
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


def pick_with_leader(counts: Counts, ask: Ask, level: int, ordered: Listed) -> list[Share] | Shortage:
    """Several domains: the leader's first; the others are then sorted anew, by what they do without it."""
    capacity = ordered.capacity
    ordered = ordered.leader_first(ask.slices)
    if not capacity.hosts_leader[ordered[0]]:
        return Shortage(level, 0)
    host = ordered[0]
    if ask.best_fit and capacity.can_finish(host, ask.slices, leader=True):
        host = ordered[ordered.tightest(0, ask.slices, leader=True)]
    missing = ask.slices - capacity.offer(host, leader=True)
    others = in_second_order(counts, level, (domain for domain in ordered.domains if domain != host))
    taken, missing = take(Listed(others, capacity), capacity, missing, best_fit=ask.best_fit)
    if missing > 0:
        return Shortage(level, ask.slices - missing)
    return fix_shares(ask, level, [host, *taken], capacity, leader=True)


def fix_shares(ask: Ask, level: int, taken: list[int], capacity: Capacity, *, leader: bool) -> list[Share] | Shortage:
    shares = walk(Listed(taken, capacity), capacity, ask.slices, leader=leader, best_fit=ask.best_fit)
    return Shortage(level, 0) if shares is None else shares


def descend(counts: Counts, ask: Ask, shares: list[Share], level: int) -> list[Share] | None:
    """From the chosen domains to the leaves; the shares of leaves are pods. None if some part finds no place."""
    while level < ask.slice_level:
        level += 1
        spread = spread_slices(counts, ask, shares, level)
        if spread is None:
            return None
        shares = spread
    shares = [Share(share.domain, share.amount * ask.slice_size, share.leader) for share in shares]
    while level < counts.tree.leaf_level:
        level += 1
        capacity = pod_capacity(counts, level, ask.units[level])
        handed: list[Share] = []
        for share in shares:
            below = hand_down(counts, ask, share, level, capacity)
            if below is None:
                return None
            handed.extend(below)
        shares = handed
    return sorted(shares)


def spread_slices(counts: Counts, ask: Ask, shares: list[Share], level: int) -> list[Share] | None:
    """Above the slice level: all slices anew over the children of the whole set."""
    leader = any(share.leader for share in shares)
    capacity = slice_capacity(counts, level)
    if len(shares) == 1 and not leader:
        children = candidates(counts, level, shares[0].domain, capacity)
    else:
        pool = [child for share in shares for child in counts.domains(level, share.domain)]
        children = Listed(in_second_order(counts, level, pool), capacity)
    return walk(children, capacity, ask.slices, leader=leader, best_fit=ask.best_fit)


def hand_down(counts: Counts, ask: Ask, share: Share, level: int, capacity: Capacity) -> list[Share] | None:
    """From the slice level down: the pods of one domain over its own children, in units of the inner slice."""
    if share.leader:
        domains = in_second_order(counts, level, counts.domains(level, share.domain))
        children: Candidates = Listed(domains, capacity)
    else:
        children = candidates(counts, level, share.domain, capacity)
    unit = capacity.unit
    below = walk(children, capacity, share.amount // unit, leader=share.leader, best_fit=ask.best_fit)
    return None if below is None else [Share(s.domain, s.amount * unit, s.leader) for s in below]


def explain(counts: Counts, ask: Ask, shortage: Shortage, count: int) -> failures.Failure:
    """A shortage with the numbers that its message needs."""
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
