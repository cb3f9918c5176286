"""
Rules for updates of a Workload: while it holds quota, hardly anything that the quota depends on may change.

Pod sets are compared as JSON, since every field of a pod template counts, also those that Kyu does not read. Clients
that decode an object and write it back drop empty fields and spell quantities anew, which is no change.

Kueue: pkg/webhooks/workload_webhook.go, the CEL rules of Workload
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kyu.api import kueue, quantity
from kyu.api.config.features import FeatureGates
from kyu.api.errors import FieldError, broken_rule, forbidden, invalid, required
from kyu.api.kueue import Admission, Workload
from kyu.api.meta import Json
from kyu.api.rules.workloads import admission_gates, is_elastic

_IMMUTABLE = "field is immutable"
_QUANTITIES = ("requests", "limits", "overhead")
_REPLACEMENT_ANNOTATION = f"{kueue.GROUP}/workload-slice-replacement-for"


def validate_workload_update(workload: Workload, old: Workload, gates: FeatureGates) -> Iterator[FieldError]:
    """Validate an update. Most updates change conditions alone, so empty fields are skipped."""
    if old.is_true(kueue.QUOTA_RESERVED):
        yield from _validate_priority_class(workload, old)
        if workload.is_true(kueue.QUOTA_RESERVED):
            if workload.spec.queue_name != old.spec.queue_name:
                yield broken_rule("spec.queueName", f"{_IMMUTABLE} while quota is reserved")
            yield from _validate_reclaimable_pods(workload, old, gates)
    is_limit_new = workload.spec.maximum_execution_time_seconds != old.spec.maximum_execution_time_seconds
    if is_limit_new and workload.is_true(kueue.ADMITTED) and old.is_true(kueue.ADMITTED):
        yield broken_rule("spec.maximumExecutionTimeSeconds", f"{_IMMUTABLE} while admitted")
    status, before = workload.status, old.status
    if status.admission is not None and before.admission is not None:
        yield from _validate_admission(status.admission, before.admission, gates)
    if before.admission_checks:
        yield from _validate_ready_checks(workload, old)
    if status.cluster_name is not None:
        yield from _validate_cluster_name(status.cluster_name, workload, old, gates)
    if workload.metadata.annotations and gates.enabled("AdmissionGatedBy"):
        yield from _validate_admission_gates(workload, old)


def validate_pod_sets_update(object_: Json, old: Json, gates: FeatureGates) -> Iterator[FieldError]:
    """Validate a change of pod sets while quota is reserved. Elastic jobs may shrink."""
    path = "spec.podSets"
    pod_sets: list[Any] = object_.get("spec", {}).get("podSets", [])
    before: list[Any] = old.get("spec", {}).get("podSets", [])
    if len(pod_sets) != len(before):
        yield invalid(path, len(pod_sets), f"{_IMMUTABLE} while quota is reserved")
        return
    for index, (pod_set, previous) in enumerate(zip(pod_sets, before, strict=True)):
        count, previous_count = pod_set.get("count", 1), previous.get("count", 1)
        shrinks = count < previous_count and gates.enabled("ElasticJobsViaWorkloadSlices")
        now = {**pod_set, "count": previous_count if shrinks else count}
        if now != previous and _comparable(now) != _comparable({**previous, "count": previous_count}):
            yield broken_rule(f"{path}[{index}]", f"{_IMMUTABLE} while quota is reserved")


def _comparable(value: Any, name: str = "") -> Any:
    """Return the value without empty fields, and with quantities as numbers."""
    if isinstance(value, dict):
        if name in _QUANTITIES:
            return {key: _amount(item) for key, item in value.items()}
        return {key: made for key, item in value.items() if (made := _comparable(item, key))}
    return [_comparable(item, name) for item in value] if isinstance(value, list) else value


def _amount(value: Any) -> Any:
    try:
        return quantity.parse(value)
    except ValueError:
        return value


def _validate_priority_class(workload: Workload, old: Workload) -> Iterator[FieldError]:
    """Validate the priority class. A WorkloadPriorityClass may be replaced; a PriorityClass of pods may not."""
    reference, before, path = workload.spec.priority_class_ref, old.spec.priority_class_ref, "spec.priorityClassRef"
    if (reference is None) != (before is None):
        yield broken_rule(path, "cannot be added or removed while quota is reserved")
    if reference is None or before is None:
        return
    if (reference.group, reference.kind) != (before.group, before.kind):
        yield broken_rule(path, "group and kind cannot be changed while quota is reserved")
    elif reference.kind == "PriorityClass" and reference.name != before.name:
        yield broken_rule(f"{path}.name", "a PriorityClass cannot be changed while quota is reserved")


def _validate_reclaimable_pods(workload: Workload, old: Workload, gates: FeatureGates) -> Iterator[FieldError]:
    """Reject a decrease of reclaimable pods, except in pod sets of an elastic job that was scaled down."""
    count_by_name = {pods.name: pods.count for pods in workload.status.reclaimable_pods}
    shrunk = _shrunk_pod_sets(workload) if is_elastic(workload, gates) else set()
    for before in old.status.reclaimable_pods:
        path = f"status.reclaimablePods[{before.name}]"
        count = count_by_name.get(before.name)
        if before.name in shrunk:
            continue
        if count is None:
            yield required(path, "cannot be removed while quota is reserved")
        elif count < before.count:
            yield invalid(f"{path}.count", count, f"cannot be less than {before.count}")


def _shrunk_pod_sets(workload: Workload) -> set[str]:
    admission = workload.status.admission
    count_by_name = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    assignments = admission.pod_set_assignments if admission is not None else ()
    return {a.name for a in assignments if a.count is not None and a.count > count_by_name.get(a.name, 0)}


def _validate_admission(new: Admission, old: Admission, gates: FeatureGates) -> Iterator[FieldError]:
    """Reject changes of an admission, except that the topology assignment may be set later."""
    if gates.enabled("TopologyAwareScheduling"):
        new, old = _without_placement(new), _without_placement(old)
    if new != old:
        yield broken_rule("status.admission", _IMMUTABLE)


def _without_placement(admission: Admission) -> Admission:
    replace = msgspec.structs.replace
    assignments = tuple(
        replace(assignment, topology_assignment=None, delayed_topology_request=None)
        for assignment in admission.pod_set_assignments
    )
    return replace(admission, pod_set_assignments=assignments)


def _validate_ready_checks(workload: Workload, old: Workload) -> Iterator[FieldError]:
    updates_by_check = {s.name: s.pod_set_updates for s in old.status.admission_checks if s.state == "Ready"}
    for index, state in enumerate(workload.status.admission_checks):
        before = updates_by_check.get(state.name)
        if state.state == "Ready" and before is not None and state.pod_set_updates != before:
            yield broken_rule(
                f"status.admissionChecks[{index}].podSetUpdates", f"{_IMMUTABLE} while the check is Ready"
            )


def _validate_cluster_name(name: str, workload: Workload, old: Workload, gates: FeatureGates) -> Iterator[FieldError]:
    before = old.status.cluster_name
    if before is not None and name != before:
        yield broken_rule("status.clusterName", _IMMUTABLE)
    is_replacement = _REPLACEMENT_ANNOTATION in workload.metadata.annotations
    if is_replacement and gates.enabled("ElasticJobsViaWorkloadSlices"):
        return
    if before is None and name not in old.status.nominated_cluster_names:
        yield invalid("status.clusterName", name, "must be one of the nominatedClusterNames")


def _validate_admission_gates(workload: Workload, old: Workload) -> Iterator[FieldError]:
    annotation = kueue.ADMISSION_GATED_BY_ANNOTATION
    gates = admission_gates(workload.metadata.annotations.get(annotation, ""))
    before = admission_gates(old.metadata.annotations.get(annotation, ""))
    if added := sorted(set(gates) - set(before)):
        yield forbidden(f"metadata.annotations[{annotation}]", f"gates cannot be added: {', '.join(added)}")
