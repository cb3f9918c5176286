"""
The objects that run a shadow beside an installed Kueue: an account that may only read, and one replica.

Called by: cli/admin/manifests.py. Calls: install/objects.py.
"""

from __future__ import annotations

from kyu.api.core import CONFIG_MAP, DEFINITION
from kyu.api.meta import Json
from kyu.controllers.scheduler import TYPE_BY_KIND
from kyu.install import objects
from kyu.shadow.report import PATH

NAME = "kyu-shadow"
LABELS = {"app.kubernetes.io/name": "kyu", "control-plane": NAME}
METADATA = {"name": NAME, "namespace": objects.NAMESPACE}


def shadow_objects(image: str) -> list[Json]:
    """Return all objects. They need nothing but the definitions of an installed Kueue."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": objects.NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": METADATA},
        objects.role("ClusterRole", {"name": NAME}, rules()),
        objects.binding("ClusterRole", {"name": NAME}, METADATA),
        _deployment(image),
    ]


def rules() -> list[Json]:
    """Return the rights of a shadow: to read, and to show its own report and metrics."""
    return [
        *objects.rules({*TYPE_BY_KIND, CONFIG_MAP, DEFINITION}, objects.READ),
        {"nonResourceURLs": [PATH, "/metrics"], "verbs": ["get"]},
    ]


def _deployment(image: str) -> Json:
    container = objects.container(image, ["kyu", "controller", "--shadow"])
    container["ports"] = [port for port in container["ports"] if port["name"] in ("health", "metrics")]
    pod = {
        "serviceAccountName": NAME,
        "securityContext": objects.POD_SECURITY,
        "containers": [container],
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
