"""
The preemption policies of a ClusterQueue.

Kueue: apis/kueue/v1beta2/clusterqueue_types.go (ClusterQueuePreemption)
"""

from __future__ import annotations

from dataclasses import dataclass

from kyu.api.queues import ClusterQueuePreemption


@dataclass(frozen=True, slots=True)
class Policies:
    """The preemption policies of a ClusterQueue. An absent policy allows no preemption, like Never."""

    within: str = "Never"
    reclaim: str = "Never"
    borrow: str = "Never"
    threshold: int | None = None
    listed: bool = False
    """Whether the spec has a preemption block. An absent policy in that block differs from the word Never."""

    @classmethod
    def read(cls, preemption: ClusterQueuePreemption | None) -> Policies:
        if preemption is None:
            return cls()
        borrow = preemption.borrow_within_cohort
        return cls(
            within=preemption.within_cluster_queue or "",
            reclaim=preemption.reclaim_within_cohort or "",
            borrow=(borrow.policy or "") if borrow else "Never",
            threshold=borrow.max_priority_threshold if borrow else None,
            listed=True,
        )

    @property
    def reclaims(self) -> bool:
        """Whether workloads of other ClusterQueues may be preempted."""
        return self.reclaim in ("Any", "LowerPriority")

    @property
    def preempts(self) -> bool:
        """Whether any workload may be preempted, of this ClusterQueue or of another."""
        return self.reclaims or self.within in ("LowerPriority", "LowerOrNewerEqualPriority")

    @property
    def borrow_forbidden(self) -> bool:
        return self.borrow in ("", "Never")

    def may_preempt_while_borrowing(self, *, fair_sharing: bool) -> bool:
        """Return whether a borrowing workload may preempt. Unlike an absent policy, the word Never forbids it."""
        return self.borrow != "Never" or (fair_sharing and self.reclaim != "Never")
