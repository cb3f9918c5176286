"""The resources of a Snakemake job, in the words of the SDK. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The operators of `kueue_operator`, and the kinds of objects that they stand for.
JOB, FLUX = "job", "flux-operator"
MEBIBYTE = 1024**2


class BadResource(ValueError):
    """A resource of a rule that cannot be honoured. The message names it."""


def job_options(resources: Mapping[str, Any], settings: Any, threads: int) -> dict[str, Any]:
    """Return the options of a job: those of its rule, then those of the command line."""
    options: dict[str, Any] = {"cpu": resources.get("_cores") or threads}
    if amount := memory(resources):
        options["memory"] = amount
    if gpus := resources.get("gpu") or resources.get("nvidia_gpu"):
        options["gpu"] = gpus
    if minutes := resources.get("runtime"):
        # Snakemake counts in minutes. The time counts from the admission of the job.
        options["time"] = seconds("runtime", minutes) * 60
    found = {
        "queue": resources.get("kyu_queue") or settings.queue_name,
        "priority": resources.get("kyu_priority") or settings.priority,
        "image": resources.get("container") or settings.container,
        "retries": settings.retries,
        "cwd": settings.working_dir,
        "mounts": mounts(settings.mounts),
    }
    return options | {name: value for name, value in found.items() if value}


def memory(resources: Mapping[str, Any]) -> str:
    """Return the memory of a job: `kueue_memory` as it is, else that of Snakemake."""
    if amount := resources.get("kueue_memory"):
        return str(amount)
    if amount := resources.get("mem_mib"):
        return f"{seconds('mem_mib', amount)}Mi"
    return f"{seconds('mem_mb', amount)}M" if (amount := resources.get("mem_mb")) else ""


def seconds(name: str, value: Any) -> int:
    """Return a number of a rule. Snakemake has parsed it, unless it is known only when the job runs."""
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadResource(f"{name}={value}: expected a number") from None


def mounts(text: str | None) -> dict[str, str]:
    """Parse PATH=CLAIM,PATH=CLAIM."""
    pairs = [part.partition("=") for part in (text or "").split(",") if part]
    if wrong := [path for path, separator, claim in pairs if not (path.startswith("/") and separator and claim)]:
        raise BadResource(f"--kyu-mounts {wrong[0]}: write PATH=CLAIM, for example /data=my-claim")
    return {path: claim for path, _, claim in pairs}


def operator(resources: Mapping[str, Any]) -> str:
    wanted = str(resources.get("kueue_operator") or JOB)
    if wanted not in (JOB, FLUX):
        raise BadResource(f"kueue_operator={wanted}: known are {JOB} and {FLUX}")
    return wanted


def mini_cluster(
    name: str, command: str, options: Mapping[str, Any], resources: Mapping[str, Any], settings: Any
) -> dict[str, Any]:
    """Return a MiniCluster whose first pod runs the command. Its Job is queued by ``jobLabels``."""
    if "queue" not in options:
        raise BadResource(f"kueue_operator={FLUX} needs a queue: --kyu-queue-name")
    if wrong := [key for key in ("mounts", "retries") if key in options]:
        raise BadResource(f"kueue_operator={FLUX}: --kyu-{wrong[0]} is not known there")
    labels = {"kueue.x-k8s.io/queue-name": options["queue"]}
    if "priority" in options:
        labels["kueue.x-k8s.io/priority-class"] = options["priority"]
    requests = {"cpu": str(options["cpu"])} | ({"memory": options["memory"]} if "memory" in options else {})
    if "gpu" in options:
        requests["nvidia.com/gpu"] = str(options["gpu"])
    container: dict[str, Any] = {
        "image": options.get("image", "kyu.dev/host"),
        "command": command,
        "launcher": True,
        "resources": {"requests": requests, "limits": {key: value for key, value in requests.items() if key != "cpu"}},
    }
    if "cwd" in options:
        container["workingDir"] = options["cwd"]
    spec: dict[str, Any] = {
        "size": int(resources.get("_nodes") if (resources.get("_nodes") or 1) > 1 else settings.nodes or 1),
        "tasks": int(resources.get("kueue_tasks") or 1),
        "jobLabels": labels,
        "containers": [container],
    }
    if "time" in options:
        spec["deadlineSeconds"] = options["time"]
    if settings.flux_container:
        spec["flux"] = {"container": {"image": settings.flux_container}}
    meta = {"name": name}
    return {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": meta, "spec": spec}
