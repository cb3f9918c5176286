"""Durations: Go's notation, its refusals, and the short form of ages."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kyu.api import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("-0", 0), ("90s", 90), ("1h30m", 5400), ("+1.5s", 1.5), ("-2m", -120), (".5h", 1800), ("1.m", 60),
        ("100ms", 0.1), ("7us", 7e-6), ("7µs", 7e-6), ("007s", 7), ("1s1s", 2),
    ],
)  # fmt: skip
def test_texts_that_go_reads(text: str, seconds: float) -> None:
    assert duration.parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "go_message"),
    [
        ("", 'invalid duration ""'),
        ("-", 'invalid duration "-"'),
        ("s", 'invalid duration "s"'),
        (".s", 'invalid duration ".s"'),
        ("5", 'missing unit in duration "5"'),
        ("1h5", 'missing unit in duration "1h5"'),
        ("5d", 'unknown unit "d" in duration "5d"'),
        ("1 s", 'unknown unit " s" in duration "1 s"'),
        ("1.2.3s", 'missing unit in duration "1.2.3s"'),
        ("٣s", 'invalid duration "٣s"'),
        ("9223372036854775808ns", 'invalid duration "9223372036854775808ns"'),
        ("9" * 50000 + "h", f'invalid duration "{"9" * 50000}h"'),
    ],
)
def test_refusals_have_the_words_of_go(text: str, go_message: str) -> None:
    with pytest.raises(duration.DurationError) as caught:
        duration.parse(text)
    assert caught.value.go_message == f"time: {go_message}"


@given(st.timedeltas(timedelta(days=-90000), timedelta(days=90000)))
def test_a_rendered_duration_is_read_back(value: timedelta) -> None:
    assert duration.parse(duration.render(value)) == value


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (185, "3m5s"), (3599, "59m"), (3 * 3600, "3h"), (4 * 3600 + 60, "4h1m"),
        (47 * 3600, "47h"), (49 * 3600, "2d1h"), (30 * 86400, "30d"), (800 * 86400, "2y70d"), (9 * 365 * 86400, "9y"),
        (-5, "<invalid>"),
    ],
)  # fmt: skip
def test_durations_get_coarser_as_they_get_longer(seconds: int, text: str) -> None:
    assert duration.short(seconds) == text
