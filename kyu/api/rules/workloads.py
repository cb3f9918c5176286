"""
Rules for a Workload: pod sets, and the admission and checks that belong to them.

``workload_updates.py`` has the rules for changes while quota is reserved.

Kueue: pkg/webhooks/workload_webhook.go
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kyu.api import kueue, names, placement
from kyu.api.config.features import FeatureGates
from kyu.api.core import Container, PodTemplateSpec, ResourceRequirements
from kyu.api.errors import FieldError, broken_rule, duplicate, forbidden, invalid, not_supported, required
from kyu.api.fields import ResourceList
from kyu.api.kueue import AdmissionCheckState, PodSet, PodSetTopologyRequest, Workload
from kyu.api.quantity import Quantity, amount, parse
from kyu.api.rules.flavors import validate_tolerations
from kyu.api.rules.metadata import validate_annotations, validate_labels

_ZERO = Quantity(0)
_MAX_GATE_NAME = 63


def validate_workload(workload: Workload, old: Workload | None, gates: FeatureGates) -> Iterator[FieldError]:
    if old is None or workload.spec != old.spec or workload.metadata.annotations != old.metadata.annotations:
        # Status updates do not validate an accepted spec again.
        yield from _validate_pod_sets(workload, gates)
        yield from _validate_priority(workload, gates)
    status = workload.status
    yield from _validate_admission(workload, old)
    if status.reclaimable_pods:
        yield from _validate_reclaimable_pods(workload, old, gates)
    for index, state in enumerate(status.admission_checks):
        yield from _validate_pod_set_updates(workload, state, f"status.admissionChecks[{index}].podSetUpdates")
    if status.cluster_name is not None and status.nominated_cluster_names:
        yield broken_rule("status", "clusterName and nominatedClusterNames exclude each other")
    if workload.metadata.annotations and gates.enabled("AdmissionGatedBy"):
        yield from _validate_admission_gates(workload)


def is_elastic(workload: Workload, gates: FeatureGates) -> bool:
    """Return whether the job may be scaled while it runs."""
    marked = workload.metadata.annotations.get(kueue.ELASTIC_JOB_ANNOTATION) == "true"
    return marked and gates.enabled("ElasticJobsViaWorkloadSlices")


def _validate_pod_sets(workload: Workload, gates: FeatureGates) -> Iterator[FieldError]:
    variable = [pod_set.name for pod_set in workload.spec.pod_sets if pod_set.min_count is not None]
    if len(variable) > 1:
        yield invalid("spec.podSets", len(variable), "at most one pod set can have a minCount")
    if variable and is_elastic(workload, gates):
        yield invalid("spec.podSets", len(variable), "an elastic job cannot have a minCount")
    for index, pod_set in enumerate(workload.spec.pod_sets):
        yield from _validate_pod_set(pod_set, f"spec.podSets[{index}]", gates)


def _validate_pod_set(pod_set: PodSet, path: str, gates: FeatureGates) -> Iterator[FieldError]:
    if pod_set.min_count is not None and pod_set.min_count > pod_set.count:
        yield invalid(
            f"{path}.minCount", pod_set.min_count, f"must not be greater than the count, which is {pod_set.count}"
        )
    metadata = pod_set.template.metadata
    if (metadata.labels or metadata.annotations) and gates.enabled("WorkloadValidationForPodSetMetadata"):
        yield from validate_labels(metadata.labels, f"{path}.template.metadata.labels")
        yield from validate_annotations(metadata.annotations, f"{path}.template.metadata.annotations")
    for here, resources in _resources(pod_set.template, f"{path}.template.spec"):
        if resources.requests:
            yield from _validate_resources(resources.requests, f"{here}.requests", gates)
        if resources.limits:
            yield from _validate_resources(resources.limits, f"{here}.limits", gates)
    if pod_set.topology_request is not None and gates.enabled("TASValidateWorkloadSliceSize"):
        yield from _validate_slices(pod_set.topology_request, f"{path}.topologyRequest")


def _resources(template: PodTemplateSpec, path: str) -> Iterator[tuple[str, ResourceRequirements]]:
    """Yield the resources of each container and of the pod as a whole, with their paths."""
    init = ((f"{path}.initContainers", i, c) for i, c in enumerate(template.spec.init_containers))
    regular = ((f"{path}.containers", i, c) for i, c in enumerate(template.spec.containers))
    container: Container
    for list_path, index, container in chain(init, regular):
        yield f"{list_path}[{index}].resources", container.resources
    yield f"{path}.resources", template.spec.resources


def _validate_resources(resources: ResourceList, path: str, gates: FeatureGates) -> Iterator[FieldError]:
    for name, value in resources.items():
        if name == "pods":
            yield invalid(f"{path}[pods]", "pods", "pods are counted by the queue and cannot be requested")
        if parse(value) < _ZERO and gates.enabled("WorkloadValidateResourcesAreNonNegative"):
            yield invalid(f"{path}[{name}]", value, "must be greater than or equal to 0")


def _validate_slices(request: PodSetTopologyRequest, path: str) -> Iterator[FieldError]:
    topology, size = request.pod_set_slice_required_topology, request.pod_set_slice_size
    layers = request.podset_slice_required_topology_constraints
    if topology is not None and size is None:
        yield required(f"{path}.podSetSliceSize", "must be set with podSetSliceRequiredTopology")
    if topology is None and size is not None:
        yield forbidden(f"{path}.podSetSliceSize", "needs podSetSliceRequiredTopology")
    if topology is not None and size is not None and size <= 0:
        yield invalid(f"{path}.podSetSliceSize", size, "must be greater than 0")
    if layers and (topology is not None or size is not None):
        detail = "does not go with podSetSliceRequiredTopology and podSetSliceSize"
        yield forbidden(f"{path}.podsetSliceRequiredTopologyConstraints", detail)


def _validate_priority(workload: Workload, gates: FeatureGates) -> Iterator[FieldError]:
    reference = workload.spec.priority_class_ref
    if reference is not None:
        if (reference.group == kueue.GROUP) != (reference.kind == "WorkloadPriorityClass"):
            detail = f"is not a kind of group {reference.group}"
            yield invalid("spec.priorityClassRef.kind", reference.kind, detail)
        if workload.spec.priority is None:
            yield broken_rule("spec", "priorityClassRef needs a priority")
    boost = workload.metadata.annotations.get(kueue.PRIORITY_BOOST_ANNOTATION)
    if boost is not None and gates.enabled("PriorityBoost") and not _is_integer(boost):
        yield invalid(f"metadata.annotations[{kueue.PRIORITY_BOOST_ANNOTATION}]", boost, "must be an integer")


def _is_integer(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit() and -(2**31) <= int(text) < 2**31


def _validate_admission(workload: Workload, old: Workload | None) -> Iterator[FieldError]:
    if not workload.is_true(kueue.QUOTA_RESERVED):
        return
    admission, path = workload.status.admission, "status.admission"
    if admission is None:
        # A Workload that was stored like this may still be changed, so that it can be repaired or removed.
        if old is None or not old.is_true(kueue.QUOTA_RESERVED) or old.status.admission is not None:
            yield required(path, "must be set while QuotaReserved is true")
        return
    pod_sets = [pod_set.name for pod_set in workload.spec.pod_sets]
    assignments = admission.pod_set_assignments
    if len(assignments) != len(pod_sets):
        yield broken_rule(f"{path}.podSetAssignments", "must have one entry for each pod set")
    for index, assignment in enumerate(assignments):
        here = f"{path}.podSetAssignments[{index}]"
        if assignment.name not in pod_sets:
            yield FieldError("NotFound", f"{here}.name", assignment.name)
        yield from _validate_usage(assignment, f"{here}.resourceUsage")
        yield from _validate_placement(assignment, f"{here}.topologyAssignment")


def _validate_usage(assignment: kueue.PodSetAssignment, path: str) -> Iterator[FieldError]:
    count = assignment.count or 0
    for resource, value in assignment.resource_usage.items():
        if count > 0 and amount(resource, value) % count:
            yield invalid(f"{path}[{resource}]", value, f"is not a multiple of the count, which is {count}")


def _validate_placement(assignment: kueue.PodSetAssignment, path: str) -> Iterator[FieldError]:
    places = assignment.topology_assignment
    if places is None:
        return
    for index, part in enumerate(places.slices):
        if len(part.values_per_level) != len(places.levels):
            yield broken_rule(f"{path}.slices[{index}].valuesPerLevel", "must have one entry for each level")
        for level, values in enumerate(part.values_per_level):
            if (values.universal is None) == (values.individual is None):
                here = f"{path}.slices[{index}].valuesPerLevel[{level}]"
                yield broken_rule(here, "exactly one of universal and individual must be set")
        if (part.pod_counts.universal is None) == (not part.pod_counts.individual):
            yield broken_rule(
                f"{path}.slices[{index}].podCounts", "exactly one of universal and individual must be set"
            )
    try:
        placement.domains(places)
    except ValueError as error:
        yield broken_rule(f"{path}.slices", str(error))


def _validate_reclaimable_pods(workload: Workload, old: Workload | None, gates: FeatureGates) -> Iterator[FieldError]:
    count_by_pod_set = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    stale = old.status.reclaimable_pods if old is not None and is_elastic(workload, gates) else ()
    for pods in workload.status.reclaimable_pods:
        path = f"status.reclaimablePods[{pods.name}]"
        if pods.name not in count_by_pod_set:
            yield not_supported(f"{path}.name", pods.name, count_by_pod_set)
        elif pods.count > count_by_pod_set[pods.name] and pods not in stale:
            detail = f"must not be greater than the count, which is {count_by_pod_set[pods.name]}"
            yield invalid(f"{path}.count", pods.count, detail)


def _validate_pod_set_updates(workload: Workload, state: AdmissionCheckState, path: str) -> Iterator[FieldError]:
    pod_sets = [pod_set.name for pod_set in workload.spec.pod_sets]
    for index, update in enumerate(state.pod_set_updates):
        here = f"{path}[{index}]"
        if update.name not in pod_sets:
            yield not_supported(f"{here}.name", update.name, pod_sets)
        yield from validate_labels(update.labels, f"{here}.labels")
        yield from validate_annotations(update.annotations, f"{here}.annotations")
        yield from validate_labels(update.node_selector, f"{here}.nodeSelector")
        yield from validate_tolerations(update.tolerations, f"{here}.tolerations")


def _validate_admission_gates(workload: Workload) -> Iterator[FieldError]:
    value = workload.metadata.annotations.get(kueue.ADMISSION_GATED_BY_ANNOTATION)
    if value is None:
        return
    path = f"metadata.annotations[{kueue.ADMISSION_GATED_BY_ANNOTATION}]"
    seen: set[str] = set()
    for gate in admission_gates(value):
        if "/" not in gate:
            yield invalid(path, gate, "must be a name with a domain, such as example.com/gate")
        elif reason := names.why_not_qualified_name(gate):
            yield invalid(path, gate, reason)
        elif len(gate) > _MAX_GATE_NAME:
            yield invalid(path, gate, f"must be no more than {_MAX_GATE_NAME} characters")
        if gate in seen:
            yield duplicate(path, gate)
        seen.add(gate)


def admission_gates(value: str) -> list[str]:
    """Return the names in the annotation, which are separated by commas."""
    return [name.strip() for name in value.split(",")] if value else []
