"""
Candidates for preemption: the workloads that a preemptor may take quota from, in order.

A ``Demand`` names the amounts that must fit, and the flavors and resources for which workloads may be preempted.
A candidate holds quota of such a flavor and resource. The policy of the preemptor's ClusterQueue allows to preempt it.

Called by: engine/preemption/classical.py, engine/preemption/fair.py; engine/flavors/assignment.py and
engine/nominate.py build demands. Calls: engine/quota/amounts.py.
Kueue: pkg/scheduler/preemption/preemption.go, common/
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.quota.amounts import FlavorResource, QuotaNode
from kyu.engine.reasons import PreemptionReason
from kyu.engine.reserved_workloads import ReservedWorkloads
from kyu.engine.tree import Queue, TreeNode
from kyu.engine.workloads import ReservedWorkload


@dataclass(slots=True)
class Demand:
    """The amounts that must fit, and the flavors and resources for which workloads may be preempted."""

    queue: Queue
    workload: PendingWorkload
    amounts: dict[QuotaNode, int]
    needed: tuple[FlavorResource, ...]
    has_place: Callable[[], bool] | None = None
    """A function that returns whether the pods can be placed without the targets. None without a topology."""
    head_start: float = 0.0
    """The preemptor must be older than a candidate of equal priority by more than this many seconds."""

    def fits(self, *, borrowing: bool) -> bool:
        """Return whether the demand fits into the quota and topology that are free now, with or without borrowing."""
        for quota, amount in self.amounts.items():
            if amount > 0 and (amount > quota.available() or (not borrowing and quota.usage + amount > quota.nominal)):
                return False
        return self.has_place is None or self.has_place()

    def is_unobtainable(self) -> bool:
        """Return whether the demand would not fit even if all allowed workloads were preempted."""
        obtainable, priority = self.queue.pending.obtainable, self.workload.priority
        return any(amount > obtainable(quota, priority) for quota, amount in self.amounts.items())

    def may_take(self, policy: str, candidate: ReservedWorkload) -> bool:
        """Return whether a preemption policy allows to preempt a workload."""
        priority = self.workload.priority
        if policy == "LowerPriority" or (policy == "LowerOrNewerEqualPriority" and candidate.priority != priority):
            return candidate.priority < priority
        if policy == "LowerOrNewerEqualPriority":
            return self.workload.time + self.head_start < candidate.time
        return policy == "Any"


class PreemptionTarget(NamedTuple):
    """A workload to preempt."""

    reserved: ReservedWorkload
    queue: Queue
    reason: PreemptionReason


def quotas_of(node: TreeNode, needed: Sequence[FlavorResource]) -> list[QuotaNode]:
    """Return the quota nodes of a ClusterQueue or Cohort for some flavors and resources."""
    quotas = node.quotas
    return [quota for key in needed if (quota := quotas.get(key)) is not None]


def are_within_subtree(quotas: Sequence[QuotaNode]) -> bool:
    """Return whether the usage of each quota node is within the quota of its subtree."""
    for quota in quotas:  # noqa: SIM110 - a generator costs as much again
        if quota.usage > quota.subtree:
            return False
    return True


def takable(
    queue: Queue, demand: Demand, policy: str, quotas: Collection[QuotaNode], *, evicted: bool
) -> Iterator[ReservedWorkload]:
    """Yield the workloads of a ClusterQueue that a policy allows to preempt, in order: evicted ones or the others."""
    if policy in ("", "Never"):
        return
    priority, takes_any = demand.workload.priority, policy == "Any"
    for _, reserved in queue.held(evicted=evicted):
        if not takes_any and reserved.priority > priority:
            return
        if reserved.present and (takes_any or demand.may_take(policy, reserved)):
            for quota, _ in reserved.charges:
                if quota in quotas:
                    yield reserved
                    break


def queue_candidates(queue: Queue, demand: Demand, policy: str) -> list[ReservedWorkload]:
    """Return the workloads of a ClusterQueue that a policy allows to preempt, in order."""
    quotas = quotas_of(queue, demand.needed)
    return [r for evicted in (True, False) for r in takable(queue, demand, policy, quotas, evicted=evicted)]


def own_candidates(reserved_workloads: ReservedWorkloads, demand: Demand) -> list[ReservedWorkload]:
    """Return the candidates of the preemptor's own ClusterQueue, in order."""
    queue = demand.queue
    found = queue_candidates(queue, demand, queue.policies.within)
    if queue.by_usage and len({reserved.local_queue.name for reserved in found}) > 1:
        # Kueue compares the names of LocalQueues without their namespaces here (candidatesOrdering).
        usage = {r.key: reserved_workloads.pending.past_usage(queue, r.local_queue) for r in found}
        found.sort(key=lambda r: (not r.evicted, -usage[r.key], *r.order))
    return found


def minimise(
    reserved_workloads: ReservedWorkloads, demand: Demand, targets: list[PreemptionTarget], *, borrowing: bool
) -> None:
    """
    Restore the targets that are not needed, in reverse order.

    The last target is always needed: the demand did not fit without it.
    """
    for index in range(len(targets) - 2, -1, -1):
        reserved_workloads.put_back(targets[index].reserved)
        if demand.fits(borrowing=borrowing):
            targets[index] = targets[-1]
            targets.pop()
        else:
            reserved_workloads.take_out(targets[index].reserved)


def put_back_all(reserved_workloads: ReservedWorkloads, targets: Sequence[PreemptionTarget]) -> None:
    """Restore the usage of all targets."""
    for target in targets:
        reserved_workloads.put_back(target.reserved)
