"""
In which order domains are tried, and what each offers.

There are two orders. The first is for picking while a leader is still to be placed: who can host it comes first, and
domains are measured with it. The second is for everything else. Both end in the place in the tree, so ties are settled
by names. Preferred affinity, where it counts, ranks above capacity in both.

Called by: engine/topology_placement.py, engine/topology_balanced.py.
Kueue: tas_flavor_snapshot.go, sortedDomainsWithLeader, sortedDomains.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kyu.engine.topology_counts import Counts, Eligibility, LevelCounts, Shape
from kyu.engine.topology_tree import Tree
from kyu.engine.topology_walk import Candidates, Capacity, Keyed, Listed


class CountsView(Protocol):
    """Counts to choose by: the live ones, or a pruned copy."""

    @property
    def tree(self) -> Tree: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def eligibility(self) -> Eligibility: ...

    @property
    def levels(self) -> list[LevelCounts]: ...


def slice_capacity(view: CountsView, level: int) -> Capacity:
    """In slices; only down to the slice level, below it there are none."""
    counts = view.levels[level]
    return Capacity(counts.slices, counts.slices_with_leader, counts.hosts_leader, _scores(view, level))


def pod_capacity(view: CountsView, level: int, unit: int) -> Capacity:
    """In units of so many pods."""
    counts = view.levels[level]
    return Capacity(counts.pods, counts.pods_with_leader, counts.hosts_leader, _scores(view, level), unit)


def in_first_order(view: CountsView, level: int, domains: Iterable[int]) -> list[int]:
    """Hosts of the leader first, then by what they can do with it."""
    counts, scores, sign = view.levels[level], _scores(view, level), _sign(view)

    def key(domain: int) -> tuple[bool, int, int, int, int]:
        score = 0 if scores is None else -scores[domain]
        rank = sign * counts.slices_with_leader[domain]
        return (not counts.hosts_leader[domain], score, rank, counts.pods_with_leader[domain], domain)

    return sorted(domains, key=key)


def in_second_order(view: CountsView, level: int, domains: Iterable[int]) -> list[int]:
    """By what they can do without the leader."""
    counts, scores, sign = view.levels[level], _scores(view, level), _sign(view)

    def key(domain: int) -> tuple[int, int, int, int]:
        score = 0 if scores is None else -scores[domain]
        return (score, sign * counts.slices[domain], counts.pods[domain], domain)

    return sorted(domains, key=key)


def candidates(counts: Counts, level: int, parent: int, capacity: Capacity) -> Candidates:
    """The children of a domain, or the WHOLE_LEVEL, in the second order, by the sorted keys that the counts keep."""
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
    """Best fit tries large domains first, least free capacity small ones."""
    return -1 if view.shape.best_fit else 1
