"""
The order in which domains are tried, and their capacity.

The first order applies while a leader is unplaced: domains that can host it come first, sorted by capacity with leader.
The second order sorts by capacity without a leader. The index in the tree breaks ties in both, so the names of domains
decide. Preferred affinity, if its feature gate is on, ranks above capacity in both.

Called by: engine/topology/placement.py, engine/topology/balanced.py.
Kueue: tas_flavor_snapshot.go, sortedDomainsWithLeader, sortedDomains.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kyu.engine.topology.counts import Counts, Eligibility, LevelCounts, Shape
from kyu.engine.topology.tree import Tree
from kyu.engine.topology.walk import Capacity, Keyed, Listed, SortedDomains


class CountsView(Protocol):
    """The counts that a search reads: the shared ones, or a pruned copy."""

    @property
    def tree(self) -> Tree: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def eligibility(self) -> Eligibility: ...

    @property
    def levels(self) -> list[LevelCounts]: ...


def slice_capacity(view: CountsView, level: int) -> Capacity:
    """Return the capacity in slices of a level. Levels below the slice level have none."""
    counts = view.levels[level]
    return Capacity(counts.slices, counts.slices_with_leader, counts.hosts_leader, _scores(view, level))


def pod_capacity(view: CountsView, level: int, unit: int) -> Capacity:
    """Return the capacity of a level in units of some number of pods."""
    counts = view.levels[level]
    return Capacity(counts.pods, counts.pods_with_leader, counts.hosts_leader, _scores(view, level), unit)


def in_first_order(view: CountsView, level: int, domains: Iterable[int]) -> list[int]:
    """Sort domains: hosts of the leader first, then by capacity with leader."""
    counts, scores, sign = view.levels[level], _scores(view, level), _sign(view)

    def key(domain: int) -> tuple[bool, int, int, int, int]:
        score = 0 if scores is None else -scores[domain]
        rank = sign * counts.slices_with_leader[domain]
        return (not counts.hosts_leader[domain], score, rank, counts.pods_with_leader[domain], domain)

    return sorted(domains, key=key)


def in_second_order(view: CountsView, level: int, domains: Iterable[int]) -> list[int]:
    """Sort domains by capacity without a leader."""
    counts, scores, sign = view.levels[level], _scores(view, level), _sign(view)

    def key(domain: int) -> tuple[int, int, int, int]:
        score = 0 if scores is None else -scores[domain]
        return (score, sign * counts.slices[domain], counts.pods[domain], domain)

    return sorted(domains, key=key)


def candidates(counts: Counts, level: int, parent: int, capacity: Capacity) -> SortedDomains:
    """Return the children of a domain, or the WHOLE_LEVEL, in the second order; by the cached keys if possible."""
    if capacity.scores is not None:
        return Listed(in_second_order(counts, level, counts.domains(level, parent)), capacity)
    in_slices = level <= counts.shape.slice_level
    if in_slices and counts.shape.best_fit:
        return Keyed(counts.order(level, parent), falling=True)
    return Keyed(counts.order(level, parent), falling=False, first=(1,) if in_slices else (0, capacity.unit))


def _scores(view: CountsView, level: int) -> list[int] | None:
    scores = view.eligibility.scores
    return None if scores is None else scores[level]


def _sign(view: CountsView) -> int:
    """Return the direction of the sort: best fit tries large domains first, least free capacity small ones."""
    return -1 if view.shape.best_fit else 1
