"""
The columns of the built-in kinds, each with what stands in its cells.

A kind that is not here shows its name and its age.

Called by: server/table.py. Kubernetes: pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from kyu.api.meta import Json
from kyu.server import builtin_events, table_pods
from kyu.server.registry import Column
from kyu.server.table_columns import AGE, CREATED, NAME, BuiltInColumn, Cell, at, column, field, number, timed, wide
from kyu.server.table_words import (
    NONE,
    UNKNOWN,
    age,
    duration,
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
JOB_WORDS_AT_WORK: Final = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def columns(storage: str) -> tuple[BuiltInColumn, ...]:
    return _KINDS.get(storage, (NAME, AGE))


# Kinds with a template of pods.


def _containers(path: str) -> tuple[BuiltInColumn, BuiltInColumn]:
    """The names and the images of the containers of the pod spec at a path."""

    def each(name: str) -> Callable[[Json], str]:
        return lambda obj: listed(container.get(name, "") for container in at(obj, f"{path}.containers", ()))

    return (
        wide(column("Containers", "Their names.", each("name"))),
        wide(column("Images", "Their images.", each("image"))),
    )


def _selector(path: str) -> BuiltInColumn:
    return wide(column("Selector", "Which pods belong to it.", lambda obj: selector(at(obj, path))))


TEMPLATE: Final = _containers("spec.template.spec")
SELECTOR: Final = _selector("spec.selector")


def _ready_of_wanted(obj: Json) -> str:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}"


READY: Final = column("Ready", "Ready replicas of those wanted.", _ready_of_wanted)


def _job_word(obj: Json) -> str:
    true = true_conditions(obj)
    for word in ("Complete", "Failed"):
        if word in true:
            return word
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((word for word in JOB_WORDS_AT_WORK if word in true), "Running")


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
    return duration((end - datetime.fromisoformat(status["startTime"])).total_seconds())


def _suspended(obj: Json) -> str:
    return str(bool(at(obj, "spec.suspend")))


def _last_schedule(obj: Json, now: datetime) -> str:
    last = at(obj, "status.lastScheduleTime")
    return age(last, now) if last else NONE


# Node, Event, Service and others.


def _node_words(obj: Json) -> str:
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


def _of_older_events(*made: BuiltInColumn) -> tuple[BuiltInColumn, ...]:
    """An Event has two forms with the same cells; only the older one is looked at."""

    def on_older(cell: Cell) -> Cell:
        return lambda obj, now: cell(builtin_events.in_older_words(obj), now)

    return tuple(BuiltInColumn(each.column, on_older(each.cell)) for each in made)


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
    column("Role", "The role that is given.", _role),
    AGE,
    wide(column("Users", "To which users.", _subjects("User"))),
    wide(column("Groups", "To which groups.", _subjects("Group"))),
    wide(column("ServiceAccounts", "To which accounts.", _subjects("ServiceAccount"))),
)

_KINDS: Final[dict[str, tuple[BuiltInColumn, ...]]] = {
    "configmaps": (
        NAME,
        column("Data", "Entries.", lambda obj: len(obj.get("data") or {}) + len(obj.get("binaryData") or {})),
        AGE,
    ),
    "secrets": (
        NAME,
        field("Type", "Which kind of secret.", "type"),
        column("Data", "Entries.", lambda obj: len(obj.get("data") or {})),
        AGE,
    ),
    "namespaces": (NAME, field("Status", "Active or Terminating.", "status.phase"), AGE),
    "nodes": (
        NAME,
        column("Status", "Whether the node is ready, and open for pods.", _node_words),
        column("Roles", "From its labels.", _node_roles),
        AGE,
        field("Version", "The version of the node's agent.", "status.nodeInfo.kubeletVersion"),
        wide(column("Internal-IP", "Inside the cluster.", _node_address("InternalIP"))),
        wide(column("External-IP", "Outside of it.", _node_address("ExternalIP"))),
        wide(field("OS-Image", "Its system.", "status.nodeInfo.osImage", UNKNOWN)),
        wide(field("Kernel-Version", "Its kernel.", "status.nodeInfo.kernelVersion", UNKNOWN)),
        wide(
            field("Container-Runtime", "What runs its containers.", "status.nodeInfo.containerRuntimeVersion", UNKNOWN)
        ),
    ),
    "pods": (
        NAME,
        column("Ready", "Ready containers of all.", table_pods.ready),
        column("Status", "The phase, or what keeps it from its next one.", table_pods.word),
        timed("Restarts", "How often containers were started again.", table_pods.restarts),
        AGE,
        wide(column("IP", "The address of the pod.", table_pods.address)),
        wide(field("Node", "Where it runs.", "spec.nodeName", NONE)),
        wide(field("Nominated Node", "Where room is being made for it.", "status.nominatedNodeName", NONE)),
        wide(column("Readiness Gates", "Further conditions of being ready.", table_pods.readiness_gates)),
    ),
    "jobs.batch": (
        NAME,
        column("Status", "Running, Suspended, Complete or Failed.", _job_word),
        column("Completions", "Succeeded pods of those wanted.", _completions),
        timed("Duration", "From the start to the end, or to now.", _job_duration),
        AGE,
        *TEMPLATE,
        SELECTOR,
    ),
    "cronjobs.batch": (
        NAME,
        field("Schedule", "When it makes a Job.", "spec.schedule"),
        field("Timezone", "In which zone.", "spec.timeZone", NONE),
        column("Suspend", "Whether it makes none.", _suspended, kind="boolean"),
        column("Active", "Jobs at work.", lambda obj: len(at(obj, "status.active", ())), kind="integer"),
        timed("Last Schedule", "How long ago it made the last one.", _last_schedule),
        AGE,
        *_containers("spec.jobTemplate.spec.template.spec"),
        _selector("spec.jobTemplate.spec.selector"),
    ),
    "deployments.apps": (
        NAME,
        READY,
        number("Up-to-date", "Replicas of the newest template.", "status.updatedReplicas", kind="string"),
        number("Available", "Replicas that are there for use.", "status.availableReplicas", kind="string"),
        AGE,
        *TEMPLATE,
        SELECTOR,
    ),
    "statefulsets.apps": (NAME, READY, AGE, *TEMPLATE),
    "replicasets.apps": (
        NAME,
        number("Desired", "Replicas that are wanted.", "spec.replicas"),
        number("Current", "Replicas that are there.", "status.replicas"),
        number("Ready", "Replicas that are ready.", "status.readyReplicas"),
        AGE,
        *TEMPLATE,
        SELECTOR,
    ),
    "daemonsets.apps": (
        NAME,
        number("Desired", "Nodes that should run one.", "status.desiredNumberScheduled"),
        number("Current", "Nodes that run one.", "status.currentNumberScheduled"),
        number("Ready", "Nodes where it is ready.", "status.numberReady"),
        number("Up-to-date", "Nodes with the newest template.", "status.updatedNumberScheduled"),
        number("Available", "Nodes where it is there for use.", "status.numberAvailable"),
        column("Node Selector", "Which nodes run one.", lambda obj: labels(at(obj, "spec.template.spec.nodeSelector"))),
        AGE,
        *TEMPLATE,
        SELECTOR,
    ),
    "controllerrevisions.apps": (
        NAME,
        column("Controller", "Whose state it is.", _controller),
        number("Revision", "Which one.", "revision", kind="string"),
        AGE,
    ),
    "services": (
        NAME,
        field("Type", "How it is reached.", "spec.type"),
        field("Cluster-IP", "Inside the cluster.", "spec.clusterIP", NONE),
        column("External-IP", "Outside of it.", _external_address),
        column("Port(s)", "Of the service, and of the nodes.", _ports),
        AGE,
        wide(column("Selector", "Which pods serve it.", lambda obj: labels(at(obj, "spec.selector")))),
    ),
    "endpoints": (NAME, column("Endpoints", "Addresses and ports.", _endpoints), AGE),
    "events": _of_older_events(
        timed("Last Seen", "How long ago it happened last.", _last_seen),
        field("Type", "Normal or Warning.", "type"),
        field("Reason", "One word for what happened.", "reason"),
        column("Object", "What it happened to.", _event_object),
        wide(field("Subobject", "Which part of it.", "involvedObject.fieldPath")),
        wide(column("Source", "Who tells.", _event_source)),
        column("Message", "The same in a sentence.", lambda obj: obj.get("message", "").strip()),
        wide(timed("First Seen", "How long ago it happened first.", _first_seen)),
        wide(column("Count", "How often.", _event_count)),
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
        number("Value", "Higher goes first.", "value"),
        field("Global-Default", "Of pods without a class.", "globalDefault", False, kind="boolean"),
        AGE,
        field("PreemptionPolicy", "Whether its pods may preempt others.", "preemptionPolicy", "PreemptLowerPriority"),
    ),
    "leases.coordination.k8s.io": (NAME, field("Holder", "Who has it.", "spec.holderIdentity"), AGE),
    "poddisruptionbudgets.policy": (
        NAME,
        column("Min Available", "How many must stay.", lambda obj: str(at(obj, "spec.minAvailable", "N/A"))),
        column("Max Unavailable", "How many may go.", lambda obj: str(at(obj, "spec.maxUnavailable", "N/A"))),
        number("Allowed Disruptions", "How many may go now.", "status.disruptionsAllowed"),
        AGE,
    ),
    "resourcequotas": (
        NAME,
        column("Request", "Used of what may be.", _quota(limits=False)),
        column("Limit", "The same of limits.", _quota(limits=True)),
        AGE,
    ),
    "persistentvolumeclaims": (
        NAME,
        column("Status", "Pending, Bound or Lost.", _claim_phase),
        field("Volume", "What it got.", "spec.volumeName"),
        field("Capacity", "How large that is.", "status.capacity.storage"),
        column("Access Modes", "How it may be used.", _access_modes),
        field("StorageClass", "From which class.", "spec.storageClassName"),
        field("VolumeAttributesClass", "With which attributes.", "spec.volumeAttributesClassName", "<unset>"),
        AGE,
        wide(field("VolumeMode", "Files or blocks.", "spec.volumeMode", "<unset>")),
    ),
    "ingresses.networking.k8s.io": (
        NAME,
        field("Class", "Who serves it.", "spec.ingressClassName", NONE),
        column("Hosts", "By which names.", _ingress_hosts),
        column("Address", "Where it is.", lambda obj: listed(_given_addresses(obj))),
        column("Ports", "At which ports.", lambda obj: "80, 443" if at(obj, "spec.tls") else "80"),
        AGE,
    ),
    "networkpolicies.networking.k8s.io": (
        NAME,
        column("Pod-Selector", "Which pods it is about.", lambda obj: selector(at(obj, "spec.podSelector"))),
        AGE,
    ),
    "runtimeclasses.node.k8s.io": (NAME, field("Handler", "What runs its pods.", "handler"), AGE),
    "storageclasses.storage.k8s.io": (
        BuiltInColumn(NAME.column, lambda obj, now: _storage_class_name(obj)),
        field("Provisioner", "Who makes its volumes.", "provisioner"),
        field("ReclaimPolicy", "What becomes of them.", "reclaimPolicy", "Delete"),
        field("VolumeBindingMode", "When they are made.", "volumeBindingMode", "<unset>"),
        field("AllowVolumeExpansion", "Whether they may grow.", "allowVolumeExpansion", False),
        AGE,
    ),
}
