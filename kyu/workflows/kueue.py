"""
The plugin for Kueue: a queue label on kinds that Kueue queues, a pod group for others.

Kueue admits all pods of a job at once and leaves their placement to kube-scheduler, so no scheduler name is set. Pods
of other kinds are gated one by one, so each carries the name of its group as a label and its size as an annotation.
That works only if all pods are created without waiting for each other.

Kueue: site docs on plain pods and on the job integrations.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from kyu.kinds import fields, metadata, table
from kyu.kinds.kind import JobKind
from kyu.workflows import roles
from kyu.workflows.queueconfig import QueueConfig
from kyu.workflows.settings import Refusal, Setting
from kyu.workflows.submission import Submission
from kyu.workflows.task import queue_path, safe_name

DEFAULT_QUEUE = "{organization}.{type}"
OBJECT_LABELS: fields.Path = ("metadata", "labels")
OBJECT_ANNOTATIONS: fields.Path = ("metadata", "annotations")
# Kinds whose label must be elsewhere than on the object to reach the Jobs that they create.
LABELS_OF_JOBS: dict[str, fields.Path] = {
    "MiniCluster": ("spec", "jobLabels"),
    "CronJob": ("spec", "jobTemplate", "metadata", "labels"),
}
OFF_BY_DEFAULT = ("sparkoperator.k8s.io/sparkapplication",)


class KueuePlugin:
    name = "kueue"

    def __init__(self, config: QueueConfig, frameworks: Iterable[str] = table.FRAMEWORKS) -> None:
        """``frameworks`` are those enabled in Kueue's configuration."""
        self.settings = lru_cache(config.settings)
        self.frameworks = frozenset(frameworks)

    def set_scheduler_name(self, job: Submission) -> list[Setting] | Refusal:
        return []

    def create_labels(self, job: Submission) -> list[Setting] | Refusal:
        found = self.known_kind(job)
        if isinstance(found, Refusal):
            return found
        queue, why = self.queue(job), "the LocalQueue of this organisation and type of job"
        if isinstance(queue, Refusal):
            return queue
        if found is not None:
            place = LABELS_OF_JOBS.get(job.kind, OBJECT_LABELS)
            return [Setting(place, metadata.QUEUE_NAME, queue, why)]
        pods = job.roles
        if isinstance(pods, Refusal):
            return pods
        return [Setting(role.labels, metadata.QUEUE_NAME, queue, f"{why}, on each pod") for role in pods]

    def create_group_labels(self, job: Submission) -> list[Setting] | Refusal:
        found = self.known_kind(job)
        if isinstance(found, Refusal):
            return found
        if found is None:
            pods = job.roles
            return pods if isinstance(pods, Refusal) else self.group(job, pods)
        if job.kind != "Pod" or job.task.array_size == 1:
            return []
        if metadata.labels_of(job.object).get("spark-role") == "driver":
            return Refusal(
                "a Spark driver in a pod group waits for executors that only the running driver makes: a deadlock",
                "submit a SparkApplication, or the driver alone",
            )
        place = (OBJECT_LABELS, OBJECT_ANNOTATIONS)
        return group_settings(*place, job.application_id, job.task.array_size)

    def get_group_labels(self, job: Submission) -> tuple[dict[str, str], dict[str, str]]:
        return on_object([self.create_labels(job), self.create_group_labels(job)])

    def notes(self, job: Submission) -> list[str]:
        notes = []
        kind = job.job_kind
        if kind is not None and kind.framework in OFF_BY_DEFAULT:
            notes.append(f"Kueue needs {kind.framework} in integrations.frameworks, which is off by default")
        settings = self.settings(job.type)
        if str(settings.gang):
            notes.append("gangscheduling has no meaning for Kueue, which admits all pods of a job at once")
        if settings.allow_preemption is not None:
            notes.append("allow-preemption has no meaning for Kueue: the ClusterQueue defines its preemption")
        return notes

    def queue(self, job: Submission) -> str | Refusal:
        own = self.settings(job.type)
        name = queue_path(own.queue or DEFAULT_QUEUE, job.task, own.type)
        if isinstance(name, Refusal) or len(name) <= metadata.MAX_LABEL_VALUE:
            return name
        return safe_name(name)

    def known_kind(self, job: Submission) -> JobKind | Refusal | None:
        """Return the kind of the object if Kueue queues it itself."""
        kind = job.job_kind
        if kind is None or not kind.framework or kind.framework in self.frameworks:
            return kind
        return Refusal(
            f"Kueue would ignore this {kind.kind.kind}: {kind.framework} is not among its frameworks",
            "add it to integrations.frameworks in Kueue's configuration",
        )

    def group(self, job: Submission, pods: list[roles.Role]) -> list[Setting]:
        total = sum(role.count for role in pods)
        return [s for role in pods for s in group_settings(role.labels, role.annotations, job.application_id, total)]


def group_settings(labels: fields.Path, annotations: fields.Path, name: str, total: int) -> list[Setting]:
    return [
        Setting(labels, metadata.POD_GROUP_NAME, name, "all pods of this execution are admitted together"),
        Setting(annotations, metadata.POD_GROUP_TOTAL_COUNT, str(total), "how many pods Kueue waits for"),
    ]


def on_object(answers: Iterable[list[Setting] | Refusal]) -> tuple[dict[str, str], dict[str, str]]:
    settings = [setting for answer in answers if not isinstance(answer, Refusal) for setting in answer]
    labels = {s.key: s.value for s in settings if s.place == OBJECT_LABELS}
    return labels, {s.key: s.value for s in settings if s.place == OBJECT_ANNOTATIONS}
