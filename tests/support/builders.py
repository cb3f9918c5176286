"""The few builders of objects that tests need: ``workload("a", cpu=2, queue="main")``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kyu.api import codec
from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Json, Object
from kyu.engine.options import Options
from kyu.engine.state import State

START = datetime(2026, 1, 1, tzinfo=UTC)
API = "kueue.x-k8s.io/v1beta2"
# By flavor and resource: the nominal quota, or (nominal, borrowing limit, lending limit) with None for no limit.
Quotas = Mapping[str, Mapping[str, Any]]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return at(seconds).isoformat().replace("+00:00", "Z")


def resource_groups(quotas: Quotas) -> list[Json]:
    if not quotas:
        return []
    resources = list(dict.fromkeys(resource for flavor in quotas.values() for resource in flavor))
    flavors = [
        {"name": name, "resources": [quota(resource, amounts.get(resource, 0)) for resource in resources]}
        for name, amounts in quotas.items()
    ]
    return [{"coveredResources": resources, "flavors": flavors}]


def quota(resource: str, amounts: Any) -> Json:
    nominal, borrowing, lending = (
        amounts if isinstance(amounts, Sequence) and len(amounts) == 3 else (amounts, None, None)
    )
    limits = {"borrowingLimit": borrowing, "lendingLimit": lending}
    return {"name": resource, "nominalQuota": nominal, **{k: v for k, v in limits.items() if v is not None}}


def cluster_queue(name: str, quotas: Quotas, *, cohort: str = "", **spec: Any) -> ClusterQueue:
    body = {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": resource_groups(quotas), **spec}
    return make(ClusterQueue, "ClusterQueue", {"name": name}, spec=body)


def cohort(name: str, quotas: Quotas | None = None, *, parent: str = "", **spec: Any) -> Cohort:
    body = {"parentName": parent, "resourceGroups": resource_groups(quotas or {}), **spec}
    return make(Cohort, "Cohort", {"name": name}, spec=body)


def local_queue(name: str, cluster_queue: str = "", *, namespace: str = "default", **spec: Any) -> LocalQueue:
    body = {"clusterQueue": cluster_queue or name, **spec}
    return make(LocalQueue, "LocalQueue", {"name": name, "namespace": namespace}, spec=body)


def flavor(name: str, **spec: Any) -> ResourceFlavor:
    return make(ResourceFlavor, "ResourceFlavor", {"name": name}, spec=spec)


def namespace(name: str = "default", **labels: str) -> Namespace:
    return codec.decode_as(
        Namespace, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )


def workload(
    name: str,
    *,
    queue: str = "main",
    count: int = 1,
    priority: int = 0,
    created: float = 0,
    namespace: str = "default",
    min_count: int | None = None,
    status: Json | None = None,
    annotations: Mapping[str, str] | None = None,
    pod: Json | None = None,
    **requests: Any,
) -> Workload:
    """One pod set ``main`` of ``count`` pods; other keywords are what each pod requests."""
    container = {"name": "c", "resources": {"requests": {r.replace("__", "/"): v for r, v in requests.items()}}}
    pod_set = {"name": "main", "count": count, "template": {"spec": {"containers": [container], **(pod or {})}}}
    if min_count is not None:
        pod_set["minCount"] = min_count
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "creationTimestamp": stamp(created),
        "annotations": dict(annotations or {}),
    }
    spec = {"queueName": queue, "priority": priority, "podSets": [pod_set]}
    return make(Workload, "Workload", metadata, spec=spec, status=status or {})


def holding(
    found: Workload, cluster_queue: str, flavors: Mapping[str, str], *, reserved: float = 0, evicted: str = ""
) -> Workload:
    """The workload as if it had got quota: ``flavors`` by resource."""
    (pod_set,) = found.spec.pod_sets
    requests = pod_set.template.spec.containers[0].resources.requests
    usage = {resource: f"{int(float(requests[resource]) * pod_set.count * 1000)}m" for resource in flavors}
    conditions = [condition("QuotaReserved", reserved), condition("Admitted", reserved)]
    if evicted:
        conditions.append({**condition("Evicted", reserved), "reason": evicted})
    assignment = {"name": "main", "count": pod_set.count, "flavors": dict(flavors), "resourceUsage": usage}
    status = {"conditions": conditions, "admission": {"clusterQueue": cluster_queue, "podSetAssignments": [assignment]}}
    return codec.decode_as(Workload, {**codec_json(found), "status": status})


def condition(type_: str, seconds: float, status: str = "True") -> Json:
    return {"type": type_, "status": status, "reason": type_, "message": "", "lastTransitionTime": stamp(seconds)}


def codec_json(obj: Object) -> Json:
    body: Json = msgspec.json.decode(msgspec.json.encode(obj))
    return {"apiVersion": obj.KIND.api_version, "kind": obj.KIND.kind, **body}


def make(type_: Any, kind: str, metadata: Json, **parts: Json) -> Any:
    return codec.decode_as(type_, {"apiVersion": API, "kind": kind, "metadata": metadata, **parts})


def state_of(*objects: Object, options: Options | None = None) -> State:
    """A state with these objects, and with the namespace ``default``."""
    state = State(options or Options())
    state.put(namespace())
    for obj in objects:
        state.put(obj)
    return state
