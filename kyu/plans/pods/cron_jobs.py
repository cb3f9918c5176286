"""
A CronJob → its Jobs: one for each time of its schedule, as far as its policies let it.

A Job's name holds the time that it is for, so the same run is never made twice. After a pause only the latest missed
run is made up for. Old Jobs go when there are more than the history limits keep.

Kubernetes: pkg/controller/cronjob
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from kyu.api import cron
from kyu.api.actions import Action, Create, Delete, Event, Patch, View, WakeAt
from kyu.api.meta import Json, Key, Kind, Ref, key_of
from kyu.kinds import conditions, fields, metadata, pods
from kyu.kinds.job import JOB

CRON_JOB = Kind("batch", "v1", "CronJob", "cronjobs")
SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
DEFAULT_ZONE = "Etc/UTC"


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    cron_job = view.find_json(CRON_JOB, key)
    if cron_job is None or metadata.is_deleted(cron_job):
        return []
    jobs = view.owned_by(JOB, metadata.uid_of(cron_job))
    result: list[Action] = [*status_actions(cron_job, jobs), *history_actions(cron_job, jobs)]
    if fields.value_at(cron_job, ("spec", "suspend")) is True:
        return result
    return [*result, *run_actions(cron_job, jobs, now)]


def run_actions(cron_job: Json, jobs: Sequence[Json], now: datetime) -> list[Action]:
    """Make the run that is due, and ask again when the next one is."""
    zone_name = fields.text_at(cron_job, ("spec", "timeZone")) or DEFAULT_ZONE
    zone = cron.find_zone(zone_name)
    if zone is None:
        return [tell(cron_job, "UnknownTimeZone", f'invalid timeZone: "{zone_name}"', warning=True)]
    try:
        schedule = cron.parse(fields.text_at(cron_job, ("spec", "schedule")))
    except cron.ScheduleError as error:
        return [tell(cron_job, "UnparseableSchedule", f"unparseable schedule: {error}", warning=True)]
    result: list[Action] = []
    due = cron.last_run(schedule, earliest(cron_job, now), now, zone)
    if due is not None:
        result += start_actions(cron_job, jobs, due)
    following = cron.next_run(schedule, now if due is None else max(now, due), zone)
    return result if following is None else [*result, WakeAt(following)]


def earliest(cron_job: Json, now: datetime) -> datetime:
    """Return the time up to which runs are past: they were made, or are too late."""
    last = fields.text_at(cron_job, ("status", "lastScheduleTime"))
    start = conditions.parse_timestamp(last or fields.text_at(cron_job, ("metadata", "creationTimestamp")))
    deadline = fields.value_at(cron_job, ("spec", "startingDeadlineSeconds"))
    if isinstance(deadline, int):
        # A run at the very edge still counts.
        start = max(start, conditions.add_seconds(now - timedelta(microseconds=1), -deadline))
    return start


def start_actions(cron_job: Json, jobs: Sequence[Json], due: datetime) -> list[Action]:
    job = make_job(cron_job, due)
    name = job["metadata"]["name"]
    result: list[Action] = []
    if all(metadata.name_of(present) != name for present in jobs):
        active = [present for present in jobs if not is_finished(present)]
        policy = fields.text_at(cron_job, ("spec", "concurrencyPolicy"))
        if active and policy == "Forbid":
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            return [tell(cron_job, "JobAlreadyActive", message)]
        if policy == "Replace":
            for present in active:
                result.append(Delete(job_ref(present), metadata.uid_of(present)))
                result.append(tell(cron_job, "SuccessfulDelete", f"Deleted job {present['metadata']['name']}"))
        result += [Create(JOB, job), tell(cron_job, "SuccessfulCreate", f"Created job {name}")]
    return [*result, Patch(ref(cron_job), {"status": {"lastScheduleTime": conditions.timestamp(due)}}, "status")]


def make_job(cron_job: Json, due: datetime) -> Json:
    template = fields.json_at(cron_job, ("spec", "jobTemplate"))
    meta = fields.json_at(template, ("metadata",))
    minutes = int(due.timestamp()) // 60
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "name": f"{metadata.name_of(cron_job)}-{minutes}",
            "namespace": fields.text_at(cron_job, ("metadata", "namespace")),
            "labels": meta.get("labels") or {},
            "annotations": {**(meta.get("annotations") or {}), SCHEDULED_AT: conditions.timestamp(due)},
            "ownerReferences": [pods.owner_reference(cron_job)],
        },
        "spec": fields.json_at(template, ("spec",)),
    }


def status_actions(cron_job: Json, jobs: Sequence[Json]) -> list[Action]:
    """Update the list of running Jobs, and the time of the last success."""
    active = [
        {
            "apiVersion": JOB.api_version,
            "kind": JOB.kind,
            "namespace": fields.text_at(job, ("metadata", "namespace")),
            "name": metadata.name_of(job),
            "uid": metadata.uid_of(job),
        }
        for job in jobs
        if not is_finished(job)
    ]
    present = fields.json_at(cron_job, ("status",))
    wanted: Json = {**present, "active": active}
    if not active:
        wanted.pop("active")
    succeeded = [fields.text_at(job, ("status", "completionTime")) for job in jobs]
    if latest := max([*succeeded, fields.text_at(cron_job, ("status", "lastSuccessfulTime"))], default=""):
        wanted["lastSuccessfulTime"] = latest
    patch = fields.merge_patch(present, wanted)
    return [Patch(ref(cron_job), {"status": patch}, "status")] if patch else []


def history_actions(cron_job: Json, jobs: Sequence[Json]) -> list[Action]:
    """Delete the oldest Jobs beyond the limits, with their pods."""
    result: list[Action] = []
    for end, field, default in (
        ("Complete", "successfulJobsHistoryLimit", 3),
        ("Failed", "failedJobsHistoryLimit", 1),
    ):
        limit = fields.int_at(cron_job, ("spec", field), default)
        ended = sorted((job for job in jobs if conditions.is_true(job, end)), key=start_time)
        for job in ended[: max(0, len(ended) - limit)]:
            result.append(Delete(job_ref(job), metadata.uid_of(job)))
            result.append(tell(cron_job, "SuccessfulDelete", f"Deleted job {job['metadata']['name']}"))
    return result


def start_time(job: Json) -> str:
    return fields.text_at(job, ("status", "startTime")) or fields.text_at(job, ("metadata", "creationTimestamp"))


def is_finished(job: Json) -> bool:
    return conditions.is_true(job, "Complete") or conditions.is_true(job, "Failed")


def tell(cron_job: Json, reason: str, message: str, *, warning: bool = False) -> Event:
    uid = metadata.uid_of(cron_job)
    return Event(ref(cron_job), "Warning" if warning else "Normal", reason, message, uid)


def ref(cron_job: Json) -> Ref:
    return Ref(CRON_JOB, key_of(cron_job))


def job_ref(job: Json) -> Ref:
    return Ref(JOB, key_of(job))
