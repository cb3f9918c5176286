"""
The table of kinds and schedulers: what each plugin writes on each kind of object.

``kyu plugin list`` and the docs show it, and a test checks it against the plugins.
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
class SupportRow:
    api_version: str
    kind: str
    kueue: str
    yunikorn: str

    @property
    def type(self) -> str:
        return TYPE_OF_KIND[self.kind]


ROWS = (
    SupportRow("ray.io/v1", "RayJob", LABEL, "headgroup, each worker group (its minimum if it autoscales)"),
    SupportRow("ray.io/v1", "RayCluster", LABEL, "headgroup, each worker group (its minimum if it autoscales)"),
    SupportRow("ray.io/v1", "RayService", LABEL, "headgroup, each worker group (its minimum if it autoscales)"),
    SupportRow(
        "sparkoperator.k8s.io/v1beta2", "SparkApplication", LABEL, "spark-driver, spark-executor (initial executors)"
    ),
    SupportRow("kubernetes.dask.org/v1", "DaskCluster", GROUP, "scheduler, worker"),
    SupportRow("kubernetes.dask.org/v1", "DaskJob", GROUP, "scheduler, worker, runner"),
    SupportRow("kubeflow.org/v1", "PyTorchJob", LABEL, "master, worker"),
    SupportRow("kubeflow.org/v1", "TFJob", LABEL, "chief, master, ps, worker, evaluator"),
    SupportRow("kubeflow.org/v2beta1", "MPIJob", LABEL, "launcher, worker"),
    SupportRow("kubeflow.org/v1", "XGBoostJob", LABEL, "master, worker"),
    SupportRow("kubeflow.org/v1", "PaddleJob", LABEL, "master, worker"),
    SupportRow("kubeflow.org/v1", "JAXJob", LABEL, "worker"),
    SupportRow("trainer.kubeflow.org/v1alpha1", "TrainJob", LABEL, WITHOUT_TEMPLATES),
    SupportRow("jobset.x-k8s.io/v1alpha2", "JobSet", LABEL, "each replicated job"),
    SupportRow("batch/v1", "Job", LABEL, "main"),
    SupportRow("batch/v1", "CronJob", JOB_LABEL, "main, for each run"),
    SupportRow("v1", "Pod", ARRAY, "main"),
    SupportRow("flux-framework.org/v1alpha2", "MiniCluster", JOB_LABEL, "flux"),
)
