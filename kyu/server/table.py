"""
Objects as rows of a table: what ``kubectl get`` prints.

A custom kind says itself which columns it has; for built-in kinds they are here, one function from object to cells for
each kind that has more to show than its name and age.

Called by: server/forms.py. Kubernetes: pkg/printers/internalversion, apiextensions-apiserver tableconvertor.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kyu.api.meta import Json
from kyu.server import jsonpath
from kyu.server.registry import Column, Resource

Cells = Callable[[Json, datetime], list[Any]]

NONE = "<none>"
UNKNOWN = "<unknown>"
_NAME = Column("Name", "string", "", "The name: unique in its namespace, or in the cluster.", format="name")
_AGE = Column("Age", "string", "", "The time since the object was created.")


def definitions(resource: Resource) -> list[Json]:
    return [
        {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
        for c in columns(resource)
    ]


def columns(resource: Resource) -> tuple[Column, ...]:
    if resource.columns:
        return (_NAME, *resource.columns)
    shown, _ = _BUILT_IN.get(resource.storage, _PLAIN)
    return (_NAME, *shown)


def cells(resource: Resource, obj: Json, now: datetime) -> list[Any]:
    name = obj["metadata"]["name"]
    if resource.columns:
        return [name, *(_custom_cell(column, obj, now) for column in resource.columns)]
    _, row = _BUILT_IN.get(resource.storage, _PLAIN)
    return [name, *row(obj, now)]


def conditions(resource: Resource, obj: Json) -> list[Json]:
    """Rows of Pods that have ended are marked, so that clients can leave them out."""
    if resource.storage != "pods":
        return []
    match obj.get("status", {}).get("phase"):
        case "Succeeded":
            return [_completed("Succeeded", "The pod has completed successfully.")]
        case "Failed":
            return [_completed("Failed", "The pod failed.")]
        case _:
            return []


def _completed(reason: str, message: str) -> Json:
    return {"type": "Completed", "status": "True", "reason": reason, "message": message}


def age(timestamp: str | None, now: datetime) -> str:
    if not timestamp:
        return UNKNOWN
    then = datetime.fromisoformat(timestamp)
    return duration((now - then).total_seconds())


def duration(seconds: float) -> str:
    """Two significant units at most, fewer as it gets longer. Kubernetes: apimachinery/pkg/util/duration."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _custom_cell(column: Column, obj: Json, now: datetime) -> Any:
    found = jsonpath.find(column.path, obj)
    if not found or found[0] is None:
        return None
    match column.type:
        case "date":
            return _age_or_none(found[0], now)
        case "integer" | "number":
            return found[0] if isinstance(found[0], int | float) and not isinstance(found[0], bool) else None
        case "boolean":
            return found[0] if isinstance(found[0], bool) else None
        case _:
            return ",".join(_text(value) for value in found)


def _age_or_none(value: Any, now: datetime) -> str | None:
    try:
        return age(str(value), now)
    except ValueError:
        return None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# Built-in kinds: the columns after Name, and the cells after the name.


def _created(obj: Json, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _plain(obj: Json, now: datetime) -> list[Any]:
    return [_created(obj, now)]


def _config_map(obj: Json, now: datetime) -> list[Any]:
    return [len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _created(obj, now)]


def _secret(obj: Json, now: datetime) -> list[Any]:
    return [obj.get("type", ""), len(obj.get("data") or {}), _created(obj, now)]


def _namespace(obj: Json, now: datetime) -> list[Any]:
    return [obj.get("status", {}).get("phase", ""), _created(obj, now)]


def _node(obj: Json, now: datetime) -> list[Any]:
    conditions = {c["type"]: c.get("status") for c in obj.get("status", {}).get("conditions") or []}
    words = ["Ready" if conditions.get("Ready") == "True" else "NotReady" if "Ready" in conditions else "Unknown"]
    if obj.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))
    version = obj.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")
    return [",".join(words), ",".join(roles) or NONE, _created(obj, now), version]


def _job(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    containers = spec.get("template", {}).get("spec", {}).get("containers") or []
    labels = spec.get("selector", {}).get("matchLabels") or {}
    return [
        _job_status(obj),
        _completions(spec, status),
        _job_duration(status, now),
        _created(obj, now),
        ",".join(c.get("name", "") for c in containers),
        ",".join(c.get("image", "") for c in containers),
        ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE,
    ]


def _job_status(obj: Json) -> str:
    true = {c["type"] for c in obj.get("status", {}).get("conditions") or [] if c.get("status") == "True"}
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for word in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if word in true:
            return word
    return "Running"


def _completions(spec: Json, status: Json) -> str:
    done = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(status: Json, now: datetime) -> str:
    if not status.get("startTime"):
        return ""
    end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    return duration((end - datetime.fromisoformat(status["startTime"])).total_seconds())


def _pod(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    containers = status.get("containerStatuses") or []
    ready = sum(1 for c in containers if c.get("ready"))
    restarts = sum(c.get("restartCount", 0) for c in containers)
    return [
        f"{ready}/{len(spec.get('containers') or [])}",
        _pod_status(obj),
        str(restarts),
        _created(obj, now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        NONE,
    ]


def _pod_status(obj: Json) -> str:
    status = obj.get("status", {})
    word = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        if waiting.get("reason"):
            word = waiting["reason"]
        elif ended:
            signal, code = ended.get("signal"), ended.get("exitCode", 0)
            word = ended.get("reason") or (f"Signal:{signal}" if signal else f"ExitCode:{code}")
    if obj["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Terminating"
    return str(word)


def _event(obj: Json, now: datetime) -> list[Any]:
    involved = obj.get("involvedObject", {})
    seen = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp")
    name = f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"
    return [age(seen, now), obj.get("type", ""), obj.get("reason", ""), name, obj.get("message", "").strip()]


def _definition(obj: Json, now: datetime) -> list[Any]:
    return [obj["metadata"].get("creationTimestamp", "")]


def _role_binding(obj: Json, now: datetime) -> list[Any]:
    role = obj.get("roleRef", {})
    return [f"{role.get('kind', '')}/{role.get('name', '')}", _created(obj, now)]


def _priority_class(obj: Json, now: datetime) -> list[Any]:
    is_default = bool(obj.get("globalDefault"))
    return [obj.get("value", 0), is_default, _created(obj, now), obj.get("preemptionPolicy", "PreemptLowerPriority")]


def _lease(obj: Json, now: datetime) -> list[Any]:
    return [obj.get("spec", {}).get("holderIdentity", ""), _created(obj, now)]


def _workload_controller(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    wanted = spec.get("replicas", 1)
    return [f"{status.get('readyReplicas', 0)}/{wanted}", _created(obj, now)]


def _text_column(name: str, description: str, priority: int = 0) -> Column:
    return Column(name, "string", "", description, priority=priority)


_PLAIN: tuple[tuple[Column, ...], Cells] = ((_AGE,), _plain)
_BINDING: tuple[tuple[Column, ...], Cells] = ((_text_column("Role", "The role that is given."), _AGE), _role_binding)
_READY: tuple[tuple[Column, ...], Cells] = (
    (_text_column("Ready", "Ready replicas of those wanted."), _AGE),
    _workload_controller,
)

_BUILT_IN: dict[str, tuple[tuple[Column, ...], Cells]] = {
    "configmaps": ((_text_column("Data", "The number of entries."), _AGE), _config_map),
    "secrets": ((_text_column("Type", "Which kind of secret."), _text_column("Data", "Entries."), _AGE), _secret),
    "namespaces": ((_text_column("Status", "Active or Terminating."), _AGE), _namespace),
    "nodes": (
        (
            _text_column("Status", "Whether the node is ready, and open for pods."),
            _text_column("Roles", "From its labels."),
            _AGE,
            _text_column("Version", "The version of the node's agent."),
        ),
        _node,
    ),
    "pods": (
        (
            _text_column("Ready", "Ready containers of all."),
            _text_column("Status", "The phase, or what keeps it from its next one."),
            _text_column("Restarts", "How often containers were started again."),
            _AGE,
            _text_column("IP", "The address of the pod.", 1),
            _text_column("Node", "Where it runs.", 1),
            _text_column("Nominated Node", "Where room is being made for it.", 1),
            _text_column("Readiness Gates", "Further conditions of being ready.", 1),
        ),
        _pod,
    ),
    "jobs.batch": (
        (
            _text_column("Status", "Running, Suspended, Complete or Failed."),
            _text_column("Completions", "Succeeded pods of those wanted."),
            _text_column("Duration", "From the start to the end, or to now."),
            _AGE,
            _text_column("Containers", "Their names.", 1),
            _text_column("Images", "Their images.", 1),
            _text_column("Selector", "Which pods belong to it.", 1),
        ),
        _job,
    ),
    "events": (
        (
            _text_column("Last Seen", "How long ago it happened last."),
            _text_column("Type", "Normal or Warning."),
            _text_column("Reason", "One word for what happened."),
            _text_column("Object", "What it happened to."),
            _text_column("Message", "The same in a sentence."),
        ),
        _event,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        (Column("Created At", "date", "", "When it was created."),),
        _definition,
    ),
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    "roles.rbac.authorization.k8s.io": ((Column("Created At", "date", "", "When it was created."),), _definition),
    "clusterroles.rbac.authorization.k8s.io": (
        (Column("Created At", "date", "", "When it was created."),),
        _definition,
    ),
    "priorityclasses.scheduling.k8s.io": (
        (
            Column("Value", "integer", "", "Higher goes first."),
            Column("Global-Default", "boolean", "", "Whether pods without a class get this one."),
            _AGE,
            _text_column("PreemptionPolicy", "Whether its pods may preempt others.", 0),
        ),
        _priority_class,
    ),
    "leases.coordination.k8s.io": ((_text_column("Holder", "Who has it."), _AGE), _lease),
    "deployments.apps": _READY,
    "statefulsets.apps": _READY,
}


def now() -> datetime:
    return datetime.now(UTC)
