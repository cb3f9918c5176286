"""Conversion between versions: what it gives, that nothing is lost, and that an edit wins over what was remembered."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kyu.api import codec, convert, documents, kueue, placement
from kyu.api.convert import CURRENT, V1ALPHA1, V1BETA1
from kyu.api.kueue import ClusterQueue, Workload
from kyu.api.meta import Json
from kyu.api.placement import Domain

CASES = Path(__file__).parent.parent / "cases" / "api"
PAIRS = [document.value for document in documents.parse((CASES / "convert" / "pairs.yaml").read_text())]
MANIFESTS = [
    manifest for path in sorted((CASES / "manifests").glob("*.yaml")) for manifest in codec.read(path.read_text())
]


@pytest.mark.parametrize(("older", "current"), list(zip(PAIRS[::2], PAIRS[1::2], strict=True)))
def test_pairs_convert_into_each_other(older: Json, current: Json) -> None:
    assert convert.convert(older, CURRENT) == current
    assert convert.convert(current, older["apiVersion"]) == older


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: f"{manifest.kind} {manifest.key}")
def test_manifests_survive_every_round_trip(manifest: codec.Manifest) -> None:
    for version in convert.versions(manifest.kind):
        there = convert.convert(manifest.object, version)
        assert there["apiVersion"] == version
        assert convert.convert(there, manifest.api_version) == manifest.object


def cluster_queue(version: str, **spec: Any) -> Json:
    return {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}


def annotations(object_: Json) -> Json:
    found: Json = object_["metadata"].get("annotations", {})
    return found


def test_a_list_of_checks_becomes_rules_for_all_flavors() -> None:
    older = cluster_queue(V1BETA1, admissionChecks=["a", "b"])
    current = convert.convert(older, CURRENT)
    assert current["spec"] == {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}
    assert list(annotations(current)) == ["kyu.dev/v1beta1-fields"]
    assert convert.convert(current, V1BETA1) == older


def test_an_edit_in_the_current_version_wins() -> None:
    current = convert.convert(cluster_queue(V1BETA1, admissionChecks=["a"]), CURRENT)
    edited = copy.deepcopy(current)
    edited["spec"]["admissionChecksStrategy"]["admissionChecks"].append({"name": "b", "onFlavors": ["spot"]})
    older = convert.convert(edited, V1BETA1)
    assert older["spec"] == edited["spec"]
    assert convert.convert(older, CURRENT)["spec"] == edited["spec"]


def test_old_words_for_fungibility_are_remembered_but_read_as_todays() -> None:
    older = cluster_queue(V1BETA1, flavorFungibility={"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"})
    current = convert.convert(older, CURRENT)
    fungibility = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
    assert current["spec"]["flavorFungibility"] == fungibility
    assert convert.convert(current, V1BETA1) == older
    current["spec"]["flavorFungibility"]["whenCanBorrow"] = "TryNextFlavor"
    assert convert.convert(current, V1BETA1)["spec"]["flavorFungibility"]["whenCanBorrow"] == "TryNextFlavor"


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("ClusterQueue", ("spec", "concurrentAdmissionPolicy"), {"migration": {"mode": "RetainFirstAdmission"}}),
        ("MultiKueueConfig", ("spec", "quotaManagement"), "Automated"),
        ("Workload", ("spec", "preemptionGates"), [{"name": "g"}]),
        ("Workload", ("status", "preemptionGates"), [{"name": "g", "position": "Open"}]),
    ],
)
def test_what_only_the_current_version_can_say_is_kept(kind: str, path: tuple[str, str], value: Any) -> None:
    current = {"apiVersion": CURRENT, "kind": kind, "metadata": {"name": "x"}, path[0]: {path[1]: value}}
    older = convert.convert(current, V1BETA1)
    assert path[1] not in older.get(path[0], {})
    assert json.loads(annotations(older)["kyu.dev/v1beta2-fields"]) == [{"path": list(path), "now": value}]
    assert convert.convert(older, CURRENT) == current


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("AdmissionCheck", ("spec", "retryDelayMinutes"), 15),
        ("ClusterQueue", ("status", "pendingWorkloadsStatus"), {"lastChangeTime": "2026-01-01T00:00:00Z"}),
        ("LocalQueue", ("status", "flavors"), [{"name": "spot", "nodeLabels": {"a": "b"}}]),
        ("Workload", ("spec", "priorityClassName"), "without-a-source"),
    ],
)
def test_what_only_the_older_version_can_say_is_kept(kind: str, path: tuple[str, str], value: Any) -> None:
    older = {"apiVersion": V1BETA1, "kind": kind, "metadata": {"name": "x"}, path[0]: {path[1]: value}}
    current = convert.convert(older, CURRENT)
    assert path[1] not in current.get(path[0], {})
    assert convert.convert(current, V1BETA1) == older


def test_alpha_goes_to_beta_by_way_of_the_current_version() -> None:
    alpha = {"apiVersion": V1ALPHA1, "kind": "Cohort", "metadata": {"name": "c"}, "spec": {"parent": "p"}}
    beta = convert.convert(alpha, V1BETA1)
    assert beta == {"apiVersion": V1BETA1, "kind": "Cohort", "metadata": {"name": "c"}, "spec": {"parentName": "p"}}


def test_objects_that_say_the_same_in_both_versions_carry_no_annotation() -> None:
    for older, current in zip(PAIRS[::2], PAIRS[1::2], strict=True):
        assert "annotations" not in convert.convert(older, CURRENT)["metadata"]
        assert "annotations" not in convert.convert(current, older["apiVersion"])["metadata"]


def test_a_spoilt_annotation_is_no_obstacle() -> None:
    current = cluster_queue(CURRENT, cohortName="lab")
    for note in ("", "not json", "[1]", '[{"path":[],"now":1}]', '[{"path":["spec"],"now":[]}]', 7):
        current["metadata"] = {"name": "q", "annotations": {"kyu.dev/v1beta1-fields": note, "other": "x"}}
        older = convert.convert(current, V1BETA1)
        assert older["metadata"] == {"name": "q", "annotations": {"other": "x"}}
        assert older["spec"] == {"cohort": "lab"}


def test_the_given_object_is_not_changed() -> None:
    for object_ in PAIRS:
        before = copy.deepcopy(object_)
        for version in convert.versions(object_["kind"]):
            convert.convert(object_, version)
        assert object_ == before


@pytest.mark.parametrize(
    ("object_", "version"),
    [
        ({"apiVersion": "batch/v1", "kind": "Job"}, CURRENT),
        ({"apiVersion": CURRENT, "kind": "ClusterQueue"}, V1ALPHA1),
        ({"apiVersion": CURRENT, "kind": "ClusterQueue"}, "kueue.x-k8s.io/v1"),
        ({}, CURRENT),
    ],
)
def test_what_cannot_be_converted_is_refused(object_: Json, version: str) -> None:
    with pytest.raises(convert.ConversionError, match="no conversion"):
        convert.convert(object_, version)


def test_domains_that_do_not_fit_the_levels_are_refused() -> None:
    assignment = {"levels": ["rack", "host"], "domains": [{"values": ["r1"], "count": 1}]}
    older = {
        "apiVersion": V1BETA1,
        "kind": "Workload",
        "status": {"admission": {"podSetAssignments": [{"topologyAssignment": assignment}]}},
    }
    with pytest.raises(convert.ConversionError, match=r"topologyAssignment.domains: each domain"):
        convert.convert(older, CURRENT)


def test_older_versions_decode_to_the_same_objects() -> None:
    for older, current in zip(PAIRS[::2], PAIRS[1::2], strict=True):
        assert codec.decode(older) == codec.decode(current)


# Fuzz: objects of the right outer shape with anything inside.

leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner))
older_specs = st.fixed_dictionaries(
    {},
    optional={
        "cohort": values, "cohortName": values, "admissionChecks": values | st.lists(st.text(max_size=3), max_size=2),
        "admissionChecksStrategy": values, "parent": values, "parentName": values, "kubeConfig": values,
        "clusterSource": values, "clusterProfileRef": values, "priorityClassName": values,
        "priorityClassSource": values | st.sampled_from(list(convert._PRIORITY_SOURCES)), "priorityClassRef": values,
        "flavorFungibility": values | st.fixed_dictionaries({"whenCanBorrow": st.just("Borrow")}), "podSets": values,
        "retryDelayMinutes": values, "quotaManagement": values, "preemptionGates": values,
        "concurrentAdmissionPolicy": values, "unknown": values,
    },
)  # fmt: skip
statuses = st.fixed_dictionaries(
    {},
    optional={
        "flavorUsage": values, "flavorsUsage": values, "flavors": values, "pendingWorkloadsStatus": values,
        "accumulatedPastExexcutionTimeSeconds": values, "accumulatedPastExecutionTimeSeconds": values,
        "fairSharing": values | st.fixed_dictionaries({"admissionFairSharingStatus": values}), "admission": values,
    },
)  # fmt: skip


@given(st.sampled_from([type_.KIND.kind for type_ in kueue.KINDS]), st.data(), older_specs | values, statuses | values)
def test_round_trips_lose_nothing(kind: str, data: st.DataObject, spec: Any, status: Any) -> None:
    source = data.draw(st.sampled_from(convert.versions(kind)))
    target = data.draw(st.sampled_from(convert.versions(kind)))
    object_ = {"apiVersion": source, "kind": kind, "metadata": {"name": "x"}, "spec": spec, "status": status}
    assert convert.convert(convert.convert(object_, target), source) == object_


label_values = st.text("abc-", min_size=1, max_size=6)
places = st.integers(1, 3).flatmap(
    lambda levels: st.lists(
        st.builds(Domain, st.tuples(*[label_values] * levels), st.integers(1, 5)), min_size=1, max_size=6
    )
)


@given(places)
def test_compression_keeps_the_domains_in_order(domains: list[Domain]) -> None:
    levels = [f"level-{number}" for number in range(len(domains[0].values))]
    compressed = placement.compress(levels, domains)
    assert placement.domains(compressed) == tuple(domains)
    assert list(compressed.levels) == levels


def test_long_lists_are_cut_into_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MAX_DOMAINS_PER_SLICE", 3)
    domains = [Domain((f"node-{number}",), 1) for number in range(8)]
    compressed = placement.compress(["host"], domains)
    assert [part.domain_count for part in compressed.slices] == [3, 3, 2]
    assert placement.domains(compressed) == tuple(domains)


def test_projections_of_the_current_version() -> None:
    queue = codec.decode(convert.convert(cluster_queue(V1BETA1, cohort="lab"), CURRENT))
    assert isinstance(queue, ClusterQueue)
    assert queue.spec.cohort_name == "lab"
    workload = codec.decode(next(o for o in PAIRS if o["kind"] == "Workload"))
    assert isinstance(workload, Workload)
    assert workload.status.admission is not None
    first = workload.status.admission.pod_set_assignments[0].topology_assignment
    assert first is not None
    assert placement.domains(first) == (Domain(("r1", "node-a-gpu"), 1), Domain(("r1", "node-b-gpu"), 2))
