"""
Kinds that make batch Jobs, and are queued through those: CronJob here, Flux MiniCluster in its own file.

They are known by the queue label that they give to their Jobs. A CronJob's Jobs are made by the CronJob controller.

Kueue: site docs on running CronJobs.
"""

from __future__ import annotations

from kyu.api.meta import Json, Kind
from kyu.kinds import fields, metadata
from kyu.kinds.job import Job
from kyu.kinds.kind import Context, Finished, JobKind, Slot
from kyu.kinds.pods import NEVER_FINISHES
from kyu.kinds.templates import PodSet


class ThroughJobs(JobKind):
    """Never queued itself."""

    framework = ""
    queued_as = "its jobs"
    managed_by_path = None
    may_be_prebuilt = False
    job_labels: fields.Path

    def queue_name(self, obj: Json) -> str:
        return str(fields.json_at(obj, self.job_labels).get(metadata.QUEUE_NAME, ""))

    def is_managed(self, obj: Json, context: Context) -> bool:
        return False

    def workloads(self, obj: Json) -> list[tuple[str, list[PodSet]]]:
        return []

    def defaults(self, obj: Json, context: Context) -> Json:
        return obj


class CronJob(ThroughJobs):
    kinds = (Kind("batch", "v1", "CronJob", "cronjobs"),)
    completion = NEVER_FINISHES
    job_labels = ("spec", "jobTemplate", "metadata", "labels")

    def slots(self, obj: Json) -> list[Slot]:
        """The pods of one run."""
        job = fields.json_at(obj, ("spec", "jobTemplate"))
        return [
            Slot(s.name, ("spec", "jobTemplate", *s.template), s.count, s.min_count, s.ranks) for s in Job().slots(job)
        ]

    def is_active(self, obj: Json) -> bool:
        return bool(fields.list_at(obj, ("status", "active")))

    def pods_ready(self, obj: Json) -> bool:
        return True

    def finished(self, obj: Json) -> Finished | None:
        return None
