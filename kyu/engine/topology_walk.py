"""
The greedy walk: cover an amount with as few domains as the order of a list allows.

Every step of phase two is this walk over some list: with slices above the slice level, with pods below it, with or
without a leader still to be placed. The list is either explicit, or the sorted keys that the counts maintain, which
makes the usual walk cost what it takes and a logarithm, however many domains there are.

Called by: engine/topology_placement.py, engine/topology_balanced.py.
Kueue: tas_flavor_snapshot.go, updateCountsToMinimum, findBestFitDomain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kyu.engine.topology_counts import OrderKey


class Share(NamedTuple):
    """What one domain takes: an amount for the workers, and perhaps the leader."""

    domain: int
    amount: int
    leader: bool


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the domains of one level offer, counted in ``unit``."""

    plain: Sequence[int]
    with_leader: Sequence[int]
    hosts_leader: Sequence[bool]
    scores: Sequence[int] | None = None
    unit: int = 1

    def offer(self, domain: int, *, leader: bool) -> int:
        """For workers, while the leader is still to be placed or not."""
        return (self.with_leader if leader else self.plain)[domain] // self.unit

    def can_finish(self, domain: int, amount: int, *, leader: bool) -> bool:
        return self.offer(domain, leader=leader) >= amount and (not leader or self.hosts_leader[domain])


class Candidates(Protocol):
    """Domains in order, by position."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> int: ...

    def start(self) -> int:
        """The first position that has anything to offer, or an earlier one."""
        ...

    def tightest(self, start: int, amount: int, *, leader: bool) -> int:
        """Of ``start``, which can finish the amount, and all later positions: the one with the least to spare."""
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
        """Preferred affinity ranks above a tight fit: only domains that score like the first are compared."""
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
        """To the front: the first domain that hosts the leader and leaves the list enough for the workers."""
        capacity = self.capacity
        total = sum(capacity.offer(domain, leader=False) for domain in self.domains)
        for position, domain in enumerate(self.domains):
            lost = capacity.offer(domain, leader=False) - capacity.offer(domain, leader=True)
            if capacity.hosts_leader[domain] and total - lost >= amount:
                rest = self.domains[:position] + self.domains[position + 1 :]
                return Listed([domain, *rest], capacity)
        return self


class Keyed:
    """Domains by their sorted keys; no leader, no preferred affinity."""

    __slots__ = ("falling", "first", "keys")

    def __init__(self, keys: list[OrderKey], *, falling: bool, first: tuple[int, ...] = ()) -> None:
        self.keys = keys
        self.falling = falling  # whether slices fall along the list; otherwise what is offered grows along it
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
    candidates: Candidates, capacity: Capacity, amount: int, *, leader: bool, best_fit: bool
) -> list[Share] | None:
    """Cover the amount, and place the leader if there is one; None if the list cannot."""
    if leader and isinstance(candidates, Listed):
        candidates = candidates.leader_first(amount)
    shares: list[Share] = []
    for position in range(candidates.start(), len(candidates)):
        if amount <= 0 and not leader:
            break
        domain = candidates[position]
        if best_fit and capacity.can_finish(domain, amount, leader=leader):
            domain = candidates[candidates.tightest(position, amount, leader=leader)]
        taken = min(capacity.offer(domain, leader=leader), amount)
        hosts = leader and capacity.hosts_leader[domain]
        if taken or hosts:
            shares.append(Share(domain, taken, hosts))
        amount -= taken
        leader = leader and not hosts
    return None if amount > 0 or leader else shares
