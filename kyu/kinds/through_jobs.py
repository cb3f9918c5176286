"""
Kinds that make batch Jobs, and are queued through those: CronJob here, Flux MiniCluster in its own file.

They are known by the queue label that they give to their Jobs. A CronJob's Jobs are made by the CronJob controller.

Kueue: site docs on running CronJobs.
"""

from __future__ import annotations

from kyu.api.meta import Json, Kind
from kyu.kinds import fields, metadata
from kyu.kinds.job import BatchJob
from kyu.kinds.kind import Context, Finished, JobKind, Slot
from kyu.kinds.pods import NEVER_FINISHES
from kyu.kinds.templates import PodSetTemplate


class ThroughJobs(JobKind):
    """Never queued itself."""

    framework = ""
    queued_as = "its jobs"
    managed_by_path = None
    may_be_prebuilt = False
    job_labels: fields.Path

    def queue_name(self, obj: Json) -> str:
        return str(fields.json_at(obj, self.job_labels).get(metadata.QUEUE_NAME, ""))

    def with_label(self, obj: Json, key: str, value: str) -> Json:
        """Return the object whose Jobs have the label."""
        return fields.with_value(obj, (*self.job_labels, key), value)

    def is_managed(self, obj: Json, context: Context) -> bool:
        return False

    def workloads(self, obj: Json) -> list[tuple[str, list[PodSetTemplate]]]:
        return []

    def defaults(self, obj: Json, context: Context) -> Json:
        """Return the object with the default queue in the labels of its Jobs."""
        if not context.has_default_queue or context.owner_is_managed or self.queue_name(obj):
            return obj
        return fields.with_value(obj, (*self.job_labels, metadata.QUEUE_NAME), metadata.DEFAULT_NAME)


class CronJob(ThroughJobs):
    kinds = (Kind("batch", "v1", "CronJob", "cronjobs"),)
    completion = NEVER_FINISHES
    job_labels = ("spec", "jobTemplate", "metadata", "labels")

    def slots(self, obj: Json) -> list[Slot]:
        """Return the pod set of one run."""
        job = fields.json_at(obj, ("spec", "jobTemplate"))
        return [
            Slot(s.name, ("spec", "jobTemplate", *s.template), s.count, s.min_count, s.ranks)
            for s in BatchJob().slots(job)
        ]

    def is_active(self, obj: Json) -> bool:
        return bool(fields.list_at(obj, ("status", "active")))

    def pods_ready(self, obj: Json) -> bool:
        return True

    def finished(self, obj: Json) -> Finished | None:
        return None
