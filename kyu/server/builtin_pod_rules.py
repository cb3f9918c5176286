"""
What a pod spec must obey, and what of a Pod may still change after it was created.

Called by: builtin.py for Pods, builtin_jobs.py and builtin_apps.py for their templates.
Kubernetes: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api import quantity
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server import builtin_pod_details
from kyu.server.builtin_metadata import IMMUTABLE, validate_labels
from kyu.server.builtin_names import label, label_key, subdomain
from kyu.server.patch import clone

AT_LEAST_ZERO: Final = "must be greater than or equal to 0"
RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
OPERATORS: Final = ("Equal", "Exists")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CONTAINER_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
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
    volumes = _validate_volumes(spec.get("volumes") or (), f"{path}.volumes", found)
    names: set[str] = set()
    if not spec.get("containers"):
        found.append(fields.required(f"{path}.containers"))
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            _validate_container(container, f"{path}.{group}[{index}]", names, volumes, found)
    _one_of(spec.get("restartPolicy"), RESTART_POLICIES, f"{path}.restartPolicy", found)
    _one_of(spec.get("dnsPolicy"), DNS_POLICIES, f"{path}.dnsPolicy", found)
    for key, value in (spec.get("nodeSelector") or {}).items():
        found += validate_labels({key: value}, f"{path}.nodeSelector")
    if spec.get("nodeName"):
        found += [fields.invalid(f"{path}.nodeName", spec["nodeName"], text) for text in subdomain(spec["nodeName"])]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        found.append(
            fields.invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
        )
    _validate_tolerations(spec.get("tolerations") or (), f"{path}.tolerations", found)
    _validate_node_affinity(spec, f"{path}.affinity.nodeAffinity", found)
    _validate_gates(spec.get("schedulingGates") or (), f"{path}.schedulingGates", found)
    found += builtin_pod_details.spec_faults(spec, path)
    return found


def _one_of(value: Any, supported: Sequence[str], path: str, found: list[FieldError]) -> None:
    if value is not None and value not in supported:
        found.append(fields.not_supported(path, value, supported))


def _validate_volumes(volumes: Sequence[Json], path: str, found: list[FieldError]) -> set[str]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        here, name = f"{path}[{index}]", volume.get("name", "")
        _validate_unique_label(name, names, f"{here}.name", found)
        sources = [key for key in volume if key != "name"]
        found += [
            fields.forbidden(f"{here}.{extra}", "may not specify more than 1 volume type") for extra in sources[1:]
        ]
    return names


def _validate_unique_label(name: str, names: set[str], path: str, found: list[FieldError]) -> None:
    if not name:
        found.append(fields.required(path))
        return
    found += [fields.invalid(path, name, text) for text in label(name)]
    if name in names:
        found.append(fields.duplicate(path, name))
    names.add(name)


def _validate_container(
    container: Json, path: str, names: set[str], volumes: set[str], found: list[FieldError]
) -> None:
    _validate_unique_label(container.get("name", ""), names, f"{path}.name", found)
    image = container.get("image", "")
    if not image:
        found.append(fields.required(f"{path}.image"))
    elif image != image.strip():
        found.append(fields.invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    _one_of(container.get("imagePullPolicy"), PULL_POLICIES, f"{path}.imagePullPolicy", found)
    _one_of(
        container.get("terminationMessagePolicy"),
        ("File", "FallbackToLogsOnError"),
        f"{path}.terminationMessagePolicy",
        found,
    )
    for index, port in enumerate(container.get("ports") or ()):
        _validate_port(port, f"{path}.ports[{index}]", found)
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            found.append(fields.required(f"{path}.env[{index}].name"))
        if variable.get("value") and variable.get("valueFrom"):
            detail = "may not be specified when `value` is not empty"
            found.append(fields.invalid(f"{path}.env[{index}].valueFrom", "", detail))
    _validate_mounts(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes, found)
    _validate_resources(container.get("resources") or {}, f"{path}.resources", found)
    found += builtin_pod_details.container_faults(container, path)


def _validate_port(port: Json, path: str, found: list[FieldError]) -> None:
    number = port.get("containerPort", 0)
    if number == 0:
        found.append(fields.required(f"{path}.containerPort"))
    elif not 0 < number < 65536:
        found.append(fields.invalid(f"{path}.containerPort", number, "must be between 1 and 65535, inclusive"))
    _one_of(port.get("protocol"), PROTOCOLS, f"{path}.protocol", found)


def _validate_mounts(mounts: Sequence[Json], path: str, volumes: set[str], found: list[FieldError]) -> None:
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        here, name, target = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            found.append(fields.required(f"{here}.name"))
        elif name not in volumes:
            found.append(FieldError("NotFound", f"{here}.name", name))
        if not target:
            found.append(fields.required(f"{here}.mountPath"))
        elif target in paths:
            found.append(fields.invalid(f"{here}.mountPath", target, "must be unique"))
        paths.add(target)


def _validate_resources(resources: Json, path: str, found: list[FieldError]) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for group, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            here = f"{path}.{group}.{name}" if "/" not in name else f"{path}.{group}[{name}]"
            found += [fields.invalid(f"{path}.{group}[{name}]", name, text) for text in resource_name_objections(name)]
            amount = quantity.parse(text)
            if amount.nanos < 0:
                found.append(fields.invalid(f"{path}.{group}[{name}]", text, AT_LEAST_ZERO))
            if _is_whole_number(name) and amount.nanos % quantity.NANO:
                found.append(fields.invalid(here, text, "must be an integer"))
    for name, text in requests.items():
        limit = limits.get(name)
        if limit is not None and quantity.parse(text) > quantity.parse(limit):
            detail = f"must be less than or equal to {name} limit of {limit}"
            found.append(fields.invalid(f"{path}.requests", text, detail))
        elif limit is not None and _is_extended(name) and quantity.parse(text) != quantity.parse(limit):
            detail = f"must be equal to {name} limit of {limit}"
            found.append(fields.invalid(f"{path}.requests", text, detail))
        elif limit is None and _is_extended(name):
            found.append(fields.required(f"{path}.limits", "Limit must be set for non overcommitable resources"))


def resource_name_objections(name: str) -> tuple[str, ...]:
    """Why this is not the name of something that a container can have."""
    if "/" in name:
        return label_key(name)
    if objections := label_key(name):
        return (*objections, "must be a standard resource for containers")
    if name in CONTAINER_RESOURCES or name.startswith("hugepages-"):
        return ()
    return ("must be a standard resource type or fully qualified", "must be a standard resource for containers")


def _is_extended(name: str) -> bool:
    """A device of some vendor: whole numbers only, and no borrowing between request and limit."""
    return "/" in name and not name.split("/")[0].endswith("kubernetes.io")


def _is_whole_number(name: str) -> bool:
    return _is_extended(name) or name == "pods"


def _validate_tolerations(tolerations: Sequence[Json], path: str, found: list[FieldError]) -> None:
    for index, toleration in enumerate(tolerations):
        here, operator = f"{path}[{index}]", toleration.get("operator", "Equal")
        if toleration.get("key"):
            found += [fields.invalid(f"{here}.key", toleration["key"], text) for text in label_key(toleration["key"])]
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            found.append(fields.invalid(f"{here}.operator", operator, detail))
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            found.append(fields.invalid(f"{here}.effect", toleration.get("effect", ""), detail))
        if operator == "Exists" and toleration.get("value"):
            detail = "value must be empty when `operator` is 'Exists'"
            found.append(fields.invalid(f"{here}.operator", toleration["value"], detail))
        _one_of(operator, OPERATORS, f"{here}.operator", found)
        if toleration.get("effect"):
            _one_of(toleration["effect"], EFFECTS, f"{here}.effect", found)


def _validate_node_affinity(spec: Json, path: str, found: list[FieldError]) -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    if affinity.get(required) is not None and not affinity[required].get("nodeSelectorTerms"):
        where = f"{path}.{required}.nodeSelectorTerms"
        found.append(fields.required(where, "must have at least one node selector term"))
    for index, term in enumerate((affinity.get(required) or {}).get("nodeSelectorTerms") or ()):
        found += builtin_pod_details.term_faults(term, f"{path}.{required}.nodeSelectorTerms[{index}]")


def _validate_gates(gates: Sequence[Json], path: str, found: list[FieldError]) -> None:
    names: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        found += [fields.invalid(f"{path}[{index}]", name, text) for text in label_key(name)]
        if name in names:
            found.append(fields.duplicate(f"{path}[{index}]", name))
        names.add(name)


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
