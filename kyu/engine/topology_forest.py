"""
The trees of all topology flavors, and who holds what in them: the only state of placement.

Two kinds of change. ``add`` and ``remove`` are lasting: a workload was admitted or is gone. Flavors whose lowest level
is the hostname see each other's lasting usage, because two of them may select the same nodes. ``charge`` and
``release`` are what-ifs of one scheduling cycle: they touch the flavor that they name and no other, and go away with
the scope they were made in. That is exactly a table merged when the cycle starts, without copying one.

Called by: engine/cluster.py (nodes, flavors, pods), engine/state.py (lasting usage); through the state engine/turn.py
and engine/commit.py (what-ifs).
Kueue: pkg/cache/scheduler/tas_cache.go, tas_flavor.go, tas_nodes_cache.go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kyu.engine.topology_shelf import Shelf
from kyu.engine.topology_tree import Room, Tree, is_usable
from kyu.engine.topology_types import PODS, DomainUsage, FlavorInfo, Gates, NodeInfo, Requests, Values


@dataclass(frozen=True, slots=True)
class _Change:
    """One what-if, as the undo needs it."""

    room: Room
    leaf: int
    requests: Requests
    count: int


@dataclass(slots=True)
class _Ledger:
    """The lasting usage of one flavor, by domain and resource; it outlives the trees."""

    amounts: dict[Values, dict[str, int]] = field(default_factory=dict)

    def book(self, usage: DomainUsage, sign: int) -> None:
        amounts = self.amounts.setdefault(usage.values, {})
        for resource, amount in (*usage.requests, (PODS, 1)):
            amounts[resource] = amounts.get(resource, 0) + sign * usage.count * amount
        if not any(amounts.values()):
            del self.amounts[usage.values]


class Forest:
    """One tree per topology flavor, built when first asked for after a change of nodes or flavors."""

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
        """A node came or changed. Nothing happens if it is as before, so heartbeats cost nothing."""
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
        """The tree of a flavor as of now; None for a flavor without a topology."""
        tree = self._tree_by_flavor.get(flavor)
        if tree is None and (info := self._flavor_by_name.get(flavor)) is not None:
            tree = self._tree_by_flavor[flavor] = self._plant(info)
        return tree

    def find_shelf(self, flavor: str) -> Shelf | None:
        """The tree of a flavor with the counts that are kept of it."""
        shelf = self._shelf_by_flavor.get(flavor)
        if shelf is None and (tree := self.find_tree(flavor)) is not None:
            shelf = self._shelf_by_flavor[flavor] = Shelf(tree)
        return shelf

    def is_shared(self, flavor: str) -> bool:
        """Whether other flavors see the usage of this one."""
        info = self._flavor_by_name.get(flavor)
        return info is not None and info.by_host and self.gates.overlapping_flavors

    # Lasting usage

    def occupy(self, node: str, requests: Requests) -> None:
        """A bound pod that topology does not manage holds its requests, and one pod, on its node."""
        self._occupy(node, requests, +1)

    def vacate(self, node: str, requests: Requests) -> None:
        """The inverse of ``occupy``, when the pod has ended or is gone."""
        self._occupy(node, requests, -1)

    def add(self, usages: Iterable[DomainUsage]) -> None:
        """A workload holds these from now on; flavors that may share its hosts see it too."""
        for usage in usages:
            self._book(usage, +1)

    def remove(self, usages: Iterable[DomainUsage]) -> None:
        """The inverse of ``add``."""
        for usage in usages:
            self._book(usage, -1)

    # What-ifs

    def charge(self, usages: Iterable[DomainUsage]) -> None:
        """Within a scope: these are taken, as seen by their own flavors only. Unknown domains are ignored."""
        for usage in usages:
            self._what_if(usage, usage.count)

    def release(self, usages: Iterable[DomainUsage]) -> None:
        """Within a scope: these are given back, as seen by their own flavors only."""
        for usage in usages:
            self._what_if(usage, -usage.count)

    def mark(self) -> int:
        """A point to come back to with ``undo``."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back every what-if since the mark."""
        while len(self._journal) > mark:
            change = self._journal.pop()
            change.room.take(change.leaf, change.requests, -change.count)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What-ifs made inside are gone on exit, whatever happens."""
        mark = self.mark()
        try:
            yield
        finally:
            self.undo(mark)

    def fits(self, usages: Iterable[DomainUsage]) -> bool:
        """
        Whether every line still has room, each line on its own and without counting pods.

        An unknown domain has no room. Neither has a template that names no resource at all, while one that asks for
        zero of something passes.
        """
        return all(self._has_room(usage) for usage in usages)

    def check(self) -> None:
        """The invariant: between what-ifs, every room is what the nodes, the pods and the lasting usage say."""
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
        """Only trees that the node was or is in are built anew."""
        self._begin_generation()
        for name, tree in list(self._tree_by_flavor.items()):
            if any(is_usable(version, tree.flavor) for version in versions):
                del self._tree_by_flavor[name]
                self._shelf_by_flavor.pop(name, None)

    def _changed_flavors(self) -> None:
        """A flavor that comes or goes also changes what the others see of its usage."""
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
        """The flavors that see the usage of this one: all that end in hosts, else itself, if it is known."""
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
