"""Validation of success policies and of the status of Jobs."""

from __future__ import annotations

import pytest

from kyu.api.meta import Json
from kyu.server.builtin.job_policies import IndexesError, failure_faults, first_shared, parse_indexes, success_faults
from kyu.server.builtin.job_status import validate_job_status

START, END = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("0", [0]),
        ("0-2,4", [0, 1, 2, 4]),
        ("5", 'too large index: "5"'),
        ("0-9", 'too large index: "9"'),
        ("2,1", "non-increasing order, previous: 2, current: 1"),
        ("4-2", "non-increasing order, previous: 4, current: 2"),
        ("0-0", "non-increasing order, previous: 0, current: 0"),
        ("0,", 'cannot convert string to integer for index: ""'),
        ("x", 'cannot convert string to integer for index: "x"'),
        (
            "0-1-2",
            'the fragment "0-1-2" violates the requirement that an index interval can have at most two parts separated'
            " by '-'",
        ),
    ],
)
def test_indexes_are_read(text: str, expected: list[int] | str) -> None:
    try:
        found: list[int] | str = [index for part in parse_indexes(text, 5) for index in part]
    except IndexesError as error:
        found = str(error)
    assert found == expected


def test_a_wide_interval_costs_nothing() -> None:
    most = 2**31 - 1
    assert first_shared(parse_indexes(f"0-{most - 1}", most), parse_indexes(f"{most - 1}", most)) == most - 1
    assert first_shared(parse_indexes("0-3,7", 10), parse_indexes("4-6,8", 10)) is None


@pytest.mark.parametrize(
    ("policy", "blamed"),
    [
        ({"rules": [{"succeededCount": 2}]}, []),
        ({"rules": []}, ["rules"]),
        ({"rules": [{}]}, ["rules[0]"]),
        ({"rules": [{"succeededIndexes": "7"}]}, ["rules[0].succeededIndexes"]),
        ({"rules": [{"succeededIndexes": "0-1", "succeededCount": 3}]}, ["rules[0].succeededCount"]),
        ({"rules": [{"succeededCount": 1}] * 21}, ["rules"]),
    ],
)
def test_rules_about_success(policy: Json, blamed: list[str]) -> None:
    spec = {"completionMode": "Indexed", "completions": 5, "successPolicy": policy}
    assert [fault.field for fault in success_faults(spec, "spec")] == [f"spec.successPolicy.{name}" for name in blamed]


def test_only_indexes_can_succeed_one_by_one() -> None:
    (fault,) = success_faults({"successPolicy": {"rules": []}}, "spec")
    assert fault.message == 'Invalid value: {"Rules":[]}: requires indexed completion mode'


def test_exit_codes_are_ordered_and_conditions_have_names() -> None:
    codes = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 1]}}
    conditions = {"action": "Ignore", "onPodConditions": [{"type": "no name", "status": "Maybe"}]}
    found = failure_faults({"podFailurePolicy": {"rules": [codes, conditions]}}, "spec")
    assert [fault.field.removeprefix("spec.podFailurePolicy.rules") for fault in found] == [
        "[0].onExitCodes.values",
        "[1].onPodConditions[0].type",
        "[1].onPodConditions[0].status",
    ]


def refusals(after: Json, before: Json | None = None, **spec: object) -> list[str]:
    return list(map(str, validate_job_status({"spec": spec, "status": after}, {"spec": spec, "status": before or {}})))


def true(*types: str) -> list[Json]:
    return [{"type": type_, "status": "True"} for type_ in types]


COMPLETE = {"startTime": START, "completionTime": END, "conditions": true("SuccessCriteriaMet", "Complete")}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (COMPLETE, []),
        ({**COMPLETE, "completionTime": "2025-01-01T00:00:00Z"}, ["must be equal to or after `startTime`"]),
        ({**COMPLETE, "startTime": None}, ["startTime is required for finished job"]),
        ({**COMPLETE, "terminating": 1}, ["terminating>0 is invalid for finished job"]),
        ({**COMPLETE, "uncountedTerminatedPods": {"failed": ["u"]}}, ["must be empty for finished job"]),
        (
            {"conditions": true("SuccessCriteriaMet", "FailureTarget")},
            ["cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"],
        ),
        ({"uncountedTerminatedPods": {"succeeded": ["u"], "failed": ["u"]}}, ['Duplicate value: "u"']),
        ({"failedIndexes": "1"}, ["cannot set non-null failedIndexes when backoffLimitPerIndex is null"]),
    ],
)
def test_states_of_a_status(status: Json, expected: list[str]) -> None:
    found = refusals(status, completions=5, completionMode="Indexed")
    assert [text.endswith(end) for text, end in zip(found, expected, strict=True)] == [True] * len(expected)


def test_an_index_has_not_both_succeeded_and_failed() -> None:
    status = {"completedIndexes": "0-1", "failedIndexes": "1-2"}
    (found,) = refusals(status, completions=5, completionMode="Indexed", backoffLimitPerIndex=1)
    assert found.endswith("failedIndexes and completedIndexes overlap at index: 1")


def test_an_end_is_not_taken_back() -> None:
    assert refusals({**COMPLETE, "completionTime": "2026-01-02T00:00:00Z"}, COMPLETE) == [
        'status.completionTime: Invalid value: "2026-01-02T00:00:00Z": field is immutable'
    ]
    before = {"conditions": true("SuccessCriteriaMet")}
    assert refusals({"conditions": []}, before) == [
        "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"
    ]


def test_unchanged_invalid_values_may_stay() -> None:
    status = {"ready": 2}
    assert refusals(status, status) == []
    assert refusals(status) != []
