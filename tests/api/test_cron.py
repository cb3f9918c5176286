"""Schedules of CronJobs: what robfig/cron accepts, and when it runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kyu.api import cron

UTC = ZoneInfo("UTC")
START = datetime(2026, 1, 1, tzinfo=UTC)


def runs(text: str, after: str, count: int = 1, zone: str = "UTC") -> list[str]:
    """The next runs as the wall clock of the zone shows them."""
    schedule, at = cron.parse(text), datetime.fromisoformat(after)
    at = at if at.tzinfo else at.replace(tzinfo=ZoneInfo(zone))
    found = []
    while len(found) < count:
        run = cron.next_run(schedule, at, ZoneInfo(zone))
        assert run is not None
        at = run
        found.append(run.astimezone(ZoneInfo(zone)).strftime("%a %Y-%m-%d %H:%M%z").removesuffix("+0000"))
    return found


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("*/15 * * * *", "2026-01-01T00:00:00", "Thu 2026-01-01 00:15"),
        ("*/15 * * * *", "2026-01-01T00:14:59.9", "Thu 2026-01-01 00:15"),
        ("30 9 * * *", "2026-01-01T09:30:00", "Fri 2026-01-02 09:30"),
        ("0 0 1 * *", "2026-01-15T00:00:00", "Sun 2026-02-01 00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00", "Tue 2028-02-29 00:00"),
        ("0 12 * * MON-FRI", "2026-01-02T13:00:00", "Mon 2026-01-05 12:00"),
        ("0 0 1 jan,jul *", "2026-01-02T00:00:00", "Wed 2026-07-01 00:00"),
        ("5/20 8 * * ?", "2026-01-01T08:05:00", "Thu 2026-01-01 08:25"),
        ("59 23 31 12 *", "2026-01-01T00:00:00", "Thu 2026-12-31 23:59"),
        ("+5 007 * * *", "2026-01-01T00:00:00", "Thu 2026-01-01 07:05"),
        ("5,,6 * * * *", "2026-01-01T00:05:30", "Thu 2026-01-01 00:06"),
        ("@hourly", "2026-01-01T00:30:00", "Thu 2026-01-01 01:00"),
        ("@weekly", "2026-01-01T00:00:00", "Sun 2026-01-04 00:00"),
        ("@every 90m", "2026-01-01T00:10:00.5", "Thu 2026-01-01 01:40"),
        ("@every -5m", "2026-01-01T00:09:59", "Thu 2026-01-01 00:10"),
        # A star is the whole range, whatever stands behind its dash.
        ("*-5 * * * *", "2026-01-01T00:06:00", "Thu 2026-01-01 00:07"),
        ("0 *-x-3 * * *", "2026-01-01T09:30:00", "Thu 2026-01-01 10:00"),
    ],
)
def test_the_next_run_of_a_schedule(text: str, after: str, expected: str) -> None:
    assert runs(text, after) == [expected]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        # January 2026: Thursday the 1st, Mondays the 5th and the 12th.
        ("0 0 * * 1", [5, 12, 19]),
        ("0 0 1-31 * 1", [2, 3, 4]),
        ("0 0 13 * 1", [5, 12, 13]),
        # Both have to match if one of them has a star; a step above 1 removes it.
        ("0 0 */2 * 1", [3, 5, 7]),
        ("0 0 */1 * 1", [5, 12, 19]),
        ("0 0 10 * */2", [3, 4, 6]),
        ("0 0 10 * */1", [10]),
        ("0 0 10,*/1 * 1", [5, 12, 19]),
        ("0 0 10,*/20 * 1", [5, 10, 12]),
        ("0 0 ?/2 * ?", [3, 5, 7]),
    ],
)
def test_days_of_the_month_and_of_the_week(text: str, days: list[int]) -> None:
    assert [int(run[12:14]) for run in runs(text, "2026-01-01T00:00:00", len(days))] == days


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        # The clocks of Berlin go forward at 01:00 UTC: 02:30 does not exist on that day.
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00", ["Mon 2026-03-30 02:30+0200"]),
        ("0 * * * *", "Europe/Berlin", "2026-03-29T01:00:00", ["Sun 2026-03-29 03:00+0200"]),
        # They go back: 02:30 comes twice, and the run, too.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-25T00:00:00",
            ["Sun 2026-10-25 02:30+0200", "Sun 2026-10-25 02:30+0100", "Mon 2026-10-26 02:30+0100"],
        ),
        # There was no midnight in São Paulo on 4 November 2018.
        ("0 9 10 * *", "America/Sao_Paulo", "2018-10-17T06:00:00", ["Sat 2018-11-10 09:00-0200"]),
        # Half an hour of difference between summer and winter.
        ("30 2 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00", ["Sun 2026-04-05 02:30+1030"]),
        ("CRON_TZ=Asia/Tokyo 0 0 * * *", "Etc/UTC", "2026-01-01T00:00:00", ["Thu 2026-01-01 15:00"]),
        ("TZ= 0 0 * * *", "Europe/Berlin", "2026-01-01T00:00:00+00:00", ["Fri 2026-01-02 01:00+0100"]),
    ],
)
def test_schedules_follow_the_clock_of_their_zone(text: str, zone: str, after: str, expected: list[str]) -> None:
    assert runs(text, after, len(expected), zone) == expected


@pytest.mark.parametrize("text", ["0 0 30 2 *", ", * * * *", "* , * * *", "0 0 * , *", "0 0 , * ,"])
def test_a_schedule_without_any_run_has_no_next_one(text: str) -> None:
    assert cron.next_run(cron.parse(text), START, UTC) is None
    assert cron.last_run(cron.parse(text), START, START + timedelta(days=400), UTC) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("*/-2 * * * *", "negative number (-2) not allowed: -2"),
        ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
        ("-5 * * * *", 'failed to parse int from : strconv.Atoi: parsing "": invalid syntax'),
        ("jan * * * *", 'failed to parse int from jan: strconv.Atoi: parsing "jan": invalid syntax'),
        ("* * * */feb *", 'failed to parse int from feb: strconv.Atoi: parsing "feb": invalid syntax'),
        ("٣ * * * *", 'failed to parse int from ٣: strconv.Atoi: parsing "٣": invalid syntax'),
        (
            "9223372036854775808 * * * *",
            "failed to parse int from 9223372036854775808: "
            'strconv.Atoi: parsing "9223372036854775808": value out of range',
        ),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("@often", "unrecognized descriptor: @often"),
        ("@daily ", "unrecognized descriptor: @daily "),
        ("@every often", 'failed to parse duration @every often: time: invalid duration "often"'),
        ("TZ=Moon/Base * * * * *", "provided bad location Moon/Base: unknown time zone Moon/Base"),
        ("TZ=UTC", "expected exactly 5 fields, found 0: []"),
    ],
)
def test_refusals_have_the_words_of_robfig_cron(text: str, message: str) -> None:
    with pytest.raises(cron.ScheduleError) as caught:
        cron.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["", "../UTC", "/etc/passwd", "Europe", "Nowhere/No", "a" * 300, "Etc/\0", "./UTC"])
def test_names_of_no_zone(name: str) -> None:
    assert cron.find_zone(name) is None


@pytest.mark.parametrize(
    ("text", "days_ago", "expected"),
    [
        ("*/5 * * * *", 400, "2026-01-01T00:00:00Z"),
        ("0 0 1 6 *", 400, "2025-06-01T00:00:00Z"),
        ("@daily", 0.5, None),
        ("@every 7s", 400, "2026-01-01T00:00:24Z"),
    ],
)
def test_the_last_run_is_found_however_long_ago(text: str, days_ago: float, expected: str | None) -> None:
    now = START + timedelta(seconds=30 if days_ago > 1 else 13 * 3600)
    run = cron.last_run(cron.parse(text), now - timedelta(days=days_ago), now, UTC)
    assert run == (datetime.fromisoformat(expected) if expected else None)


FIELD_TEXTS = [
    st.sampled_from(["*", "*/7", "0", "59", "3-40/9", "5,17"]),
    st.sampled_from(["*", "*/5", "0", "2", "1-3", "23"]),
    st.sampled_from(["*", "*/2", "1", "31", "28-31"]),
    st.sampled_from(["*", "*/3", "2", "3,10"]),
    st.sampled_from(["*", "*/2", "0", "mon-fri"]),
]


@given(st.tuples(*FIELD_TEXTS).map(" ".join), st.integers(1, 60 * 24 * 40), st.sampled_from(["UTC", "Europe/Berlin"]))
def test_the_last_run_is_the_last_of_the_next_ones(text: str, minutes: int, zone: str) -> None:
    schedule, now = cron.parse(text), START + timedelta(days=100)
    after = now - timedelta(minutes=minutes)
    last, run = None, cron.next_run(schedule, after, ZoneInfo(zone))
    for _ in range(200):
        if run is None or run > now:
            assert cron.last_run(schedule, after, now, ZoneInfo(zone)) == last
            return
        last, run = run, cron.next_run(schedule, run, ZoneInfo(zone))
