"""
The trees that the next cycle must try again, because quota was released there or an object changed.

A wake is collected when an object arrives and applied when a cycle begins. Then workloads whose wake conditions are met
become admissible, and workloads of namespaces that a queue selects now are let in.

Called by: engine/state.py, engine/reserved_workloads.py. Calls: engine/queueing/pending_queue.py
Kueue: QueueInadmissibleWorkloads in pkg/cache/queue/manager.go
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kyu.engine.cluster import Cluster
from kyu.engine.pending_workloads import PendingWorkloads
from kyu.engine.quota.amounts import FlavorResource
from kyu.engine.tree import Hierarchy, Queue, TreeNode


@dataclass(slots=True)
class Wakes:
    """Nodes whose trees are to be woken."""

    hierarchy: Hierarchy
    cluster: Cluster
    pending: PendingWorkloads
    queues: dict[str, Queue] = field(init=False)
    _grown_by_node: dict[TreeNode, set[FlavorResource] | None] = field(default_factory=dict)
    """The quota that was released at each node; None for any change."""

    def __post_init__(self) -> None:
        self.queues = self.hierarchy.queues

    def add(self, node: TreeNode, grown: set[FlavorResource] | None = None) -> None:
        """Wake a tree before the next cycle, because quota was released (``grown``) or anything changed (None)."""
        if node in self._grown_by_node:
            known = self._grown_by_node[node]
            grown = None if known is None or grown is None else known | grown
        self._grown_by_node[node] = grown

    def add_topologies(self) -> None:
        """Wake every tree that has a flavor with a topology, after nodes have changed."""
        for queue in self.queues.values():
            if queue.placed:
                self.add(queue)

    def add_namespace(self, namespace: str) -> None:
        """Wake queues that hold workloads of a namespace whose labels have changed: they may be selected now."""
        for queue in self.queues.values():
            if any(key.namespace == namespace for key in queue.pending.held):
                self.add(queue)
            else:
                self.add_head(queue, namespace)

    def add_head(self, queue: Queue, namespace: str) -> None:
        """Wake a queue whose head is of the namespace: it may be selected now, or must not block the queue any more."""
        head = queue.pending.head()
        if head is not None and head.key.namespace == namespace:
            self.pending.awake.add(queue)

    @property
    def are_left(self) -> bool:
        """Return whether a tree is to be woken."""
        return bool(self._grown_by_node)

    def apply(self, now: float) -> None:
        """Make all workloads in the trees that were woken admissible again."""
        while self._grown_by_node:
            wakes, self._grown_by_node = self._grown_by_node, {}
            by_root: dict[TreeNode, set[FlavorResource] | None] = {}
            for node, grown in wakes.items():
                root = self.hierarchy.find_root(node)
                if root in by_root:
                    known = by_root[root]
                    grown = None if known is None or grown is None else known | grown
                by_root[root] = grown
            self.pending.awake.update(by_root)
            for root, grown in by_root.items():
                for queue in self.hierarchy.members(root):
                    pending = queue.pending
                    if pending.size:
                        pending.wake(grown)
                        if pending.held:
                            self._let_in(queue, now)

    def _let_in(self, queue: Queue, now: float) -> None:
        for workload in list(queue.pending.held.values()):
            if workload.rare.may_queue(now) and self.cluster.is_selected(queue, workload):
                self.pending.let_in(queue, workload)
