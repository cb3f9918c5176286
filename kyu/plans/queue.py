"""
Queues as their users see them: is it active, and if not why; how much waits, holds quota and runs.

The numbers are the engine's own counts, kept as things happen; nothing is counted by listing workloads. A status is
written only when it differs from the stored one.

Called by: rows `cluster-queue`, `local-queue`, `cohort` of controllers/table.py; plans/workload.py asks why_stopped.
Kueue: pkg/controller/core/{clusterqueue,localqueue,cohort}_controller.go
"""

from __future__ import annotations

from dataclasses import dataclass

from kyu.api.kueue import ClusterQueue, LocalQueue, Workload
from kyu.api.meta import find_condition


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a workload cannot be queued here, and what that means for one that already holds quota."""

    reason: str
    message: str
    cancels_reservation: bool = True
    eviction: str = ""
    drains: bool = False


def why_stopped(local_queue: LocalQueue | None, cluster_queue: ClusterQueue | None, workload: Workload) -> Stop | None:
    """The LocalQueue is asked first. An inactive ClusterQueue (a missing flavor, say) keeps what already runs."""
    name = workload.spec.queue_name
    if local_queue is None or local_queue.metadata.deletion_timestamp:
        problem = "is terminating" if local_queue else "doesn't exist"
        where = "no queue name is set" if not name else f"LocalQueue {name} {problem}"
        return Stop("Misconfigured", where)
    if local_queue.spec.stop_policy != "None":
        return Stop(
            "Suspended",
            f"LocalQueue {name} is stopped",
            eviction="LocalQueueStopped",
            drains=local_queue.spec.stop_policy == "HoldAndDrain",
        )
    if cluster_queue is None or cluster_queue.metadata.deletion_timestamp:
        problem = "is terminating" if cluster_queue else "doesn't exist"
        return Stop("Misconfigured", f"ClusterQueue {local_queue.spec.cluster_queue} {problem}")
    if cluster_queue.spec.stop_policy != "None":
        return Stop(
            "Suspended",
            f"ClusterQueue {cluster_queue.metadata.name} is stopped",
            eviction="ClusterQueueStopped",
            drains=cluster_queue.spec.stop_policy == "HoldAndDrain",
        )
    active = find_condition(cluster_queue.status.conditions, "Active")
    if active is not None and active.status == "False":
        return Stop("Suspended", f"ClusterQueue {cluster_queue.metadata.name} is inactive: {active.message}", False)
    return None
