"""Elastic jobs: which Workload is in force, and how many of the pods may run."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kyu.api.actions import Event
from kyu.api.config import file
from kyu.api.config.config import Configuration
from kyu.api.meta import Json, Key, key_of
from kyu.kinds import fields, metadata, table
from kyu.kinds.job import JOB
from kyu.kinds.pod import POD
from kyu.plans.job import lifecycle as job_plan
from kyu.plans.job import slices
from kyu.plans.job.slices import Slices
from tests.support import manifests
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("team", "j")
OFF = file.load(
    {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "featureGates": {"ElasticJobsViaWorkloadSlices": False},
    }
).configuration


def elastic_job(parallelism: int = 2) -> Json:
    annotations = {metadata.ELASTIC_JOB: "true"}
    labels = {metadata.QUEUE_NAME: "q"}
    meta = {"name": "j", "namespace": "team", "uid": "u", "generation": 7, "labels": labels, "annotations": annotations}
    template = {"spec": {"containers": [{"name": "main", "image": "a"}]}}
    spec = {"parallelism": parallelism, "completions": 99, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def workload(name: str, *holds: str, count: int = 2, instead_of: str = "", placed: bool = False) -> Json:
    owner = manifests.owner("Job", "j", uid="u")
    annotations = {metadata.ELASTIC_JOB: "true"}
    if instead_of:
        annotations |= {metadata.SLICE_REPLACEMENT_FOR: f"team/{instead_of}", metadata.SLICE_NAME: "a"}
    meta = {"name": name, "namespace": "team", "uid": name, "annotations": annotations, "ownerReferences": [owner]}
    # In the order of their names.
    meta["creationTimestamp"] = f"2026-01-01T00:00:{ord(name) - ord('a'):02}Z"
    pod_set = {"name": "main", "count": count, "template": elastic_job()["spec"]["template"]}
    assignment: Json = {"name": "main", "count": count}
    if placed:
        assignment["topologyAssignment"] = {"levels": ["host"], "slices": []}
    status: Json = {"conditions": [{"type": type_, "status": "True", "reason": "x"} for type_ in holds]}
    if "QuotaReserved" in holds:
        status["admission"] = {"clusterQueue": "main", "podSetAssignments": [assignment]}
    version = "kueue.x-k8s.io/v1beta2"
    spec = {"queueName": "q", "priority": 0, "podSets": [pod_set]}
    return {"apiVersion": version, "kind": "Workload", "metadata": meta, "spec": spec, "status": status}


RUNS = ("QuotaReserved", "Admitted")
A, B, C = (Key("team", name) for name in "abc")


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        ([], Slices()),
        ([workload("a")], Slices(A)),
        ([workload("a", *RUNS), workload("b", instead_of="a")], Slices(A, larger=B)),
        ([workload("a", *RUNS), workload("b", *RUNS, instead_of="a")], Slices(B, replaced=A)),
        ([workload("a", *RUNS, "Finished"), workload("b", *RUNS, instead_of="a")], Slices(B)),
        ([workload("a", *RUNS, "Evicted"), workload("b", instead_of="a")], Slices(A, larger=B)),
        ([workload("a", *RUNS), workload("b"), workload("c", instead_of="a")], Slices(A, larger=C, surplus=(B,))),
        ([workload("a"), workload("b", instead_of="a")], Slices(B, surplus=(A,))),
        ([workload("a", *RUNS, "Finished")], Slices(A)),
    ],
)
def test_the_newest_workload_that_holds_quota_is_in_force(workloads: list[Json], expected: Slices) -> None:
    view = MemoryView(workloads)
    assert slices.find(view, [key_of(one) for one in workloads]) == expected


def test_of_two_that_were_made_in_the_same_second_the_one_that_takes_over_counts() -> None:
    one, other = workload("b", *RUNS), workload("a", *RUNS, instead_of="b")
    other["metadata"]["creationTimestamp"] = one["metadata"]["creationTimestamp"]
    assert slices.find(MemoryView([one, other]), [B, A]) == Slices(A, replaced=B)


def elastic_pod(number: int, *, gated: bool, phase: str = "Pending") -> Json:
    gates = ["x.io/other", *([metadata.ELASTIC_GATE] if gated else [])]
    # Pods of an elastic job are known by the name of its first slice; their owner may be another object.
    of_slice = {"annotations": {metadata.SLICE_NAME: "a"}}
    return manifests.pod(f"p{number}", gates=gates, phase=phase, metadata=of_slice)


def opened(*objects: Json, configuration: Configuration | None = None) -> list[str]:
    """Names of the pods that are let through, when nothing more is written."""
    view = MemoryView([elastic_job(), *objects], configuration)
    before = {key for key, one in gates(view).items() if metadata.ELASTIC_GATE in one}
    for action in slices.plan_gates(view, KEY, NOW):
        view.carry_out(action)
    assert slices.plan_gates(view, KEY, NOW) == []
    return sorted(key for key in before if gates(view)[key] == ["x.io/other"])


def gates(view: MemoryView) -> dict[str, list[str]]:
    return {
        metadata.name_of(one): [gate["name"] for gate in one["spec"].get("schedulingGates") or ()]
        for one in view.list_json(POD)
    }


def test_as_many_pods_as_have_quota_are_let_through_and_those_that_are_over_do_not_count() -> None:
    waiting = [elastic_pod(number, gated=True) for number in (1, 2, 3)]
    assert opened(workload("a", *RUNS), *waiting) == ["p1", "p2"]
    assert opened(workload("a", *RUNS), elastic_pod(0, gated=False, phase="Running"), *waiting) == ["p1"]
    assert opened(workload("a", *RUNS), elastic_pod(0, gated=False, phase="Succeeded"), *waiting) == ["p1", "p2"]
    shrunk = workload("a", *RUNS)
    shrunk["spec"]["podSets"][0]["count"] = 1
    assert opened(shrunk, *waiting) == ["p1"]


def test_no_pod_is_let_through_without_an_admission_or_where_the_feature_is_off() -> None:
    waiting = elastic_pod(1, gated=True)
    for workloads in ([], [workload("a", "QuotaReserved")], [workload("a", *RUNS, "Evicted")]):
        assert opened(*workloads, waiting) == []
    assert opened(workload("a", *RUNS), waiting, configuration=OFF) == []


def after_growing(*objects: Json, configuration: Configuration | None = None) -> MemoryView:
    view = MemoryView(
        [elastic_job(3), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}], configuration
    )
    for obj in objects:
        view.put(obj)
    plan_once(view)
    return view


def plan_once(view: MemoryView) -> None:
    kind = next(kind for kind in table.KINDS if kind.kind == JOB)
    for action in job_plan.plan(kind, view, KEY, NOW):
        view.carry_out(action)


def without_gates() -> Json:
    """It was started when nobody made slices."""
    found = workload("a", *RUNS)
    del found["metadata"]["annotations"]
    return found


@pytest.mark.parametrize(
    ("running", "configuration"),
    [(workload("a", *RUNS, placed=True), None), (without_gates(), None), (workload("a", *RUNS), OFF)],
    ids=["placed by topology", "its pods have no gates", "feature off"],
)
def test_a_job_that_cannot_grow_in_place_starts_over(running: Json, configuration: Configuration | None) -> None:
    view = after_growing(running, configuration=configuration)
    assert (view.find_json(JOB, KEY) or {})["spec"]["suspend"] is True
    # Its quota is held until it has stopped.
    assert len(view.list_json(slices.Workload.KIND)) == 1
    plan_once(view)
    assert view.list_json(slices.Workload.KIND) == []


def test_a_job_that_takes_its_growth_back_waits_for_nothing_more() -> None:
    view = after_growing(workload("a", *RUNS, count=3), workload("b", count=5, instead_of="a"))
    assert [metadata.name_of(one) for one in view.list_json(slices.Workload.KIND)] == ["a"]
    assert (view.find_json(JOB, KEY) or {})["spec"].get("suspend") is not True


@pytest.mark.parametrize(("configuration", "told"), [(None, []), (OFF, ["ElasticJobNotSupported"])])
def test_a_job_that_asks_to_be_elastic_in_vain_is_told_so(configuration: Configuration | None, told: list[str]) -> None:
    waiting = fields.with_value(elastic_job(), ("spec", "suspend"), True)
    view = MemoryView([waiting, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}], configuration)
    kind = next(kind for kind in table.KINDS if kind.kind == JOB)
    events = [action for action in job_plan.plan(kind, view, KEY, NOW) if isinstance(action, Event)]
    assert [event.reason for event in events] == ["CreatedWorkload", *told]
