"""
Is a queue open? Why a ClusterQueue is not active, and why a workload cannot be queued in it.

Called by: plans/workload.py (what a stop means for a workload), plans/queue_status.py (the condition Active).
Kueue: pkg/cache/scheduler/clusterqueue.go (inactive reasons), pkg/controller/core/workload_controller.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kyu.api.actions import View
from kyu.api.kueue import (
    MULTIKUEUE_CONTROLLER,
    PROVISIONING_CONTROLLER,
    AdmissionCheck,
    ClusterQueue,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
)
from kyu.api.meta import Key, find_condition, is_true


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a workload cannot be queued here, and what that means for one that already holds quota."""

    reason: str
    message: str
    cancels_reservation: bool = True
    stopped: Literal["", "LocalQueue", "ClusterQueue"] = ""
    """Which of the two somebody has stopped."""
    drains: bool = False


def why_stopped(local_queue: LocalQueue | None, cluster_queue: ClusterQueue | None, workload: Workload) -> Stop | None:
    """The LocalQueue is asked first. An inactive ClusterQueue (a missing flavor, say) keeps what already runs."""
    name = workload.spec.queue_name
    if local_queue is None or local_queue.metadata.deletion_timestamp:
        problem = "is terminating" if local_queue else "doesn't exist"
        where = "no queue name is set" if not name else f"LocalQueue {name} {problem}"
        return Stop("Misconfigured", where)
    if local_queue.spec.stop_policy != "None":
        drains = local_queue.spec.stop_policy == "HoldAndDrain"
        return Stop("Suspended", f"LocalQueue {name} is inactive", stopped="LocalQueue", drains=drains)
    if cluster_queue is None or cluster_queue.metadata.deletion_timestamp:
        problem = "is terminating" if cluster_queue else "doesn't exist"
        return Stop("Misconfigured", f"ClusterQueue {local_queue.spec.cluster_queue} {problem}")
    inactive = f"ClusterQueue {cluster_queue.metadata.name} is inactive"
    if cluster_queue.spec.stop_policy != "None":
        drains = cluster_queue.spec.stop_policy == "HoldAndDrain"
        return Stop("Suspended", inactive, stopped="ClusterQueue", drains=drains)
    active = find_condition(cluster_queue.status.conditions, "Active")
    if active is not None and active.status == "False":
        return Stop("Suspended", inactive, cancels_reservation=False)
    return None


def is_told_by_stop(reason: str, message: str) -> bool:
    """Are these the words of a Stop? Others that are misconfigured are told by the scheduler, about the workload."""
    return reason == "Suspended" or (reason == "Misconfigured" and message.startswith(("LocalQueue ", "ClusterQueue ")))


@dataclass(frozen=True, slots=True)
class Inactive:
    """Why a ClusterQueue admits nothing: the reason word of its condition, and a sentence."""

    reason: str
    message: str


def why_inactive(view: View, cluster_queue: ClusterQueue) -> Inactive | None:
    """The first thing that is wrong, in Kueue's order."""
    if cluster_queue.metadata.deletion_timestamp:
        return Inactive("Terminating", "Nothing is admitted: the queue is being deleted")
    if cluster_queue.spec.stop_policy != "None":
        return Inactive("Stopped", "Nothing is admitted: the queue is stopped")
    flavors = [f.name for group in cluster_queue.spec.resource_groups for f in group.flavors]
    found = {name: view.get(ResourceFlavor, Key("", name)) for name in flavors}
    if missing := [name for name in flavors if found[name] is None]:
        return Inactive("FlavorNotFound", f"Nothing is admitted: missing ResourceFlavor(s) {', '.join(missing)}")
    if problem := why_checks_fail(view, cluster_queue):
        return problem
    topologies = {flavor.spec.topology_name for flavor in found.values() if flavor and flavor.spec.topology_name}
    if lost := sorted(name for name in topologies if view.get(Topology, Key("", name)) is None):
        return Inactive("TopologyNotFound", f"Nothing is admitted: missing Topology {', '.join(lost)}")
    return None


def why_checks_fail(view: View, cluster_queue: ClusterQueue) -> Inactive | None:
    strategy = cluster_queue.spec.admission_checks_strategy
    rules = strategy.admission_checks if strategy else ()
    checks = {rule.name: view.get(AdmissionCheck, Key("", rule.name)) for rule in rules}
    if missing := sorted(name for name, check in checks.items() if check is None):
        text = f"Nothing is admitted: missing AdmissionCheck(s) {', '.join(missing)}"
        return Inactive("AdmissionCheckNotFound", text)
    present = {name: check for name, check in checks.items() if check}
    if idle := sorted(name for name, check in present.items() if not is_true(check.status.conditions, "Active")):
        text = f"Nothing is admitted: AdmissionCheck(s) that are not active: {', '.join(idle)}"
        return Inactive("AdmissionCheckInactive", text)
    remote = sorted(name for name, check in present.items() if check.spec.controller_name == MULTIKUEUE_CONTROLLER)
    if len(remote) > 1:
        return Inactive("MultipleMultiKueueAdmissionChecks", f"Only one multikueue check is possible, not {remote}")
    if remote and any(rule.on_flavors for rule in rules if rule.name in remote):
        return Inactive("MultiKueueAdmissionCheckAppliedPerFlavor", f"{remote[0]} must be for all flavors")
    local = [name for name, check in present.items() if check.spec.controller_name == PROVISIONING_CONTROLLER]
    if remote and local:
        return Inactive("MultiKueueWithProvisioningRequest", f"{remote[0]} does not go with {sorted(local)}")
    return None
