"""
What a pod spec must obey, and what of a Pod may still change after it was created.

Called by: builtin.py for Pods, builtin_jobs.py and builtin_apps.py for their templates.
Kubernetes: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server import builtin_pod_details, builtin_pod_security
from kyu.server.builtin_metadata import IMMUTABLE, validate_labels
from kyu.server.builtin_names import subdomain
from kyu.server.builtin_pod_containers import (
    Pod,
    container_faults,
    one_of,
    pod_resource_faults,
    unique_label_faults,
)
from kyu.server.builtin_pod_placement import placement_faults
from kyu.server.builtin_pod_volumes import source_rank, volume_faults
from kyu.server.patch import clone

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
UPDATABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod(pod: Json) -> list[FieldError]:
    spec = pod.get("spec") or {}
    found = validate_pod_spec(spec, "spec")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        found.append(fields.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found


def validate_new_pod(pod: Json) -> list[FieldError]:
    found = validate_pod(pod)
    if (pod.get("spec") or {}).get("ephemeralContainers"):
        found.append(fields.forbidden("spec.ephemeralContainers", "cannot be set on create"))
    return found


def validate_template(template: Json, path: str) -> list[FieldError]:
    labels = (template.get("metadata") or {}).get("labels") or {}
    return validate_labels(labels, f"{path}.labels") + validate_pod_spec(template.get("spec") or {}, f"{path}.spec")


def validate_pod_spec(spec: Json, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    claims = tuple(claim.get("name", "") for claim in spec.get("resourceClaims") or ())
    pod = Pod(spec, _validate_volumes(spec, f"{path}.volumes", found), claims, set(), set())
    if not spec.get("containers"):
        found.append(fields.required(f"{path}.containers"))
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            found += container_faults(container, f"{path}.{group}[{index}]", pod, is_init=group == "initContainers")
    if resources := spec.get("resources"):
        found += pod_resource_faults(resources, f"{path}.resources", claims)
    found += one_of(spec.get("restartPolicy"), RESTART_POLICIES, f"{path}.restartPolicy")
    found += one_of(spec.get("dnsPolicy"), DNS_POLICIES, f"{path}.dnsPolicy")
    found += validate_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        found.append(
            fields.invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
        )
    found += placement_faults(spec, path)
    found += builtin_pod_security.pod_faults(spec, path)
    found += builtin_pod_details.spec_faults(spec, path)
    return found


def _validate_volumes(spec: Json, path: str, found: list[FieldError]) -> dict[str, Json]:
    names: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        here = f"{path}[{index}]"
        found += unique_label_faults(volume.get("name", ""), names, f"{here}.name")
        found += volume_faults(volume, here)
        sources = sorted((key for key in volume if key != "name"), key=source_rank)
        found += [
            fields.forbidden(f"{here}.{extra}", "may not specify more than 1 volume type") for extra in sources[1:]
        ]
        for number, part in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if part.get("serviceAccountToken") is not None and not spec.get("serviceAccountName"):
                place = f"{here}.projected.sources[{number}].serviceAccountToken"
                found.append(fields.forbidden(place, "must not be specified when serviceAccountName is not set"))
    return {volume.get("name", ""): volume for volume in spec.get("volumes") or ()}


def validate_pod_update(new: Json, old: Json) -> list[FieldError]:
    """Everything of the spec is fixed but what is copied from the new one before the two are compared."""
    after, before = new.get("spec") or {}, old.get("spec") or {}
    found = validate_pod(new)
    for group in ("containers", "initContainers"):
        if len(after.get(group) or ()) != len(before.get(group) or ()):
            return [*found, fields.forbidden(f"spec.{group}", "pod updates may not add or remove containers")]
    _validate_deadline(after, before, found)
    _validate_added_tolerations(after, before, found)
    is_gated = bool(before.get("schedulingGates"))
    _validate_removed_gates(after, before, found)
    allowed = clone(before)
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        _copy(name, after, allowed)
    if before.get("terminationGracePeriodSeconds", 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        allowed["terminationGracePeriodSeconds"] = 1
    for group in ("containers", "initContainers"):
        found += _missing_images(after, group)
        for mine, theirs in zip(allowed.get(group) or (), after.get(group) or (), strict=True):
            _copy("image", theirs, mine)
    if is_gated:
        _validate_grown_selector(after, before, found)
        for name in ("nodeSelector", "affinity"):
            _copy(name, after, allowed)
    if allowed != after:
        found.append(fields.forbidden("spec", UPDATABLE))
    return found


def _copy(name: str, source: Json, target: Json) -> None:
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def _missing_images(spec: Json, group: str) -> list[FieldError]:
    """What may change is looked at once more; a missing image is told twice."""
    containers = enumerate(spec.get(group) or ())
    return [fields.required(f"spec.{group}[{i}].image") for i, container in containers if not container.get("image")]


def _validate_deadline(after: Json, before: Json, found: list[FieldError]) -> None:
    new, old = after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if new is not None and not 0 <= new < 2**31:
        found.append(fields.invalid(path, new, "must be between 0 and 2147483647, inclusive"))
    elif old is not None and new is None:
        found.append(fields.invalid(path, new, "must not update from a positive integer to nil value"))
    elif old is not None and new > old:
        found.append(fields.invalid(path, new, "must be less than or equal to previous value"))


def _validate_added_tolerations(after: Json, before: Json, found: list[FieldError]) -> None:
    new = after.get("tolerations") or []
    ignored = ("tolerationSeconds",)
    stripped = [{k: v for k, v in each.items() if k not in ignored} for each in new]
    for each in before.get("tolerations") or ():
        if {k: v for k, v in each.items() if k not in ignored} not in stripped:
            detail = "existing toleration can not be modified except its tolerationSeconds"
            found.append(fields.forbidden("spec.tolerations", detail))
            return


def validate_pod_status(new: Json, old: Json) -> list[FieldError]:
    after, before = new.get("status") or {}, old.get("status") or {}
    found: list[FieldError] = []
    if after.get("qosClass") != before.get("qosClass"):
        found.append(fields.invalid("status.qosClass", after.get("qosClass"), IMMUTABLE))
    addresses = after.get("podIPs") or []
    if len(addresses) != len({":" in address.get("ip", "") for address in addresses}):
        detail = "may specify no more than one IP for each IP family"
        found.append(fields.invalid("status.podIPs", addresses, detail))
    if node := after.get("nominatedNodeName"):
        found += [fields.invalid("status.nominatedNodeName", node, text) for text in subdomain(node)]
    return found


def _validate_removed_gates(after: Json, before: Json, found: list[FieldError]) -> None:
    old = [gate.get("name") for gate in before.get("schedulingGates") or ()]
    for index, gate in enumerate(after.get("schedulingGates") or ()):
        if gate.get("name") not in old:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            found.append(fields.forbidden(f"spec.schedulingGates[{index}].name", detail))


def _validate_grown_selector(after: Json, before: Json, found: list[FieldError]) -> None:
    old, new = before.get("nodeSelector") or {}, after.get("nodeSelector") or {}
    if any(new.get(key) != value for key, value in old.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        found.append(fields.invalid("spec.nodeSelector", new, detail))
