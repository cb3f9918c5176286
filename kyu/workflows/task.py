"""
The facts that a workflow engine gives about a job: its submitter, execution and type.

Names of the engine become names that Kubernetes and the schedulers accept. A valid name stays. Any other, or one that
looks as if it had a hash, gets a readable form with a hash of the original. So two names never become one.

Flyte: TaskExecutionMetadata.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

import msgspec

from kyu.api import names
from kyu.workflows.settings import Refusal

MAX_LABEL = 63
HASH_LENGTH = 8
DEFAULT_TYPE = "default"

_LABEL = re.compile(names.LABEL)
_HASHED = re.compile(rf".*-[0-9a-f]{{{HASH_LENGTH}}}", re.ASCII)
_BAD_CHARACTERS = re.compile(r"[^a-z0-9]+")

# The type of a job by its kind, if the engine gives none.
TYPE_OF_KIND = {
    "RayJob": "ray",
    "RayCluster": "ray",
    "RayService": "ray",
    "SparkApplication": "spark",
    "DaskCluster": "dask",
    "DaskJob": "dask",
    "PyTorchJob": "pytorch",
    "TFJob": "tensorflow",
    "MPIJob": "mpi",
    "XGBoostJob": "xgboost",
    "PaddleJob": "paddle",
    "JAXJob": "jax",
    "TrainJob": "train",
    "JobSet": "jobset",
    "Job": "job",
    "CronJob": "job",
    "Pod": "pod",
    "MiniCluster": "flux",
}


class Task(msgspec.Struct, frozen=True):
    """
    One job of a workflow.

    ``execution_id`` is the engine's own name for this run of the job. It must stay the same when the engine submits
    the job again after a restart, and be a new one for a new attempt: pods of one id are one application.
    """

    organization: str
    execution_id: str
    project: str = ""
    domain: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    # Empty: that of the object's kind.
    type: str = ""
    # The number of such pods under this execution id, if the object is a pod.
    array_size: int = 1


@lru_cache(maxsize=4096)
def safe_name(text: str) -> str:
    """Return a name of lower-case letters, digits and dashes, equal only for equal texts."""
    if len(text) <= MAX_LABEL and _LABEL.fullmatch(text) and not _HASHED.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]
    readable = _BAD_CHARACTERS.sub("-", text.lower()).strip("-")[: MAX_LABEL - HASH_LENGTH - 1].strip("-")
    return f"{readable or 'x'}-{digest}"


def queue_path(template: str, task: Task, type_: str) -> str | Refusal:
    """Fill in the template of a queue's name with safe names."""
    return fill(template, task.organization, task.project, task.domain, task.user, type_)


@lru_cache(maxsize=4096)
def fill(template: str, organization: str, project: str, domain: str, user: str, type_: str) -> str | Refusal:
    given = {"organization": organization, "project": project, "domain": domain, "user": user, "type": type_}
    missing = [name for name, value in given.items() if not value and f"{{{name}}}" in template]
    if missing:
        return Refusal(f"the queue is made by {template!r}, and no {missing[0]} is given", f"say the {missing[0]}")
    return template.format_map({name: safe_name(value) for name, value in given.items()})
