"""
The quota and usage of one node of the tree for one flavor and resource, and the arithmetic on it.

The lending limit of a ``QuotaNode`` sets how much of its quota is stored in its parent, where siblings can borrow it.
``usage`` is the only state; ``settle`` computes everything else from the specs. Charging an amount and charging its
negative are exact inverses, so a trial is a charge that is reverted.

Called by: engine/tree.py (builds the nodes) and every rule that tests whether an amount fits.
Kueue: pkg/cache/scheduler/resource_node.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from kyu.api import quantity

# Replaces quantity.UNLIMITED in a settled node, so that subtracting usage does not make the quota finite.
BOUNDLESS: Final = 1 << 100


class FlavorResource(NamedTuple):
    """The flavor and resource for which quota is counted."""

    flavor: str
    resource: str


class Level(NamedTuple):
    """The height of the lowest cohort that covers an amount; 0 is the ClusterQueue's own quota."""

    height: int
    inside: bool
    """Whether a subtree below the root covers the amount. Preemption outside that subtree may then be justified."""


# Cached because there are few levels, and every assignment needs one.
_level = cache(Level)


class QuotaNode:
    """The quota and usage of a ClusterQueue or Cohort for one flavor and resource."""

    __slots__ = (
        "admitted",
        "borrowing_limit",
        "by_priority",
        "cap",
        "changes",
        "children",
        "declared",
        "height",
        "key",
        "lending_limit",
        "listed",
        "local",
        "nominal",
        "parent",
        "potential",
        "released",
        "subtree",
        "usage",
    )

    def __init__(self, key: FlavorResource) -> None:
        self.key = key
        self.parent: QuotaNode | None = None
        self.children: list[QuotaNode] = []
        self.declared = False
        """Whether the spec lists this flavor and resource. A ClusterQueue can use only such nodes."""
        self.listed = False
        """Whether the flavor and resource are declared here or in a descendant. Shares count only such nodes."""
        self.nominal = 0
        self.borrowing_limit: int | None = None
        self.lending_limit: int | None = None
        self.height = 0
        """The height of the node in the tree. It is the borrowing level of quota that is borrowed from the node."""
        self.subtree = 0
        """The quota of the node and the quota that its children lend to it."""
        self.local = 0
        """The part of ``subtree`` that is never lent."""
        self.cap: int | None = None
        """The most that the node may use of its parent's quota. None without a borrowing limit."""
        self.potential = 0
        """The most that the node could use if no other node of the tree had usage."""
        self.usage = 0
        self.by_priority: dict[int, int] = {}
        """The usage by priority, including the local part. Only ClusterQueues and the root of a tree have it."""
        self.changes = 0
        """The number of changes of the tree's quotas and, for a root, of ``by_priority``."""
        self.released = 0
        """The total usage released in the tree of a root. Obtainable quota grows by no more than that."""
        self.admitted = 0
        """The part of a ClusterQueue's usage that belongs to admitted workloads."""

    def __repr__(self) -> str:
        flavor, resource = self.key
        return f"QuotaNode({flavor}/{resource}: {self.usage} of {self.nominal}, subtree {self.subtree})"

    # Quotas computed from the specs

    def settle(self) -> None:
        """Compute the derived quotas of this node. Its children must be settled."""
        subtree = _limited(self.nominal)
        self.changes += 1
        self.listed = self.declared
        if self.children:
            self.usage = 0
            self.by_priority = {}
            for child in self.children:
                for priority, used in child.by_priority.items():
                    _count(self.by_priority, priority, used)
                subtree = quantity.add(subtree, quantity.subtract(_limited(child.subtree), _limited(child.local)))
                self.usage += max(0, child.usage - child.local)
                self.listed = self.listed or child.listed
        lending = self.lending_limit
        local = 0 if lending is None else max(0, quantity.subtract(subtree, lending))
        borrowing = self.borrowing_limit
        self.cap = None if borrowing is None else quantity.add(quantity.subtract(subtree, local), borrowing)
        self.subtree = boundless(subtree)
        self.local = boundless(local)

    def settle_potential(self) -> None:
        """Compute ``potential``. The parent must be settled, and have its own potential."""
        if self.parent is None:
            self.potential = self.subtree
            return
        potential = quantity.add(_limited(self.local), _limited(self.parent.potential))
        if self.borrowing_limit is not None:
            potential = min(potential, quantity.add(_limited(self.subtree), self.borrowing_limit))
        self.potential = boundless(potential)

    # Queries

    def available(self) -> int:
        """Return the free quota. It is negative if usage exceeds the quota, for example after a quota was reduced."""
        node, private, most = self, 0, None
        parent = node.parent
        while parent is not None:
            # Each ancestor adds its unused local part, and limits the sum to its cap.
            over, cap = node.usage - node.local, node.cap
            if over < 0:
                private -= over
                over = 0
            if cap is not None and (most is None or cap - over + private < most):
                most = cap - over + private
            node, parent = parent, parent.parent
        free = node.subtree - node.usage + private
        return free if most is None or free < most else most

    def fits(self, amount: int) -> bool:
        """Return whether the amount is available. A zero amount always fits, even if usage exceeds the quota."""
        return amount <= 0 or amount <= self.available()

    def fit_level(self, amount: int) -> int:
        """Return the borrowing level at which the amount fits beside the present usage; -1 if it does not fit."""
        if amount > 0 and amount > self.available():
            return -1
        if self.usage + amount <= self.nominal:
            return 0
        return self.borrowing_level(amount).height

    def local_available(self) -> int:
        """Return the unused local part."""
        return max(0, self.local - self.usage)

    def borrowing_level(self, amount: int) -> Level:
        """Return the level of the tree from which the amount would be borrowed, beside the present usage."""
        node, parent = self, self.parent
        if parent is None:
            return _level(0, False)
        if node.usage + amount <= node.nominal:
            return _level(0, True)
        rest = amount
        while True:
            # The unused local part is not borrowed.
            if node.local > node.usage:
                rest -= node.local - node.usage
            above = parent.parent
            if above is None or parent.subtree >= parent.usage + rest:
                return _level(parent.height, above is not None)
            node, parent = parent, above

    # Changes

    def charge(self, amount: int) -> None:
        """Add usage, or release it if the amount is negative. The parent is charged only beyond the local part."""
        node, parent = self, self.parent
        while parent is not None:
            before = node.usage
            after = node.usage = before + amount
            local = node.local
            if before < local or after < local:
                amount = (after if after > local else local) - (before if before > local else local)
                if not amount:
                    return
            node, parent = parent, parent.parent
        node.usage += amount

    def hold(self, amount: int) -> None:
        """
        Add usage for the rest of a cycle. Unlike ``charge``, a negative amount is not passed to the parent.

        A ClusterQueue far over its limit holds a negative amount, and a shrinking slice releases quota. Other
        ClusterQueues cannot use that quota within the cycle. ``let_go`` in reverse order is the inverse.
        Kueue: addUsage.
        """
        if amount < 0:
            self.usage += amount
        else:
            self.charge(amount)

    def let_go(self, amount: int) -> None:
        """Undo ``hold``."""
        if amount < 0:
            self.usage -= amount
        else:
            self.charge(-amount)

    def count_priority(self, priority: int, amount: int) -> None:
        """Add to the usage of a priority, here and in the root."""
        _count(self.by_priority, priority, amount)
        root = self.root()
        root.changes += 1
        if root is not self:
            _count(root.by_priority, priority, amount)
        if amount < 0:
            root.released -= amount

    def root(self) -> QuotaNode:
        """Return the root of the tree."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node


Charges: TypeAlias = Iterable[tuple[QuotaNode, int]]


def boundless(amount: int) -> int:
    """Replace an unlimited amount by BOUNDLESS."""
    return BOUNDLESS if amount >= quantity.UNLIMITED else amount


def _limited(amount: int) -> int:
    return min(amount, quantity.UNLIMITED)


def _count(used: dict[int, int], priority: int, amount: int) -> None:
    used[priority] = left = used.get(priority, 0) + amount
    if not left:
        del used[priority]


def charge_all(charges: Charges) -> None:
    """Add usage to several nodes."""
    for quota, amount in charges:
        quota.charge(amount)


def refund_all(charges: Charges) -> None:
    """Release usage of several nodes."""
    for quota, amount in charges:
        quota.charge(-amount)


@contextmanager
def charged(charges: Charges) -> Iterator[None]:
    """Add usage within the block, and restore the tree on exit."""
    taken = list(charges)
    charge_all(taken)
    try:
        yield
    finally:
        refund_all(taken)


@contextmanager
def without(charges: Charges) -> Iterator[None]:
    """Release usage within the block, and restore the tree on exit."""
    returned = list(charges)
    refund_all(returned)
    try:
        yield
    finally:
        charge_all(returned)
