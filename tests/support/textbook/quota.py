"""The quota tree of the textbook scheduler: nodes with quotas, and the usage of a snapshot beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kyu.api import quantity
from kyu.api.queues import ClusterQueue, Cohort, ResourceGroup

# A flavor and a resource.
Pair = tuple[str, str]
UNLIMITED = 1 << 100


@dataclass(eq=False)
class Node:
    """A ClusterQueue or Cohort."""

    name: str
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    nominal: dict[Pair, int] = field(default_factory=dict)
    borrowing: dict[Pair, int] = field(default_factory=dict)
    lending: dict[Pair, int] = field(default_factory=dict)
    weight: float = 1.0
    spec: ClusterQueue | None = None
    """The object of a ClusterQueue; None for a Cohort."""
    subtrees: dict[Pair, int] = field(default_factory=dict)
    """The subtree quotas, computed once after the specs have changed."""

    def read(self, groups: Iterable[ResourceGroup]) -> None:
        self.nominal, self.borrowing, self.lending = {}, {}, {}
        for group in groups:
            for flavor in group.flavors:
                for resource in flavor.resources:
                    pair = (flavor.name, resource.name)
                    self.nominal[pair] = _amount(resource.name, resource.nominal_quota)
                    if resource.borrowing_limit is not None:
                        self.borrowing[pair] = _amount(resource.name, resource.borrowing_limit)
                    if resource.lending_limit is not None:
                        self.lending[pair] = _amount(resource.name, resource.lending_limit)

    def subtree(self, pair: Pair) -> int:
        if pair not in self.subtrees:
            total = self.nominal.get(pair, 0)
            for child in self.children:
                total += child.subtree(pair) - child.local(pair)
            self.subtrees[pair] = total
        return self.subtrees[pair]

    def local(self, pair: Pair) -> int:
        if pair not in self.lending:
            return 0
        return max(0, self.subtree(pair) - self.lending[pair])

    def potential(self, pair: Pair) -> int:
        if self.parent is None:
            return self.subtree(pair)
        most = self.local(pair) + self.parent.potential(pair)
        if pair in self.borrowing:
            most = min(most, self.subtree(pair) + self.borrowing[pair])
        return most

    @property
    def height(self) -> int:
        cohorts = [child.height for child in self.children if child.spec is None]
        return 1 + max(cohorts) if cohorts else int(bool(self.children))

    def path(self) -> Iterator[Node]:
        """Yield the node and its ancestors, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    @property
    def root(self) -> Node:
        *_, root = self.path()
        return root

    def queues(self) -> Iterator[Node]:
        """Yield the ClusterQueues below."""
        if self.spec is not None:
            yield self
        for child in sorted(self.children, key=lambda node: node.name):
            yield from child.queues()

    def pairs(self) -> set[Pair]:
        """Return the pairs that are declared here or below."""
        found = set(self.nominal)
        for child in self.children:
            found |= child.pairs()
        return found


def _amount(resource: str, value: quantity.QuantityValue) -> int:
    amount = quantity.quota_amount(resource, value)
    return UNLIMITED if amount >= quantity.UNLIMITED else amount


def read_cohort(node: Node, found: Cohort) -> None:
    node.read(found.spec.resource_groups)
    sharing = found.spec.fair_sharing
    node.weight = 1.0 if sharing is None or sharing.weight is None else float(str(sharing.weight))


class Usage:
    """The usage of all nodes in a snapshot."""

    def __init__(self, used: dict[Node, dict[Pair, int]]) -> None:
        self.used = used

    def copy(self) -> Usage:
        return Usage({node: dict(used) for node, used in self.used.items()})

    def of(self, node: Node, pair: Pair) -> int:
        return self.used.get(node, {}).get(pair, 0)

    def add(self, node: Node, pair: Pair, amount: int) -> None:
        free = max(0, node.local(pair) - self.of(node, pair))
        self._change(node, pair, amount)
        if node.parent is not None and amount > free:
            self.add(node.parent, pair, amount - free)

    def remove(self, node: Node, pair: Pair, amount: int) -> None:
        stored = self.of(node, pair) - node.local(pair)
        self._change(node, pair, -amount)
        if node.parent is not None and stored > 0:
            self.remove(node.parent, pair, min(amount, stored))

    def _change(self, node: Node, pair: Pair, amount: int) -> None:
        used = self.used.setdefault(node, {})
        used[pair] = used.get(pair, 0) + amount

    def available(self, node: Node, pair: Pair) -> int:
        """Return how much more a node may use; negative if it is over-committed."""
        used, subtree = self.of(node, pair), node.subtree(pair)
        if node.parent is None:
            return subtree - used
        local = node.local(pair)
        above = self.available(node.parent, pair)
        if pair in node.borrowing:
            above = min(above, subtree - local - max(0, used - local) + node.borrowing[pair])
        return max(0, local - used) + above

    def fits(self, queue: Node, amounts: dict[Pair, int]) -> bool:
        return all(amount <= max(0, self.available(queue, pair)) for pair, amount in amounts.items())

    def level(self, queue: Node, pair: Pair, amount: int) -> tuple[int, bool]:
        """Return the borrowing level of an amount, and whether it is smaller than the whole tree."""
        if queue.parent is None:
            return 0, False
        if self.of(queue, pair) + amount <= queue.nominal.get(pair, 0):
            return 0, True
        rest = amount - max(0, queue.local(pair) - self.of(queue, pair))
        for node in queue.parent.path():
            if node.subtree(pair) >= self.of(node, pair) + rest:
                return node.height, node.parent is not None
            rest -= max(0, node.local(pair) - self.of(node, pair))
        return queue.root.height, False

    # Shares

    def is_borrowing(self, node: Node) -> bool:
        return any(self.of(node, pair) > node.subtree(pair) for pair in node.pairs())

    def share(self, node: Node) -> tuple[bool, float]:
        """Return the dominant resource share; the first part is whether it is infinite."""
        if node.parent is None:
            return False, 0.0
        borrowed: dict[str, int] = {}
        for pair in node.pairs():
            over = max(0, self.of(node, pair) - node.subtree(pair))
            borrowed[pair[1]] = borrowed.get(pair[1], 0) + over
        ratio = 0.0
        for resource, over in borrowed.items():
            lendable = sum(node.parent.potential(pair) for pair in node.root.pairs() if pair[1] == resource)
            if over and lendable > 0:
                ratio = max(ratio, over * 1000.0 / lendable)
        if ratio == 0.0:
            return False, 0.0
        return (True, ratio) if node.weight == 0 else (False, ratio / node.weight)
