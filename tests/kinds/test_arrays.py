"""Arrays of tasks: the user's numbers, and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kyu.kinds import arrays, job_order
from kyu.kinds.job_order import Dependency


@pytest.mark.parametrize(
    ("text", "tasks", "width"),
    [
        ("0-9", list(range(10)), None),
        ("0-98:2%10", list(range(0, 99, 2)), 10),
        ("1,3,7", [1, 3, 7], None),
        ("7,1-2%1", [7, 1, 2], 1),
        ("5-5", [5], None),
        ("1-10:4", [1, 5, 9], None),
    ],
)
def test_arrays_as_slurm_writes_them(text: str, tasks: list[int], width: int | None) -> None:
    array = arrays.parse(text)
    assert (list(array), len(array), array.width) == (tasks, len(tasks), width)
    assert [array.task(index) for index in range(len(tasks))] == tasks
    assert array.task(len(tasks)) is None
    assert [array.index(task) for task in tasks] == list(range(len(tasks)))
    assert array.index(10**6) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "write a number"), ("a", "write a number"), ("1-", "write a number"), ("9-1", "empty"), ("1-5:0", "empty"),
        ("1-3%0", "after %"), ("1-3%x", "after %"), ("1,2,1", "twice"), ("1-5,3", "twice"), ("0-100000", "at most"),
        ("0-9999999999", "largest"), ("-1", "write a number"), ("٣", "write a number"),
    ],
)  # fmt: skip
def test_arrays_that_are_none_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        arrays.parse(text)


@given(st.sets(st.integers(0, 500), min_size=1, max_size=60))
def test_numbers_are_written_and_read_again(tasks: set[int]) -> None:
    assert list(arrays.parse(str(arrays.of_numbers(tasks)))) == sorted(tasks)


@pytest.mark.parametrize(("annotation", "completions"), [("0-9", 9), ("x", 3), ("", 1)])
def test_an_annotation_that_does_not_fit_the_job_has_no_effect(annotation: str, completions: int) -> None:
    job = {"metadata": {"annotations": {arrays.ARRAY: annotation}}, "spec": {"completions": completions}}
    assert arrays.of_job(job) is None


def test_a_task_has_the_number_of_its_user() -> None:
    index = "batch.kubernetes.io/job-completion-index"
    assert arrays.task_of({"metadata": {"annotations": {index: "3", "kyu.dev/task": "6"}}}) == "6"
    assert arrays.task_of({"metadata": {"annotations": {index: "3"}}}) == "3"
    assert arrays.task_of({"metadata": {}}) == ""


def test_entries_of_dependencies() -> None:
    job = {"metadata": {"name": "x", "annotations": {"kyu.dev/after": "a, ok:b,any:c,notok:d,singleton,later:e"}}}
    assert job_order.dependencies(job) == [
        Dependency("a"), Dependency("b"), Dependency("c", "any"), Dependency("d", "notok"), Dependency("later:e"),
    ]  # fmt: skip
    assert job_order.is_singleton(job)
    assert not job_order.is_singleton({"metadata": {"annotations": {"kyu.dev/after": "ok:singleton"}}})
