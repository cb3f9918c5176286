"""
The columns of the built-in kinds.

A kind without an entry shows its name and its age.

Kubernetes: pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from kyu.api import duration
from kyu.api.meta import Json
from kyu.server.builtin import events
from kyu.server.registry import Column
from kyu.server.tables import pods
from kyu.server.tables.columns import AGE, CREATED, NAME, BuiltInColumn, Cell, at, column, field, number, timed, wide
from kyu.server.tables.words import (
    NONE,
    UNKNOWN,
    age,
    first_few,
    labels,
    listed,
    selector,
    true_conditions,
)

NODE_ROLE: Final = "node-role.kubernetes.io/"
OLD_NODE_ROLE: Final = "kubernetes.io/role"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP",
}  # fmt: skip
JOB_CONDITIONS: Final = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def columns(storage: str) -> tuple[BuiltInColumn, ...]:
    return _KINDS.get(storage, (NAME, AGE))


# Kinds with a pod template.


def _containers(path: str) -> tuple[BuiltInColumn, BuiltInColumn]:
    """Return columns with the names and the images of the containers of a pod spec."""

    def each(name: str) -> Callable[[Json], str]:
        return lambda obj: listed(container.get(name, "") for container in at(obj, f"{path}.containers", ()))

    return (
        wide(column("Containers", "Names of the containers.", each("name"))),
        wide(column("Images", "Images of the containers.", each("image"))),
    )


def _selector(path: str) -> BuiltInColumn:
    return wide(column("Selector", "Selector of its pods.", lambda obj: selector(at(obj, path))))


TEMPLATE: Final = _containers("spec.template.spec")
SELECTOR: Final = _selector("spec.selector")


def _ready_of_wanted(obj: Json) -> str:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}"


READY: Final = column("Ready", "Ready replicas / desired replicas.", _ready_of_wanted)


def _job_status(obj: Json) -> str:
    true = true_conditions(obj)
    for word in ("Complete", "Failed"):
        if word in true:
            return word
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((word for word in JOB_CONDITIONS if word in true), "Running")


def _completions(obj: Json) -> str:
    spec, done = obj.get("spec") or {}, at(obj, "status.succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(obj: Json, now: datetime) -> str:
    status = obj.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    return duration.short((end - datetime.fromisoformat(status["startTime"])).total_seconds())


def _suspended(obj: Json) -> str:
    return str(bool(at(obj, "spec.suspend")))


def _last_schedule(obj: Json, now: datetime) -> str:
    last = at(obj, "status.lastScheduleTime")
    return age(last, now) if last else NONE


def _node_status(obj: Json) -> str:
    conditions = {each["type"]: each.get("status") for each in at(obj, "status.conditions", ())}
    words = ["Ready" if conditions.get("Ready") == "True" else "NotReady" if "Ready" in conditions else "Unknown"]
    if at(obj, "spec.unschedulable"):
        words.append("SchedulingDisabled")
    return listed(words)


def _node_roles(obj: Json) -> str:
    given = obj["metadata"].get("labels") or {}
    roles = {label.removeprefix(NODE_ROLE) for label in given if label.startswith(NODE_ROLE)} | {
        given.get(OLD_NODE_ROLE, "")
    }
    return listed(sorted(roles - {""})) or NONE


def _node_address(kind: str) -> Callable[[Json], str]:
    def address(obj: Json) -> str:
        addresses = at(obj, "status.addresses", ())
        return next((each.get("address", "") for each in addresses if each.get("type") == kind), NONE)

    return address


def _event_columns(*columns: BuiltInColumn) -> tuple[BuiltInColumn, ...]:
    """Return columns that show an Event of either group version."""

    def on_core_event(cell: Cell) -> Cell:
        return lambda obj, now: cell(events.as_core_event(obj), now)

    return tuple(BuiltInColumn(each.column, on_core_event(each.cell)) for each in columns)


def _last_seen(obj: Json, now: datetime) -> str:
    seen = at(obj, "series.lastObservedTime") or obj.get("lastTimestamp")
    return age(seen, now) if seen else _first_seen(obj, now)


def _first_seen(obj: Json, now: datetime) -> str:
    return age(obj.get("firstTimestamp") or obj.get("eventTime"), now)


def _event_object(obj: Json) -> str:
    involved = obj.get("involvedObject") or {}
    kind, name = str(involved.get("kind", "")).lower(), involved.get("name", "")
    return f"{kind}/{name}" if name else kind


def _event_source(obj: Json) -> str:
    source = obj.get("source") or {}
    words = [
        source.get("component") or obj.get("reportingComponent"),
        source.get("host") or obj.get("reportingInstance"),
    ]
    return ", ".join(word for word in words if word)


def _event_count(obj: Json) -> int:
    return int(at(obj, "series.count") or obj.get("count") or 1)


def _given_addresses(obj: Json) -> list[str]:
    given = at(obj, "status.loadBalancer.ingress", ())
    return [each.get("ip") or each.get("hostname", "") for each in given]


def _ingress_hosts(obj: Json) -> str:
    return first_few([rule["host"] for rule in at(obj, "spec.rules", ()) if rule.get("host")]) or "*"


def _external_address(obj: Json) -> str:
    spec = obj.get("spec") or {}
    addresses = list(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ExternalName":
            return spec.get("externalName") or NONE
        case "LoadBalancer":
            return listed(_given_addresses(obj) + addresses) or "<pending>"
        case _:
            return listed(addresses) or NONE


def _ports(obj: Json) -> str:
    ports: Sequence[Json] = at(obj, "spec.ports", ())
    return listed(f"{_port_number(port)}/{port.get('protocol', 'TCP')}" for port in ports) or NONE


def _port_number(port: Json) -> str:
    return f"{port.get('port')}:{port['nodePort']}" if port.get("nodePort") else str(port.get("port"))


def _subjects(kind: str) -> Callable[[Json], str]:
    def names(obj: Json) -> str:
        subjects = [each for each in obj.get("subjects") or () if each.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{each.get('namespace', '')}/{each.get('name', '')}" for each in subjects)
        return ", ".join(each.get("name", "") for each in subjects)

    return names


def _role(obj: Json) -> str:
    role = obj.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _quota(*, limits: bool) -> Callable[[Json], str]:
    def used_of_hard(obj: Json) -> str:
        hard, used = at(obj, "status.hard", {}), at(obj, "status.used", {})
        names = sorted(name for name in hard if name.startswith("limits.") == limits)
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return used_of_hard


def _claim_phase(obj: Json) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(at(obj, "status.phase"))


def _access_modes(obj: Json) -> str:
    if not at(obj, "spec.volumeName"):
        return ""
    return listed(ACCESS_MODES.get(mode, mode) for mode in at(obj, "status.accessModes", ()))


def _endpoints(obj: Json) -> str:
    found = [
        f"{address.get('ip', '')}:{port.get('port')}"
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    return first_few(found) or NONE


def _storage_class_name(obj: Json) -> str:
    is_default = (obj["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    return f"{obj['metadata']['name']} (default)" if is_default else obj["metadata"]["name"]


def _controller(obj: Json) -> str:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((f"{owner['kind'].lower()}/{owner['name']}" for owner in owners if owner.get("controller")), NONE)


BINDING: Final = (
    NAME,
    column("Role", "The role that is bound.", _role),
    AGE,
    wide(column("Users", "Users of the binding.", _subjects("User"))),
    wide(column("Groups", "Groups of the binding.", _subjects("Group"))),
    wide(column("ServiceAccounts", "ServiceAccounts of the binding.", _subjects("ServiceAccount"))),
)

_KINDS: Final[dict[str, tuple[BuiltInColumn, ...]]] = {
    "configmaps": (
        NAME,
        column("Data", "Number of entries.", lambda obj: len(obj.get("data") or {}) + len(obj.get("binaryData") or {})),
        AGE,
    ),
    "secrets": (
        NAME,
        field("Type", "Type of the secret.", "type"),
        column("Data", "Number of entries.", lambda obj: len(obj.get("data") or {})),
        AGE,
    ),
    "namespaces": (NAME, field("Status", "Active or Terminating.", "status.phase"), AGE),
    "nodes": (
        NAME,
        column("Status", "Whether the node is ready and schedulable.", _node_status),
        column("Roles", "Roles by the labels of the node.", _node_roles),
        AGE,
        field("Version", "Version of the kubelet.", "status.nodeInfo.kubeletVersion"),
        wide(column("Internal-IP", "Address inside the cluster.", _node_address("InternalIP"))),
        wide(column("External-IP", "Address outside of the cluster.", _node_address("ExternalIP"))),
        wide(field("OS-Image", "Operating system of the node.", "status.nodeInfo.osImage", UNKNOWN)),
        wide(field("Kernel-Version", "Kernel version of the node.", "status.nodeInfo.kernelVersion", UNKNOWN)),
        wide(
            field(
                "Container-Runtime",
                "Container runtime of the node.",
                "status.nodeInfo.containerRuntimeVersion",
                UNKNOWN,
            )
        ),
    ),
    "pods": (
        NAME,
        column("Ready", "Ready containers / all containers.", pods.ready),
        column("Status", "Phase of the pod, or the reason why it does not progress.", pods.status),
        timed("Restarts", "Number of container restarts.", pods.restarts),
        AGE,
        wide(column("IP", "IP address of the pod.", pods.address)),
        wide(field("Node", "Node of the pod.", "spec.nodeName", NONE)),
        wide(
            field(
                "Nominated Node",
                "Node on which lower-priority pods are preempted for this pod.",
                "status.nominatedNodeName",
                NONE,
            )
        ),
        wide(column("Readiness Gates", "True readiness gates / all readiness gates.", pods.readiness_gates)),
    ),
    "jobs.batch": (
        NAME,
        column("Status", "Running, Suspended, Complete or Failed.", _job_status),
        column("Completions", "Succeeded pods / desired completions.", _completions),
        timed("Duration", "Time since the start, up to the completion.", _job_duration),
        AGE,
        *TEMPLATE,
        SELECTOR,
    ),
    "cronjobs.batch": (
        NAME,
        field("Schedule", "Cron schedule of the jobs.", "spec.schedule"),
        field("Timezone", "Time zone of the schedule.", "spec.timeZone", NONE),
        column("Suspend", "Whether the schedule is suspended.", _suspended, kind="boolean"),
        column("Active", "Number of running jobs.", lambda obj: len(at(obj, "status.active", ())), kind="integer"),
        timed("Last Schedule", "Time since the last job was created.", _last_schedule),
        AGE,
        *_containers("spec.jobTemplate.spec.template.spec"),
        _selector("spec.jobTemplate.spec.selector"),
    ),
    "deployments.apps": (
        NAME,
        READY,
        number("Up-to-date", "Replicas of the current template.", "status.updatedReplicas", kind="string"),
        number("Available", "Available replicas.", "status.availableReplicas", kind="string"),
        AGE,
        *TEMPLATE,
        SELECTOR,
    ),
    "statefulsets.apps": (NAME, READY, AGE, *TEMPLATE),
    "replicasets.apps": (
        NAME,
        number("Desired", "Desired replicas.", "spec.replicas"),
        number("Current", "Current replicas.", "status.replicas"),
        number("Ready", "Ready replicas.", "status.readyReplicas"),
        AGE,
        *TEMPLATE,
        SELECTOR,
    ),
    "daemonsets.apps": (
        NAME,
        number("Desired", "Nodes that should run the pod.", "status.desiredNumberScheduled"),
        number("Current", "Nodes that run the pod.", "status.currentNumberScheduled"),
        number("Ready", "Nodes with a ready pod.", "status.numberReady"),
        number("Up-to-date", "Nodes with a pod of the current template.", "status.updatedNumberScheduled"),
        number("Available", "Nodes with an available pod.", "status.numberAvailable"),
        column(
            "Node Selector", "Selector of the nodes.", lambda obj: labels(at(obj, "spec.template.spec.nodeSelector"))
        ),
        AGE,
        *TEMPLATE,
        SELECTOR,
    ),
    "controllerrevisions.apps": (
        NAME,
        column("Controller", "Controller of the revision.", _controller),
        number("Revision", "Number of the revision.", "revision", kind="string"),
        AGE,
    ),
    "services": (
        NAME,
        field("Type", "Type of the service.", "spec.type"),
        field("Cluster-IP", "Address inside the cluster.", "spec.clusterIP", NONE),
        column("External-IP", "Address outside of the cluster.", _external_address),
        column("Port(s)", "Ports of the service, and of the nodes.", _ports),
        AGE,
        wide(column("Selector", "Selector of the pods.", lambda obj: labels(at(obj, "spec.selector")))),
    ),
    "endpoints": (NAME, column("Endpoints", "Addresses and ports of the endpoints.", _endpoints), AGE),
    "events": _event_columns(
        timed("Last Seen", "Time since the last occurrence.", _last_seen),
        field("Type", "Normal or Warning.", "type"),
        field("Reason", "Reason of the event.", "reason"),
        column("Object", "Object of the event.", _event_object),
        wide(field("Subobject", "Part of the object.", "involvedObject.fieldPath")),
        wide(column("Source", "Component that reported the event.", _event_source)),
        column("Message", "Description of the event.", lambda obj: obj.get("message", "").strip()),
        wide(timed("First Seen", "Time since the first occurrence.", _first_seen)),
        wide(column("Count", "Number of occurrences.", _event_count)),
        BuiltInColumn(Column("Name", "string", "", "The name of the event.", "name", 1), NAME.cell),
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (NAME, CREATED),
    "limitranges": (NAME, CREATED),
    "roles.rbac.authorization.k8s.io": (NAME, CREATED),
    "clusterroles.rbac.authorization.k8s.io": (NAME, CREATED),
    "rolebindings.rbac.authorization.k8s.io": BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": BINDING,
    "priorityclasses.scheduling.k8s.io": (
        NAME,
        number("Value", "Priority of the pods.", "value"),
        field(
            "Global-Default",
            "Whether it is the default of pods without a class.",
            "globalDefault",
            False,
            kind="boolean",
        ),
        AGE,
        field(
            "PreemptionPolicy", "Whether pods of this class preempt others.", "preemptionPolicy", "PreemptLowerPriority"
        ),
    ),
    "leases.coordination.k8s.io": (NAME, field("Holder", "Holder of the lease.", "spec.holderIdentity"), AGE),
    "poddisruptionbudgets.policy": (
        NAME,
        column("Min Available", "Pods that must stay available.", lambda obj: str(at(obj, "spec.minAvailable", "N/A"))),
        column(
            "Max Unavailable", "Pods that may be unavailable.", lambda obj: str(at(obj, "spec.maxUnavailable", "N/A"))
        ),
        number("Allowed Disruptions", "Disruptions that are allowed now.", "status.disruptionsAllowed"),
        AGE,
    ),
    "resourcequotas": (
        NAME,
        column("Request", "Used / allowed requests.", _quota(limits=False)),
        column("Limit", "Used / allowed limits.", _quota(limits=True)),
        AGE,
    ),
    "persistentvolumeclaims": (
        NAME,
        column("Status", "Pending, Bound or Lost.", _claim_phase),
        field("Volume", "Volume of the claim.", "spec.volumeName"),
        field("Capacity", "Size of the volume.", "status.capacity.storage"),
        column("Access Modes", "Access modes of the volume.", _access_modes),
        field("StorageClass", "Storage class of the claim.", "spec.storageClassName"),
        field("VolumeAttributesClass", "Attributes class of the claim.", "spec.volumeAttributesClassName", "<unset>"),
        AGE,
        wide(field("VolumeMode", "Filesystem or Block.", "spec.volumeMode", "<unset>")),
    ),
    "ingresses.networking.k8s.io": (
        NAME,
        field("Class", "Class of the ingress.", "spec.ingressClassName", NONE),
        column("Hosts", "Hosts of the rules.", _ingress_hosts),
        column("Address", "Addresses of the load balancer.", lambda obj: listed(_given_addresses(obj))),
        column("Ports", "Ports of the ingress.", lambda obj: "80, 443" if at(obj, "spec.tls") else "80"),
        AGE,
    ),
    "networkpolicies.networking.k8s.io": (
        NAME,
        column("Pod-Selector", "Selector of the pods.", lambda obj: selector(at(obj, "spec.podSelector"))),
        AGE,
    ),
    "runtimeclasses.node.k8s.io": (NAME, field("Handler", "Handler of the container runtime.", "handler"), AGE),
    "storageclasses.storage.k8s.io": (
        BuiltInColumn(NAME.column, lambda obj, now: _storage_class_name(obj)),
        field("Provisioner", "Provisioner of the volumes.", "provisioner"),
        field("ReclaimPolicy", "What happens to a released volume.", "reclaimPolicy", "Delete"),
        field("VolumeBindingMode", "When volumes are bound.", "volumeBindingMode", "<unset>"),
        field("AllowVolumeExpansion", "Whether volumes can be expanded.", "allowVolumeExpansion", False),
        AGE,
    ),
}
