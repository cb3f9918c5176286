"""
Pods: defaults, the status of a new Pod, and what admission adds.

Defaults apply to every pod spec, also to that of a template. Admission applies to Pods only: it sets the priority, and
the tolerations that keep a Pod for five minutes on a node that is not ready.

rules.py validates Pods. Kubernetes: pkg/apis/core/v1/defaults.go, plugin/pkg/admission.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from kyu.api import quantity
from kyu.api.meta import Json, Kind
from kyu.server import errors

POD: Final = Kind("", "v1", "Pod", "pods")
DEFAULT_SCHEDULER: Final = "default-scheduler"
DEFAULT_SERVICE_ACCOUNT: Final = "default"
GATED: Final = "SchedulingGated"
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
NOT_READY_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
NOT_READY_NODE_SECONDS: Final = 300
PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
VOLUMES_WITH_MODE: Final = ("secret", "configMap", "downwardAPI", "projected")
DEFAULT_MODE: Final = 0o644


class ClusterLookup(Protocol):
    """The other objects that the admission of a Pod reads; admission/admission.py implements it."""

    def priority_class(self, name: str) -> Json | None: ...

    def default_priority_class(self) -> Json | None: ...

    def has_service_account(self, namespace: str, name: str) -> bool: ...


def default_pod(pod: Json) -> None:
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for container in containers(spec):
        _request_limits(container["resources"])
    if resources := spec.get("resources"):
        _request_limits(resources)
    if spec.get("hostNetwork"):
        for container in containers(spec):
            for port in container.get("ports", ()):
                port.setdefault("hostPort", port["containerPort"])


def _request_limits(resources: Json) -> None:
    """Default requests to limits."""
    for name, limit in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, limit)


def default_template(template: Json) -> None:
    default_pod_spec(template.setdefault("spec", {}))


def default_pod_template(pod_template: Json) -> None:
    """Set the defaults of the kind PodTemplate."""
    default_template(pod_template.setdefault("template", {}))


def default_pod_spec(spec: Json) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", DEFAULT_SCHEDULER)
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for container in containers(spec):
        _default_container(container)
    for volume in spec.get("volumes", ()):
        _default_volume(volume)


def containers(spec: Json) -> Iterator[Json]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(name) or ()


def round_up(amounts: Json) -> None:
    """Round amounts up to thousandths, the smallest unit of Kubernetes."""
    for name, text in amounts.items():
        if text.endswith(("n", "u")):
            amount = quantity.parse(text)
            amounts[name] = str(quantity.Quantity(-(-amount.nanos // quantity.MICRO) * quantity.MICRO, amount.format))


def _default_container(container: Json) -> None:
    resources = container.setdefault("resources", {})
    for amounts in (resources.get("limits"), resources.get("requests")):
        round_up(amounts or {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", pull_policy(container.get("image", "")))
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        if reference := (variable.get("valueFrom") or {}).get("fieldRef"):
            reference.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is not None:
            for field, value in PROBE.items():
                if not probe.get(field):
                    probe[field] = value
            _default_http(probe)
    if lifecycle := container.get("lifecycle"):
        # Disabled by default in Kubernetes.
        lifecycle.pop("stopSignal", None)
        for hook in lifecycle.values():
            _default_http(hook)


def _default_http(handler: Json) -> None:
    if (request := handler.get("httpGet")) is not None:
        request.setdefault("path", "/")
        request.setdefault("scheme", "HTTP")
    if (request := handler.get("grpc")) is not None:
        request["service"] = request.get("service") or ""


def pull_policy(image: str) -> str:
    """Return Always for an image without a tag or with ``latest``, else IfNotPresent."""
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    return "IfNotPresent" if digest or (colon and tag != "latest") else "Always"


def _default_volume(volume: Json) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for name in VOLUMES_WITH_MODE:
        if (source := volume.get(name)) is not None:
            source.setdefault("defaultMode", DEFAULT_MODE)
    if (path := volume.get("hostPath")) is not None:
        path.setdefault("type", "")
    if (image := volume.get("image")) is not None:
        image.setdefault("pullPolicy", pull_policy(image.get("reference", "")))
    if (disk := volume.get("iscsi")) is not None:
        disk.setdefault("iscsiInterface", "default")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_field_reference(item)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _default_field_reference(item)
    if (claim := (volume.get("ephemeral") or {}).get("volumeClaimTemplate")) is not None:
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _default_field_reference(item: Json) -> None:
    if (reference := item.get("fieldRef")) is not None:
        reference.setdefault("apiVersion", "v1")


def prepare_pod(pod: Json) -> None:
    """Set the status of a new Pod: Pending, whatever its body says."""
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        pod["status"]["conditions"] = [{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": pod["metadata"].get("creationTimestamp"),
            "reason": GATED,
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]  # fmt: skip


def prepare_pod_status(new: Json, old: Json) -> None:
    """Keep the QoS class, and make podIP the first of podIPs."""
    after, before = new.setdefault("status", {}), old.get("status") or {}
    for name in ("qosClass", "observedGeneration"):
        if not after.get(name) and name in before:
            after[name] = before[name]
    address, addresses = after.get("podIP"), after.get("podIPs") or []
    if address and (not addresses or addresses[0].get("ip") != address):
        after["podIPs"] = [{"ip": address}]
    elif addresses:
        after["podIP"] = addresses[0].get("ip", "")


def grace_seconds(pod: Json, asked: int | None) -> int:
    """Return the grace period of a deletion; 0 for a Pod that is not bound or has finished."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return asked if asked >= 0 else 1
    granted: int = spec.get("terminationGracePeriodSeconds", 30)
    return granted


def qos_class(spec: Json) -> str:
    """Return Guaranteed if all requests equal their limits, BestEffort if there are none, else Burstable."""
    whole = spec.get("resources") or {}
    all_containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    # Resources of the pod replace those of its containers.
    lists = (
        [whole] if whole.get("requests") or whole.get("limits") else [c.get("resources") or {} for c in all_containers]
    )
    requests = [_cpu_and_memory(resources.get("requests")) for resources in lists]
    limits = [_cpu_and_memory(resources.get("limits")) for resources in lists]
    if not any(requests) and not any(limits):
        return "BestEffort"
    is_guaranteed = all(
        len(limit) == 2 and (not ask or ask == limit) for ask, limit in zip(requests, limits, strict=True)
    )
    return "Guaranteed" if is_guaranteed else "Burstable"


def _cpu_and_memory(resources: Json | None) -> dict[str, quantity.Quantity]:
    wanted = {name: quantity.parse((resources or {}).get(name, 0)) for name in ("cpu", "memory")}
    return {name: amount for name, amount in wanted.items() if amount}


def admit_pod(pod: Json, cluster: ClusterLookup) -> None:
    """Set the priority, service account and tolerations of a new Pod. A missing PriorityClass is a 403."""
    _set_priority(pod, cluster)
    _set_service_account(pod, cluster)
    add_tolerations(pod["spec"])


def _set_service_account(pod: Json, cluster: ClusterLookup) -> None:
    """Set the default ServiceAccount if it exists: without controllers it does not."""
    namespace = pod["metadata"].get("namespace", "")
    if not pod["spec"].get("serviceAccountName") and cluster.has_service_account(namespace, DEFAULT_SERVICE_ACCOUNT):
        pod["spec"]["serviceAccount"] = pod["spec"]["serviceAccountName"] = DEFAULT_SERVICE_ACCOUNT


def _set_priority(pod: Json, cluster: ClusterLookup) -> None:
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    value, policy = 0, "PreemptLowerPriority"
    if class_name := spec.get("priorityClassName"):
        found = cluster.priority_class(class_name)
        if found is None and class_name not in SYSTEM_PRIORITIES:
            raise errors.forbidden(POD, name, f"no PriorityClass with name {class_name} was found")
        value = found["value"] if found else SYSTEM_PRIORITIES[class_name]
        policy = (found or {}).get("preemptionPolicy", policy)
    elif (found := cluster.default_priority_class()) is not None:
        value, policy = found.get("value", 0), found.get("preemptionPolicy", policy)
        spec["priorityClassName"] = found["metadata"]["name"]
    if spec.get("priority") not in (None, value):
        given = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec"
        computed = f"priority admission controller computed {value} from the given PriorityClass name"
        raise errors.forbidden(POD, name, f"{given}; {computed}")
    if spec.get("preemptionPolicy") not in (None, policy):
        given = f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec"
        computed = f"priority admission controller computed {policy} from the given PriorityClass name"
        raise errors.forbidden(POD, name, f"{given}; {computed}")
    spec["priority"], spec["preemptionPolicy"] = value, policy


def prepare_pod_update(new: Json, old: Json) -> None:
    """Keep the fields that admission has set: the manifest of an update does not have them."""
    after, before = new.setdefault("spec", {}), old["spec"]
    add_tolerations(after)
    for name in ("priority", "preemptionPolicy"):
        if name in before:
            after.setdefault(name, before[name])


def add_tolerations(spec: Json) -> None:
    """Add the tolerations for nodes that are not ready or unreachable, unless the Pod has its own."""
    tolerations: list[Any] = spec.setdefault("tolerations", [])
    for taint in NOT_READY_NODE_TAINTS:
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            tolerations.append({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NOT_READY_NODE_SECONDS,
            })  # fmt: skip


def _tolerates(toleration: Json, taint: str) -> bool:
    return toleration.get("key", "") in ("", taint) and toleration.get("effect", "") in ("", "NoExecute")
