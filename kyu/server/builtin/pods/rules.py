"""
Validation of pod specs, and of updates of a Pod.

Kubernetes: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import subdomain
from kyu.server.builtin.pods import details, security
from kyu.server.builtin.pods.containers import (
    PodContext,
    container_faults,
    pod_level_faults,
    pod_resource_faults,
    unique_label_faults,
)
from kyu.server.builtin.pods.placement import placement_faults
from kyu.server.builtin.pods.volumes import source_rank, volume_faults
from kyu.server.json_values import carry_over, clone
from kyu.server.validation.checks import immutable, objections, one_of
from kyu.server.validation.metadata import validate_labels

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
UPDATABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod(pod: Json) -> Iterator[FieldError]:
    spec = pod.get("spec") or {}
    yield from validate_pod_spec(spec, "spec")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield fields.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def validate_new_pod(pod: Json) -> Iterator[FieldError]:
    yield from validate_pod(pod)
    if (pod.get("spec") or {}).get("ephemeralContainers"):
        yield fields.forbidden("spec.ephemeralContainers", "cannot be set on create")


def validate_template(template: Json, path: str) -> Iterator[FieldError]:
    yield from validate_labels((template.get("metadata") or {}).get("labels") or {}, f"{path}.labels")
    yield from validate_pod_spec(template.get("spec") or {}, f"{path}.spec")


def validate_pod_spec(spec: Json, path: str) -> Iterator[FieldError]:
    yield from _volume_faults(spec, f"{path}.volumes")
    volumes = {volume.get("name", ""): volume for volume in spec.get("volumes") or ()}
    claims = tuple(claim.get("name", "") for claim in spec.get("resourceClaims") or ())
    pod = PodContext(spec, volumes, claims, set(), set())
    if not spec.get("containers"):
        yield fields.required(f"{path}.containers")
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            is_init = group == "initContainers"
            yield from container_faults(container, f"{path}.{group}[{index}]", pod, is_init=is_init)
    if resources := spec.get("resources"):
        yield from pod_resource_faults(resources, f"{path}.resources", claims)
        yield from pod_level_faults(spec, f"{path}.resources")
    yield from one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), RESTART_POLICIES)
    yield from one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), DNS_POLICIES)
    yield from validate_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        detail = "must be between 1 and 2147483647, inclusive"
        yield fields.invalid(f"{path}.activeDeadlineSeconds", deadline, detail)
    yield from placement_faults(spec, path)
    yield from security.pod_faults(spec, path)
    yield from details.spec_faults(spec, path)


def _volume_faults(spec: Json, path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        here = f"{path}[{index}]"
        yield from unique_label_faults(volume.get("name", ""), names, f"{here}.name")
        yield from volume_faults(volume, here)
        sources = sorted((key for key in volume if key != "name"), key=source_rank)
        for extra in sources[1:]:
            yield fields.forbidden(f"{here}.{extra}", "may not specify more than 1 volume type")
        for number, part in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if part.get("serviceAccountToken") is not None and not spec.get("serviceAccountName"):
                place = f"{here}.projected.sources[{number}].serviceAccountToken"
                yield fields.forbidden(place, "must not be specified when serviceAccountName is not set")


def validate_pod_update(new: Json, old: Json) -> Iterator[FieldError]:
    """Validate an update. Mutable fields are copied to the old spec, which must then equal the new one."""
    after, before = new.get("spec") or {}, old.get("spec") or {}
    yield from validate_pod(new)
    for group in ("containers", "initContainers"):
        if len(after.get(group) or ()) != len(before.get(group) or ()):
            yield fields.forbidden(f"spec.{group}", "pod updates may not add or remove containers")
            return
    yield from _deadline_faults(after, before)
    yield from _toleration_faults(after, before)
    yield from _gate_faults(after, before)
    allowed = clone(before)
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        carry_over(name, after, allowed)
    if before.get("terminationGracePeriodSeconds", 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        allowed["terminationGracePeriodSeconds"] = 1
    for group in ("containers", "initContainers"):
        for index, (mine, theirs) in enumerate(zip(allowed.get(group) or (), after.get(group) or (), strict=True)):
            if not theirs.get("image"):
                # Kubernetes validates the image twice, so a missing one is reported twice.
                yield fields.required(f"spec.{group}[{index}].image")
            carry_over("image", theirs, mine)
    if before.get("schedulingGates"):
        yield from _selector_faults(after, before)
        for name in ("nodeSelector", "affinity"):
            carry_over(name, after, allowed)
    if allowed != after:
        yield fields.forbidden("spec", UPDATABLE)


def _deadline_faults(after: Json, before: Json) -> Iterator[FieldError]:
    new, old = after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if new is not None and not 0 <= new < 2**31:
        yield fields.invalid(path, new, "must be between 0 and 2147483647, inclusive")
    elif old is not None and new is None:
        yield fields.invalid(path, new, "must not update from a positive integer to nil value")
    elif old is not None and new > old:
        yield fields.invalid(path, new, "must be less than or equal to previous value")


def _toleration_faults(after: Json, before: Json) -> Iterator[FieldError]:
    """Check that tolerations are only added."""
    new = [_without_seconds(each) for each in after.get("tolerations") or ()]
    if any(_without_seconds(each) not in new for each in before.get("tolerations") or ()):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield fields.forbidden("spec.tolerations", detail)


def _without_seconds(toleration: Json) -> Json:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def validate_pod_status(new: Json, old: Json) -> Iterator[FieldError]:
    after, before = new.get("status") or {}, old.get("status") or {}
    yield from immutable("status.", after, before, "qosClass")
    addresses = after.get("podIPs") or []
    if len(addresses) != len({":" in address.get("ip", "") for address in addresses}):
        yield fields.invalid("status.podIPs", addresses, "may specify no more than one IP for each IP family")
    if node := after.get("nominatedNodeName"):
        yield from objections("status.nominatedNodeName", node, subdomain)


def _gate_faults(after: Json, before: Json) -> Iterator[FieldError]:
    """Check that scheduling gates are only removed."""
    old = [gate.get("name") for gate in before.get("schedulingGates") or ()]
    for index, gate in enumerate(after.get("schedulingGates") or ()):
        if gate.get("name") not in old:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            yield fields.forbidden(f"spec.schedulingGates[{index}].name", detail)


def _selector_faults(after: Json, before: Json) -> Iterator[FieldError]:
    """Check that a gated pod only adds to its node selector."""
    old, new = before.get("nodeSelector") or {}, after.get("nodeSelector") or {}
    if any(new.get(key) != value for key, value in old.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield fields.invalid("spec.nodeSelector", new, detail)
