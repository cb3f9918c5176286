"""
What runs the controllers in a cluster: a Deployment with probes, a Service for its metrics, and the rights it needs.

What may be read is read off the rows: a controller that watches another kind has the right to it. The names are not
those of an installed Kueue, so that both can be there; the Lease lets one of them act.

Called by: `kyu manifests --image`. Kueue: config/components/manager, config/components/rbac
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kyu.api import kueue
from kyu.api.config import Configuration
from kyu.api.core import CONFIG_MAP
from kyu.api.meta import Json, Kind
from kyu.api.pools import GROUP as POOLS_GROUP
from kyu.api.pools import PoolReport, PoolSource
from kyu.controllers import pool_rows, table
from kyu.controllers.loop import Controller
from kyu.controllers.plane import DEFINITION
from kyu.controllers.scheduler import TYPE_BY_KIND
from kyu.kinds.pod import POD
from kyu.kinds.table import KINDS
from kyu.plans import provisioning

SETTINGS = Configuration()
NAMESPACE = SETTINGS.namespace
NAME = "kyu-controller"
METRICS_READER = f"{NAME}-metrics-reader"
METADATA = {"name": NAME, "namespace": NAMESPACE}
LABELS = {"app.kubernetes.io/name": "kyu", "control-plane": NAME}
# What the ServiceMonitor of Kueue looks for.
METRICS_LABELS = {"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "metrics-service"}
RBAC = "rbac.authorization.k8s.io"
READ = ["get", "list", "watch"]
WRITE = ["create", "delete", "patch", "update"]
# Nobody in particular, and not root.
USER = 65532


def objects(image: str) -> list[Json]:
    """All of it. The image has `kyu` on its path."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": METADATA},
        _role("ClusterRole", {"name": NAME}, cluster_rules()),
        _binding("ClusterRole", {"name": NAME}),
        _role("Role", METADATA, own_rules()),
        _binding("Role", METADATA),
        # For who reads the metrics; bound by nobody yet.
        _role("ClusterRole", {"name": METRICS_READER}, [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]),
        _service(),
        _deployment(image),
    ]


# Rights.


def cluster_rules() -> list[Json]:
    """Everywhere: read what rows watch, write queues and Workloads, start and stop jobs, tell about it."""
    jobs = {kind for job in KINDS for kind in job.kinds}
    ours = (kueue.Workload.KIND.group, POOLS_GROUP)
    read = [kind for kind in watched_kinds() if kind.group not in ours and kind not in jobs]
    return [
        *({"apiGroups": [group], "resources": ["*"], "verbs": ["*"]} for group in ours),
        *_rules(jobs, [*READ, "delete", "patch", "update"], ("", "/status", "/finalizers")),
        *_rules((provisioning.REQUEST, provisioning.POD_TEMPLATE), [*READ, *WRITE]),
        *_rules(set(read) - {provisioning.REQUEST}, READ),
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    ]


def own_rules() -> list[Json]:
    """In its own namespace: the Lease, and Secrets with which pools and other clusters are reached."""
    return [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": READ},
    ]


def watched_kinds() -> set[Kind]:
    """What the controllers follow; what pools say is heard elsewhere."""
    rows: Sequence[Controller] = (*table.controllers(), *pool_rows.controllers())
    watched = {watch.kind for row in rows for watch in row.watches}
    watched |= {kind for row in rows if row.owned for kind in row.owned.kinds}
    return (watched | set(TYPE_BY_KIND) | {CONFIG_MAP, DEFINITION, POD}) - {PoolReport.KIND, PoolSource.KIND}


def _rules(kinds: Iterable[Kind], verbs: list[str], parts: tuple[str, ...] = ("",)) -> list[Json]:
    """A rule for each group."""
    by_group: dict[str, set[str]] = {}
    for kind in kinds:
        by_group.setdefault(kind.group, set()).update(f"{kind.plural}{part}" for part in parts)
    return [
        {"apiGroups": [group], "resources": sorted(resources), "verbs": sorted(verbs)}
        for group, resources in sorted(by_group.items())
    ]


def _role(kind: str, metadata: Json, rules: list[Json]) -> Json:
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def _binding(kind: str, metadata: Json) -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": NAME},
        "subjects": [{"kind": "ServiceAccount", **METADATA}],
    }


# What runs.


def _service() -> Json:
    port = {"name": "https", "port": _port(SETTINGS.metrics.bind_address), "targetPort": "metrics"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{NAME}-metrics", "namespace": NAMESPACE, "labels": METRICS_LABELS},
        "spec": {"selector": LABELS, "ports": [port]},
    }


def _deployment(image: str) -> Json:
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(image)],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**METADATA, "labels": LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def _container(image: str) -> Json:
    health = SETTINGS.health
    return {
        "name": "controller",
        "image": image,
        "command": ["kyu", "controller"],
        "ports": [
            {"name": "health", "containerPort": _port(health.health_probe_bind_address)},
            {"name": "metrics", "containerPort": _port(SETTINGS.metrics.bind_address)},
        ],
        "livenessProbe": _probe(health.liveness_endpoint_name, {"initialDelaySeconds": 15, "periodSeconds": 20}),
        "readinessProbe": _probe(health.readiness_endpoint_name, {"periodSeconds": 5}),
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _probe(path: str, times: Json) -> Json:
    return {"httpGet": {"path": f"/{path}", "port": "health"}, **times}
