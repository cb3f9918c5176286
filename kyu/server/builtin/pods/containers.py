"""
Validation of containers: name, image, ports, mounts, resources.

Kubernetes: pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from kyu.api import errors as fields
from kyu.api import quantity
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label, label_key, port_name
from kyu.kinds.requests import pod_requests
from kyu.server.builtin.pods import env, probes, security
from kyu.server.builtin.pods.volumes import relative_path_faults
from kyu.server.validation.checks import AT_LEAST_ZERO, objections, one_of, port_number

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
RESIZED: Final = ("cpu", "memory")
RESIZE_POLICIES: Final = ("NotRequired", "RestartContainer")
NOT_OF_CONTAINERS: Final = "must be a standard resource for containers"
CONTAINER_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
POD_RESOURCES: Final = ("cpu", "hugepages-", "memory")
HUGE_PAGES: Final = "hugepages-"
BLOCK_SOURCES: Final = ("persistentVolumeClaim", "ephemeral")


class PodContext(msgspec.Struct, frozen=True):
    """The pod of a container that is validated. The names and ports of each container are added to it."""

    spec: Json
    volumes: dict[str, Json]
    claims: tuple[str, ...]
    names: set[str]
    host_ports: set[str]


def container_faults(container: Json, path: str, pod: PodContext, *, is_init: bool) -> Iterator[FieldError]:
    yield from unique_label_faults(container.get("name", ""), pod.names, f"{path}.name")
    image = container.get("image", "")
    if not image:
        yield fields.required(f"{path}.image")
    elif image != image.strip():
        yield fields.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), PULL_POLICIES)
    yield from one_of(f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), MESSAGE_POLICIES)
    yield from one_of(f"{path}.restartPolicy", container.get("restartPolicy"), RESTART_POLICIES)
    if container.get("restartPolicyRules") and not container.get("restartPolicy"):
        yield fields.required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
    yield from _ports(container.get("ports") or (), f"{path}.ports", pod)
    yield from env.variable_faults(container, path)
    yield from _mounts(container, f"{path}.volumeMounts", pod)
    yield from _devices(container.get("volumeDevices") or (), f"{path}.volumeDevices", pod)
    yield from resource_faults(container.get("resources") or {}, f"{path}.resources", pod.claims)
    yield from _resize_policies(container.get("resizePolicy") or (), f"{path}.resizePolicy")
    if is_init and container.get("restartPolicy") != "Always":
        yield from probes.idle_faults(container, path)
    else:
        yield from probes.probe_faults(container, path)
        yield from probes.hook_faults(container, path, pod.spec.get("terminationGracePeriodSeconds", 30))
    if context := container.get("securityContext"):
        yield from security.container_faults(context, f"{path}.securityContext", pod.spec)


def unique_label_faults(name: str, names: set[str], path: str) -> Iterator[FieldError]:
    if not name:
        yield fields.required(path)
        return
    yield from objections(path, name, label)
    if name in names:
        yield fields.duplicate(path, name)
    names.add(name)


def _ports(ports: Sequence[Json], path: str, pod: PodContext) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"{path}[{index}]", port.get("name")
        if name:
            yield from objections(f"{here}.name", name, port_name)
            if name in seen:
                yield fields.duplicate(f"{here}.name", name)
            seen.add(name)
        number, host = port.get("containerPort", 0), port.get("hostPort", 0)
        if number == 0:
            yield fields.required(f"{here}.containerPort")
        else:
            yield from port_number(f"{here}.containerPort", number)
        if host:
            yield from _host_port(port, host, f"{here}.hostPort", pod)
        yield from one_of(f"{here}.protocol", port.get("protocol"), PROTOCOLS)


def _host_port(port: Json, number: int, path: str, pod: PodContext) -> Iterator[FieldError]:
    if not 0 < number < 65536:
        yield from port_number(path, number)
        return
    if pod.spec.get("hostNetwork") and number != port.get("containerPort"):
        yield fields.invalid(path, number, "must match `containerPort` when `hostNetwork` is true")
    place = f"{port.get('protocol', 'TCP')}/{port.get('hostIP', '')}/{number}"
    if place in pod.host_ports:
        yield fields.duplicate(path, place)
    pod.host_ports.add(place)


def _mounts(container: Json, path: str, pod: PodContext) -> Iterator[FieldError]:
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here, name, target = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield fields.required(f"{here}.name")
        elif name not in pod.volumes:
            yield FieldError("NotFound", f"{here}.name", name)
        if not target:
            yield fields.required(f"{here}.mountPath")
        elif target in paths:
            yield fields.invalid(f"{here}.mountPath", target, "must be unique")
        paths.add(target)
        # Kubernetes reports these errors at the list, not at the mount.
        for part in ("subPath", "subPathExpr"):
            yield from relative_path_faults(mount.get(part, ""), f"{path}.{part}")
        if mount.get("subPath") and mount.get("subPathExpr"):
            detail = "subPathExpr and subPath are mutually exclusive"
            yield fields.invalid(f"{here}.subPathExpr", mount["subPathExpr"], detail)
        yield from one_of(f"{path}.mountPropagation", mount.get("mountPropagation"), PROPAGATIONS)
        is_privileged = (container.get("securityContext") or {}).get("privileged")
        if mount.get("mountPropagation") == "Bidirectional" and not is_privileged:
            detail = "Bidirectional mount propagation is available only to privileged containers"
            yield fields.forbidden(f"{path}.mountPropagation", detail)
        if mount.get("recursiveReadOnly", "Disabled") != "Disabled" and not mount.get("readOnly"):
            yield fields.forbidden(f"{path}.recursiveReadOnly", "may only be specified when readOnly is true")


def _devices(devices: Sequence[Json], path: str, pod: PodContext) -> Iterator[FieldError]:
    for index, device in enumerate(devices):
        here, name, target = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        if not name:
            yield fields.required(f"{here}.name")
        if name not in pod.volumes:
            yield FieldError("NotFound", f"{here}.name", name)
        elif not any(source in pod.volumes[name] for source in BLOCK_SOURCES):
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield fields.invalid(f"{here}.name", name, detail)
        if not target:
            yield fields.required(f"{here}.devicePath")
        elif ".." in target.split("/"):
            yield fields.invalid(f"{here}.devicePath", target, "can not contain backsteps ('..')")


def resource_faults(resources: Json, path: str, claims: tuple[str, ...]) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for group, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            here = f"{path}.{group}[{name}]"
            yield from objections(here, name, resource_name_objections)
            yield from _amount(name, text, here)
    for name, text in requests.items():
        yield from _ratio(name, text, limits.get(name), path)
    asked = {*limits, *requests}
    if any(name.startswith(HUGE_PAGES) for name in asked) and not asked & {"cpu", "memory"}:
        yield fields.forbidden(path, "HugePages require cpu or memory")
    seen: set[str] = set()
    for index, claim in enumerate(resources.get("claims") or ()):
        here, name = f"{path}.claims[{index}]", claim.get("name", "")
        if name in seen:
            yield fields.duplicate(here, name)
        elif name not in claims:
            known = f": {', '.join(claims)}" if claims else " which is empty"
            yield FieldError("NotFound", here, name, f"must be one of the names in pod.spec.resourceClaims{known}")
        seen.add(name)


def pod_resource_faults(resources: Json, path: str, claims: tuple[str, ...]) -> Iterator[FieldError]:
    """Check the resources of a whole pod, which may have fewer names than those of a container."""
    if resources.get("claims"):
        yield fields.forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    for group in ("limits", "requests"):
        for name in resources.get(group) or ():
            if name not in POD_RESOURCES and not name.startswith(HUGE_PAGES):
                yield fields.not_supported(f"{path}.{group}[{name}]", name, POD_RESOURCES)
    yield from resource_faults(resources, path, claims)


def pod_level_faults(spec: Json, path: str) -> Iterator[FieldError]:
    """Reject a pod that requests less than its containers together, or limits itself below one of them."""
    whole = spec["resources"]
    together = pod_requests({"spec": {key: spec.get(key) for key in ("containers", "initContainers")}})
    for name, text in (whole.get("requests") or {}).items():
        if name in together and together[name] > quantity.parse(text):
            detail = f"must be greater than or equal to aggregate container requests of {together[name]}"
            yield fields.invalid(f"{path}.requests[{name}]", text, detail)
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
                most = (whole.get("limits") or {}).get(name)
                if most is not None and quantity.parse(limit) > quantity.parse(most):
                    here = f"{path.removesuffix('.resources')}.{group}[{index}].resources.limits"
                    yield fields.invalid(here, limit, f"must be less than or equal to pod limits of {most}")


def _amount(name: str, text: str, path: str) -> Iterator[FieldError]:
    amount = quantity.parse(text)
    if amount.nanos < 0:
        yield fields.invalid(path, text, AT_LEAST_ZERO)
    if is_extended(name) and amount.nanos % quantity.NANO:
        yield fields.invalid(path, text, "must be an integer")
    if name.startswith(HUGE_PAGES):
        page = quantity.parse(name.removeprefix(HUGE_PAGES))
        if page.nanos > 0 and amount.nanos % page.nanos:
            yield fields.invalid(path, text, f"{text} is not positive integer multiple of {name}")


def _ratio(name: str, text: str, limit: str | None, path: str) -> Iterator[FieldError]:
    """Check requests against limits. Extended resources and huge pages cannot be overcommitted."""
    is_exclusive = is_extended(name) or name.startswith(HUGE_PAGES)
    if limit is None:
        if is_exclusive:
            yield fields.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif quantity.parse(text) > quantity.parse(limit):
        yield fields.invalid(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limit}")
    elif is_exclusive and quantity.parse(text) != quantity.parse(limit):
        yield fields.invalid(f"{path}.requests", text, f"must be equal to {name} limit of {limit}")


def resource_name_objections(name: str) -> tuple[str, ...]:
    """Check the name of a resource of containers."""
    found = label_key(name)
    if "/" in name:
        if not found and name.startswith("requests."):
            return ("doesn't follow extended resource name standard",)
        return found
    if found:
        return (*found, NOT_OF_CONTAINERS)
    if name in CONTAINER_RESOURCES or name.startswith(HUGE_PAGES):
        return ()
    return ("must be a standard resource type or fully qualified", NOT_OF_CONTAINERS)


def is_extended(name: str) -> bool:
    """Return whether this is an extended resource: an integer, with a request that equals its limit."""
    return "/" in name and not name.split("/")[0].endswith("kubernetes.io")


def _resize_policies(policies: Sequence[Json], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name = policy.get("resourceName", "")
        if name in seen:
            yield fields.duplicate(f"{path}[{index}]", name)
        seen.add(name)
        yield from one_of(path, name, RESIZED)
        yield from one_of(path, policy.get("restartPolicy", ""), RESIZE_POLICIES)
