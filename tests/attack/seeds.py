"""Valid objects of the kinds, from which hostile ones are made."""

from __future__ import annotations

from typing import Any

import msgspec

from kyu.api.meta import Json, Kind
from kyu.server.api import Api
from tests.support.servers import ask

NAMESPACE = "eve"
LABELS = {"a": "b"}
POD = {"containers": [{"name": "c", "image": "i", "command": ["true"]}], "restartPolicy": "Never"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD}
ALWAYS = {"metadata": {"labels": LABELS}, "spec": {**POD, "restartPolicy": "Always"}}
SELECTOR = {"matchLabels": LABELS}
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
JOB = {"template": TEMPLATE, "suspend": True}
SPECS: dict[str, Json] = {
    "Pod": {"spec": POD},
    "Job": {"spec": JOB},
    "CronJob": {"spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": JOB}}},
    "Deployment": {"spec": {"replicas": 0, "selector": SELECTOR, "template": ALWAYS}},
    "ReplicaSet": {"spec": {"replicas": 0, "selector": SELECTOR, "template": ALWAYS}},
    "StatefulSet": {"spec": {"replicas": 0, "selector": SELECTOR, "template": ALWAYS, "serviceName": "s"}},
    "DaemonSet": {"spec": {"selector": SELECTOR, "template": ALWAYS}},
    "ReplicationController": {"spec": {"replicas": 0, "selector": LABELS, "template": ALWAYS}},
    "Service": {"spec": {"ports": [{"port": 80}], "selector": LABELS}},
    "Role": {"rules": RULES},
    "ClusterRole": {"rules": RULES},
    "RoleBinding": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "x"}],
    },
    "ClusterRoleBinding": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "x"}],
    },
    "ConfigMap": {"data": {"k": "v"}},
    "Secret": {"data": {"k": "dg=="}, "type": "Opaque"},
    "PriorityClass": {"value": 1},
    "WorkloadPriorityClass": {"value": 1},
    "LocalQueue": {"spec": {"clusterQueue": "local"}},
    "ResourceFlavor": {"spec": {}},
    "Workload": {"spec": {"active": False, "podSets": [{"name": "main", "count": 1, "template": TEMPLATE}]}},
    "ClusterQueue": {
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {"coveredResources": ["cpu"],
                 "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}
            ],
        }
    },
    "Event": {"involvedObject": {"namespace": NAMESPACE}},
}  # fmt: skip


def seed(kind: Kind, name: str) -> Json:
    """Return a valid object, or nothing if the schema has to make one."""
    if kind.kind == "CustomResourceDefinition":
        return {"metadata": {"name": f"{name}.example.com"}, "spec": _definition(name)}
    if kind.kind not in SPECS:
        return {}
    content: Any = msgspec.json.decode(msgspec.json.encode(SPECS[kind.kind]))
    return {"metadata": {"name": name, "labels": dict(LABELS)}, **content}


def _definition(name: str) -> Json:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 10}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": name.replace("-", "").title(), "plural": name, "singular": name + "x"}
    return {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}


async def prepare(api: Api) -> None:
    """Make the namespace."""
    body = msgspec.json.encode({"metadata": {"name": NAMESPACE}})
    response = await ask(api, "POST", "/api/v1/namespaces", body, content_type="application/json")
    assert response.status == 201, response
