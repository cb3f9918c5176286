"""
The objects that ClusterQueues depend on: flavors, topologies, nodes, pods, checks, namespaces.

They decide whether a ClusterQueue is active.

Called by: engine/state.py; engine/flavors/eligibility.py, engine/flavors/placement.py and engine/nominate.py read it
through the state. Calls: engine/topology/forest.py. Kueue: pkg/cache/scheduler/cache.go, clusterqueue.go (status),
tas_cache.go
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kyu.api.checks import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER, AdmissionCheck
from kyu.api.core import Namespace, Node, Pod
from kyu.api.meta import Key, find_condition, is_true, selects
from kyu.api.quantity import amount
from kyu.api.queues import ResourceFlavor, ResourceFlavorSpec, Topology
from kyu.engine import requests
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.reasons import FlavorReason
from kyu.engine.request_shape import PodSetShape
from kyu.engine.topology.forest import Forest
from kyu.engine.topology.types import FlavorInfo, NodeInfo, Requests
from kyu.engine.tree import Queue

# A pod with one of these annotations is placed by a topology; its workload already counts its room.
TOPOLOGY_ANNOTATIONS = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
)

Inactive = Literal[
    "Stopped",
    "FlavorNotFound",
    "AdmissionCheckNotFound",
    "AdmissionCheckInactive",
    "MultipleMultiKueueAdmissionChecks",
    "MultiKueueAdmissionCheckAppliedPerFlavor",
    "MultiKueueWithProvisioningRequest",
    "TopologyNotFound",
    "Terminating",
    "CohortCycle",
]


@dataclass(slots=True)
class Cluster:
    """The objects besides queues and workloads that decisions depend on."""

    forest: Forest
    flavors: dict[str, ResourceFlavorSpec] = field(default_factory=dict)
    topologies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    checks: dict[str, AdmissionCheck] = field(default_factory=dict)
    labels_by_namespace: dict[str, Mapping[str, str]] = field(default_factory=dict)
    pods: dict[Key, tuple[str, Requests]] = field(default_factory=dict)
    matches: dict[tuple[PodSetShape, str], FlavorReason | None] = field(default_factory=dict)
    """The cache of ``engine/flavors/eligibility.py``."""

    # Each of these methods returns whether decisions may change.

    def put_flavor(self, flavor: ResourceFlavor) -> bool:
        name = flavor.metadata.name
        if self.flavors.get(name) == flavor.spec:
            return False
        self.flavors[name] = flavor.spec
        self.matches.clear()
        self._plant(name)
        return True

    def delete_flavor(self, name: str) -> bool:
        self.matches.clear()
        self.forest.delete_flavor(name)
        return self.flavors.pop(name, None) is not None

    def put_topology(self, topology: Topology) -> bool:
        levels = tuple(level.node_label for level in topology.spec.levels)
        name = topology.metadata.name
        if self.topologies.get(name) == levels:
            return False
        self.topologies[name] = levels
        self._plant_all(name)
        return True

    def delete_topology(self, name: str) -> bool:
        if self.topologies.pop(name, None) is None:
            return False
        self._plant_all(name)
        return True

    def put_check(self, check: AdmissionCheck) -> bool:
        old = self.checks.get(check.metadata.name)
        self.checks[check.metadata.name] = check
        return old is None or old.spec != check.spec or _is_active(old) != _is_active(check)

    def put_namespace(self, namespace: Namespace) -> bool:
        name, labels = namespace.metadata.name, dict(namespace.metadata.labels)
        changed = self.labels_by_namespace.get(name) != labels
        self.labels_by_namespace[name] = labels
        return changed

    def put_node(self, node: Node) -> bool:
        before = self.forest.generation
        self.forest.put_node(
            NodeInfo(
                node.metadata.name,
                dict(node.metadata.labels),
                {resource: amount(resource, value) for resource, value in node.status.allocatable.items()},
                node.spec.taints,
                ready=is_true(node.status.conditions, "Ready"),
                unschedulable=node.spec.unschedulable,
            )
        )
        return self.forest.generation != before

    def delete_node(self, name: str) -> bool:
        before = self.forest.generation
        self.forest.delete_node(name)
        return self.forest.generation != before

    def put_pod(self, pod: Pod) -> bool:
        """Add or update a pod. Return True if its node has more room."""
        found = self._occupancy(pod)
        old = self.pods.get(pod.key)
        if found == old:
            return False
        if old is not None:
            self.delete_pod(pod.key)
        if found is not None:
            self.pods[pod.key] = found
            self.forest.occupy(*found)
        return old is not None

    def delete_pod(self, key: Key) -> bool:
        old = self.pods.pop(key, None)
        if old is not None:
            self.forest.vacate(*old)
        return old is not None

    @staticmethod
    def _occupancy(pod: Pod) -> tuple[str, Requests] | None:
        """Return the node and the requests of a pod; None if it has stopped or a workload counts its room."""
        if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
            return None
        if any(name in pod.metadata.annotations for name in TOPOLOGY_ANNOTATIONS):
            return None
        raw = requests.raw_requests(requests.complete(pod.spec, {}, {}))
        return pod.spec.node_name, tuple(sorted(requests.amounts(raw).items()))

    def _plant_all(self, topology: str) -> None:
        for name, spec in self.flavors.items():
            if spec.topology_name == topology:
                self._plant(name)

    def _plant(self, name: str) -> None:
        spec = self.flavors[name]
        levels = self.topologies.get(spec.topology_name or "")
        if levels is None:
            self.forest.delete_flavor(name)
            return
        self.forest.put_flavor(
            FlavorInfo(name, spec.topology_name or "", levels, dict(spec.node_labels), spec.tolerations)
        )

    def has_topology(self, flavor: str) -> bool:
        spec = self.flavors.get(flavor)
        return spec is not None and bool(spec.topology_name)

    # Queues

    def is_selected(self, queue: Queue, workload: PendingWorkload) -> bool:
        """Return whether the queue selects the workload's namespace."""
        labels = self.labels_by_namespace.get(workload.key.namespace)
        if queue.selects_all:
            return labels is not None
        return labels is not None and selects(queue.spec.namespace_selector, labels)

    def why_inactive(self, queue: Queue) -> Inactive | None:
        """Return the first reason why a queue admits no workload; None if it is active."""
        if queue.spec.stop_policy != "None":
            return "Stopped"
        flavors = queue.flavor_names()
        if any(name not in self.flavors for name in flavors):
            return "FlavorNotFound"
        strategy = queue.spec.admission_checks_strategy
        rules = strategy.admission_checks if strategy else ()
        checks = [self.checks.get(rule.name) for rule in rules]
        if any(check is None for check in checks):
            return "AdmissionCheckNotFound"
        if any(check is not None and not _is_active(check) for check in checks):
            return "AdmissionCheckInactive"
        controllers = [check.spec.controller_name for check in checks if check is not None]
        multikueue = [i for i, controller in enumerate(controllers) if controller == MULTIKUEUE_CONTROLLER]
        if len(multikueue) > 1:
            return "MultipleMultiKueueAdmissionChecks"
        if multikueue and set(rules[multikueue[0]].on_flavors) not in (set(), flavors):
            return "MultiKueueAdmissionCheckAppliedPerFlavor"
        if multikueue and PROVISIONING_CONTROLLER in controllers:
            return "MultiKueueWithProvisioningRequest"
        if not multikueue and any(self.has_topology(f) and self.forest.flavor(f) is None for f in flavors):
            return "TopologyNotFound"
        if queue.terminating:
            return "Terminating"
        return "CohortCycle" if queue.parent is not None and queue.parent.cyclic else None

    def checks_of(self, queue: Queue, flavors: set[str]) -> list[str]:
        """Return the names of the checks that apply to a workload on these flavors."""
        strategy = queue.spec.admission_checks_strategy
        if strategy is None:
            return []
        return [r.name for r in strategy.admission_checks if not r.on_flavors or not flavors.isdisjoint(r.on_flavors)]

    def has_check(self, queue: Queue, flavors: set[str], controller: str) -> bool:
        """Return whether a check of this controller applies to a workload on these flavors."""
        checks = (self.checks.get(name) for name in self.checks_of(queue, flavors))
        return any(check is not None and check.spec.controller_name == controller for check in checks)

    def is_dispatched(self, queue: Queue) -> bool:
        """Return whether MultiKueue runs the workloads of the queue in other clusters, which place them."""
        return self.has_check(queue, queue.flavor_names(), MULTIKUEUE_CONTROLLER)


def _is_active(check: AdmissionCheck) -> bool:
    active = find_condition(check.status.conditions, "Active")
    return active is not None and active.status == "True"
