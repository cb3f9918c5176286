"""What a LocalQueue used in the past: how it fades, what counts at once, how it is weighed."""

from __future__ import annotations

from math import inf

import pytest

from kyu.api.meta import Key
from kyu.engine.local_queues import FlavorCount, LocalQueueRecord, decay
from kyu.engine.options import AdmissionFairSharing
from kyu.engine.quota.amounts import FlavorResource

MINUTE = 60.0
RULES = AdmissionFairSharing(half_life_seconds=MINUTE, sampling_seconds=MINUTE)
FORGETFUL = AdmissionFairSharing(half_life_seconds=0, sampling_seconds=MINUTE)


def record(*, cores: float = 0, running: int = 0, sampled_at: float | None = 0) -> LocalQueueRecord:
    """Of a LocalQueue that used so many cores, and has so many admitted now."""
    found = LocalQueueRecord(Key("default", "main"), consumed={"cpu": cores} if cores else {}, sampled_at=sampled_at)
    found.usage[FlavorResource("f", "cpu")] = FlavorCount(reserved=1000 * running + 7000, admitted=1000 * running)
    return found


@pytest.mark.parametrize(("seconds", "share"), [(0, 0.0), (MINUTE, 0.5), (2 * MINUTE, 0.75)])
def test_half_of_the_past_is_forgotten_in_a_half_life(seconds: float, share: float) -> None:
    assert decay(seconds, RULES) == share
    assert decay(seconds, FORGETFUL) == 0.0


@pytest.mark.parametrize(
    ("cores", "running", "now", "expected"),
    [
        (8, 0, MINUTE, 4.0),
        (8, 4, MINUTE, 6.0),
        (0, 4, MINUTE, 2.0),
        (8, 0, 3 * MINUTE, 1.0),
        (4, 4, 5 * MINUTE, 4.0),
    ],
)
def test_a_sample_mixes_the_past_with_what_is_admitted_now(
    cores: float, running: int, now: float, expected: float
) -> None:
    """What only has quota reserved, and is not admitted, does not count."""
    found = record(cores=cores, running=running)
    found.sample(now, RULES)
    assert found.consumed == {"cpu": expected}
    assert found.sampled_at == now


def test_flavors_of_a_resource_count_together() -> None:
    found = record(running=2)
    found.usage[FlavorResource("g", "cpu")] = FlavorCount(admitted=2000)
    found.sample(MINUTE, RULES)
    assert found.consumed == {"cpu": 2.0}


def test_there_is_one_sample_per_interval_unless_a_penalty_is_pending() -> None:
    found = record(cores=8)
    found.sample(MINUTE / 2, RULES)
    assert found.consumed == {"cpu": 8}
    found.add_penalty(Key("default", "w"), {"cpu": 1000}, RULES)
    found.sample(MINUTE / 2, RULES)
    assert found.consumed["cpu"] == pytest.approx(8 * 0.5**0.5)


def test_the_first_sample_forgets_nothing() -> None:
    found = record(cores=8, running=4, sampled_at=None)
    found.sample(1000 * MINUTE, RULES)
    assert found.consumed == {"cpu": 8.0}


def test_a_clock_that_goes_back_changes_nothing() -> None:
    found = record(cores=8, sampled_at=5 * MINUTE)
    found.add_penalty(Key("default", "w"), {"cpu": 1000}, RULES)
    found.sample(MINUTE, RULES)
    assert found.consumed == {"cpu": 8.0}


def test_without_a_half_life_there_is_no_past() -> None:
    found = record(cores=8, running=4)
    found.sample(MINUTE, FORGETFUL)
    assert found.consumed == {}
    found.add_penalty(Key("default", "w"), {"cpu": 4000}, FORGETFUL)
    assert found.past_usage(FORGETFUL) == 0.0


def test_who_was_just_given_quota_counts_for_one_interval_until_it_is_admitted() -> None:
    found = record(cores=1)
    found.add_penalty(Key("default", "w"), {"cpu": 4000, "memory": 8}, RULES)
    assert found.past_usage(RULES) == 1 + 2 + 4
    found.add_penalty(Key("default", "w"), {"cpu": 2000}, RULES)
    assert found.past_usage(RULES) == 1 + 1
    found.fold_penalty(Key("default", "w"))
    assert (found.consumed, found.penalties) == ({"cpu": 2.0}, {})
    found.fold_penalty(Key("default", "w"))
    assert found.past_usage(RULES) == 2.0


def test_resources_and_local_queues_have_weights() -> None:
    found = record(cores=4)
    found.consumed["memory"] = 10.0
    weights = {"cpu": 0.5, "memory": 0.0}
    rules = AdmissionFairSharing(half_life_seconds=MINUTE, sampling_seconds=MINUTE, weight_by_resource=weights)
    assert found.past_usage(rules) == 2.0
    assert found.past_usage(RULES) == 14.0
    found.weight = 2.0
    assert found.past_usage(rules) == 1.0
    found.weight = 0.0
    assert found.past_usage(rules) == inf


def test_products_are_rounded_down_to_nine_decimals() -> None:
    found = record(cores=1)
    found.sample(MINUTE / 3, AdmissionFairSharing(half_life_seconds=MINUTE, sampling_seconds=1))
    assert found.consumed == {"cpu": 0.793700525}
