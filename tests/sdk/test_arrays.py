"""Arrays, executors and asyncio: many calls, some of which fail, on one control plane."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time
from typing import Any

import pytest

import kyu
from kyu.sdk.submitter import Submitter

LONG = 120.0
SMALL: dict[str, Any] = {"cpu": 0.05}


def inverse(number: int) -> float:
    print("inverting", number)
    return 1 / number


def fragile(number: int) -> int:
    if number == 2:
        os._exit(3)
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


def test_a_failed_element_does_not_end_the_others(kyu_local: Submitter) -> None:
    array = kyu.map(fragile, range(6), **SMALL)
    errors = array.exceptions(LONG)
    assert {place: type(error) for place, error in errors.items()} == {
        1: ValueError,
        2: kyu.JobFailed,
        3: ValueError,
        5: ValueError,
    }
    assert [array[place].result() for place in (0, 4)] == [0, 4]
    assert str(errors[3]) == "3 is odd"
    assert isinstance(errors[2], kyu.JobFailed)
    assert errors[2].exit_code == 3
    assert array.counts() == {"Succeeded": 2, "Failed": 4}
    with pytest.raises(ValueError, match="1 is odd"):
        array.results()
    assert repr(array) == f"<kyu.FutureArray {array.job}: 2 Succeeded, 4 Failed>"


@pytest.mark.parametrize("options", [{}, {"folder": False}], ids=["files", "objects"])
def test_elements_share_a_task_in_chunks(kyu_local: Submitter, options: dict[str, Any]) -> None:
    array = kyu.map(inverse, [1, 0, 2, 4, 5], chunksize=3, **SMALL, **options)
    assert isinstance(array.exceptions(LONG)[1], ZeroDivisionError)
    assert [future.result() for place, future in enumerate(array) if place != 1] == [1.0, 0.5, 0.25, 0.2]
    assert array[4].logs().splitlines() == ["inverting 4", "inverting 5"]
    assert not array[0].cancel()
    assert not array.cancel(), "all have ended"


def test_an_array_that_needs_more_than_the_quota_runs_in_parts(kyu_local: Submitter) -> None:
    cores = os.cpu_count() or 1
    assert kyu.map(abs, range(-cores - 2, 0), cpu=1).results(LONG) == list(range(cores + 2, 0, -1))


def test_futures_are_yielded_as_they_are_done(kyu_local: Submitter) -> None:
    slow = kyu.run(["sleep", "600"], **SMALL)
    quick = [kyu.submit(abs, -number, **SMALL) for number in range(3)]
    done = [future for _, future in zip(range(3), kyu.as_completed([slow, *quick], LONG), strict=False)]
    assert {future.result() for future in done} == {0, 1, 2}
    finished, waiting = kyu.wait([slow, *quick], return_when="FIRST_COMPLETED")
    assert (finished, waiting) == (set(quick), {slow})
    assert slow.cancel()
    assert list(kyu.as_completed([slow])) == [slow]


def test_an_array_can_be_cancelled(kyu_local: Submitter) -> None:
    array = kyu.map(time.sleep, [0, 600, 600], **SMALL)
    assert array[0].result(LONG) is None
    assert array.cancel()
    assert [future.cancelled() for future in array] == [False, True, True]


def test_an_empty_array_is_refused(kyu_local: Submitter) -> None:
    with pytest.raises(ValueError, match="nothing to map"):
        kyu.map(abs, [], **SMALL)
    with pytest.raises(ValueError, match="chunksize=0"):
        kyu.map(abs, [1], chunksize=0, **SMALL)


def test_an_executor_runs_code_of_concurrent_futures(kyu_local: Submitter) -> None:
    executor: concurrent.futures.Executor
    with kyu.Executor(**SMALL) as executor:
        future = executor.submit(int, "ff", base=16)
        assert list(executor.map(pow, [2, 3], [5, 2], timeout=LONG)) == [32, 9]
        assert list(executor.map(abs, [])) == []
    assert future.done(), "the executor waits for its calls"
    assert future.result() == 255
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(abs, 1)


def test_an_executor_cancels_its_jobs(kyu_local: Submitter) -> None:
    executor = kyu.Executor(**SMALL)
    future = executor.submit(time.sleep, 600)
    executor.shutdown(cancel_futures=True)
    assert future.cancelled()


async def test_futures_can_be_awaited(kyu_local: Submitter) -> None:
    future = await kyu.aio.submit(abs, -1, **SMALL)
    array = await kyu.aio.map(inverse, [0, 2], **SMALL)
    command = await kyu.aio.run(["echo", "hello"], **SMALL)
    assert await asyncio.wait_for(asyncio.gather(future, command), LONG) == [1, "hello\n"]
    assert {done async for done in kyu.aio.as_completed(array)} == set(array)
    with pytest.raises(ZeroDivisionError):
        await array[0]


async def test_a_task_that_stops_waiting_does_not_cancel_the_job(kyu_local: Submitter) -> None:
    future = await kyu.aio.run(["sleep", "600"], **SMALL)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(future, 0.1)
    assert not future.cancelled()
    assert await asyncio.to_thread(future.cancel)


def test_notebooks_show_progress(kyu_local: Submitter) -> None:
    array = kyu.map(abs, [1], **SMALL)
    array.results(LONG)
    assert array._repr_html_().startswith('<progress value="1" max="1"></progress> kyu.FutureArray')
    assert array[0]._repr_html_() == f"<code>{array.job}</code> Succeeded"
