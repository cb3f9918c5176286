"""
The cases of tests/cases/api/rules, and what cases cannot say.

A case file holds manifests. ``kind: Want`` lists what is refused of the manifest before it, in order, each by the
beginning of its message. ``kind: Update`` is a merge patch of that manifest, and the next ``Want`` judges the update.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kyu.api import convert, documents, kueue, names, rules
from kyu.api.config.features import feature_gates
from kyu.api.definitions import crds, structure
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.schema import node as schema_node
from kyu.server.schema import schema as server_schema

CASES = Path(__file__).parent.parent / "cases" / "api" / "rules"


class Case(NamedTuple):
    object: Json
    old: Json | None
    gates: dict[str, bool]
    refused: list[str]


def merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        merged[key] = merge(merged.get(key), value)
    return {key: value for key, value in merged.items() if value is not None}


def cases() -> Iterator[Any]:
    for path in sorted(CASES.glob("*.yaml")):
        manifest: Json = {}
        update: Json | None = None
        for document in documents.parse(path.read_text()):
            value = document.value
            if value["kind"] == "Update":
                update = value
            elif value["kind"] != "Want":
                manifest, update = value, None
            elif update is not None:
                patched = merge(manifest, update["patch"])
                case = Case(patched, manifest, update.get("gates", {}), value["refused"])
                yield pytest.param(case, id=f"{path.stem}: {value['title']}")
            else:
                yield pytest.param(Case(manifest, None, {}, value["refused"]), id=f"{path.stem}: {value['title']}")


@pytest.mark.parametrize("case", list(cases()))
def test_an_object_is_refused_for_what_its_case_says(case: Case) -> None:
    faults = [str(fault) for fault in rules.validate(case.object, case.old, feature_gates(case.gates))]
    # An update keeps what was wrong before only where the rule says so; the file says what is new.
    assert len(faults) == len(case.refused), faults
    for fault, beginning in zip(faults, case.refused, strict=True):
        assert fault.startswith(beginning)


def queue(**spec: Any) -> Json:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}


def group(flavors: int, resources: int, prefix: str) -> Json:
    names = [f"{prefix}-{number}" for number in range(resources)]
    quotas = [{"name": name, "nominalQuota": 1} for name in names]
    return {
        "coveredResources": names,
        "flavors": [{"name": f"{prefix}-{number}", "resources": quotas} for number in range(flavors)],
    }


def test_bounds_on_totals() -> None:
    fits = queue(resourceGroups=[group(64, 1, f"g{i}") for i in range(4)])
    assert rules.validate(fits) == []
    flavors = queue(resourceGroups=[group(64, 1, f"g{i}") for i in range(5)])
    assert [fault.value for fault in rules.validate(flavors)] == [320]
    resources = queue(resourceGroups=[group(1, 64, f"g{i}") for i in range(5)])
    assert [fault.value for fault in rules.validate(resources)] == [320]
    pairs = queue(resourceGroups=[group(9, 64, "g")])
    assert [(fault.field, fault.value) for fault in rules.validate(pairs)] == [("spec.resourceGroups[0]", 576)]


def test_too_many_groups_are_not_looked_into() -> None:
    faults = rules.validate(queue(resourceGroups=[{}] * 17))
    assert [str(fault) for fault in faults] == ["spec.resourceGroups: Too many: 17: must have at most 16 items"]


def test_defaults_are_those_of_the_api() -> None:
    spec = rules.defaults(queue(fairSharing={}))["spec"]
    assert spec == {
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
            "borrowWithinCohort": {"policy": "Never"},
        },
        "fairSharing": {"weight": 1},
    }


def test_defaults_change_nothing_that_is_said() -> None:
    once = rules.defaults(queue(stopPolicy="Hold", preemption={"reclaimWithinCohort": "Any"}, unknown={"a": 1}))
    assert once["spec"]["stopPolicy"] == "Hold"
    assert once["spec"]["preemption"]["reclaimWithinCohort"] == "Any"
    assert once["spec"]["unknown"] == {"a": 1}
    assert rules.defaults(once) == once


def test_defaults_do_not_touch_the_given_object() -> None:
    given_object = queue(preemption={})
    rules.defaults(given_object)
    assert given_object == queue(preemption={})


def test_other_kinds_have_no_defaults_here() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    assert rules.defaults(job) is job


def test_queues_and_flavors_are_kept_while_they_are_used() -> None:
    created = rules.prepare_create(queue())
    assert created["metadata"]["finalizers"] == [kueue.RESOURCE_IN_USE_FINALIZER]
    assert rules.prepare_create(created) == created


def test_min_count_is_dropped_where_partial_admission_is_off() -> None:
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {"podSets": [{"name": "main", "count": 4, "minCount": 2}]},
    }
    assert rules.prepare_create(workload) == workload
    off = rules.prepare_create(workload, feature_gates({"PartialAdmission": False}))
    assert off["spec"]["podSets"] == [{"name": "main", "count": 4}]


def test_nulls_mean_nothing() -> None:
    assert rules.validate(queue(cohortName=None, resourceGroups=None)) == []


def test_review_has_the_rules_alone() -> None:
    faults = rules.review(queue(resourceGroups=[group(1, 1, "a"), group(1, 1, "a")]))
    assert [fault.reason for fault in faults] == ["FieldValueDuplicate", "FieldValueDuplicate"]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (FieldError("Required", "spec.a", detail="because"), "spec.a: Required value: because"),
        (FieldError("Invalid", "spec.a", "x", "no"), 'spec.a: Invalid value: "x": no'),
        (FieldError("Invalid", "spec.a", detail="no"), "spec.a: Invalid value: no"),
        (FieldError("Invalid", "spec.a", {"b": 1}, "no"), 'spec.a: Invalid value: {"b":1}: no'),
        (FieldError("Forbidden", "spec.a", detail="no"), "spec.a: Forbidden: no"),
        (FieldError("Duplicate", "spec.a[1]", "x"), 'spec.a[1]: Duplicate value: "x"'),
        (FieldError("NotFound", "spec.a", "x"), 'spec.a: Not found: "x"'),
    ],
)
def test_faults_read_as_those_of_kubernetes(fault: FieldError, text: str) -> None:
    assert str(fault) == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["name", "spec", "levels", "podSets", "resourceGroups", "flavors", "template", "count", "metadata", "labels"]
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(kueue.KINDS), st.sampled_from(["v1beta1", "v1beta2"]), json_values, json_values, json_values)
def test_no_object_breaks_the_rules_themselves(
    type_: type[kueue.Workload], version: str, metadata: Any, spec: Any, status: Any
) -> None:
    object_ = {"apiVersion": f"{kueue.GROUP}/{version}", "kind": type_.KIND.kind}
    object_ |= {"metadata": metadata, "spec": spec, "status": status}
    for fault in rules.validate(object_, object_):
        assert str(fault)


@pytest.mark.parametrize("type_", kueue.KINDS, ids=lambda type_: type_.KIND.kind)
def test_every_default_obeys_its_own_schema(type_: type[kueue.Workload]) -> None:
    def walk(schema: Json) -> Iterator[Json]:
        yield schema
        for inner in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
            if isinstance(inner, dict):
                yield from walk(inner)

    for version in crds.definition(type_)["spec"]["versions"]:
        for schema in walk(version["schema"]["openAPIV3Schema"]):
            if "default" in schema:
                filled = structure.apply_defaults(schema, schema["default"])
                assert list(structure.check(schema, filled, "x")) == []


@pytest.mark.parametrize(
    ("judge", "good", "bad"),
    [
        (names.why_not_dns_label, ["a", "a-1", "0"], ["", "A", "a.b", "-a", "a-", "a" * 64, "a\n"]),
        (names.why_not_dns_subdomain, ["a", "a.b-c.0"], ["", "a..b", "a_b", "a." * 127 + "aa", ".a"]),
        (names.why_not_qualified_name, ["a", "A_b.c-D", "x.io/A"], ["", "/a", "a/", "X/a", "a/b/c", "a" * 64, "é"]),
        (names.why_not_label_value, ["", "a", "A_b.c-D"], ["-", "a b", "a" * 64, "a\n"]),
    ],
)
def test_good_names_pass_and_bad_ones_do_not(judge: Any, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if judge(text)] == []
    assert [text for text in bad if not judge(text)] == []


# The CEL rules of the definitions say the same as the functions, as far as CEL can.

CURRENT_CASES = [case for case in cases() if case.values[0].object["apiVersion"] == convert.CURRENT]


def refused_by_definition(case: Case) -> list[FieldError]:
    """What a server without any webhook would say."""
    type_ = next(type_ for type_ in kueue.KINDS if type_.KIND.kind == case.object["kind"])
    published = schema_node.Schema(crds.schema_of_version(type_, convert.CURRENT))
    old = rules.defaults(case.old) if case.old is not None else None
    return server_schema.validate(published, rules.defaults(case.object), old)


@pytest.mark.parametrize("case", CURRENT_CASES)
def test_what_the_definitions_refuse_is_refused_by_the_rules(case: Case) -> None:
    by_definition = [str(fault) for fault in refused_by_definition(case)]
    assert rules.validate(case.object, case.old, feature_gates(case.gates)) or not by_definition, by_definition


def test_every_rule_of_the_definitions_is_broken_by_some_case() -> None:
    def published(node: Json) -> Iterator[str]:
        yield from (rule["message"] for rule in node.get("x-kubernetes-validations", ()))
        for inner in (*node.get("properties", {}).values(), node.get("items"), node.get("additionalProperties")):
            if isinstance(inner, dict):
                yield from published(inner)

    messages = {text for type_ in kueue.KINDS for text in published(crds.schema_of_version(type_, convert.CURRENT))}
    broken = {fault.detail for case in CURRENT_CASES for fault in refused_by_definition(case.values[0])}
    assert messages - broken == set()
