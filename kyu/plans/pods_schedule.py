"""
Schedules of CronJobs: ``*/15 9-17 * * MON-FRI``, ``@daily``, ``@every 90m``; and when the next run is, in a time zone.

A schedule is five sets of numbers. Runs are looked for day by day on the wall clock of the zone; an hour that does not
exist when the clocks go forward has no runs, and one that comes twice has them once.

Called by: plans/pods_cron.py. Kubernetes: github.com/robfig/cron (standard parser).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kyu.api import duration

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# A schedule without a run in this time (30 February) has none.
LONGEST_SEARCH_DAYS = 5 * 366
# Where the last run before now is looked for, the nearest first: few steps however long ago it was.
WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=LONGEST_SEARCH_DAYS))


class ScheduleError(ValueError):
    """The text is not a schedule; the message says which part."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first_name: int = 0


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of month", 1, 31),
    Field("month", 1, 12, MONTHS, 1),
    Field("day of week", 0, 6, DAYS),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    # With both kinds of days restricted, one of them is enough.
    either_day: bool
    every: timedelta | None = None

    def has_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_month or by_week) if self.either_day else (by_month and by_week)


def parse(text: str) -> Schedule:
    if text.startswith("@every "):
        return Schedule((), (), frozenset(), frozenset(), frozenset(), either_day=False, every=parse_every(text))
    words = NICKNAMES.get(text, text).split()
    if len(words) != len(FIELDS):
        raise ScheduleError(f"{text!r} is not a schedule: five fields are wanted, or a name such as @daily")
    minutes, hours, days, months, weekdays = (
        parse_field(word, field) for word, field in zip(words, FIELDS, strict=True)
    )
    either = not is_star(words[2]) and not is_star(words[4])
    return Schedule(
        tuple(sorted(minutes)), tuple(sorted(hours)), frozenset(days), frozenset(months), frozenset(weekdays), either
    )


def parse_every(text: str) -> timedelta:
    try:
        every = duration.parse(text.removeprefix("@every ").strip())
    except ValueError as error:
        raise ScheduleError(f"{text!r} is not a schedule: {error}") from error
    # Runs are never closer than a second.
    return max(timedelta(seconds=int(every.total_seconds())), timedelta(seconds=1))


def is_star(word: str) -> bool:
    return word.startswith(("*", "?"))


def parse_field(word: str, field: Field) -> set[int]:
    return {number for part in word.split(",") for number in parse_part(part, field)}


def parse_part(part: str, field: Field) -> range:
    """``*``, ``5``, ``5-9``, ``*/10``, ``5/10``, ``5-40/10``."""
    span, slash, step_text = part.partition("/")
    step = parse_number(step_text, field) if slash else 1
    if step < 1:
        raise ScheduleError(f"{field.name}: the step of {part!r} must be at least 1")
    if span in ("*", "?"):
        low, high = field.low, field.high
    else:
        first, dash, last = span.partition("-")
        low = parse_value(first, field)
        high = parse_value(last, field) if dash else field.high if slash else low
    if not field.low <= low <= high <= field.high:
        raise ScheduleError(f"{field.name}: {part!r} is not within {field.low} to {field.high}")
    return range(low, high + 1, step)


def parse_value(text: str, field: Field) -> int:
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.first_name
    return parse_number(text, field)


def parse_number(text: str, field: Field) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ScheduleError(f"{field.name}: {text!r} is not a number")
    return int(text)


def find_zone(name: str) -> ZoneInfo | None:
    """None if there is no zone of this name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def runs_after(schedule: Schedule, start: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """All runs after this time, in UTC."""
    if schedule.every is not None:
        at = start.replace(microsecond=0)
        while True:
            at += schedule.every
            yield at
    local = start.astimezone(zone)
    for offset in range(LONGEST_SEARCH_DAYS):
        day = local.date() + timedelta(days=offset)
        if not schedule.has_day(day):
            continue
        for hour in schedule.hours:
            for minute in schedule.minutes:
                at = datetime.combine(day, time(hour, minute), zone).astimezone(UTC)
                exists = at.astimezone(zone).time() == time(hour, minute)
                if exists and at > start:
                    yield at


def next_run(schedule: Schedule, after: datetime, zone: ZoneInfo) -> datetime | None:
    return next(runs_after(schedule, after, zone), None)


def last_run(schedule: Schedule, after: datetime, now: datetime, zone: ZoneInfo) -> datetime | None:
    """The latest run after the first time and not after now."""
    if schedule.every is not None:
        count = int((now - after) / schedule.every)
        return after.replace(microsecond=0) + count * schedule.every if count > 0 else None
    for window in WINDOWS:
        last = None
        for run in runs_after(schedule, max(after, now - window), zone):
            if run > now:
                break
            last = run
        if last is not None or now - window <= after:
            return last
    return None
