"""
The greedy walk, which covers an amount with few domains of a sorted list.

Every step of phase two is such a walk: in slices down to the slice level, in pods below it, with or without a leader.
The list is either explicit, or the sorted keys that the counts maintain. With sorted keys, a walk costs the number of
domains taken and the logarithm of all domains.

Called by: engine/topology/placement.py, engine/topology/balanced.py.
Kueue: tas_flavor_snapshot.go, updateCountsToMinimum, findBestFitDomain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kyu.engine.topology.counts import OrderKey


class DomainShare(NamedTuple):
    """The share of one domain: an amount for the workers, and possibly the leader."""

    domain: int
    amount: int
    leader: bool


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of the domains of one level, in units of ``unit`` pods or slices."""

    plain: Sequence[int]
    with_leader: Sequence[int]
    hosts_leader: Sequence[bool]
    scores: Sequence[int] | None = None
    unit: int = 1

    def offer(self, domain: int, *, leader: bool) -> int:
        """Return the capacity of a domain for workers, with or without the leader."""
        return (self.with_leader if leader else self.plain)[domain] // self.unit

    def can_finish(self, domain: int, amount: int, *, leader: bool) -> bool:
        return self.offer(domain, leader=leader) >= amount and (not leader or self.hosts_leader[domain])


class SortedDomains(Protocol):
    """A sorted list of domains."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> int: ...

    def start(self) -> int:
        """Return a position before which no domain has capacity."""
        ...

    def tightest(self, start: int, amount: int, *, leader: bool) -> int:
        """Return the position from ``start`` on that holds the amount with the least surplus. ``start`` holds it."""
        ...


class Listed:
    """An explicit list of domains."""

    __slots__ = ("capacity", "domains")

    def __init__(self, domains: list[int], capacity: Capacity) -> None:
        self.domains = domains
        self.capacity = capacity

    def __len__(self) -> int:
        return len(self.domains)

    def __getitem__(self, position: int) -> int:
        return self.domains[position]

    def start(self) -> int:
        return 0

    def tightest(self, start: int, amount: int, *, leader: bool) -> int:
        """Return the tightest position with the same preferred affinity score as ``start``."""
        capacity, best, least = self.capacity, start, -1
        scores = capacity.scores
        for position in range(start, len(self.domains)):
            domain = self.domains[position]
            if scores is not None and scores[domain] != scores[self.domains[start]]:
                break
            if capacity.can_finish(domain, amount, leader=leader):
                offer = capacity.offer(domain, leader=leader)
                if least < 0 or offer < least:
                    best, least = position, offer
        return best

    def leader_first(self, amount: int) -> Listed:
        """Move the first domain to the front that can host the leader and leaves enough capacity for the workers."""
        capacity = self.capacity
        total = sum(capacity.offer(domain, leader=False) for domain in self.domains)
        for position, domain in enumerate(self.domains):
            lost = capacity.offer(domain, leader=False) - capacity.offer(domain, leader=True)
            if capacity.hosts_leader[domain] and total - lost >= amount:
                rest = self.domains[:position] + self.domains[position + 1 :]
                return Listed([domain, *rest], capacity)
        return self


class Keyed:
    """A list of domains by their sorted keys, without leader and preferred affinity."""

    __slots__ = ("falling", "first", "keys")

    def __init__(self, keys: list[OrderKey], *, falling: bool, first: tuple[int, ...] = ()) -> None:
        self.keys = keys
        self.falling = falling  # whether slices fall along the list; otherwise capacity grows along it
        self.first = first  # keys below this one belong to full domains

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, position: int) -> int:
        return self.keys[position][2]

    def start(self) -> int:
        return bisect_left(self.keys, self.first)

    def tightest(self, start: int, amount: int, *, leader: bool) -> int:
        if not self.falling:
            return start
        after_last = bisect_left(self.keys, (1 - amount,), lo=start)
        return bisect_left(self.keys, self.keys[after_last - 1][:1], lo=start)


def walk(
    candidates: SortedDomains, capacity: Capacity, amount: int, *, leader: bool, best_fit: bool
) -> list[DomainShare] | None:
    """Cover the amount and place the leader, if any. Return None if the list has too little capacity."""
    if leader and isinstance(candidates, Listed):
        candidates = candidates.leader_first(amount)
    shares: list[DomainShare] = []
    for position in range(candidates.start(), len(candidates)):
        if amount <= 0 and not leader:
            break
        domain = candidates[position]
        if best_fit and capacity.can_finish(domain, amount, leader=leader):
            domain = candidates[candidates.tightest(position, amount, leader=leader)]
        taken = min(capacity.offer(domain, leader=leader), amount)
        hosts = leader and capacity.hosts_leader[domain]
        if taken or hosts:
            shares.append(DomainShare(domain, taken, hosts))
        amount -= taken
        leader = leader and not hosts
    return None if amount > 0 or leader else shares
