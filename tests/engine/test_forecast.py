"""Expected starts: run times of the past or declared limits, and no estimate where neither is known."""

from __future__ import annotations

import msgspec

from kyu.api.kueue import Workload
from kyu.api.meta import Key, Object
from kyu.engine.what_if.forecast import ExpectedStart, PastRunTimes, expected_starts
from tests.support.builders import START, at, cluster_queue, flavor, holding, local_queue, state_of, workload

MAIN = Key("default", "main")


def limited(name: str, cpu: int, limit: int | None, created: float = 0) -> Workload:
    found = workload(name, cpu=cpu, created=created)
    return msgspec.structs.replace(
        found, spec=msgspec.structs.replace(found.spec, maximum_execution_time_seconds=limit)
    )


def running(name: str, cpu: int, limit: int | None) -> Workload:
    return holding(limited(name, cpu, limit), "main", {"cpu": "f0"})


def forecast(*objects: Object, past: list[float] | None = None, now: float = 100) -> dict[str, ExpectedStart]:
    state = state_of(flavor("f0"), cluster_queue("main", {"f0": {"cpu": 4}}), local_queue("main"), *objects)
    found = expected_starts(state, at(now).timestamp(), PastRunTimes({MAIN: past} if past else {}))
    state.check()
    assert len(state.all_reserved()) == sum(obj.status.admission is not None for obj in objects)  # type: ignore[attr-defined]
    zero = START.timestamp()
    return {
        key.name: ExpectedStart(*(None if t is None else t - zero for t in (one.median, one.most)))
        for key, one in found.items()
    }


def test_declared_limits_tell_the_start_of_one_after_another() -> None:
    found = forecast(running("r", 4, 500), limited("first", 4, 200, 1), limited("second", 4, 300, 2))
    assert found == {"first": ExpectedStart(500, 500), "second": ExpectedStart(700, 700)}


def test_without_limits_and_history_there_is_no_estimate() -> None:
    assert forecast(running("r", 4, None), workload("w", cpu=1)) == {"w": ExpectedStart(None, None)}


def test_history_tells_the_median_and_the_ninetieth_percentile() -> None:
    past = [float(seconds) for seconds in range(10, 1010, 10)]
    assert forecast(running("r", 4, None), workload("w", cpu=1), past=past, now=0) == {"w": ExpectedStart(510, 910)}


def test_only_run_times_longer_than_the_elapsed_time_are_drawn() -> None:
    past = [10.0] * 90 + [400.0] * 10
    assert forecast(running("r", 4, None), workload("w", cpu=1), past=past) == {"w": ExpectedStart(400, 400)}


def test_a_limit_bounds_the_history() -> None:
    past = [1000.0] * 10
    assert forecast(running("r", 4, 300), workload("w", cpu=1), past=past) == {"w": ExpectedStart(300, 300)}


def test_a_workload_that_fits_starts_now_and_one_that_never_fits_has_no_estimate() -> None:
    found = forecast(running("r", 2, 300), workload("small", cpu=1), workload("huge", cpu=9))
    assert found == {"small": ExpectedStart(100, 100), "huge": ExpectedStart(None, None)}
