"""
What the controllers find at their first start: Kueue's settings, where users of Kueue look for them.

Called by: app.py, on_cluster.py. From then on the settings are read live.
"""

from __future__ import annotations

from pathlib import Path

from kyu import log
from kyu.api import config_file, documents
from kyu.api.config import Configuration
from kyu.api.meta import Json
from kyu.kinds import table


def first_objects() -> list[Json]:
    """What a fresh data folder has: Kueue's settings in its ConfigMap, and its Deployment, which instructions name."""
    namespace = config_file.SETTINGS.namespace
    made: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    return [made, settings_object(first_settings()), empty_deployment(namespace)]


def settings_object(text: str) -> Json:
    """The ConfigMap that says so."""
    key = config_file.SETTINGS
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "data": {config_file.SETTINGS_FILE: text},
    }


def empty_deployment(namespace: str) -> Json:
    """Can be restarted and waited for, as users of Kueue do after a change of its settings; it has no pods."""
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


def first_settings() -> str:
    """Every kind of job is queued."""
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": list(table.FRAMEWORKS)},
    }
    return documents.render([settings]).removeprefix("---\n")


def read_configuration(path: Path | None) -> Configuration:
    """The settings that hold until the ConfigMap says otherwise."""
    text = first_settings() if path is None else path.read_text()
    loaded = config_file.load(documents.parse(text)[0].value)
    for warning in loaded.warnings:
        log.warning("settings", source=path, warning=warning)
    return loaded.configuration
