"""Whether a workload waits, holds quota or neither, and which of its changes make it be asked again."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api import codec
from kyu.api.kueue import Workload
from kyu.api.meta import Json
from kyu.engine.options import Options
from kyu.engine.request_shape import RequestShapes
from kyu.engine.workloads import is_same, make_pending, phase, reservation_time, second_pass
from tests.support.builders import codec_json, condition, holding, workload

RESERVED = condition("QuotaReserved", 1)
ADMISSION = {"clusterQueue": "main", "podSetAssignments": []}


def changed(found: Workload, **parts: Any) -> Workload:
    """The workload with these fields of its metadata, spec and status replaced."""
    body = codec_json(found)
    for part, fields in parts.items():
        body[part] = {**body.get(part, {}), **fields}
    return codec.decode_as(Workload, body)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, "waiting"),
        ({"spec": {"active": False}}, "idle"),
        ({"status": {"conditions": [condition("Finished", 1)]}}, "idle"),
        ({"status": {"conditions": [condition("Finished", 1, "False")]}}, "waiting"),
        ({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}}}, "idle"),
        ({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": ""}}}, "waiting"),
        ({"status": {"conditions": [{**RESERVED, "status": "False", "reason": "OnHold"}]}}, "idle"),
        ({"status": {"conditions": [{**RESERVED, "status": "False", "reason": "Pending"}]}}, "waiting"),
        ({"status": {"conditions": [condition("WaitingForReplacementPods", 1)]}}, "idle"),
        ({"status": {"conditions": [condition("WaitingForReplacementPods", 1, "False")]}}, "waiting"),
        ({"status": {"conditions": [condition("Evicted", 1)]}}, "waiting"),
        ({"status": {"conditions": [RESERVED], "admission": ADMISSION}}, "reserved"),
        ({"status": {"conditions": [RESERVED, condition("Evicted", 1)], "admission": ADMISSION}}, "reserved"),
        ({"status": {"conditions": [RESERVED, condition("Finished", 1)], "admission": ADMISSION}}, "idle"),
        ({"status": {"conditions": [RESERVED], "admission": ADMISSION}, "spec": {"active": False}}, "reserved"),
        ({"status": {"conditions": [{**RESERVED, "status": "False"}], "admission": ADMISSION}}, "waiting"),
    ],
)
def test_what_a_workload_does(parts: Json, expected: str) -> None:
    assert phase(changed(workload("w", cpu=1), **parts), Options()) == expected


def test_without_its_gate_nobody_is_behind_an_admission_gate() -> None:
    gated = workload("w", cpu=1, annotations={"kueue.x-k8s.io/admission-gated-by": "example.com/gate"})
    assert phase(gated, Options(admission_gated_by=False)) == "waiting"


def test_the_parent_of_variants_does_not_queue_itself() -> None:
    labels = {"labels": {"kueue.x-k8s.io/concurrent-admission-parent": "true"}}
    parent = changed(workload("w", cpu=1), metadata=labels)
    assert phase(parent, Options(concurrent_admission=True)) == "idle"
    assert phase(parent, Options()) == "waiting"


@pytest.mark.parametrize(
    "parts",
    [
        {"spec": {"priority": 5}},
        {"spec": {"queueName": "other"}},
        {"metadata": {"creationTimestamp": "2027-01-01T00:00:00Z"}},
        {"metadata": {"uid": "another"}},
        {"metadata": {"generation": 7}},
        {"status": {"conditions": [{**condition("Evicted", 9), "reason": "PodsReadyTimeout"}]}},
        {"status": {"conditions": [condition("Requeued", 1, "False")]}},
        {"status": {"requeueState": {"requeueAt": "2027-01-01T00:00:00Z"}}},
        {"status": {"reclaimablePods": [{"name": "main", "count": 1}]}},
        {"status": {"admissionChecks": [{"name": "check", "state": "Retry"}]}},
    ],
)
def test_changes_that_make_it_be_asked_again(parts: Json) -> None:
    shapes, options = RequestShapes(Options()), Options()
    before = workload("w", count=2, cpu=1)
    after = changed(before, **parts)
    old, new = (make_pending(found, shapes.find(found), options) for found in (before, after))
    assert not is_same(old, new)
    assert is_same(old, make_pending(before, shapes.find(before), options))


def test_a_change_that_no_decision_depends_on_is_none() -> None:
    shapes, options = RequestShapes(Options()), Options()
    before = workload("w", cpu=1)
    after = changed(before, metadata={"annotations": {"note": "x"}, "labels": {"team": "a"}})
    assert is_same(make_pending(before, shapes.find(before), options), make_pending(after, shapes.find(after), options))


def test_a_reservation_without_a_time_is_the_newest_of_all() -> None:
    held = holding(workload("w", cpu=1), "main", {"cpu": "f"}, reserved=60)
    assert reservation_time(held) < reservation_time(workload("never", cpu=1))
    undone = changed(held, status={"conditions": [{**RESERVED, "status": "False"}]})
    assert reservation_time(undone) == reservation_time(workload("never", cpu=1))


@pytest.mark.parametrize(
    ("owners", "annotations", "gate", "keeps"),
    [
        ([("v1", "Pod")], {}, True, True),
        ([("v1", "Pod")], {}, False, False),
        ([("v1", "Pod")], {"kueue.x-k8s.io/is-group-workload": "true"}, True, False),
        ([("v1", "Pod"), ("v1", "Pod")], {}, True, False),
        ([("batch/v1", "Job")], {}, True, False),
        ([], {}, True, False),
    ],
)
def test_only_a_single_pod_keeps_its_failed_node(
    owners: list[tuple[str, str]], annotations: dict[str, str], gate: bool, keeps: bool
) -> None:
    references = [{"apiVersion": version, "kind": kind, "name": "o", "uid": "o"} for version, kind in owners]
    held = holding(workload("w", cpu=1, annotations=annotations), "main", {"cpu": "f"})
    failed = changed(held, metadata={"ownerReferences": references}, status={"unhealthyNodes": [{"name": "n1"}]})
    found = second_pass(failed, Options(skip_reassignment_for_pod_owned_workloads=gate))
    assert found is not None
    assert (found.unhealthy_node, found.keep) == ("n1", keeps)
