"""
The domains of one flavor as flat arrays, and how much room their leaves have.

A level is a list of domains sorted by their values from the top, so an index is also the final tie-break and the
children of a domain are a range of the level below. Only leaves hold amounts. There are two rooms: ``base`` is what the
nodes have, less what pods outside of topology take; ``free`` is that less what workloads with a placement hold. A room
writes down which leaves it changed, so that whoever derived counts from it can catch up by those leaves alone.

Built by engine/topology_forest.py whenever the nodes of the flavor change; read by engine/topology_counts.py.
Kueue: pkg/cache/scheduler/tas_flavor_snapshot.go (domain, leafDomain), tas_flavor.go (snapshot).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kyu.engine.topology_types import PODS, FlavorInfo, NodeInfo, Requests, Values

# A log longer than this many times the leaves is dropped: counting afresh is then cheaper than catching up.
LOG_FACTOR = 4
LOG_MINIMUM = 1024
ANSWERS_KEPT = 4096


class Room:
    """Amounts by resource and leaf, and a log of the leaves that changed."""

    __slots__ = ("_memo", "changes", "columns", "epoch", "size")

    def __init__(self, size: int, columns: dict[str, list[int]]) -> None:
        self.size = size
        self.columns = columns
        self.changes: list[int] = []
        self.epoch = 0
        self._memo: dict[object, object] = {}

    def recall(self, question: object) -> object | None:
        """The answer that was given before, if nothing changed in this room since."""
        return self._memo.get(question)

    def remember(self, question: object, answer: object) -> None:
        if len(self._memo) >= ANSWERS_KEPT:
            self._memo.clear()
        self._memo[question] = answer

    def take(self, leaf: int, requests: Requests, count: int) -> None:
        """Room for ``count`` pods is gone from the leaf; a negative count gives it back."""
        for resource, amount in requests:
            if amount:
                self._column(resource)[leaf] -= amount * count
        self._column(PODS)[leaf] -= count
        self._changed(leaf)

    def take_amounts(self, leaf: int, amounts: Mapping[str, int]) -> None:
        """The same for totals by resource, the pods among them."""
        for resource, amount in amounts.items():
            self._column(resource)[leaf] -= amount
        self._changed(leaf)

    def amounts(self) -> dict[str, list[int]]:
        """By resource and leaf, without resources of which there is nothing at all."""
        return {resource: column for resource, column in self.columns.items() if any(column)}

    def _column(self, resource: str) -> list[int]:
        column = self.columns.get(resource)
        if column is None:
            column = self.columns[resource] = [0] * self.size
        return column

    def _changed(self, leaf: int) -> None:
        self._memo.clear()
        self.changes.append(leaf)
        if len(self.changes) > LOG_FACTOR * self.size + LOG_MINIMUM:
            self.changes.clear()
            self.epoch += 1


class Tree:
    """The usable domains of one flavor. The shape never changes: other nodes make another tree."""

    def __init__(self, flavor: FlavorInfo, nodes: Iterable[NodeInfo]) -> None:
        self.flavor = flavor
        self.levels = flavor.levels
        usable = sorted((n for n in nodes if is_usable(n, flavor)), key=lambda node: node.name)
        path_by_node = self._paths(usable)
        paths = sorted(set(path_by_node.values()))
        # By level and domain: the values from the top, the parent's index, and where the children start.
        self.values: list[list[Values]] = [[] for _ in self.levels]
        self.parent: list[list[int]] = [[] for _ in self.levels]
        self.first_child: list[list[int]] = [[] for _ in self.levels]
        self._grow(paths)
        # By leaf: how assignments call it, and its node where a leaf is one host.
        self.leaf_values: list[Values] = [path[-1:] for path in paths] if flavor.by_host else paths
        self.leaf_by_values = {values: leaf for leaf, values in enumerate(self.leaf_values)}
        leaf_by_path = {path: leaf for leaf, path in enumerate(paths)}
        self.leaf_by_node = {name: leaf_by_path[path] for name, path in path_by_node.items()}
        node_by_leaf = {self.leaf_by_node[node.name]: node for node in reversed(usable)}
        self.node: list[NodeInfo] = [node_by_leaf[leaf] for leaf in range(len(paths))]
        columns: dict[str, list[int]] = {}
        for node in usable:
            leaf = self.leaf_by_node[node.name]
            for resource, amount in node.allocatable.items():
                if resource not in columns:
                    columns[resource] = [0] * len(paths)
                columns[resource][leaf] += amount
        self.base = Room(len(paths), columns)
        self.free = Room(len(paths), {resource: column.copy() for resource, column in columns.items()})

    @property
    def leaf_level(self) -> int:
        return len(self.levels) - 1

    @property
    def placement_levels(self) -> tuple[str, ...]:
        """The levels that an assignment names: a hostname says it all."""
        return self.levels[-1:] if self.flavor.by_host else self.levels

    def children(self, level: int, domain: int) -> range:
        first = self.first_child[level]
        return range(first[domain], first[domain + 1])

    def ancestor(self, leaf: int, level: int) -> int:
        """The domain of the level that holds the leaf."""
        domain = leaf
        for below in range(self.leaf_level, level, -1):
            domain = self.parent[below][domain]
        return domain

    def leaves(self, level: int, domain: int) -> range:
        """All leaves under a domain: they stand next to each other."""
        first, last = domain, domain + 1
        for above in range(level, self.leaf_level):
            first, last = self.first_child[above][first], self.first_child[above][last]
        return range(first, last)

    def _paths(self, nodes: list[NodeInfo]) -> dict[str, Values]:
        """By node name. A host is known by its hostname alone, so a second node of that name joins the first's leaf."""
        path_by_node = {node.name: tuple([node.labels[level] for level in self.levels]) for node in nodes}
        if self.flavor.by_host:
            path_by_host: dict[str, Values] = {}
            for name, path in path_by_node.items():
                path_by_node[name] = path_by_host.setdefault(path[-1], path)
        return path_by_node

    def _grow(self, leaves: list[Values]) -> None:
        """From the leaves up: sorted paths put the children of a domain next to each other."""
        self.values[self.leaf_level] = leaves
        for level in range(self.leaf_level, 0, -1):
            above: list[Values] = []
            for domain, path in enumerate(self.values[level]):
                if not above or above[-1] != path[:-1]:
                    above.append(path[:-1])
                    self.first_child[level - 1].append(domain)
                self.parent[level].append(len(above) - 1)
            self.first_child[level - 1].append(len(self.values[level]))
            self.values[level - 1] = above


def is_usable(node: NodeInfo, flavor: FlavorInfo) -> bool:
    """Ready, schedulable, with the labels of the flavor and a value for every level."""
    return (
        node.ready
        and not node.unschedulable
        and has_labels(node.labels, flavor.node_labels)
        and all(level in node.labels for level in flavor.levels)
    )


def has_labels(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())
