"""
The table of kinds and schedulers: what each plugin writes for each kind of object.

It is data for people, shown by ``kyu plugin list`` and in the docs, and checked against what the plugins really do.

Used by: cli/plugin.py, docs.
"""

from __future__ import annotations

from dataclasses import dataclass

from kyu.workflows.task import TYPE_OF_KIND

LABEL = "queue label on the object"
JOB_LABEL = "queue label on the Jobs that it makes"
GROUP = "queue label and pod group on each pod"
ARRAY = "queue label; a pod group for arrays"
WITHOUT_TEMPLATES = "refused: it has no pod templates"


@dataclass(frozen=True, slots=True)
class Row:
    api_version: str
    kind: str
    kueue: str
    yunikorn: str

    @property
    def type(self) -> str:
        return TYPE_OF_KIND[self.kind]


ROWS = (
    Row("ray.io/v1", "RayJob", LABEL, "headgroup, each worker group (its minimum if it autoscales)"),
    Row("ray.io/v1", "RayCluster", LABEL, "headgroup, each worker group (its minimum if it autoscales)"),
    Row("ray.io/v1", "RayService", LABEL, "headgroup, each worker group (its minimum if it autoscales)"),
    Row("sparkoperator.k8s.io/v1beta2", "SparkApplication", LABEL, "spark-driver, spark-executor (initial executors)"),
    Row("kubernetes.dask.org/v1", "DaskCluster", GROUP, "scheduler, worker"),
    Row("kubernetes.dask.org/v1", "DaskJob", GROUP, "scheduler, worker, runner"),
    Row("kubeflow.org/v1", "PyTorchJob", LABEL, "master, worker"),
    Row("kubeflow.org/v1", "TFJob", LABEL, "chief, master, ps, worker, evaluator"),
    Row("kubeflow.org/v2beta1", "MPIJob", LABEL, "launcher, worker"),
    Row("kubeflow.org/v1", "XGBoostJob", LABEL, "master, worker"),
    Row("kubeflow.org/v1", "PaddleJob", LABEL, "master, worker"),
    Row("kubeflow.org/v1", "JAXJob", LABEL, "worker"),
    Row("trainer.kubeflow.org/v1alpha1", "TrainJob", LABEL, WITHOUT_TEMPLATES),
    Row("jobset.x-k8s.io/v1alpha2", "JobSet", LABEL, "each replicated job"),
    Row("batch/v1", "Job", LABEL, "main"),
    Row("batch/v1", "CronJob", JOB_LABEL, "main, for each run"),
    Row("v1", "Pod", ARRAY, "main"),
    Row("flux-framework.org/v1alpha2", "MiniCluster", JOB_LABEL, "flux"),
)
