"""
The objects of a fresh data folder that belong to the controllers: Kueue's ConfigMap and Deployment.

Settings are read from the ConfigMap live.
"""

from __future__ import annotations

from pathlib import Path

from kyu import log
from kyu.api import documents
from kyu.api.config import file
from kyu.api.config.config import Configuration
from kyu.api.meta import Json
from kyu.kinds import table


def controller_objects() -> list[Json]:
    """Return Kueue's namespace, its ConfigMap and its Deployment, which Kueue's instructions name."""
    namespace = file.SETTINGS.namespace
    made: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    return [made, settings_object(embedded_settings()), empty_deployment(namespace)]


def settings_object(text: str) -> Json:
    """Return the ConfigMap with the settings."""
    key = file.SETTINGS
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "data": {file.SETTINGS_FILE: text},
    }


def empty_deployment(namespace: str) -> Json:
    """Return a Deployment without pods, so that `kubectl rollout restart` and `status` work as with Kueue."""
    labels = {"control-plane": "controller-manager", "app.kubernetes.io/name": "kueue"}
    note = "the controllers run in the process of `kyu up`, which reads the settings live"
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "kyu.dev/host"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "kueue-controller-manager",
            "namespace": namespace,
            "labels": labels,
            "annotations": {"kubernetes.io/description": note},
        },
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def default_settings(**fields: Json) -> str:
    """Return settings that enable every integration."""
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": list(table.FRAMEWORKS)},
        **fields,
    }
    return documents.render([settings]).removeprefix("---\n")


def embedded_settings() -> str:
    """Return the default settings of `kyu up`, which also tell users finer reasons why a job waits."""
    return default_settings(featureGates={"UnadmittedWorkloadsObservability": True})


def read_configuration(path: Path | None, default: str) -> Configuration:
    """Return the settings of the file, or the default ones. They hold until the ConfigMap changes."""
    text = default if path is None else path.read_text()
    loaded = file.load(documents.parse(text)[0].value)
    for warning in loaded.warnings:
        log.warning("settings", source=path, warning=warning)
    return loaded.configuration
