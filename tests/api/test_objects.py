"""Text to objects: what YAML means, how manifests are read, what a fault says, and what the projections hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kyu.api import codec, core, documents, kueue
from kyu.api.codec import DecodeError
from kyu.api.core import Taint, Toleration
from kyu.api.meta import Json, Object

MANIFESTS = sorted((Path(__file__).parent.parent / "cases" / "api" / "manifests").glob("*.yaml"))


def value_of(text: str) -> Any:
    return documents.parse(f"v: {text}")[0].value["v"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", False), ("Yes", True), ("on", True), ("n", False), ("TRUE", True), ("tRue", "tRue"),
        ("~", None), ("", None), ("Null", None), ("'no'", "no"), ('"12"', "12"), ("!!str 12", "12"),
        ("012", 10), ("0o12", 10), ("0x1F", 31), ("-0b101", -5), ("1_000", 1000), ("08", 8), ("+1", 1), ("-0", 0),
        ("1e3", 1000), ("1.0", 1), (".5", 0.5), ("1e-7", 1e-07), ("1.5e3", 1500), ("1e400", "1e400"),
        ("12345678901234567890", 12345678901234567890), ("123456789012345678901234567890", 1.2345678901234568e29),
        ("1Gi", "1Gi"), ("500m", "500m"), ("190:20:30", "190:20:30"), ("2001-01-01", "2001-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"), ("0x", "0x"), ("=", "="), ("<<", "<<"),
        ("{1: a, true: b, 1.5: c}", {"1": "a", "true": "b", "1.5": "c"}),
        ("{<<: {a: 1, b: 1}, b: 2}", {"a": 1, "b": 2}), ("[&x {a: 1}, *x]", [{"a": 1}, {"a": 1}]),
    ],
)  # fmt: skip
def test_yaml_means_what_it_means_to_kubectl(text: str, value: Any) -> None:
    parsed = value_of(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: 1\na: 2", "document 1, line 2: the key 'a' occurs twice"),
        ("a: 1\n---\nb: [1\nc: 2", "document 2, line 4: did not find expected"),
        ("a: .inf", "document 1, line 1: .inf is not a number that JSON has"),
        ("{[1]: 2}", "document 1, line 1: a key must be a text"),
        ("{null: 2}", "document 1, line 1: a key must be a text, a number or a boolean"),
        ("a: *b", "document 1, line 1: the alias *b names nothing"),
        ("a: &a [*a]", "document 1, line 1: the alias *a names nothing"),
        ("a: !!binary aGk=", "document 1, line 1: the tag tag:yaml.org,2002:binary has no meaning"),
        ("a: !!set {b}", "document 1, line 1: the tag tag:yaml.org,2002:set has no meaning"),
        ("<<: [1]", "document 1, line 1: '<<' needs a mapping or a list of mappings"),
        ("a:\tb\n\tc", "document 1, line 2: found a tab character"),
        ("a: \x00", "document 1, line 1: not text"),
        ("a: \ud800", "document 1, line 1: not text"),
        ("[" * 1000, "document 1, line 1: nested more than 200 levels deep"),
        ("a: &a [x]\n" + "".join(f"{b}: &{b} [{f'*{a}, ' * 99}]\n" for a, b in ("ab", "bc", "cd", "de")),
         "document 1, line 4: aliases repeat too much"),
    ],
)  # fmt: skip
def test_what_is_not_yaml_is_refused_with_its_line(text: str, fault: str) -> None:
    with pytest.raises(documents.DocumentError) as caught:
        documents.parse(text)
    assert str(caught.value).startswith(fault)


def test_json_is_read_as_json_and_yaml_takes_over_where_it_is_not() -> None:
    assert documents.parse('{"a": 1}')[0].value == {"a": 1}
    assert documents.parse("{a: no}")[0].value == {"a": False}
    assert [document.value for document in documents.parse('{"a": 1}\n---\n{"b": 2}')] == [{"a": 1}, {"b": 2}]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer())
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)
    | st.sampled_from(["no", "012", "0o12", "1_000", "y", "~", "", ".inf", "-.nan", "1e3", "a: b", "- x", "#", "'"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=5), inner)
    ),
    max_leaves=15,
)


@given(st.lists(json_values.filter(lambda value: value is not None), max_size=3))
@example(["<<", {"<<": "a", "y": "n"}])
def test_what_is_rendered_is_read_back(values: list[Any]) -> None:
    assert [document.value for document in documents.parse(documents.render(values))] == values


# Manifests


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_decode(path: Path) -> None:
    for manifest in codec.read(path.read_text(), path.name):
        decoded = manifest.decode()
        assert decoded.KIND.kind == manifest.kind
        assert decoded.key == manifest.key


def test_every_kind_has_an_example() -> None:
    kinds = {type(manifest.decode()) for path in MANIFESTS for manifest in codec.read(path.read_text())}
    assert set(kueue.KINDS) <= kinds


def test_lists_are_taken_apart() -> None:
    text = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueueList
items:
- metadata: {name: a}
- metadata: {name: b}
---
apiVersion: v1
kind: List
items: []
---
# nothing
"""
    manifests = codec.read(text)
    assert [(manifest.kind, str(manifest.key), manifest.item) for manifest in manifests] == [
        ("ClusterQueue", "a", "items[0]"),
        ("ClusterQueue", "b", "items[1]"),
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- a", "f.yaml: document 1, line 1: expected an object with apiVersion and kind, got array"),
        ("kind: X", "f.yaml: document 1, line 1: apiVersion: must be set to a text"),
        ("apiVersion: v1\nkind: 5", "f.yaml: document 1, line 2: kind: must be set to a text"),
        ("apiVersion: v1\nkind: A\n---\napiVersion: v1\n", "f.yaml: document 2, line 4: kind: must be set to a text"),
        ("apiVersion: v1\nkind: A\nmetadata: []", "f.yaml: document 1, line 3: metadata: expected an object"),
        ("apiVersion: v1\nkind: List\nitems:\n- {}", "f.yaml: document 1, line 4: items[0].apiVersion: must be set"),
        ("a: [}", "f.yaml: document 1, line 1: did not find expected"),
    ],
)
def test_what_is_no_manifest_is_refused_with_its_place(text: str, fault: str) -> None:
    with pytest.raises(DecodeError) as caught:
        codec.read(text, "f.yaml")
    assert str(caught.value).startswith(fault)


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("  stopPolicy: Maybe", "line 5: spec.stopPolicy: invalid enum value 'Maybe'"),
        ("  resourceGroups:\n  - flavors: []", "line 6: spec.resourceGroups[0].coveredResources: must be set"),
        ("  cohortName: no", "line 5: spec.cohortName: expected str, got bool"),
        ("  resourceGroups:\n  - coveredResources: [cpu]\n    flavors: {}", "line 7: spec.resourceGroups[0].flavors"),
        ("  namespaceSelector:\n    matchLabels: {a: b, c: 1}", "line 6: spec.namespaceSelector.matchLabels.c: "),
    ],
)  # fmt: skip
def test_a_fault_names_file_document_line_and_field(spec: str, fault: str) -> None:
    text = f"apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: q}}\nspec:\n{spec}\n"
    (manifest,) = codec.read(text, "queues.yaml")
    with pytest.raises(DecodeError) as caught:
        manifest.decode()
    assert str(caught.value).startswith(f"queues.yaml: document 1, {fault}")


def test_lines_are_found_inside_lists_of_objects() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  spec:\n    containers: 5\n"
    (manifest,) = codec.read(text)
    with pytest.raises(DecodeError, match=r"document 1, line 7: spec.containers: expected array, got int"):
        manifest.decode()


def test_kinds_that_nobody_knows_are_refused_by_name() -> None:
    with pytest.raises(DecodeError, match=r"kind: no kind 'Workload' is known in 'kueue.x-k8s.io/v1'"):
        codec.decode({"apiVersion": "kueue.x-k8s.io/v1", "kind": "Workload"})


def test_unknown_fields_are_ignored_and_nulls_mean_nothing() -> None:
    queue = codec.decode(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "q", "creationTimestamp": None, "labels": None, "managedFields": [{}]},
            "spec": {"cohortName": None, "somethingNew": {"a": 1}},
            "status": None,
        }
    )
    assert queue == kueue.ClusterQueue(metadata=queue.metadata)
    assert queue.key.name == "q"


texts = st.text(max_size=60) | st.text(st.sampled_from("{}[]:,-&*!|>'\"#%@`? \n\tab1.~<"), max_size=40)


@given(texts)
@settings(max_examples=300)
def test_no_text_breaks_the_reader(text: str) -> None:
    fault: DecodeError | None = None
    try:
        for manifest in codec.read(text):
            manifest.decode()
    except DecodeError as error:
        fault = error
    assert fault is None or min(fault.document, fault.line) >= 1


@given(st.sampled_from(list(codec.KINDS.values())), st.dictionaries(st.sampled_from(
    ["metadata", "spec", "status", "value", "handler", "overhead"]), json_values, max_size=3
))  # fmt: skip
def test_no_object_breaks_the_decoder(type_: type[Object], fields: Json) -> None:
    object_ = {"apiVersion": type_.KIND.api_version, "kind": type_.KIND.kind, **fields}
    try:
        decoded = codec.decode(object_)
    except DecodeError:
        return
    # What was decoded says the same again when it is written and read.
    assert codec.decode({**object_, **msgspec.to_builtins(decoded)}) == decoded


@pytest.mark.parametrize("type_", list(codec.KINDS.values()), ids=lambda type_: type_.KIND.kind)
def test_an_object_without_any_field_decodes(type_: type[Object]) -> None:
    object_ = {"apiVersion": type_.KIND.api_version, "kind": type_.KIND.kind}
    assert codec.decode(object_).key == codec.decode_as(type_, object_).key


# Projections


def test_the_absence_of_a_preemption_policy_can_be_told_from_never() -> None:
    def decode(preemption: Json) -> kueue.ClusterQueuePreemption:
        object_ = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "spec": {"preemption": preemption}}
        spec = codec.decode_as(kueue.ClusterQueue, object_).spec
        assert spec.preemption is not None
        return spec.preemption

    assert decode({}).reclaim_within_cohort is None
    assert decode({"reclaimWithinCohort": "Never"}).reclaim_within_cohort == "Never"


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        (Toleration(operator="Exists"), Taint("a", "NoSchedule"), True),
        (Toleration(), Taint("a", "NoSchedule"), False),
        (Toleration(key="a"), Taint("a", "NoSchedule"), True),
        (Toleration(key="a", value="x"), Taint("a", "NoSchedule", "x"), True),
        (Toleration(key="a", value="x"), Taint("a", "NoSchedule", "y"), False),
        (Toleration(key="a", operator="Exists"), Taint("a", "NoSchedule", "y"), True),
        (Toleration(key="a", operator="Exists", effect="NoExecute"), Taint("a", "NoSchedule"), False),
        (Toleration(key="b", operator="Exists"), Taint("a", "NoSchedule"), False),
        (Toleration(key="a", operator="Gt", value="1"), Taint("a", "NoSchedule", "1"), False),
    ],
)
def test_which_taints_a_toleration_tolerates(toleration: Toleration, taint: Taint, tolerated: bool) -> None:
    assert toleration.tolerates(taint) is tolerated


def test_pod_templates_hold_what_is_counted() -> None:
    template = msgspec.convert(
        {
            "spec": {
                "initContainers": [{"name": "sidecar", "restartPolicy": "Always", "resources": {"limits": {"cpu": 1}}}],
                "containers": [{"name": "main", "resources": {"requests": {"memory": "1Gi", "cpu": 0.5}}}],
                "overhead": {"cpu": "10m"},
                "resources": {"requests": {"cpu": "3"}},
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
            }
        },
        core.PodTemplateSpec,
    )
    assert template.spec.init_containers[0].restart_policy == "Always"
    assert template.spec.containers[0].resources.requests == {"memory": "1Gi", "cpu": 0.5}
    assert template.spec.resource_claims[0].resource_claim_template_name == "one-gpu"
