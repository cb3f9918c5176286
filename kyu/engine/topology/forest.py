"""
The trees of all topology flavors with the usage of their domains: the only state of placement.

``add`` and ``remove`` change the lasting usage when a workload is admitted or released. Flavors whose lowest level is
the hostname share their lasting usage, because two of them may select the same nodes. ``charge`` and ``release`` are
trial changes of one scheduling cycle. They change only the flavor that they name, and end with their scope. The result
is that of a snapshot taken when the cycle starts, without the cost of a copy.

Called by: engine/cluster.py (nodes, flavors, pods), engine/state.py (lasting usage); through the state
engine/cycle.py, engine/commit.py and engine/explain.py (trial changes).
Kueue: pkg/cache/scheduler/tas_cache.go, tas_flavor.go, tas_nodes_cache.go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kyu.engine.topology.shelf import Shelf
from kyu.engine.topology.tree import Room, Tree, is_usable
from kyu.engine.topology.types import PODS, DomainUsage, FlavorInfo, Gates, NodeInfo, Requests, Values


@dataclass(frozen=True, slots=True)
class _Change:
    """A trial change, with the values that ``undo`` needs."""

    room: Room
    leaf: int
    requests: Requests
    count: int


@dataclass(slots=True)
class _Ledger:
    """The lasting usage of one flavor, by domain and resource. It is kept when a tree is rebuilt."""

    amounts: dict[Values, dict[str, int]] = field(default_factory=dict)

    def book(self, usage: DomainUsage, sign: int) -> None:
        amounts = self.amounts.setdefault(usage.values, {})
        for resource, amount in (*usage.requests, (PODS, 1)):
            amounts[resource] = amounts.get(resource, 0) + sign * usage.count * amount
        if not any(amounts.values()):
            del self.amounts[usage.values]


class Forest:
    """One tree per topology flavor, rebuilt on first use after a change of nodes or flavors."""

    def __init__(self, gates: Gates | None = None) -> None:
        self.gates = gates or Gates()
        self.generation = 0  # grows with every change of nodes or flavors
        self._node_by_name: dict[str, NodeInfo] = {}
        self._flavor_by_name: dict[str, FlavorInfo] = {}
        self._tree_by_flavor: dict[str, Tree] = {}
        self._shelf_by_flavor: dict[str, Shelf] = {}
        self._sharing_by_flavor: dict[str, list[str]] = {}
        self._ledger_by_flavor: defaultdict[str, _Ledger] = defaultdict(_Ledger)
        self._occupied_by_node: dict[str, Counter[str]] = {}
        self._journal: list[_Change] = []

    # Nodes and flavors

    def put_node(self, node: NodeInfo) -> None:
        """Add or replace a node. An unchanged node has no effect, so heartbeats cost nothing."""
        old = self._node_by_name.get(node.name)
        if old != node:
            self._node_by_name[node.name] = node
            self._changed_node(*((node,) if old is None else (old, node)))

    def delete_node(self, name: str) -> None:
        old = self._node_by_name.pop(name, None)
        if old is not None:
            self._changed_node(old)

    def put_flavor(self, flavor: FlavorInfo) -> None:
        if self._flavor_by_name.get(flavor.name) != flavor:
            self._flavor_by_name[flavor.name] = flavor
            self._changed_flavors()

    def delete_flavor(self, name: str) -> None:
        if self._flavor_by_name.pop(name, None) is not None:
            self._changed_flavors()

    def flavor(self, name: str) -> FlavorInfo | None:
        return self._flavor_by_name.get(name)

    def find_tree(self, flavor: str) -> Tree | None:
        """Return the present tree of a flavor, or None for a flavor without a topology."""
        tree = self._tree_by_flavor.get(flavor)
        if tree is None and (info := self._flavor_by_name.get(flavor)) is not None:
            tree = self._tree_by_flavor[flavor] = self._plant(info)
        return tree

    def find_shelf(self, flavor: str) -> Shelf | None:
        """Return the tree of a flavor with its cached counts."""
        shelf = self._shelf_by_flavor.get(flavor)
        if shelf is None and (tree := self.find_tree(flavor)) is not None:
            shelf = self._shelf_by_flavor[flavor] = Shelf(tree)
        return shelf

    def is_shared(self, flavor: str) -> bool:
        """Return whether other flavors share the usage of this flavor."""
        info = self._flavor_by_name.get(flavor)
        return info is not None and info.by_host and self.gates.overlapping_flavors

    # Lasting usage

    def occupy(self, node: str, requests: Requests) -> None:
        """Add the usage of a bound pod that has no topology assignment to its node."""
        self._occupy(node, requests, +1)

    def vacate(self, node: str, requests: Requests) -> None:
        """Remove the usage of such a pod after it has ended or was deleted."""
        self._occupy(node, requests, -1)

    def add(self, usages: Iterable[DomainUsage]) -> None:
        """Add the usage of a workload, also to flavors that may share its hosts."""
        for usage in usages:
            self._book(usage, +1)

    def remove(self, usages: Iterable[DomainUsage]) -> None:
        """Remove the usage of a workload."""
        for usage in usages:
            self._book(usage, -1)

    # Trial changes

    def charge(self, usages: Iterable[DomainUsage]) -> None:
        """Add usage within a scope, to its own flavor only. Unknown domains are ignored."""
        for usage in usages:
            self._what_if(usage, usage.count)

    def release(self, usages: Iterable[DomainUsage]) -> None:
        """Remove usage within a scope, from its own flavor only."""
        for usage in usages:
            self._what_if(usage, -usage.count)

    def mark(self) -> int:
        """Return a mark to which ``undo`` reverts."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Revert every trial change since the mark."""
        while len(self._journal) > mark:
            change = self._journal.pop()
            change.room.take(change.leaf, change.requests, -change.count)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Revert on exit all trial changes that were made within the block."""
        mark = self.mark()
        try:
            yield
        finally:
            self.undo(mark)

    def fits(self, usages: Iterable[DomainUsage]) -> bool:
        """
        Return whether each usage still fits by itself, without counting pods.

        A usage of an unknown domain does not fit. Neither does a pod without any request, but a request of zero fits.
        """
        return all(self._has_room(usage) for usage in usages)

    def check(self) -> None:
        """Assert that every room equals one that is rebuilt from nodes, pods and lasting usage."""
        assert not self._journal, "a what-if was left open"
        for name, tree in self._tree_by_flavor.items():
            fresh = self._plant(tree.flavor)
            assert tree.base.amounts() == fresh.base.amounts(), f"flavor {name}: what the nodes have"
            assert tree.free.amounts() == fresh.free.amounts(), f"flavor {name}: what is free"

    def _has_room(self, usage: DomainUsage) -> bool:
        tree = self.find_tree(usage.flavor)
        leaf = tree.leaf_by_values.get(usage.values) if tree is not None else None
        if tree is None or leaf is None or not usage.requests:
            return False
        columns = tree.free.columns
        return all(
            amount <= 0 or (resource in columns and usage.count <= columns[resource][leaf] // amount)
            for resource, amount in usage.requests
        )

    def _changed_node(self, *versions: NodeInfo) -> None:
        """Discard the trees for which any of these versions of the node is usable."""
        self._begin_generation()
        for name, tree in list(self._tree_by_flavor.items()):
            if any(is_usable(version, tree.flavor) for version in versions):
                del self._tree_by_flavor[name]
                self._shelf_by_flavor.pop(name, None)

    def _changed_flavors(self) -> None:
        """Discard all trees. A new or deleted flavor also changes the usage that other flavors share."""
        self._begin_generation()
        self._tree_by_flavor.clear()
        self._shelf_by_flavor.clear()
        self._sharing_by_flavor.clear()

    def _begin_generation(self) -> None:
        assert not self._journal, "nodes and flavors change between cycles, not inside a what-if"
        self.generation += 1

    def _plant(self, flavor: FlavorInfo) -> Tree:
        tree = Tree(flavor, self._node_by_name.values())
        for name, occupied in self._occupied_by_node.items():
            if (leaf := tree.leaf_by_node.get(name)) is not None:
                tree.base.take_amounts(leaf, occupied)
                tree.free.take_amounts(leaf, occupied)
        for other in self._sharing(flavor.name):
            for values, amounts in self._ledger_by_flavor[other].amounts.items():
                if (leaf := tree.leaf_by_values.get(values)) is not None:
                    tree.free.take_amounts(leaf, amounts)
        return tree

    def _sharing(self, flavor: str) -> list[str]:
        """Return the flavors that share the usage of a flavor: all with hosts as leaves, or the flavor alone."""
        names = self._sharing_by_flavor.get(flavor)
        if names is None:
            names = [name for name in self._flavor_by_name if name == flavor]
            if self.is_shared(flavor):
                names = [name for name, other in self._flavor_by_name.items() if other.by_host]
            self._sharing_by_flavor[flavor] = names
        return names

    def _occupy(self, node: str, requests: Requests, sign: int) -> None:
        occupied = self._occupied_by_node.setdefault(node, Counter())
        for resource, amount in (*requests, (PODS, 1)):
            occupied[resource] += sign * amount
        if not any(occupied.values()):
            del self._occupied_by_node[node]
        for tree in self._tree_by_flavor.values():
            if (leaf := tree.leaf_by_node.get(node)) is not None:
                tree.base.take(leaf, requests, sign)
                tree.free.take(leaf, requests, sign)

    def _book(self, usage: DomainUsage, sign: int) -> None:
        self._ledger_by_flavor[usage.flavor].book(usage, sign)
        for flavor in self._sharing(usage.flavor):
            tree = self._tree_by_flavor.get(flavor)
            leaf = tree.leaf_by_values.get(usage.values) if tree is not None else None
            if tree is not None and leaf is not None:
                tree.free.take(leaf, usage.requests, sign * usage.count)

    def _what_if(self, usage: DomainUsage, count: int) -> None:
        tree = self.find_tree(usage.flavor)
        leaf = tree.leaf_by_values.get(usage.values) if tree is not None else None
        if tree is not None and leaf is not None:
            tree.free.take(leaf, usage.requests, count)
            self._journal.append(_Change(tree.free, leaf, usage.requests, count))
