"""
The ClusterRoles that administrators bind to users of queues and jobs.

Two roles aggregate the others by label: ``batch-admin`` for administrators of queues, ``batch-user`` for users. Each
kind has an editor and a viewer role of its own, which can also be bound alone. One role is for a MultiKueue manager
that sends jobs to this cluster.

Kueue: config/components/rbac
"""

from __future__ import annotations

import msgspec

from kyu.api import kueue
from kyu.api.clusters.capacity import ClusterMetrics
from kyu.api.meta import Json, Kind
from kyu.api.workflows import Workflow

ADMIN_LABEL = "rbac.kueue.x-k8s.io/batch-admin"
USER_LABEL = "rbac.kueue.x-k8s.io/batch-user"
_EDIT = ["create", "delete", "get", "list", "patch", "update", "watch"]
_VIEW = ["get", "list", "watch"]
_VISIBILITY_GROUP = "visibility.kueue.x-k8s.io"


class Access(msgspec.Struct, frozen=True):
    """A kind, and the verbs that batch users get for it."""

    kind: Kind
    users: str = ""


_QUEUE_KINDS = (
    Access(kueue.ClusterQueue.KIND),
    Access(kueue.Cohort.KIND),
    Access(kueue.LocalQueue.KIND, users="viewer"),
    Access(kueue.ResourceFlavor.KIND),
    Access(kueue.Topology.KIND),
    Access(kueue.Workload.KIND, users="viewer"),
)
_JOB_KINDS = (
    Access(Kind("batch", "v1", "Job", "jobs"), users="editor"),
    Access(Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"), users="editor"),
    Access(Kind("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"), users="editor"),
    Access(Kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"), users="editor"),
    Access(Kind("kubeflow.org", "v1", "TFJob", "tfjobs"), users="editor"),
    Access(Kind("kubeflow.org", "v1", "XGBoostJob", "xgboostjobs"), users="editor"),
    Access(Kind("kubeflow.org", "v1", "PaddleJob", "paddlejobs"), users="editor"),
    Access(Kind("kubeflow.org", "v1", "JAXJob", "jaxjobs"), users="editor"),
    Access(Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"), users="editor"),
    Access(Kind("ray.io", "v1", "RayJob", "rayjobs"), users="editor"),
    Access(Kind("ray.io", "v1", "RayCluster", "rayclusters"), users="editor"),
    Access(Kind("ray.io", "v1", "RayService", "rayservices"), users="editor"),
    Access(Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"), users="editor"),
    Access(Kind("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications"), users="editor"),
)
# Not a kind of Kueue. A policy checks that the user may also create the kinds of the steps.
_OWN_KINDS = (Access(Workflow.KIND, users="editor"),)
# Job kinds that are not sent to other clusters, and one that is sent without being queued here.
_STAYING = frozenset({"JAXJob", "LeaderWorkerSet", "SparkApplication"})
_APP_WRAPPER = Kind("workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers")
_SENT_KINDS = (*(access.kind for access in _JOB_KINDS if access.kind.kind not in _STAYING), _APP_WRAPPER)


def cluster_roles() -> list[Json]:
    """Return all roles, the two aggregated ones first."""
    roles = [_collecting("kueue-batch-admin-role", ADMIN_LABEL), _collecting("kueue-batch-user-role", USER_LABEL)]
    for access in (*_QUEUE_KINDS, *_JOB_KINDS, *_OWN_KINDS):
        roles += [_kind_role(access, "editor"), _kind_role(access, "viewer")]
    roles += [_manager_role(), _publisher_role()]
    roles += [_pending_role("clusterqueues", "cq", [ADMIN_LABEL])]
    roles += [_pending_role("localqueues", "lq", [ADMIN_LABEL, USER_LABEL])]
    return roles


def _collecting(name: str, label: str) -> Json:
    return {
        **_role(name, []),
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]},
        "rules": [],
    }


def _kind_role(access: Access, what: str) -> Json:
    """Return the editor or viewer role of a kind. Administrators edit everything; users get the role in the table."""
    labels = [ADMIN_LABEL] if what == "editor" else []
    labels += [USER_LABEL] if what == access.users else []
    kind = access.kind
    rules = [
        {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": _EDIT if what == "editor" else _VIEW},
        {"apiGroups": [kind.group], "resources": [f"{kind.plural}/status"], "verbs": ["get"]},
    ]
    return {**_role(f"kueue-{kind.kind.lower()}-{what}-role", labels), "rules": rules}


def _manager_role() -> Json:
    """Return the role that the kubeconfig of a MultiKueueCluster needs in its cluster."""
    written = ["create", "delete", "get", "list", "patch", "watch"]
    rules: list[Json] = [
        {"apiGroups": [kueue.Workload.KIND.group], "resources": ["workloads"], "verbs": written},
        {"apiGroups": [kueue.Workload.KIND.group], "resources": ["workloads/status"], "verbs": ["get", "patch"]},
    ]
    for group in dict.fromkeys(kind.group for kind in _SENT_KINDS):
        plurals = [kind.plural for kind in _SENT_KINDS if kind.group == group]
        rules.append({"apiGroups": [group], "resources": plurals, "verbs": written})
    return {**_role("kueue-multikueue-manager-role", []), "rules": rules}


def _publisher_role() -> Json:
    """Return the role that `kyu cluster publish` needs in the hub."""
    kind = ClusterMetrics.KIND
    rules = [
        {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["create", "get", "patch"]},
        {"apiGroups": [kind.group], "resources": [f"{kind.plural}/status"], "verbs": ["patch"]},
    ]
    return {**_role("kyu-cluster-publisher-role", []), "rules": rules}


def _pending_role(plural: str, short: str, labels: list[str]) -> Json:
    rule = {"apiGroups": [_VISIBILITY_GROUP], "resources": [f"{plural}/pendingworkloads"], "verbs": ["get"]}
    return {**_role(f"kueue-pending-workloads-{short}-viewer-role", labels), "rules": [rule]}


def _role(name: str, labels: list[str]) -> Json:
    metadata: Json = {"name": name}
    if labels:
        metadata["labels"] = dict.fromkeys(labels, "true")
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata}
