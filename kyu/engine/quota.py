"""
How much of one flavor and resource a queue may still use.

Queues and cohorts form a tree, and each has one ``Cell`` per flavor and resource. A cell keeps some of its quota to
itself (its lending limit says how much it gives away); the rest is stored in its parent, where the siblings can borrow
it. The only state is ``usage``; everything else is computed from the quotas once, by ``settle``. Charging an amount and
charging its negative are exact inverses, so a what-if is a charge that is taken back.

Called by: tree.py (builds the cells), flavors.py (does it fit?), preemption.py (would it fit without these?).
Kueue: pkg/cache/scheduler/resource_node.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from kyu.api import quantity

# What quantity.UNLIMITED becomes in a settled cell: so large that no usage makes a difference, whatever is subtracted.
BOUNDLESS: Final = 1 << 100


class FlavorResource(NamedTuple):
    """What quota is counted by."""

    flavor: str
    resource: str


class Cell:
    """The quota and the usage of one node of the tree, for one flavor and resource."""

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
        "subtree",
        "usage",
    )

    def __init__(self, key: FlavorResource) -> None:
        self.key = key
        self.parent: Cell | None = None
        self.children: list[Cell] = []
        self.declared = False
        """Whether the node's own spec lists this flavor and resource; only such cells can be used by a queue."""
        self.listed = False
        """Whether it is declared here or somewhere below: what a share is counted of."""
        self.nominal = 0
        self.borrowing_limit: int | None = None
        self.lending_limit: int | None = None
        self.height = 0
        """How far up the tree the node is: what borrowing from it counts as."""
        self.subtree = 0
        """The quota of the node and of what its children lend to it."""
        self.local = 0
        """The part of it that is never lent: no sibling can see it."""
        self.cap: int | None = None
        """The most that may be stored in the parent, at zero usage there; None without a borrowing limit."""
        self.potential = 0
        """What could be used at the very most, if nobody used anything."""
        self.usage = 0
        self.by_priority: dict[int, int] = {}
        """Of a queue, and of the root of a tree: all that workloads of each priority use, private parts included."""
        self.changes = 0
        """Counts how often the quotas of its tree have changed, and, of a root, what workloads of a priority use."""
        self.admitted = 0
        """Of a queue: the part of the usage whose workloads are admitted, not only holding quota."""

    def __repr__(self) -> str:
        return f"Cell({self.key.flavor}/{self.key.resource}: {self.usage} of {self.nominal}, subtree {self.subtree})"


Charges: TypeAlias = Iterable[tuple[Cell, int]]


def settle(cell: Cell) -> None:
    """Compute what follows from the quotas of the cell and of its settled children, and its usage if it has any."""
    subtree = _limited(cell.nominal)
    cell.changes += 1
    cell.listed = cell.declared
    if cell.children:
        cell.usage = 0
        cell.by_priority = {}
        for child in cell.children:
            for priority, used in child.by_priority.items():
                _count(cell.by_priority, priority, used)
            subtree = quantity.add(subtree, quantity.subtract(_limited(child.subtree), _limited(child.local)))
            cell.usage += max(0, child.usage - child.local)
            cell.listed = cell.listed or child.listed
    lending = cell.lending_limit
    local = 0 if lending is None else max(0, quantity.subtract(subtree, lending))
    borrowing = cell.borrowing_limit
    cell.cap = None if borrowing is None else quantity.add(quantity.subtract(subtree, local), borrowing)
    cell.subtree = boundless(subtree)
    cell.local = boundless(local)


def settle_potential(cell: Cell) -> None:
    """The second half of ``settle``, from the root down: what the node could use if nobody used anything."""
    if cell.parent is None:
        cell.potential = cell.subtree
        return
    potential = quantity.add(_limited(cell.local), _limited(cell.parent.potential))
    if cell.borrowing_limit is not None:
        potential = min(potential, quantity.add(_limited(cell.subtree), cell.borrowing_limit))
    cell.potential = boundless(potential)


def boundless(amount: int) -> int:
    """An amount as settled cells hold it."""
    return BOUNDLESS if amount >= quantity.UNLIMITED else amount


def _limited(amount: int) -> int:
    return min(amount, quantity.UNLIMITED)


def count_priority(cell: Cell, priority: int, amount: int) -> None:
    """A workload of a queue uses so much more, or less, from now on."""
    _count(cell.by_priority, priority, amount)
    root = cell.parent
    if root is not None:
        while root.parent is not None:
            root = root.parent
        root.changes += 1
        _count(root.by_priority, priority, amount)


def _count(used: dict[int, int], priority: int, amount: int) -> None:
    used[priority] = left = used.get(priority, 0) + amount
    if not left:
        del used[priority]


def available(cell: Cell) -> int:
    """Negative when the node is in debt, for example after its quota was cut; nobody can use a debt."""
    private, most = 0, None
    parent = cell.parent
    while parent is not None:
        # Each node on the way gives what is unused of its private part, and lets no more through than its cap.
        over, cap = cell.usage - cell.local, cell.cap
        if over < 0:
            private -= over
            over = 0
        if cap is not None and (most is None or cap - over + private < most):
            most = cap - over + private
        cell, parent = parent, parent.parent
    free = cell.subtree - cell.usage + private
    return free if most is None or free < most else most


def fits(cell: Cell, amount: int) -> bool:
    """Nothing always fits, also into a debt."""
    return amount <= 0 or amount <= available(cell)


def local_available(cell: Cell) -> int:
    """The private part that is still unused."""
    return max(0, cell.local - cell.usage)


class Level(NamedTuple):
    """How far up the tree a queue reaches for quota: 0 is its own, else the height of the cohort that can cover it."""

    height: int
    inside: bool
    """A part of the tree covers it, so that preempting outside that part could be justified."""


# There are few, and they are asked for often.
_level = cache(Level)


def borrowing_level(cell: Cell, amount: int) -> Level:
    """Where the amount would come from, on top of what is used now."""
    parent = cell.parent
    if parent is None:
        return _level(0, False)
    if cell.usage + amount <= cell.nominal:
        return _level(0, True)
    rest = amount
    while True:
        # What is left of the private part need not come from above.
        if cell.local > cell.usage:
            rest -= cell.local - cell.usage
        above = parent.parent
        if above is None or parent.subtree >= parent.usage + rest:
            return _level(parent.height, above is not None)
        cell, parent = parent, above


def is_borrowing(cell: Cell) -> bool:
    """The node uses more than it and its children have."""
    return cell.usage > cell.subtree


def charge(cell: Cell, amount: int) -> None:
    """Add usage (a negative amount returns it); the parent sees only what no longer fits in the private part."""
    parent = cell.parent
    while parent is not None:
        before = cell.usage
        after = cell.usage = before + amount
        local = cell.local
        if before < local or after < local:
            amount = (after if after > local else local) - (before if before > local else local)
            if not amount:
                return
        cell, parent = parent, parent.parent
    cell.usage += amount


def hold(cell: Cell, amount: int) -> None:
    """
    Add usage for the rest of a cycle. Other than with ``charge``, the parent does not see a negative amount.

    A queue that is far over its limit holds less than nothing, and a slice that shrinks gives back; others get none of
    it within the cycle. Kueue: addUsage. ``let_go`` is the inverse, if calls are undone in the reverse order.
    """
    if amount < 0:
        cell.usage += amount
    else:
        charge(cell, amount)


def let_go(cell: Cell, amount: int) -> None:
    if amount < 0:
        cell.usage -= amount
    else:
        charge(cell, -amount)


def charge_all(charges: Charges) -> None:
    for cell, amount in charges:
        charge(cell, amount)


def refund_all(charges: Charges) -> None:
    for cell, amount in charges:
        charge(cell, -amount)


@contextmanager
def charged(charges: Charges) -> Iterator[None]:
    """Ask 'what if this were used too?'; the tree is as before on exit, whatever happens inside."""
    taken = list(charges)
    charge_all(taken)
    try:
        yield
    finally:
        refund_all(taken)


@contextmanager
def without(charges: Charges) -> Iterator[None]:
    """Ask 'what if these were gone?'; the tree is as before on exit, whatever happens inside."""
    returned = list(charges)
    refund_all(returned)
    try:
        yield
    finally:
        charge_all(returned)
