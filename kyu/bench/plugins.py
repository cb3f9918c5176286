"""
The cost of scheduler plugins: one object of every kind, rendered for Kueue and for YuniKorn, in CPU time on one core.

Each rendering has its own execution id, and includes the task groups and the check by the rules of the scheduler. Kinds
are rendered in turn. The fastest of several blocks counts, since other work on the machine only makes a block slower.

Called by: cli/admin/bench.py. Calls: workflows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

from kyu.api.meta import Json
from kyu.bench.engine import Row
from kyu.workflows import plugin, support
from kyu.workflows.queueconfig import QueueConfig
from kyu.workflows.task import Task

SCHEDULERS = ("kueue", "yunikorn")
MUST_PER_SECOND = 10_000
# Blocks of about this many renderings: short, so that some are undisturbed.
BLOCKS, BLOCK = 200, 50


def run(*, quick: bool) -> Iterator[Row]:
    """Yield a row for every kind, then one for all kinds in turn for each scheduler."""
    blocks = BLOCKS // 10 if quick else BLOCKS
    objects = [sample(row.api_version, row.kind) for row in support.ROWS]
    for obj in objects:
        rates = {name: rate(name, [obj], blocks) for name in SCHEDULERS}
        figures = [f"{name} {found:,.0f}/s" if found else f"{name} refuses it" for name, found in rates.items()]
        yield Row(obj["kind"], ", ".join(figures))
    for name in SCHEDULERS:
        found = rate(name, objects, blocks)
        yield Row(f"all kinds in turn, {name}", f"{found:,.0f}/s", found / MUST_PER_SECOND, ">= 1", ">= 1.4")


def rate(scheduler: str, objects: Sequence[Json], blocks: int) -> float:
    """Return the objects per second of CPU time that the scheduler accepts; 0 if it accepts none."""
    chosen = plugin.load(QueueConfig(scheduler))
    taken = [obj for obj in objects if isinstance(plugin.render(chosen, Task("acme", "e"), obj), plugin.Rendered)]
    turns = taken * (BLOCK // max(1, len(taken)))
    ids = itertools.count()
    costs = []
    for _ in range(blocks):
        started = time.process_time()
        for obj in turns:
            plugin.render(chosen, Task("acme", f"e{next(ids)}", user="ann"), obj)
        costs.append(time.process_time() - started)
    return len(turns) / min(costs)


def sample(api_version: str, kind: str) -> Json:
    """Return a small object of the kind, with requests for every role."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": specs()[kind]}


def specs() -> dict[str, Json]:
    requests = {"cpu": "1", "memory": "2Gi"}
    template: Json = {"spec": {"containers": [{"name": "main", "image": "i", "resources": {"requests": requests}}]}}
    cluster: Json = {
        "headGroupSpec": {"template": template},
        "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "template": template}],
    }
    dask: Json = {"scheduler": template, "worker": {"replicas": 2, **template}}
    job: Json = {"spec": {"parallelism": 2, "template": template}}
    return {
        "RayJob": {"rayClusterSpec": cluster, "shutdownAfterJobFinishes": True},
        "RayCluster": cluster,
        "RayService": {"rayClusterConfig": cluster},
        "SparkApplication": {"driver": {"memory": "1g"}, "executor": {"instances": 2, "memory": "1g"}},
        "DaskCluster": dask,
        "DaskJob": {"cluster": {"spec": dask}, "job": template},
        "PyTorchJob": roles("pytorchReplicaSpecs", template, "Master", "Worker"),
        "TFJob": roles("tfReplicaSpecs", template, "Chief", "Worker"),
        "MPIJob": roles("mpiReplicaSpecs", template, "Launcher", "Worker"),
        "XGBoostJob": roles("xgbReplicaSpecs", template, "Master", "Worker"),
        "PaddleJob": roles("paddleReplicaSpecs", template, "Master", "Worker"),
        "JAXJob": roles("jaxReplicaSpecs", template, "Worker"),
        "TrainJob": {"runtimeRef": {"name": "r"}},
        "JobSet": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": job}]},
        "Job": job["spec"],
        "CronJob": {"schedule": "* * * * *", "jobTemplate": job},
        "Pod": template["spec"],
        "MiniCluster": {"size": 2, "containers": [{"image": "i", "resources": {"requests": requests}}]},
    }


def roles(key: str, template: Json, *names: str) -> Json:
    return {key: {name: {"replicas": 1, "template": template} for name in names}}
