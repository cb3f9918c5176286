"""
Workloads that differ as those of users do: in names, labels, images, arguments, environment and requests.

Everything follows from the key of a Workload, so two runs write the same objects.

Called by: bench/server.py, bench/pretended.py.
"""

from __future__ import annotations

import random
from typing import Final

from kyu.api.meta import Json, Key

TEAMS: Final = ("vision", "speech", "genomics", "climate", "finance")
USERS: Final = tuple(f"user-{number}" for number in range(40))
PROGRAMS: Final = ("train.py", "evaluate.py", "simulate", "align_reads.sh", "export_model.py", "sweep.py")
DATASETS: Final = tuple(f"/data/set-{number:03d}" for number in range(200))
VARIABLES: Final = ("WANDB_MODE", "NCCL_DEBUG", "OMP_NUM_THREADS", "PYTHONHASHSEED", "TMPDIR", "HF_HOME", "RUN_ID")


def workload(key: Key, queue: str, *, cpu: str, priority: int) -> Json:
    """Return the Workload of a job with one pod, as Kueue's job controller would create it."""
    chance = random.Random(f"{key.namespace}/{key.name}")
    user, team, program = chance.choice(USERS), chance.choice(TEAMS), chance.choice(PROGRAMS)
    labels = {"team": team, "user": user, "run": f"{chance.getrandbits(128):032x}"}
    # No ownerReferences: the garbage collector would delete a Workload without its Job.
    metadata = {"name": key.name, "namespace": key.namespace, "labels": labels}
    container = {
        "name": "main",
        "image": f"registry.example.com/{team}/{program.partition('.')[0]}:{chance.randint(1, 30)}",
        "command": ["python", program],
        "args": _arguments(chance),
        "env": _environment(chance),
        "resources": {"requests": {"cpu": cpu, "memory": f"{chance.choice((1, 2, 3, 4, 6, 8, 12, 16))}Gi"}},
    }
    template = {"metadata": {"labels": {"app": user}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_set = {"name": "main", "count": 1, "template": template}
    return {"metadata": metadata, "spec": {"queueName": queue, "priority": priority, "podSets": [pod_set]}}


def admitted(obj: Json, now: str) -> Json:
    """Return the status that a scheduler applies to a Workload when it is admitted."""
    metadata, spec = obj["metadata"], obj["spec"]
    queue, pod_set = spec["queueName"], spec["podSets"][0]
    usage = pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]
    message = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {len(metadata['name'])}s"
    conditions = [
        {"type": type_, "status": "True", "reason": type_, "message": message, "lastTransitionTime": now}
        for type_ in ("QuotaReserved", "Admitted")
    ]
    assignment = {
        "name": pod_set["name"],
        "flavors": dict.fromkeys(usage, "rf"),
        "resourceUsage": usage,
        "count": pod_set["count"],
    }
    status = {"conditions": conditions, "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]}}
    return {"metadata": {"name": metadata["name"], "namespace": metadata["namespace"]}, "status": status}


def _arguments(chance: random.Random) -> list[str]:
    found = ["--data", chance.choice(DATASETS), "--seed", str(chance.randint(0, 9999))]
    for name in chance.sample(("--epochs", "--batch-size", "--workers", "--fold", "--depth"), chance.randint(0, 4)):
        found += [name, str(chance.randint(1, 256))]
    return found


def _environment(chance: random.Random) -> list[Json]:
    names = chance.sample(VARIABLES, chance.randint(1, 5))
    return [{"name": name, "value": f"{chance.randint(0, 10_000)}"} for name in names]
