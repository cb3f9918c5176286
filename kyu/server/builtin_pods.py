"""
Pods as they are stored: what is filled in, what creation sets, and what admission adds.

Three steps that Kubernetes keeps apart and clients see as one: defaults hold for every pod spec, also for that of a
template; creation sets the status; admission gives a Pod, and never a template, its priority and the two tolerations
that let it stay on a sick node for five minutes.

Called by: builtin.py. The checks are in builtin_pod_rules.py.
Kubernetes: pkg/apis/core/v1/defaults.go, plugin/pkg/admission.
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
SICK_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
SICK_NODE_SECONDS: Final = 300
PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
VOLUMES_WITH_MODE: Final = ("secret", "configMap", "downwardAPI", "projected")
DEFAULT_MODE: Final = 0o644


class Cluster(Protocol):
    """The questions about other objects that the admission of a Pod asks; admission.py answers them."""

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
    """Who is given a limit asks for as much, if nothing is said."""
    for name, limit in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, limit)


def default_template(template: Json) -> None:
    default_pod_spec(template.setdefault("spec", {}))


def default_pod_template(pod_template: Json) -> None:
    """Of the kind PodTemplate, which holds nothing else."""
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
    """Nothing is counted finer than in thousandths."""
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
        # Off in Kubernetes if nobody turns it on.
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
    """Always for what may change under its name: no tag, or ``latest``. A digest or another tag is pulled once."""
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
    """A new Pod is pending, whatever its body says of its status."""
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
    """What was once decided stays, and the one address is always the first of the many."""
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
    """How long a Pod may take to end; one that nobody runs, or that has ended, needs no time."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return asked if asked >= 0 else 1
    granted: int = spec.get("terminationGracePeriodSeconds", 30)
    return granted


def qos_class(spec: Json) -> str:
    """Guaranteed if every container asks exactly for its limits of cpu and memory; BestEffort if none asks for any."""
    whole = spec.get("resources") or {}
    all_containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    # What is said of the whole pod stands for what is said of its containers.
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


def admit_pod(pod: Json, cluster: Cluster) -> None:
    """What admission adds to a Pod on creation; a class that does not exist is a 403."""
    _set_priority(pod, cluster)
    _set_service_account(pod, cluster)
    add_tolerations(pod["spec"])


def _set_service_account(pod: Json, cluster: Cluster) -> None:
    """The default account of the namespace, where there is one: without controllers nobody has made it."""
    namespace = pod["metadata"].get("namespace", "")
    if not pod["spec"].get("serviceAccountName") and cluster.has_service_account(namespace, DEFAULT_SERVICE_ACCOUNT):
        pod["spec"]["serviceAccount"] = pod["spec"]["serviceAccountName"] = DEFAULT_SERVICE_ACCOUNT


def _set_priority(pod: Json, cluster: Cluster) -> None:
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
    """Who writes a Pod anew from its manifest does not know what admission has added to it."""
    after, before = new.setdefault("spec", {}), old["spec"]
    add_tolerations(after)
    for name in ("priority", "preemptionPolicy"):
        if name in before:
            after.setdefault(name, before[name])


def add_tolerations(spec: Json) -> None:
    """The Pod may stay for a while on a node that is not ready or not reachable, unless it says how long itself."""
    tolerations: list[Any] = spec.setdefault("tolerations", [])
    for taint in SICK_NODE_TAINTS:
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            tolerations.append({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SICK_NODE_SECONDS,
            })  # fmt: skip


def _tolerates(toleration: Json, taint: str) -> bool:
    return toleration.get("key", "") in ("", taint) and toleration.get("effect", "") in ("", "NoExecute")
