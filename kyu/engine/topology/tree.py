"""
The domains of one flavor as flat arrays, and the free capacity of their leaves.

A level is a list of domains sorted by their values from the top. The children of a domain are therefore a range of the
level below, and the index of a domain breaks ties. Only leaves have amounts. The room ``base`` is the allocatable
capacity of the nodes less the pods without a topology assignment. The room ``free`` also subtracts the usage of
workloads with a placement. A room logs its changed leaves, so that counts can update those leaves alone.

Called by: engine/topology/forest.py, whenever the nodes of the flavor change; engine/topology/counts.py reads it.
Kueue: pkg/cache/scheduler/tas_flavor_snapshot.go (domain, leafDomain), tas_flavor.go (snapshot).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kyu.engine.topology.types import PODS, FlavorInfo, NodeInfo, Requests, Values

# A log longer than this many times the leaves is discarded: a full count is then cheaper than the log.
LOG_FACTOR = 4
LOG_MINIMUM = 1024
ANSWERS_KEPT = 4096


class Room:
    """The amounts by resource and leaf, with a log of the changed leaves."""

    __slots__ = ("_memo", "changes", "columns", "epoch", "size")

    def __init__(self, size: int, columns: dict[str, list[int]]) -> None:
        self.size = size
        self.columns = columns
        self.changes: list[int] = []
        self.epoch = 0
        self._memo: dict[object, object] = {}

    def recall(self, question: object) -> object | None:
        """Return the stored answer to a question, if the room has not changed since."""
        return self._memo.get(question)

    def remember(self, question: object, answer: object) -> None:
        if len(self._memo) >= ANSWERS_KEPT:
            self._memo.clear()
        self._memo[question] = answer

    def take(self, leaf: int, requests: Requests, count: int) -> None:
        """Subtract the requests of ``count`` pods from a leaf. A negative count adds them."""
        for resource, amount in requests:
            if amount:
                self._column(resource)[leaf] -= amount * count
        self._column(PODS)[leaf] -= count
        self._changed(leaf)

    def take_amounts(self, leaf: int, amounts: Mapping[str, int]) -> None:
        """Subtract total amounts, including the pods, from a leaf."""
        for resource, amount in amounts.items():
            self._column(resource)[leaf] -= amount
        self._changed(leaf)

    def amounts(self) -> dict[str, list[int]]:
        """Return the amounts by resource and leaf, without resources that are zero everywhere."""
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
    """The usable domains of one flavor. The domains never change: other nodes need a new tree."""

    def __init__(self, flavor: FlavorInfo, nodes: Iterable[NodeInfo]) -> None:
        self.flavor = flavor
        self.levels = flavor.levels
        usable = sorted((n for n in nodes if is_usable(n, flavor)), key=lambda node: node.name)
        path_by_node = self._paths(usable)
        paths = sorted(set(path_by_node.values()))
        # By level and domain: the values from the top, the index of the parent, and the index of the first child.
        self.values: list[list[Values]] = [[] for _ in self.levels]
        self.parent: list[list[int]] = [[] for _ in self.levels]
        self.first_child: list[list[int]] = [[] for _ in self.levels]
        self._grow(paths)
        # By leaf: its values in a topologyAssignment, and its node if a leaf is one host.
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
        """The levels of a topologyAssignment: only the hostname if a leaf is one host."""
        return self.levels[-1:] if self.flavor.by_host else self.levels

    def children(self, level: int, domain: int) -> range:
        first = self.first_child[level]
        return range(first[domain], first[domain + 1])

    def ancestor(self, leaf: int, level: int) -> int:
        """Return the domain of a level that contains a leaf."""
        domain = leaf
        for below in range(self.leaf_level, level, -1):
            domain = self.parent[below][domain]
        return domain

    def leaves(self, level: int, domain: int) -> range:
        """Return the leaves of a domain, which are contiguous."""
        first, last = domain, domain + 1
        for above in range(level, self.leaf_level):
            first, last = self.first_child[above][first], self.first_child[above][last]
        return range(first, last)

    def _paths(self, nodes: list[NodeInfo]) -> dict[str, Values]:
        """Return the path of each node by name. Nodes with the same hostname share the leaf of the first."""
        path_by_node = {node.name: tuple([node.labels[level] for level in self.levels]) for node in nodes}
        if self.flavor.by_host:
            path_by_host: dict[str, Values] = {}
            for name, path in path_by_node.items():
                path_by_node[name] = path_by_host.setdefault(path[-1], path)
        return path_by_node

    def _grow(self, leaves: list[Values]) -> None:
        """Build the levels from the sorted leaves upwards."""
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
    """Return whether a node is ready, schedulable, and has the labels of the flavor and of every level."""
    return (
        node.ready
        and not node.unschedulable
        and has_labels(node.labels, flavor.node_labels)
        and all(level in node.labels for level in flavor.levels)
    )


def has_labels(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())
