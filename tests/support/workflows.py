"""Workflows of shell commands, and their state on a control plane."""

from __future__ import annotations

from kyu.api.meta import Json, Key
from kyu.api.workflows import Workflow
from tests.support.local_kyu import LocalKyu


def workflow(name: str, steps: list[Json], **spec: object) -> Json:
    return {
        "apiVersion": Workflow.KIND.api_version,
        "kind": "Workflow",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queue": "local", "steps": steps, **spec},
    }


def shell(name: str, script: str, *after: str, **more: object) -> Json:
    return {"name": name, "command": ["/bin/sh", "-c", script], "cpu": "50m", "after": list(after), **more}


def status(kyu: LocalKyu, name: str) -> Json:
    found: Json = kyu.client.get(Workflow.KIND, Key("default", name)).get("status") or {}
    return found


def states(kyu: LocalKyu, name: str) -> dict[str, str]:
    return {entry["name"]: entry["state"] for entry in status(kyu, name).get("steps") or ()}


def is_over(kyu: LocalKyu, name: str) -> bool:
    return status(kyu, name).get("state") in ("Succeeded", "Failed", "Cancelled")
