"""
Schedules of CronJobs: ``*/15 9-17 * * MON-FRI``, ``@daily``, ``@every 90m``, and their runs in a time zone.

The server validates schedules with this parser, and the CronJob plan runs Jobs by it. The rules are those of the
standard parser of github.com/robfig/cron, version 3, which Kubernetes uses:

- A CronJob runs if day of month *or* day of week match, unless one of them has a star: then both must match.
  A step above 1 removes the star, so ``0 0 */2 * 1`` runs on odd days and on Mondays.
- A star is the whole range, whatever follows its dash: ``*-5`` is ``*``. ``5/10`` is ``5-59/10``.
- Runs follow the wall clock of the zone. A time that the clocks skip has no run, one that they repeat has two.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kyu.api import duration

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EVERY: Final = "@every "
# A schedule without a run in this many years (30 February) has none.
LONGEST_SEARCH_YEARS: Final = 5
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
_NUMBER: Final = re.compile(r"[-+]?[0-9]+")
_ZONE_PART: Final = re.compile(r"[A-Za-z._0-9+][A-Za-z.\-_0-9+]{0,13}")
_LARGEST_INT: Final = 2**63 - 1


class ScheduleError(ValueError):
    """The text is no schedule; the message is that of robfig/cron."""


@dataclass(frozen=True, slots=True)
class CronField:
    """A field of a schedule: its lowest and highest value, and the names of the values from the lowest on."""

    lowest: int
    highest: int
    names: tuple[str, ...] = ()


FIELDS: Final = (
    CronField(0, 59),
    CronField(0, 23),
    CronField(1, 31),
    CronField(1, 12, MONTHS),
    CronField(0, 6, WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A parsed schedule: the values of each field, or a constant delay."""

    minutes: AbstractSet[int] = frozenset()
    hours: AbstractSet[int] = frozenset()
    days: AbstractSet[int] = frozenset()
    months: AbstractSet[int] = frozenset()
    weekdays: AbstractSet[int] = frozenset()
    # Day of month and day of week both have to match.
    both_days: bool = False
    every: timedelta | None = None
    # From a prefix TZ= or CRON_TZ=; it goes before spec.timeZone.
    zone: ZoneInfo | None = None

    def has_day(self, day: datetime) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (in_month and in_week) if self.both_days else (in_month or in_week)


# Parse ----------------------------------------------------------------------------------------------------------------


def parse(text: str) -> Schedule:
    """Parse a schedule; raise ScheduleError if robfig/cron would refuse it."""
    if not text:
        raise ScheduleError("empty spec string")
    zone = None
    if text.startswith(("TZ=", "CRON_TZ=")):
        prefix, _, text = text.partition(" ")
        name = prefix.partition("=")[2]
        zone = find_zone(name or "UTC")
        if zone is None:
            raise ScheduleError(f"provided bad location {name}: unknown time zone {name}")
        text = text.strip()
    if text.startswith(EVERY):
        return Schedule(every=_parse_every(text), zone=zone)
    if text.startswith("@") and text not in DESCRIPTORS:
        raise ScheduleError(f"unrecognized descriptor: {text}")
    words = DESCRIPTORS.get(text, text).split()
    if len(words) != len(FIELDS):
        raise ScheduleError(f"expected exactly {len(FIELDS)} fields, found {len(words)}: [{' '.join(words)}]")
    (minutes, _), (hours, _), (days, any_day), (months, _), (weekdays, any_weekday) = (
        _parse_field(word, field) for word, field in zip(words, FIELDS, strict=True)
    )
    return Schedule(minutes, hours, days, months, weekdays, both_days=any_day or any_weekday, zone=zone)


def _parse_every(text: str) -> timedelta:
    try:
        every = duration.parse(text.removeprefix(EVERY))
    except duration.DurationError as error:
        raise ScheduleError(f"failed to parse duration {text}: {error.go_message}") from error
    return max(every // SECOND * SECOND, SECOND)


def _parse_field(word: str, field: CronField) -> tuple[frozenset[int], bool]:
    """Return the values of a field, and whether a star is among its parts."""
    # robfig/cron ignores empty parts, so a field of commas has no values.
    parts = [_parse_part(part, field) for part in word.split(",") if part]
    return frozenset(value for values, _ in parts for value in values), any(is_star for _, is_star in parts)


def _parse_part(part: str, field: CronField) -> tuple[range, bool]:
    """Parse ``*``, ``5``, ``5-9``, each with or without a step ``/2``."""
    span, *steps = part.split("/")
    ends = span.split("-")
    is_star = ends[0] in ("*", "?")
    if is_star:
        first, last = field.lowest, field.highest
    else:
        first = last = _parse_value(ends[0], field)
        if len(ends) > 2:
            raise ScheduleError(f"too many hyphens: {part}")
        if len(ends) == 2:
            last = _parse_value(ends[1], field)
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {part}")
    step = _parse_number(steps[0]) if steps else 1
    if steps and len(ends) == 1:
        last = field.highest
    _check_range(part, first, last, step, field)
    return range(first, last + 1, step), is_star and step == 1


def _check_range(part: str, first: int, last: int, step: int, field: CronField) -> None:
    if first < field.lowest:
        raise ScheduleError(f"beginning of range ({first}) below minimum ({field.lowest}): {part}")
    if last > field.highest:
        raise ScheduleError(f"end of range ({last}) above maximum ({field.highest}): {part}")
    if first > last:
        raise ScheduleError(f"beginning of range ({first}) beyond end of range ({last}): {part}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {part}")


def _parse_value(text: str, field: CronField) -> int:
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.lowest
    return _parse_number(text)


def _parse_number(text: str) -> int:
    fault = "" if _NUMBER.fullmatch(text) else "invalid syntax"
    if not fault and (len(text) > 20 or abs(int(text)) > _LARGEST_INT):
        fault = "value out of range"
    if fault:
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": {fault}')
    number = int(text)
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number


def find_zone(name: str) -> ZoneInfo | None:
    """Return the time zone of this name, or None if there is none."""
    if not all(_ZONE_PART.fullmatch(part) and part not in (".", "..") for part in name.split("/")):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


# Runs -----------------------------------------------------------------------------------------------------------------


def next_run(schedule: Schedule, after: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the first run after this time, in UTC."""
    start = after.astimezone(UTC)
    if schedule.every is not None:
        return start.replace(microsecond=0) + schedule.every
    if not (schedule.minutes and schedule.hours and schedule.months):
        return None
    return _search(schedule, start.replace(microsecond=0) + SECOND, schedule.zone or zone)


def last_run(schedule: Schedule, after: datetime, now: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the latest run after the first time and not after now."""
    if schedule.every is not None:
        count = (now - after.replace(microsecond=0)) // schedule.every
        return after.replace(microsecond=0) + count * schedule.every if count > 0 else None
    # There is no run between `until` and now. `after` and `until` close in on the last run.
    found, until = None, now
    while True:
        run = next_run(schedule, after, zone)
        if run is None or run > until:
            return found
        found = after = run
        middle = after + (until - after) / 2
        run = next_run(schedule, middle, zone)
        if run is None or run > until:
            until = middle
        else:
            found = after = run


def _search(schedule: Schedule, start: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the first time from here on that matches."""
    search = _TimeSearch(schedule, zone, start)
    last_year = search.local.year + LONGEST_SEARCH_YEARS
    while search.local.year <= last_year:
        if search.find_month() and search.find_day() and search.find_hour() and search.find_minute():
            return search.at
    return None


class _TimeSearch:
    """
    A search for the next run: the steps of SpecSchedule.Next in robfig/cron, in their order.

    Each step counts one field up until it matches, and returns False if a larger field has to be looked at again.
    The order of the steps decides which runs exist around a change of the clocks.
    """

    __slots__ = ("at", "is_cleared", "local", "schedule", "zone")

    def __init__(self, schedule: Schedule, zone: ZoneInfo, start: datetime) -> None:
        self.schedule = schedule
        self.zone = zone
        self._move_to(start)
        # The fields below the first that was counted up are at their lowest value.
        self.is_cleared = False

    def find_month(self) -> bool:
        while self.local.month not in self.schedule.months:
            if not self.is_cleared:
                self._set_clock(self.local.replace(day=1, hour=0, minute=0, second=0))
            first = self.local.replace(day=1)
            self._set_clock((first + 31 * DAY).replace(day=1) + (self.local - first))
            if self.local.month == 1:
                return False
        return True

    def find_day(self) -> bool:
        while not self.schedule.has_day(self.local):
            if not self.is_cleared:
                self._set_clock(self.local.replace(hour=0, minute=0, second=0))
            self._set_clock(self.local + DAY)
            # The clocks went past midnight.
            if self.local.hour > 12:
                self._move_to(self.at + (24 - self.local.hour) * HOUR)
            elif self.local.hour != 0:
                self._move_to(self.at - self.local.hour * HOUR)
            if self.local.day == 1:
                return False
        return True

    def find_hour(self) -> bool:
        while self.local.hour not in self.schedule.hours:
            if not self.is_cleared:
                self._set_clock(self.local.replace(minute=0, second=0))
            self._move_to(self.at + HOUR)
            if self.local.hour == 0:
                return False
        return True

    def find_minute(self) -> bool:
        """Find a matching minute at its first second."""
        while self.local.minute not in self.schedule.minutes:
            self.is_cleared = True
            self._move_to(self.at.replace(second=0) + MINUTE)
            if self.local.minute == 0:
                return False
        if self.local.second == 0:
            return True
        self.is_cleared = True
        self._move_to(self.at.replace(second=0) + MINUTE)
        return False

    def _move_to(self, at: datetime) -> None:
        self.at = at
        self.local = at.astimezone(self.zone).replace(tzinfo=None)

    def _set_clock(self, wall: datetime) -> None:
        """Move to a time of the wall clock; Go's time.Date decides which, if it does not exist or exists twice."""
        self.is_cleared = True
        instant = wall.replace(tzinfo=UTC)
        instant -= _offset(instant - _offset(instant, self.zone), self.zone)
        self._move_to(instant)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()
