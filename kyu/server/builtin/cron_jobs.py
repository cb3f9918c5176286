"""
Validation of CronJobs: schedule, time zone, limits, the template of the Jobs.

Kubernetes: pkg/apis/batch/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kyu.api import cron
from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.builtin.jobs import job_spec_faults
from kyu.server.validation.checks import at_least_zero

# The controller appends a dash and ten digits to make the name of a Job.
LONGEST_NAME: Final = 52
LONGEST_SCHEDULE: Final = 1_024
POLICIES: Final = ("Allow", "Forbid", "Replace")
NOT_NEGATIVE: Final = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")


def validate_cron_job(cron_job: Json) -> Iterator[FieldError]:
    yield from _spec_faults(cron_job["spec"])
    name = cron_job["metadata"].get("name", "")
    if len(name) > LONGEST_NAME:
        yield fields.invalid("metadata.name", name, f"must be no more than {LONGEST_NAME} characters")


def validate_cron_job_update(new: Json, old: Json) -> Iterator[FieldError]:
    """Validate an update. An unchanged schedule or time zone stays valid."""
    kept = {f"spec.{name}" for name in ("schedule", "timeZone") if new["spec"].get(name) == old["spec"].get(name)}
    yield from (fault for fault in _spec_faults(new["spec"]) if fault.field not in kept)


def _spec_faults(spec: Json) -> Iterator[FieldError]:
    schedule = spec.get("schedule", "")
    if not schedule:
        yield fields.required("spec.schedule")
    else:
        yield from _schedule_faults(schedule, has_zone=spec.get("timeZone") is not None)
    yield from at_least_zero("spec.", spec, *NOT_NEGATIVE)
    if spec.get("timeZone") is not None:
        yield from _zone_faults(spec["timeZone"])
    if spec.get("concurrencyPolicy") not in POLICIES:
        yield fields.not_supported("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), POLICIES)
    template, path = spec["jobTemplate"]["spec"], "spec.jobTemplate.spec"
    yield from job_spec_faults(template, path)
    if template.get("manualSelector"):
        yield fields.not_supported(f"{path}.manualSelector", True, ("nil", "false"))


def _schedule_faults(schedule: str, *, has_zone: bool) -> Iterator[FieldError]:
    if len(schedule) > LONGEST_SCHEDULE:
        yield fields.too_long("spec.schedule", "", LONGEST_SCHEDULE)
        return
    try:
        cron.parse(schedule)
    except cron.ScheduleError as problem:
        yield fields.invalid("spec.schedule", schedule, str(problem))
    if "TZ" in schedule:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        if has_zone:
            detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        yield fields.invalid("spec.schedule", schedule, detail)


def _zone_faults(zone: str) -> Iterator[FieldError]:
    if len(zone) > LONGEST_SCHEDULE:
        yield fields.too_long("spec.timeZone", "", LONGEST_SCHEDULE)
    elif not zone:
        yield fields.invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")
    elif zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        yield fields.invalid("spec.timeZone", zone, detail)
    elif cron.find_zone(zone) is None:
        yield fields.invalid("spec.timeZone", zone, f"unknown time zone {zone}")
