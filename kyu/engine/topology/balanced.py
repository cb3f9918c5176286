"""
Balanced placement: spread a preferred request evenly over as few domains as possible.

The threshold of a sibling set is the least number of slices that each used domain gets. The search takes the sibling
set with the largest threshold at the preferred level, and prunes the domains below it. It then chooses the smallest set
of domains with the least surplus. Each of them gets the threshold; the remaining slices follow in order. If balanced
placement fails, the ordinary search runs with unchanged counts.

Called by: engine/topology/group.py, with the gate TASBalancedPlacement. Kueue: tas_balanced_placement.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log2

from kyu.engine.topology.counts import Counts, Eligibility, LevelCounts, Shape
from kyu.engine.topology.order import in_first_order, in_second_order, pod_capacity
from kyu.engine.topology.request import Ask
from kyu.engine.topology.tree import Tree
from kyu.engine.topology.walk import DomainShare, Listed, walk


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of domains of a greedy cover, its domain with the leader, and its last domain without one."""

    used: int
    leader: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """A copy of the counts in which domains below the threshold have no capacity."""

    tree: Tree
    shape: Shape
    eligibility: Eligibility
    levels: list[LevelCounts]


@dataclass(frozen=True, slots=True)
class Balance:
    """A sibling set that holds the request, with its threshold and the number of domains that it uses."""

    members: Sequence[int]
    threshold: int
    used: int
    view: Pruned


def find_balanced(counts: Counts, ask: Ask) -> list[DomainShare] | None:
    """Return the leaves with their pods, like the ordinary search, or None without a balanced placement."""
    balance = best_balance(counts, ask)
    if balance is None:
        return None
    view, level, chosen = balance.view, ask.level, balance.members
    if ask.level < ask.slice_level:
        members = find_subset(view, ask, level, by_evenness(view, level, chosen))
        if members is None:
            return None
        level += 1
        chosen = [child for member in sorted(members) for child in view.tree.children(level - 1, member)]
    subset = find_subset(view, ask, level, sorted(chosen))
    shares = share_out(view, ask, level, subset, balance.threshold) if subset is not None else None
    return descend(view, ask, shares, level) if shares is not None else None


def best_balance(counts: Counts, ask: Ask) -> Balance | None:
    best: Balance | None = None
    for members in sibling_sets(counts.tree, ask.level):
        found = balance_of(counts, ask, members, 1 if best is None else best.threshold)
        if found is None:
            continue
        if best is None or (found.threshold, -found.used) > (best.threshold, -best.used):
            best = found
    return best


def sibling_sets(tree: Tree, level: int) -> Iterable[Sequence[int]]:
    if level == 0:
        return [range(len(tree.values[0]))]
    return [tree.children(level - 1, parent) for parent in range(len(tree.values[level - 1]))]


def balance_of(counts: Counts, ask: Ask, members: Sequence[int], at_least: int) -> Balance | None:
    """Return a sibling set with its largest feasible threshold, or None if that is below ``at_least``."""
    level, domains = ask.level, members
    if ask.level < ask.slice_level:
        level = ask.level + 1
        domains = [child for member in members for child in counts.tree.children(ask.level, member)]
    base = tally(counts, ask, level, domains)
    if base is None or not base.used:
        return None
    of = counts.levels[level]
    threshold = ask.slices // base.used
    if base.leader is not None:
        threshold = min(threshold, of.slices_with_leader[base.leader])
    if base.last is not None:
        threshold = min(threshold, of.slices[base.last])
    lower = threshold
    if base.leader is not None and base.last is not None:
        lower = min(threshold, of.slices_with_leader[base.last])
    for attempt in (threshold,) if lower == threshold else (threshold, lower):
        if attempt < max(1, at_least):
            return None
        view = prune(counts, ask.level, members, attempt)
        after = tally(view, ask, ask.level, members)
        if after is not None:
            return Balance(members, attempt, after.used, view)
    return None


def tally(view: Counts | Pruned, ask: Ask, level: int, domains: Sequence[int]) -> Tally | None:
    """Cover all slices greedily: the leader's domain first, then the largest. Return None if slices remain."""
    of, missing = view.levels[level], ask.slices
    leader: int | None = None
    if view.shape.leader is not None:
        leader = next(iter(in_first_order(view, level, domains)), None)
        if leader is None or not of.hosts_leader[leader]:
            return None
        missing -= of.slices_with_leader[leader]
    last: int | None = None
    used = 0 if leader is None else 1
    for domain in in_second_order(view, level, (d for d in domains if d != leader and of.slices[d] > 0)):
        if missing <= 0:
            break
        last, used, missing = domain, used + 1, missing - of.slices[domain]
    return None if missing > 0 else Tally(used, leader, last)


def prune(counts: Counts, level: int, members: Sequence[int], threshold: int) -> Pruned:
    """Clear the children of members below the threshold, then the members that fall below it."""
    view = Pruned(counts.tree, counts.shape, counts.eligibility, [of.copy() for of in counts.levels])
    for member in members:
        if level < counts.tree.leaf_level:
            children = counts.tree.children(level, member)
            for child in children:
                drop_below(view, level + 1, child, threshold)
            sum_again(view, level, member, children)
        drop_below(view, level, member, threshold)
    return view


def drop_below(view: Pruned, level: int, domain: int, threshold: int) -> None:
    of = view.levels[level]
    if of.slices[domain] < threshold:
        clear(view, level, domain, leader_only=False)
    elif view.shape.leader is not None and of.hosts_leader[domain] and of.slices_with_leader[domain] < threshold:
        clear(view, level, domain, leader_only=True)


def clear(view: Pruned, level: int, domain: int, *, leader_only: bool) -> None:
    """Set the capacity of a subtree to zero, or only its capacity with a leader."""
    domains = range(domain, domain + 1)
    for below in range(level, len(view.levels)):
        of = view.levels[below]
        for d in domains:
            of.pods_with_leader[d] = of.slices_with_leader[d] = 0
            of.hosts_leader[d] = False
            if not leader_only:
                of.pods[d] = of.slices[d] = 0
        if below < view.tree.leaf_level:
            first = view.tree.first_child[below]
            domains = range(first[domains.start], first[domains.stop])


def sum_again(view: Pruned, level: int, member: int, children: range) -> None:
    """Sum the counts of the children again. Unlike the first count, the sum is not rounded to inner slices."""
    of, below, shape = view.levels[level], view.levels[level + 1], view.shape
    of.pods[member] = sum(below.pods[child] for child in children)
    at_slices = level == shape.slice_level
    of.slices[member] = (
        of.pods[member] // shape.slice_size if at_slices else sum(below.slices[child] for child in children)
    )
    capable = [child for child in children if below.hosts_leader[child]]
    of.hosts_leader[member] = bool(capable)
    of.pods_with_leader[member] = of.slices_with_leader[member] = 0
    if not capable:
        return
    of.pods_with_leader[member] = of.pods[member] - min(below.pods[c] - below.pods_with_leader[c] for c in capable)
    if at_slices:
        of.slices_with_leader[member] = of.pods_with_leader[member] // shape.slice_size
    else:
        lost = min(below.slices[child] - below.slices_with_leader[child] for child in capable)
        of.slices_with_leader[member] = of.slices[member] - lost


def by_evenness(view: Pruned, level: int, members: Sequence[int]) -> list[int]:
    """Sort domains: hosts of the leader first, then by falling capacity, then by falling entropy."""
    of = view.levels[level]
    return sorted(
        members,
        key=lambda m: (not of.hosts_leader[m], -of.slices_with_leader[m], -entropy(view, level, m), m),
    )


def entropy(view: Pruned, level: int, member: int) -> float:
    """Return the Shannon entropy of the pods of a domain over its children."""
    pods = [view.levels[level + 1].pods[child] for child in view.tree.children(level, member)]
    total = sum(pods)
    return -sum(count / total * log2(count / total) for count in pods if count)


def find_subset(view: Pruned, ask: Ask, level: int, ordered: Sequence[int]) -> list[int] | None:
    """
    Return as many domains as a greedy cover uses, with the leader placed and the least surplus of pods.

    The function is a dynamic program over the domains in order. A state is the number of used domains, whether the
    leader is unplaced, and the missing pods. The first combination that reaches a state is kept.
    """
    cover = tally(view, ask, level, ordered)
    if cover is None:
        return None
    of = view.levels[level]
    start = (0, view.shape.leader is not None, ask.slices * ask.slice_size)
    chosen: dict[tuple[int, bool, int], tuple[int, ...]] = {start: ()}
    for domain in ordered:
        for (used, leader_open, missing), combination in list(chosen.items()):
            if used == cover.used or (missing <= 0 and not leader_open):
                continue
            extended = (*combination, domain)
            if leader_open and of.hosts_leader[domain]:
                chosen.setdefault((used + 1, False, missing - of.pods_with_leader[domain]), extended)
            if of.slices[domain] > 0:
                chosen.setdefault((used + 1, leader_open, missing - of.pods[domain]), extended)
    finished = [
        missing for used, leader_open, missing in chosen if used == cover.used and not leader_open and missing <= 0
    ]
    return list(chosen[cover.used, False, max(finished)]) if finished else None


def share_out(view: Pruned, ask: Ask, level: int, subset: list[int], threshold: int) -> list[DomainShare] | None:
    """Give each domain the threshold, and the remaining slices to the first domains with capacity, in pods."""
    of, leader = view.levels[level], view.shape.leader is not None
    extra = ask.slices - len(subset) * threshold
    if extra < 0:
        return None
    shares: list[DomainShare] = []
    for domain in in_first_order(view, level, subset):
        most = (of.slices_with_leader if leader else of.slices)[domain]
        more = max(0, min(extra, most - threshold))
        shares.append(DomainShare(domain, (threshold + more) * ask.slice_size, leader))
        extra -= more
        leader = False
    return None if extra > 0 else shares


def descend(view: Pruned, ask: Ask, shares: list[DomainShare], level: int) -> list[DomainShare] | None:
    """Distribute the pods of each domain over its children, down to the leaves; in whole slices to the slice level."""
    while level < view.tree.leaf_level:
        level += 1
        unit = ask.slice_size if level <= ask.slice_level else ask.units[level]
        capacity = pod_capacity(view, level, unit)
        handed: list[DomainShare] = []
        for share in shares:
            children = Listed(in_second_order(view, level, view.tree.children(level - 1, share.domain)), capacity)
            below = walk(children, capacity, share.amount // unit, leader=share.leader, best_fit=True)
            if below is None:
                return None
            handed.extend(DomainShare(s.domain, s.amount * unit, s.leader) for s in below)
        shares = handed
    return sorted(shares)
