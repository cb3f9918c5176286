"""Builders of manifests, as JSON: ``pod("p", cpu="2", node="n")``. For typed objects see builders.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kyu.api.meta import Json, Object
from kyu.kinds import metadata as names

KUEUE = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "team"
TIME = "2026-01-01T09:00:00Z"


def obj(
    api_version: str, kind: str, name: str, namespace: str = "", *, metadata: Json | None = None, **parts: Any
) -> Json:
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), **(metadata or {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **parts}


def of_type(type_: type[Object], name: str, namespace: str = "", **parts: Any) -> Json:
    """Return an object of the kind of a projection."""
    return obj(type_.KIND.api_version, type_.KIND.kind, name, namespace, **parts)


def condition(type_: str, status: str = "True", reason: str = "", message: str = "", since: str = TIME) -> Json:
    fields = {"status": status, "reason": reason or type_, "message": message}
    return {"type": type_, **fields, "lastTransitionTime": since}


def owner(kind: str, name: str, *, api_version: str = "batch/v1", uid: str = "") -> Json:
    """Return a controller reference."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid or name, "controller": True}


def pod_spec(cpu: str = "", memory: str = "", **spec: Any) -> Json:
    """Return a pod spec with one container that requests this, if anything."""
    container: Json = {"name": "main", "image": "busybox"}
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    if requests:
        container["resources"] = {"requests": requests}
    return {"containers": [container], **spec}


def pod(
    name: str = "p",
    *,
    cpu: str = "",
    memory: str = "",
    node: str = "",
    phase: str = "Pending",
    gates: Iterable[str] = (),
    namespace: str = NAMESPACE,
    metadata: Json | None = None,
    **spec: Any,
) -> Json:
    """Return a pod with one container. Other keywords are fields of its spec."""
    body = pod_spec(cpu, memory, **spec)
    if node:
        body["nodeName"] = node
    if gates:
        body["schedulingGates"] = [{"name": gate} for gate in gates]
    meta = {"uid": name, **(metadata or {})}
    return obj("v1", "Pod", name, namespace, metadata=meta, spec=body, status={"phase": phase})


def node(
    name: str = "n",
    *,
    cpu: str = "4",
    ready: str = "True",
    since: str = TIME,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """Return a node; with an empty ``ready`` it has no condition. Other keywords are fields of its spec."""
    status = {
        "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110", **(allocatable or {})},
        "conditions": [condition("Ready", ready, since=since)] if ready else [],
    }
    return obj("v1", "Node", name, metadata={"labels": dict(labels or {})}, spec=spec, status=status)


def job(
    name: str = "j",
    *,
    queue: str = "",
    cpu: str = "",
    namespace: str = NAMESPACE,
    metadata: Json | None = None,
    pod_annotations: Mapping[str, str] | None = None,
    status: Json | None = None,
    **spec: Any,
) -> Json:
    """Return a Job, suspended if it has a queue. Other keywords are fields of its spec."""
    template = {
        "metadata": {"annotations": dict(pod_annotations or {})},
        "spec": pod_spec(cpu, restartPolicy="Never"),
    }
    body = {"suspend": bool(queue), "template": template, **spec}
    meta = dict(metadata or {})
    if queue:
        meta["labels"] = {names.QUEUE_NAME: queue, **meta.get("labels", {})}
    return obj("batch/v1", "Job", name, namespace, metadata=meta, spec=body, status=status or {})


def workload(
    name: str = "w",
    *,
    queue: str = "main",
    cpu: str = "",
    count: int = 1,
    namespace: str = NAMESPACE,
    metadata: Json | None = None,
    status: Json | None = None,
    **spec: Any,
) -> Json:
    """Return a Workload with one pod set ``main``. Other keywords are fields of its spec."""
    pod_set = {"name": "main", "count": count, "template": {"spec": pod_spec(cpu, restartPolicy="Never")}}
    body = {"queueName": queue, "podSets": [pod_set], **spec}
    return obj(KUEUE, "Workload", name, namespace, metadata=metadata, spec=body, status=status or {})


def queues(
    name: str,
    *,
    cpu: int | str = 4,
    local_queue: str = "",
    flavor: str = "",
    namespace: str = "default",
    checks: Iterable[str] = (),
    **spec: Any,
) -> list[Json]:
    """Return a ClusterQueue with this quota of one flavor, and a LocalQueue. Other keywords are fields of its spec."""
    quota = {"name": flavor or name, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    body = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        **({"admissionChecksStrategy": {"admissionChecks": [{"name": check} for check in checks]}} if checks else {}),
        **spec,
    }
    return [
        obj(KUEUE, "ClusterQueue", name, spec=body),
        obj(KUEUE, "LocalQueue", local_queue or name, namespace, spec={"clusterQueue": name}),
    ]


def flavor(name: str, **spec: Any) -> Json:
    return obj(KUEUE, "ResourceFlavor", name, spec=spec)
