"""
The objects that run Kyu on a cluster: Deployment, Services, rights, webhooks and admission policies.

The rights to read follow from the rows of the controllers: a controller that watches a kind may read it. No name is
that of an installed Kueue, so both can be installed. The Lease lets one of them act.

Called by: cli/admin/manifests.py, install/chart.py.
Kueue: config/components/manager, config/components/rbac, config/components/webhook
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kyu.api import kueue
from kyu.api.clusters.capacity import CapacityQuota
from kyu.api.clusters.kubestellar import BINDING_POLICY, CUSTOM_TRANSFORM
from kyu.api.config.config import Configuration
from kyu.api.core import CONFIG_MAP, DEFINITION
from kyu.api.meta import Json, Kind
from kyu.api.pools import GROUP as POOLS_GROUP
from kyu.api.pools import PoolReport, PoolSource
from kyu.api.workflows import RefusedObject, Workflow
from kyu.controllers import table
from kyu.controllers.clusters import kubestellar_rows, quota_rows
from kyu.controllers.loop import Controller
from kyu.controllers.pools import rows as pool_rows
from kyu.controllers.scheduler import TYPE_BY_KIND
from kyu.controllers.workflows import rows as workflow_rows
from kyu.install import admission
from kyu.kinds.pod import POD
from kyu.kinds.table import KINDS, STEP_KINDS
from kyu.plans.provisioning import requests

SETTINGS = Configuration()
NAMESPACE = SETTINGS.namespace
NAME = "kyu-controller"
METRICS_READER = f"{NAME}-metrics-reader"
METADATA = {"name": NAME, "namespace": NAMESPACE}
LABELS = {"app.kubernetes.io/name": "kyu", "control-plane": NAME}
# Kueue's ServiceMonitor selects these labels.
METRICS_LABELS = {"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "metrics-service"}
RBAC = "rbac.authorization.k8s.io"
READ = ["get", "list", "watch"]
WRITE = ["create", "delete", "patch", "update"]
# An unprivileged user without an account.
USER = 65532
POD_SECURITY = {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}}
WEBHOOK_PORT = 9443
VISIBILITY = (admission.VISIBILITY_PORT, "visibility")
REPLICAS = 2
# Kinds that are in the view only.
NOT_SERVED = frozenset({PoolReport.KIND, PoolSource.KIND, RefusedObject.KIND})


def objects(image: str, *, policies: bool = True) -> list[Json]:
    """Return all objects. The image has `kyu` on its path. Policies need Kubernetes 1.36 or newer."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": METADATA},
        role("ClusterRole", {"name": NAME}, cluster_rules()),
        binding("ClusterRole", {"name": NAME}, METADATA),
        role("Role", METADATA, own_rules()),
        binding("Role", METADATA, METADATA),
        # To be bound to the account of a monitoring system.
        role("ClusterRole", {"name": METRICS_READER}, [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]),
        _service(f"{NAME}-metrics", METRICS_LABELS, {"https": (_port(SETTINGS.metrics.bind_address), "metrics")}),
        _service(admission.SERVICE, LABELS, {"https": (admission.PORT, "webhook"), "visibility": VISIBILITY}),
        _disruption_budget(),
        _deployment(image),
        *admission.objects(NAMESPACE, policies=policies),
        *admission.api_services(NAMESPACE),
    ]


def service_monitor() -> Json:
    """Return the ServiceMonitor for clusters that have the Prometheus operator."""
    endpoint = {
        "path": "/metrics",
        "port": "https",
        "scheme": "https",
        "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "tlsConfig": {"insecureSkipVerify": True},
    }
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {**METADATA, "labels": LABELS},
        "spec": {"endpoints": [endpoint], "selector": {"matchLabels": METRICS_LABELS}},
    }


# Rights.


def cluster_rules() -> list[Json]:
    """Return the rights in all namespaces: read watched kinds, write queues and Workloads, start and stop jobs."""
    jobs = {kind for job in KINDS for kind in job.kinds}
    ours = (kueue.Workload.KIND.group, POOLS_GROUP, CapacityQuota.KIND.group, Workflow.KIND.group)
    read = [kind for kind in watched_kinds() if kind.group not in ours and kind not in jobs]
    return [
        *({"apiGroups": [group], "resources": ["*"], "verbs": ["*"]} for group in ours),
        *rules(jobs, [*READ, "delete", "patch", "update"], ("", "/status", "/finalizers")),
        # The objects of the steps of Workflows. A policy checks that the creator of a Workflow may create them.
        *rules((job.kind for job in STEP_KINDS), ["create"]),
        *rules((requests.REQUEST, requests.POD_TEMPLATE), [*READ, *WRITE]),
        *rules(set(read) - {requests.REQUEST}, READ),
        *rules((BINDING_POLICY, CUSTOM_TRANSFORM), ["create"]),
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        # Users of the visibility API are reviewed.
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
        *_trust_rules(),
    ]


def _trust_rules() -> list[Json]:
    """Return the rights to write the bundle that the API server trusts, each for the objects of Kyu alone."""
    names: dict[tuple[str, str], list[str]] = {}
    for target in admission.targets():
        names.setdefault((target.kind.group, target.kind.plural), []).append(target.name)
    return [
        {"apiGroups": [group], "resources": [plural], "resourceNames": sorted(found), "verbs": ["get", "patch"]}
        for (group, plural), found in sorted(names.items())
    ]


def own_rules() -> list[Json]:
    """Return the rights in its own namespace: the Lease, and Secrets of pools, clusters and the webhooks."""
    return [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": [*READ, "create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [admission.SECRET], "verbs": ["update"]},
    ]


def watched_kinds() -> set[Kind]:
    """Return the kinds that the controllers follow on the API server. Reports of pools do not come from there."""
    workflows = workflow_rows.controllers(workflow_rows.ON_CLUSTER)
    rows: Sequence[Controller] = (
        *table.controllers(),
        *pool_rows.controllers(),
        *quota_rows.controllers(),
        *workflows,
        *kubestellar_rows.controllers(),
    )
    watched = {watch.kind for row in rows for watch in row.watches}
    watched |= {kind for row in rows if row.owned for kind in row.owned.kinds}
    return (watched | set(TYPE_BY_KIND) | {CONFIG_MAP, DEFINITION, POD}) - NOT_SERVED


def rules(kinds: Iterable[Kind], verbs: list[str], parts: tuple[str, ...] = ("",)) -> list[Json]:
    """Return one rule per API group."""
    by_group: dict[str, set[str]] = {}
    for kind in kinds:
        by_group.setdefault(kind.group, set()).update(f"{kind.plural}{part}" for part in parts)
    return [
        {"apiGroups": [group], "resources": sorted(resources), "verbs": sorted(verbs)}
        for group, resources in sorted(by_group.items())
    ]


def role(kind: str, metadata: Json, rules: list[Json]) -> Json:
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def binding(kind: str, metadata: Json, account: Json) -> Json:
    """Return a binding of the role with the same name to an account."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }


# Workloads.


def _service(name: str, labels: Json, ports: Mapping[str, tuple[int, str]]) -> Json:
    """Return a Service. ``ports`` are those of the Service and of the container, by name."""
    listed = [{"name": name, "port": port, "targetPort": target} for name, (port, target) in ports.items()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"selector": LABELS, "ports": listed},
    }


def _disruption_budget() -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {**METADATA, "labels": LABELS},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}},
    }


def _deployment(image: str) -> Json:
    pod = {
        "serviceAccountName": NAME,
        "securityContext": POD_SECURITY,
        "containers": [container(image, ["kyu", "controller", f"--webhook-bind-address=:{WEBHOOK_PORT}"])],
        # The replicas are on different nodes where there are several.
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": LABELS},
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**METADATA, "labels": LABELS},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def container(image: str, command: list[str]) -> Json:
    """Return the container of a controller, with all ports that one may have."""
    health = SETTINGS.health
    return {
        "name": "controller",
        "image": image,
        "command": command,
        "ports": [
            {"name": "health", "containerPort": _port(health.health_probe_bind_address)},
            {"name": "metrics", "containerPort": _port(SETTINGS.metrics.bind_address)},
            {"name": "webhook", "containerPort": WEBHOOK_PORT},
            {"name": "visibility", "containerPort": SETTINGS.visibility_server.bind_port},
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
