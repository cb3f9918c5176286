"""
The columns of the built-in kinds, each with what stands in its cells.

A kind that is not here shows its name and its age.

Called by: server/table.py. Kubernetes: pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kyu.api.meta import Json
from kyu.server import builtin_events, table_pods
from kyu.server.registry import Column
from kyu.server.table_words import NONE, UNKNOWN, age, duration, labels, listed, selector

Cell = Callable[[Json, datetime], Any]

NODE_ROLE: Final = "node-role.kubernetes.io/"
OLD_NODE_ROLE: Final = "kubernetes.io/role"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP",
}  # fmt: skip
JOB_WORDS_AT_WORK: Final = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
ENDPOINTS_SHOWN: Final = 3
HOSTS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class BuiltInColumn:
    column: Column
    cell: Cell


def columns(storage: str) -> tuple[BuiltInColumn, ...]:
    return _KINDS.get(storage, PLAIN)


def _column(
    name: str, description: str, cell: Callable[[Json], Any], *, kind: str = "string", priority: int = 0
) -> BuiltInColumn:
    """A column whose cells do not depend on the time."""
    return BuiltInColumn(Column(name, kind, "", description, priority=priority), lambda obj, now: cell(obj))


def _timed(name: str, description: str, cell: Cell, *, priority: int = 0) -> BuiltInColumn:
    return BuiltInColumn(Column(name, "string", "", description, priority=priority), cell)


def _at(*path: str, absent: Any = "") -> Callable[[Json], Any]:
    """What stands at a path; a field that is empty is absent."""

    def value(obj: Json) -> Any:
        found: Any = obj
        for name in path:
            found = (found or {}).get(name)
        return found or absent

    return value


def _number(name: str, description: str, *path: str, kind: str = "integer") -> BuiltInColumn:
    return _column(name, description, _at(*path, absent=0), kind=kind)


NAME: Final = BuiltInColumn(
    Column("Name", "string", "", "The name: unique in its namespace, or in the cluster.", format="name"),
    lambda obj, now: obj["metadata"]["name"],
)
AGE: Final = _timed(
    "Age", "The time since the object was created.", lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now)
)
CREATED: Final = _column("Created At", "When it was created.", _at("metadata", "creationTimestamp"), kind="date")
PLAIN: Final = (NAME, AGE)


# Kinds with a template of pods.


def _containers(*path: str) -> tuple[BuiltInColumn, BuiltInColumn]:
    """The names and the images of the containers of the pod spec at a path."""

    def each(field: str) -> Callable[[Json], str]:
        return lambda obj: listed(
            container.get(field, "") for container in _at(*path, "containers", absent=())(obj)
        )  # fmt: skip

    return (
        _column("Containers", "Their names.", each("name"), priority=1),
        _column("Images", "Their images.", each("image"), priority=1),
    )


TEMPLATE: Final = ("spec", "template", "spec")
SELECTOR: Final = _column(
    "Selector", "Which pods belong to it.", lambda obj: selector(_at("spec", "selector")(obj)), priority=1
)


def _ready_of_wanted(obj: Json) -> str:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}"


READY: Final = _column("Ready", "Ready replicas of those wanted.", _ready_of_wanted)


def _job_word(obj: Json) -> str:
    conditions = _at("status", "conditions", absent=())(obj)
    true = {each["type"] for each in conditions if each.get("status") == "True"}
    for word in ("Complete", "Failed"):
        if word in true:
            return word
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((word for word in JOB_WORDS_AT_WORK if word in true), "Running")


def _completions(obj: Json) -> str:
    spec, done = obj.get("spec") or {}, _at("status", "succeeded", absent=0)(obj)
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
    return str(bool(_at("spec", "suspend")(obj)))


def _last_schedule(obj: Json, now: datetime) -> str:
    last = _at("status", "lastScheduleTime")(obj)
    return age(last, now) if last else NONE


# Node, Event, Service and others.


def _node_words(obj: Json) -> str:
    conditions = {each["type"]: each.get("status") for each in _at("status", "conditions", absent=())(obj)}
    words = ["Ready" if conditions.get("Ready") == "True" else "NotReady" if "Ready" in conditions else "Unknown"]
    if _at("spec", "unschedulable")(obj):
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
        addresses = _at("status", "addresses", absent=())(obj)
        return next((each.get("address", "") for each in addresses if each.get("type") == kind), NONE)

    return address


def _of_older_events(*made: BuiltInColumn) -> tuple[BuiltInColumn, ...]:
    """An Event has two forms with the same cells; only the older one is looked at."""

    def on_older(cell: Cell) -> Cell:
        return lambda obj, now: cell(builtin_events.in_older_words(obj), now)

    return tuple(BuiltInColumn(each.column, on_older(each.cell)) for each in made)


def _last_seen(obj: Json, now: datetime) -> str:
    seen = _at("series", "lastObservedTime")(obj) or obj.get("lastTimestamp")
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
    return int(_at("series", "count")(obj) or obj.get("count") or 1)


def _given_addresses(obj: Json) -> list[str]:
    given = _at("status", "loadBalancer", "ingress", absent=())(obj)
    return [each.get("ip") or each.get("hostname", "") for each in given]


def _ingress_hosts(obj: Json) -> str:
    named = [rule["host"] for rule in _at("spec", "rules", absent=())(obj) if rule.get("host")]
    more = f" + {len(named) - HOSTS_SHOWN} more..." if len(named) > HOSTS_SHOWN else ""
    return listed(named[:HOSTS_SHOWN]) + more or "*"


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
    ports: Sequence[Json] = _at("spec", "ports", absent=())(obj)
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
        hard, used = _at("status", "hard", absent={})(obj), _at("status", "used", absent={})(obj)
        names = sorted(name for name in hard if name.startswith("limits.") == limits)
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return used_of_hard


def _claim_phase(obj: Json) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(_at("status", "phase")(obj))


def _access_modes(obj: Json) -> str:
    if not _at("spec", "volumeName")(obj):
        return ""
    return listed(ACCESS_MODES.get(mode, mode) for mode in _at("status", "accessModes", absent=())(obj))


def _endpoints(obj: Json) -> str:
    found = [
        f"{address.get('ip', '')}:{port.get('port')}"
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    more = f" + {len(found) - ENDPOINTS_SHOWN} more..." if len(found) > ENDPOINTS_SHOWN else ""
    return listed(found[:ENDPOINTS_SHOWN]) + more or NONE


def _storage_class_name(obj: Json) -> str:
    is_default = (obj["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    return f"{obj['metadata']['name']} (default)" if is_default else obj["metadata"]["name"]


def _controller(obj: Json) -> str:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((f"{owner['kind'].lower()}/{owner['name']}" for owner in owners if owner.get("controller")), NONE)


BINDING: Final = (
    NAME,
    _column("Role", "The role that is given.", _role),
    AGE,
    _column("Users", "To which users.", _subjects("User"), priority=1),
    _column("Groups", "To which groups.", _subjects("Group"), priority=1),
    _column("ServiceAccounts", "To which accounts.", _subjects("ServiceAccount"), priority=1),
)

_KINDS: Final[dict[str, tuple[BuiltInColumn, ...]]] = {
    "configmaps": (
        NAME,
        _column("Data", "Entries.", lambda obj: len(obj.get("data") or {}) + len(obj.get("binaryData") or {})),
        AGE,
    ),
    "secrets": (
        NAME,
        _column("Type", "Which kind of secret.", _at("type")),
        _column("Data", "Entries.", lambda obj: len(obj.get("data") or {})),
        AGE,
    ),
    "namespaces": (NAME, _column("Status", "Active or Terminating.", _at("status", "phase")), AGE),
    "nodes": (
        NAME,
        _column("Status", "Whether the node is ready, and open for pods.", _node_words),
        _column("Roles", "From its labels.", _node_roles),
        AGE,
        _column("Version", "The version of the node's agent.", _at("status", "nodeInfo", "kubeletVersion")),
        _column("Internal-IP", "Inside the cluster.", _node_address("InternalIP"), priority=1),
        _column("External-IP", "Outside of it.", _node_address("ExternalIP"), priority=1),
        _column("OS-Image", "Its system.", _at("status", "nodeInfo", "osImage", absent=UNKNOWN), priority=1),
        _column(
            "Kernel-Version", "Its kernel.", _at("status", "nodeInfo", "kernelVersion", absent=UNKNOWN), priority=1
        ),
        _column(
            "Container-Runtime",
            "What runs its containers.",
            _at("status", "nodeInfo", "containerRuntimeVersion", absent=UNKNOWN),
            priority=1,
        ),
    ),
    "pods": (
        NAME,
        _column("Ready", "Ready containers of all.", table_pods.ready),
        _column("Status", "The phase, or what keeps it from its next one.", table_pods.word),
        _timed("Restarts", "How often containers were started again.", table_pods.restarts),
        AGE,
        _column("IP", "The address of the pod.", table_pods.address, priority=1),
        _column("Node", "Where it runs.", _at("spec", "nodeName", absent=NONE), priority=1),
        _column(
            "Nominated Node",
            "Where room is being made for it.",
            _at("status", "nominatedNodeName", absent=NONE),
            priority=1,
        ),
        _column("Readiness Gates", "Further conditions of being ready.", table_pods.readiness_gates, priority=1),
    ),
    "jobs.batch": (
        NAME,
        _column("Status", "Running, Suspended, Complete or Failed.", _job_word),
        _column("Completions", "Succeeded pods of those wanted.", _completions),
        _timed("Duration", "From the start to the end, or to now.", _job_duration),
        AGE,
        *_containers(*TEMPLATE),
        SELECTOR,
    ),
    "cronjobs.batch": (
        NAME,
        _column("Schedule", "When it makes a Job.", _at("spec", "schedule")),
        _column("Timezone", "In which zone.", _at("spec", "timeZone", absent=NONE)),
        _column("Suspend", "Whether it makes none.", _suspended, kind="boolean"),
        _column("Active", "Jobs at work.", lambda obj: len(_at("status", "active", absent=())(obj)), kind="integer"),
        _timed("Last Schedule", "How long ago it made the last one.", _last_schedule),
        AGE,
        *_containers("spec", "jobTemplate", *TEMPLATE),
        _column(
            "Selector",
            "Which pods belong to it.",
            lambda obj: selector(_at("spec", "jobTemplate", "spec", "selector")(obj)),
            priority=1,
        ),
    ),
    "deployments.apps": (
        NAME,
        READY,
        _number("Up-to-date", "Replicas of the newest template.", "status", "updatedReplicas", kind="string"),
        _number("Available", "Replicas that are there for use.", "status", "availableReplicas", kind="string"),
        AGE,
        *_containers(*TEMPLATE),
        SELECTOR,
    ),
    "statefulsets.apps": (NAME, READY, AGE, *_containers(*TEMPLATE)),
    "replicasets.apps": (
        NAME,
        _number("Desired", "Replicas that are wanted.", "spec", "replicas"),
        _number("Current", "Replicas that are there.", "status", "replicas"),
        _number("Ready", "Replicas that are ready.", "status", "readyReplicas"),
        AGE,
        *_containers(*TEMPLATE),
        SELECTOR,
    ),
    "daemonsets.apps": (
        NAME,
        _number("Desired", "Nodes that should run one.", "status", "desiredNumberScheduled"),
        _number("Current", "Nodes that run one.", "status", "currentNumberScheduled"),
        _number("Ready", "Nodes where it is ready.", "status", "numberReady"),
        _number("Up-to-date", "Nodes with the newest template.", "status", "updatedNumberScheduled"),
        _number("Available", "Nodes where it is there for use.", "status", "numberAvailable"),
        _column("Node Selector", "Which nodes run one.", lambda obj: labels(_at(*TEMPLATE, "nodeSelector")(obj))),
        AGE,
        *_containers(*TEMPLATE),
        SELECTOR,
    ),
    "controllerrevisions.apps": (
        NAME,
        _column("Controller", "Whose state it is.", _controller),
        _number("Revision", "Which one.", "revision", kind="string"),
        AGE,
    ),
    "services": (
        NAME,
        _column("Type", "How it is reached.", _at("spec", "type")),
        _column("Cluster-IP", "Inside the cluster.", _at("spec", "clusterIP", absent=NONE)),
        _column("External-IP", "Outside of it.", _external_address),
        _column("Port(s)", "Of the service, and of the nodes.", _ports),
        AGE,
        _column("Selector", "Which pods serve it.", lambda obj: labels(_at("spec", "selector")(obj)), priority=1),
    ),
    "endpoints": (NAME, _column("Endpoints", "Addresses and ports.", _endpoints), AGE),
    "events": _of_older_events(
        _timed("Last Seen", "How long ago it happened last.", _last_seen),
        _column("Type", "Normal or Warning.", _at("type")),
        _column("Reason", "One word for what happened.", _at("reason")),
        _column("Object", "What it happened to.", _event_object),
        _column("Subobject", "Which part of it.", _at("involvedObject", "fieldPath"), priority=1),
        _column("Source", "Who tells.", _event_source, priority=1),
        _column("Message", "The same in a sentence.", lambda obj: obj.get("message", "").strip()),
        _timed("First Seen", "How long ago it happened first.", _first_seen, priority=1),
        _column("Count", "How often.", _event_count, priority=1),
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
        _number("Value", "Higher goes first.", "value"),
        _column("Global-Default", "Of pods without a class.", _at("globalDefault", absent=False), kind="boolean"),
        AGE,
        _column(
            "PreemptionPolicy",
            "Whether its pods may preempt others.",
            _at("preemptionPolicy", absent="PreemptLowerPriority"),
        ),
    ),
    "leases.coordination.k8s.io": (NAME, _column("Holder", "Who has it.", _at("spec", "holderIdentity")), AGE),
    "poddisruptionbudgets.policy": (
        NAME,
        _column(
            "Min Available", "How many must stay.", lambda obj: str(_at("spec", "minAvailable", absent="N/A")(obj))
        ),
        _column(
            "Max Unavailable", "How many may go.", lambda obj: str(_at("spec", "maxUnavailable", absent="N/A")(obj))
        ),
        _number("Allowed Disruptions", "How many may go now.", "status", "disruptionsAllowed"),
        AGE,
    ),
    "resourcequotas": (
        NAME,
        _column("Request", "Used of what may be.", _quota(limits=False)),
        _column("Limit", "The same of limits.", _quota(limits=True)),
        AGE,
    ),
    "persistentvolumeclaims": (
        NAME,
        _column("Status", "Pending, Bound or Lost.", _claim_phase),
        _column("Volume", "What it got.", _at("spec", "volumeName")),
        _column("Capacity", "How large that is.", _at("status", "capacity", "storage")),
        _column("Access Modes", "How it may be used.", _access_modes),
        _column("StorageClass", "From which class.", _at("spec", "storageClassName")),
        _column(
            "VolumeAttributesClass",
            "With which attributes.",
            _at("spec", "volumeAttributesClassName", absent="<unset>"),
        ),
        AGE,
        _column("VolumeMode", "Files or blocks.", _at("spec", "volumeMode", absent="<unset>"), priority=1),
    ),
    "ingresses.networking.k8s.io": (
        NAME,
        _column("Class", "Who serves it.", _at("spec", "ingressClassName", absent=NONE)),
        _column("Hosts", "By which names.", _ingress_hosts),
        _column("Address", "Where it is.", lambda obj: listed(_given_addresses(obj))),
        _column("Ports", "At which ports.", lambda obj: "80, 443" if _at("spec", "tls")(obj) else "80"),
        AGE,
    ),
    "networkpolicies.networking.k8s.io": (
        NAME,
        _column("Pod-Selector", "Which pods it is about.", lambda obj: selector(_at("spec", "podSelector")(obj))),
        AGE,
    ),
    "runtimeclasses.node.k8s.io": (NAME, _column("Handler", "What runs its pods.", _at("handler")), AGE),
    "storageclasses.storage.k8s.io": (
        BuiltInColumn(NAME.column, lambda obj, now: _storage_class_name(obj)),
        _column("Provisioner", "Who makes its volumes.", _at("provisioner")),
        _column("ReclaimPolicy", "What becomes of them.", _at("reclaimPolicy", absent="Delete")),
        _column("VolumeBindingMode", "When they are made.", _at("volumeBindingMode", absent="<unset>")),
        _column("AllowVolumeExpansion", "Whether they may grow.", _at("allowVolumeExpansion", absent=False)),
        AGE,
    ),
}
