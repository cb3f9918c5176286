"""The table of job kinds. START HERE to find which kinds Kyu queues."""

from __future__ import annotations

from kyu.api.meta import Json, Kind
from kyu.kinds.app_wrapper import AppWrapper
from kyu.kinds.job import BatchJob
from kyu.kinds.job_set import JobSet
from kyu.kinds.kind import JobKind
from kyu.kinds.leader_worker_set import LeaderWorkerSet
from kyu.kinds.mini_cluster import MiniCluster
from kyu.kinds.pod import PlainPod
from kyu.kinds.ray.kinds import RayCluster, RayJob, RayService
from kyu.kinds.serving import Deployment, StatefulSet
from kyu.kinds.spark.application import SparkApplication
from kyu.kinds.through_jobs import CronJob
from kyu.kinds.training.kubeflow import TRAINING_KINDS
from kyu.kinds.training.mpi_job import MPIJob
from kyu.kinds.training.train_job import TrainJob


def find(obj: Json) -> JobKind | None:
    """Return the kind of an object, if it is a job."""
    return _BY_API.get((str(obj.get("apiVersion")), str(obj.get("kind"))))


KINDS: tuple[JobKind, ...] = (
    BatchJob(),
    PlainPod(),
    JobSet(),
    MPIJob(),
    *TRAINING_KINDS,
    TrainJob(),
    RayJob(),
    RayCluster(),
    RayService(),
    SparkApplication(),
    AppWrapper(find),
    Deployment(),
    StatefulSet(),
    LeaderWorkerSet(),
    CronJob(),
    MiniCluster(),
)

_BY_API = {(kind.api_version, kind.kind): job_kind for job_kind in KINDS for kind in job_kind.kinds}
# The kinds that a step of a Workflow may have: those that end. An AppWrapper makes other objects with the rights of its
# controller, so only its user can write one.
STEP_KINDS: tuple[JobKind, ...] = tuple(
    kind for kind in KINDS if kind.completion.rule != "NeverFinishes" and not isinstance(kind, AppWrapper)
)
# All names that integrations.frameworks of Kueue's configuration may hold.
FRAMEWORKS = tuple(job_kind.framework for job_kind in KINDS if job_kind.framework)


def find_kind(kind: Kind) -> JobKind | None:
    return _BY_API.get((kind.api_version, kind.kind))
