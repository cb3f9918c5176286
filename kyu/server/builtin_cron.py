"""
CronJobs: when they run, in which time zone, and what is refused.

A schedule has five fields (minute, hour, day, month, weekday) of lists, ranges and steps, or is a word such as
``@hourly``. Here it is only checked; nothing in this server starts the Jobs.

Called by: builtin.py. Kubernetes: pkg/apis/batch/validation, with the parser of robfig/cron.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final
from zoneinfo import available_timezones

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.builtin_checks import at_least_zero
from kyu.server.builtin_jobs import job_spec_faults

# The controller appends a dash and ten digits to make the name of a Job.
LONGEST_NAME: Final = 52
POLICIES: Final = ("Allow", "Forbid", "Replace")
NOT_NEGATIVE: Final = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
DESCRIPTORS: Final = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# Lowest and highest value of each field, and the names that stand for values from the lowest on.
FIELDS: Final[tuple[tuple[int, int, tuple[str, ...]], ...]] = (
    (0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, MONTHS), (0, 6, WEEKDAYS),
)  # fmt: skip
DURATION: Final = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)([\d.]+(ns|us|µs|ms|s|m|h))*|0")
ZONE: Final = re.compile(r"[A-Za-z0-9_+/-]+")


class BadSchedule(Exception):
    """Why a text is no schedule."""


def validate_cron_job(cron_job: Json) -> Iterator[FieldError]:
    yield from _spec_faults(cron_job["spec"])
    name = cron_job["metadata"].get("name", "")
    if len(name) > LONGEST_NAME:
        yield fields.invalid("metadata.name", name, f"must be no more than {LONGEST_NAME} characters")


def validate_cron_job_update(new: Json, old: Json) -> Iterator[FieldError]:
    """A schedule and a zone that were accepted once stay so."""
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
    try:
        check_schedule(schedule)
    except BadSchedule as problem:
        yield fields.invalid("spec.schedule", schedule, str(problem))
    if "TZ" in schedule:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        if has_zone:
            detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        yield fields.invalid("spec.schedule", schedule, detail)


def _zone_faults(zone: str) -> Iterator[FieldError]:
    if not zone:
        yield fields.invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")
    elif zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        yield fields.invalid("spec.timeZone", zone, detail)
    elif not ZONE.fullmatch(zone) or zone not in _zones():
        yield fields.invalid("spec.timeZone", zone, f"unknown time zone {zone}")


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def check_schedule(text: str) -> None:
    """Raises BadSchedule unless the text is one."""
    if text.startswith(("TZ=", "CRON_TZ=")):
        zone, _, text = text.partition(" ")
        if zone.partition("=")[2] not in _zones():
            raise BadSchedule(f"provided bad location {zone.partition('=')[2]}: unknown time zone")
        text = text.strip()
    if text.startswith("@"):
        _check_descriptor(text)
        return
    found = text.split()
    if len(found) != len(FIELDS):
        raise BadSchedule(f"expected exactly {len(FIELDS)} fields, found {len(found)}: [{' '.join(found)}]")
    for field, (lowest, highest, names) in zip(found, FIELDS, strict=True):
        for part in field.split(","):
            _check_part(part, lowest, highest, names)


def _check_descriptor(text: str) -> None:
    if text in DESCRIPTORS:
        return
    if text.startswith("@every "):
        if DURATION.fullmatch(text.removeprefix("@every ")):
            return
        raise BadSchedule(f"failed to parse duration {text}")
    raise BadSchedule(f"unrecognized descriptor: {text}")


def _check_part(part: str, lowest: int, highest: int, names: tuple[str, ...]) -> None:
    """``*``, ``5``, ``1-5``, each with or without a step ``/2``."""
    bounds, *steps = part.split("/")
    if len(steps) > 1:
        raise BadSchedule(f"too many slashes: {part}")
    ends = bounds.split("-")
    if len(ends) > 2:
        raise BadSchedule(f"too many hyphens: {part}")
    if ends[0] in ("*", "?"):
        first, last = lowest, highest
    else:
        first = _value(ends[0], lowest, names)
        # A single value with a step goes on to the end of the field.
        last = _value(ends[1], lowest, names) if len(ends) == 2 else highest if steps else first
    if steps and _value(steps[0], lowest, ()) == 0:
        raise BadSchedule(f"step of range should be a positive number: {part}")
    if first < lowest:
        raise BadSchedule(f"beginning of range ({first}) below minimum ({lowest}): {part}")
    if last > highest:
        raise BadSchedule(f"end of range ({last}) above maximum ({highest}): {part}")
    if first > last:
        raise BadSchedule(f"beginning of range ({first}) beyond end of range ({last}): {part}")


def _value(text: str, lowest: int, names: tuple[str, ...]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + lowest
    if text.startswith("-") and text[1:].isdecimal():
        raise BadSchedule(f"negative number ({text}) not allowed: {text}")
    if not (text.isascii() and text.isdecimal()):
        raise BadSchedule(f"failed to parse int from {text}: invalid syntax")
    return int(text)
