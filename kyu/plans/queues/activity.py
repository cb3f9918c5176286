"""
Is a queue open? Why a ClusterQueue is not active, and why a workload cannot be queued in it.

Kueue: pkg/cache/scheduler/clusterqueue.go (inactive reasons), pkg/controller/core/workload_controller.go
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from kyu.api.queues import AdmissionCheckStrategyRule


@dataclass(frozen=True, slots=True)
class QueueStop:
    """Why a workload cannot be queued here, and what that means for one that already holds quota."""

    reason: str
    message: str
    cancels_reservation: bool = True
    stopped: Literal["", "LocalQueue", "ClusterQueue"] = ""
    """The queue that a stop policy holds."""
    drains: bool = False


def why_stopped(
    local_queue: LocalQueue | None, cluster_queue: ClusterQueue | None, workload: Workload
) -> QueueStop | None:
    """Return why workloads of the queues wait, the LocalQueue first. An inactive ClusterQueue keeps what runs."""
    name = workload.spec.queue_name
    if local_queue is None or local_queue.metadata.deletion_timestamp:
        problem = "is terminating" if local_queue else "doesn't exist"
        where = "no queue name is set" if not name else f"LocalQueue {name} {problem}"
        return QueueStop("Misconfigured", where)
    if local_queue.spec.stop_policy != "None":
        drains = local_queue.spec.stop_policy == "HoldAndDrain"
        return QueueStop("Suspended", f"LocalQueue {name} is inactive", stopped="LocalQueue", drains=drains)
    if cluster_queue is None or cluster_queue.metadata.deletion_timestamp:
        problem = "is terminating" if cluster_queue else "doesn't exist"
        return QueueStop("Misconfigured", f"ClusterQueue {local_queue.spec.cluster_queue} {problem}")
    inactive = f"ClusterQueue {cluster_queue.metadata.name} is inactive"
    if cluster_queue.spec.stop_policy != "None":
        drains = cluster_queue.spec.stop_policy == "HoldAndDrain"
        return QueueStop("Suspended", inactive, stopped="ClusterQueue", drains=drains)
    active = find_condition(cluster_queue.status.conditions, "Active")
    if active is not None and active.status == "False":
        return QueueStop("Suspended", inactive, cancels_reservation=False)
    return None


def is_told_by_stop(reason: str, message: str) -> bool:
    """Return whether a Stop set this condition. The scheduler sets other Misconfigured ones."""
    if reason in ("Inadmissible", "Suspended"):
        return True
    return reason == "Misconfigured" and message.startswith(("LocalQueue ", "ClusterQueue ", "no queue name"))


@dataclass(frozen=True, slots=True)
class Inactive:
    """Why a ClusterQueue admits nothing: the reason and message of its condition Active."""

    reason: str
    message: str


def why_inactive(view: View, cluster_queue: ClusterQueue) -> Inactive | None:
    """Return the first problem as the reason, and all of them in the message, in Kueue's order and words."""
    if cluster_queue.metadata.deletion_timestamp:
        return Inactive("Terminating", "Can't admit new workloads; clusterQueue is terminating")
    problems = list(find_problems(view, cluster_queue))
    if not problems:
        return None
    return Inactive(problems[0][0], f"Can't admit new workloads: {', '.join(words for _, words in problems)}.")


def find_problems(view: View, cluster_queue: ClusterQueue) -> Iterator[tuple[str, str]]:
    """Yield a reason and its words for each problem."""
    if cluster_queue.spec.stop_policy != "None":
        yield "Stopped", "is stopped"
    flavors = [f.name for group in cluster_queue.spec.resource_groups for f in group.flavors]
    found = {name: view.get(ResourceFlavor, Key("", name)) for name in flavors}
    if missing := [name for name in flavors if found[name] is None]:
        yield "FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"
    yield from find_check_problems(view, cluster_queue)
    if remote_checks(view, cluster_queue):
        # Topologies are those of the worker clusters.
        return
    for name, flavor in found.items():
        topology = flavor.spec.topology_name if flavor else ""
        if topology and view.get(Topology, Key("", topology)) is None:
            yield "TopologyNotFound", f'there is no Topology "{topology}" for TAS flavor "{name}"'


def find_check_problems(view: View, cluster_queue: ClusterQueue) -> Iterator[tuple[str, str]]:
    rules, checks = checks_of(view, cluster_queue)
    if missing := sorted(name for name, check in checks.items() if check is None):
        yield "AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(missing)}"
    present = {name: check for name, check in checks.items() if check}
    if idle := sorted(name for name, check in present.items() if not is_true(check.status.conditions, "Active")):
        yield "AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(idle)}"
    remote = remote_checks(view, cluster_queue)
    if len(remote) > 1:
        words = "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: "
        yield "MultipleMultiKueueAdmissionChecks", words + ",".join(remote)
    if per_flavor := [rule.name for rule in rules if rule.name in remote and rule.on_flavors]:
        words = f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {','.join(per_flavor)}"
        yield "MultiKueueAdmissionCheckAppliedPerFlavor", words
    local = sorted(name for name, check in present.items() if check.spec.controller_name == PROVISIONING_CONTROLLER)
    if remote and local:
        words = "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: "
        yield "MultiKueueWithProvisioningRequest", f"{words}{','.join(remote)}, {','.join(local)}"


def checks_of(
    view: View, cluster_queue: ClusterQueue
) -> tuple[Sequence[AdmissionCheckStrategyRule], dict[str, AdmissionCheck | None]]:
    strategy = cluster_queue.spec.admission_checks_strategy
    rules = strategy.admission_checks if strategy else ()
    return rules, {rule.name: view.get(AdmissionCheck, Key("", rule.name)) for rule in rules}


def remote_checks(view: View, cluster_queue: ClusterQueue) -> list[str]:
    """Return the names of MultiKueue's checks."""
    _, checks = checks_of(view, cluster_queue)
    return sorted(name for name, one in checks.items() if one and one.spec.controller_name == MULTIKUEUE_CONTROLLER)
