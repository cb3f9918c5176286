"""Schemas of custom kinds: pruning, defaults, validation and the words of errors."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api import errors as fields
from kyu.api.meta import Json
from kyu.server.crd import crd
from kyu.server.schema import cel
from kyu.server.schema.node import Schema
from kyu.server.schema.schema import apply_defaults, drop_nulls, prune, validate

OVEN: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["degrees"],
            "properties": {
                "degrees": {"type": "integer", "minimum": 50, "maximum": 300},
                "mode": {"type": "string", "enum": ["Fan", "Grill"], "default": "Fan"},
                "label": {"type": "string", "maxLength": 5, "minLength": 2, "pattern": "^[a-z]+$"},
                "note": {"type": "string", "nullable": True},
                "since": {"type": "string", "format": "date-time"},
                "size": {"x-kubernetes-int-or-string": True},
                "ratio": {"type": "number"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "trays": {
                    "type": "array",
                    "maxItems": 3,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["level"],
                    "items": {
                        "type": "object",
                        "required": ["level"],
                        "properties": {
                            "level": {"type": "integer"},
                            "food": {"type": "string", "default": "bread"},
                            "owner": {
                                "type": "string",
                                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "owner is fixed"}],
                            },
                        },
                    },
                },
            },
            "x-kubernetes-validations": [
                {
                    "rule": "self.mode != 'Grill' || self.degrees >= 200",
                    "messageExpression": "'grilling needs ' + string(200) + ' degrees'",
                },
                {
                    "rule": "!has(self.ratio) || self.ratio < 1.5",
                    "message": "too wide",
                    "reason": "FieldValueForbidden",
                    "fieldPath": ".ratio",
                },
                {
                    "rule": "!has(self.since) || timestamp(self.since) < timestamp('2030-01-01T00:00:00Z')",
                    "message": "not that far",
                },
            ],
        },
    },
}
SCHEMA = Schema(OVEN)
UNCHECKED = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid;"


def oven(**spec: Any) -> Json:
    return {"metadata": {"name": "o"}, "spec": {"degrees": 180, **spec}}


def faults(obj: Json, old: Json | None = None) -> list[str]:
    apply_defaults(SCHEMA, obj)
    return [str(error) for error in validate(SCHEMA, obj, old)]


def test_unknown_fields_go_unless_they_are_preserved() -> None:
    obj = oven(bogus=1, free={"any": {"thing": 1}}, trays=[{"level": 1, "x": 2}])
    assert prune(SCHEMA, obj) == ["spec.bogus", "spec.trays[0].x"]
    assert obj == oven(free={"any": {"thing": 1}}, trays=[{"level": 1}])
    assert prune(SCHEMA, obj) == []


def test_fields_in_an_undeclared_list_are_unknown() -> None:
    obj = oven(label=[{"a": 1}, [{"b": {}}]], size=[{"c": 1}], free=[{"kept": 1}])
    assert prune(SCHEMA, obj) == ["spec.label[0].a", "spec.label[1][0].b", "spec.size[0].c"]
    assert obj == oven(label=[{}, [{}]], size=[{}], free=[{"kept": 1}])


def test_defaults_are_set_in_present_objects() -> None:
    obj = oven(trays=[{"level": 1}, {"level": 2, "food": "cake"}], note=None)
    apply_defaults(SCHEMA, obj)
    trays = [{"level": 1, "food": "bread"}, {"level": 2, "food": "cake"}]
    assert obj == oven(trays=trays, note=None, mode="Fan")


def test_parts_that_are_taken_over_from_the_stored_object_are_not_looked_at() -> None:
    stored = oven(bogus=1, label=None, degrees=10)
    again = {**stored, "status": {}}
    assert prune(SCHEMA, again, stored) == ["status"]
    drop_nulls(SCHEMA, again, stored)
    apply_defaults(SCHEMA, again, stored)
    assert validate(SCHEMA, again, stored) == []
    assert again == stored == oven(bogus=1, label=None, degrees=10)


def test_a_null_that_may_not_be_is_dropped_from_a_body() -> None:
    obj = oven(mode=None, label=None, note=None, trays=[{"level": 1, "owner": None}])
    drop_nulls(SCHEMA, obj)
    assert obj == oven(mode=None, note=None, trays=[{"level": 1}])


def test_null_counts_as_absent_only_where_there_is_a_default() -> None:
    obj = oven(mode=None, label=None)
    apply_defaults(SCHEMA, obj)
    assert obj["spec"]["mode"] == "Fan"
    assert obj["spec"]["label"] is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"degrees": 40},
            "spec.degrees: Invalid value: 40: spec.degrees in body should be greater than or equal to 50",
        ),
        (
            {"degrees": 400},
            "spec.degrees: Invalid value: 400: spec.degrees in body should be less than or equal to 300",
        ),
        ({"label": "ABC"}, "spec.label: Invalid value: \"ABC\": spec.label in body should match '^[a-z]+$'"),
        ({"label": "a"}, 'spec.label: Invalid value: "a": spec.label in body should be at least 2 chars long'),
        ({"tags": ["a", "b", "a"]}, 'spec.tags[2]: Duplicate value: "a"'),
        ({"trays": [{"level": 1}, {"level": 1}]}, 'spec.trays[1]: Duplicate value: {"level":1}'),
        ({"mode": "Grill"}, "spec: Invalid value: grilling needs 200 degrees"),
        ({"ratio": 2}, "spec.ratio: Forbidden: too wide"),
        ({"since": "2031-01-01T00:00:00Z"}, "spec: Invalid value: not that far"),
    ],
)
def test_a_fault_after_which_rules_still_run(spec: Json, expected: str) -> None:
    assert faults(oven(**spec)) == [expected]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"mode": "Steam"}, 'spec.mode: Unsupported value: "Steam": supported values: "Fan", "Grill"'),
        ({"label": "toolong"}, "spec.label: Too long: may not be more than 5 bytes"),
        (
            {"degrees": "hot"},
            'spec.degrees: Invalid value: "string": spec.degrees in body must be of type integer: "string"',
        ),
        ({"label": None}, 'spec.label: Invalid value: "null": spec.label in body must be of type string: "null"'),
        (
            {"size": True},
            'spec.size: Invalid value: "boolean": spec.size in body must be of type integer,string: "boolean"',
        ),
        ({"since": "noon"}, 'spec.since: Invalid value: "noon": spec.since in body must be of type date-time: "noon"'),
        ({"trays": [{"level": n} for n in range(4)]}, "spec.trays: Too many: 4: must have at most 3 items"),
        ({"trays": [{}]}, "spec.trays[0].level: Required value"),
        ({"since": 5}, 'spec.since: Invalid value: "int64": spec.since in body must be of type date-time: "int64"'),
        (
            {"since": 0.5},
            'spec.since: Invalid value: "float64": spec.since in body must be of type date-time: "float64"',
        ),
        ({"since": {}}, 'spec.since: Invalid value: "": spec.since in body must be of type date-time: ""'),
        (
            {"size": 2**63},
            'spec.size: Invalid value: "number": spec.size in body must be of type integer,string: "number"',
        ),
    ],
)
def test_a_fault_after_which_rules_are_not_tried(spec: Json, expected: str) -> None:
    found = faults(oven(**spec))
    assert found[0] == expected
    assert found[1].startswith(UNCHECKED)


def test_a_list_has_every_format() -> None:
    day = Schema({"type": "object", "properties": {"day": {"type": "string", "format": "date"}}})
    assert validate(day, {"day": ["noon"]}) == []
    assert [fault.value for fault in validate(day, {"day": "noon"})] == ["noon"]


@pytest.mark.parametrize(("trays", "blamed"), [(["a", "b"], 0), ([{"level": 1}, "b"], 1), ([None], None)])
def test_an_item_without_keys_is_no_item_of_a_list_map(trays: list[Any], blamed: int | None) -> None:
    found = [text for text in faults(oven(trays=trays)) if "list-type map" in text]
    text = "must be an object for an array of list-type map"
    assert found == ([] if blamed is None else [f'spec.trays[{blamed}]: Invalid value: "{trays[blamed]}": {text}'])


def test_texts_name_a_place_by_the_way_from_the_field_that_a_request_is_about() -> None:
    found = [str(fault) for fault in validate(SCHEMA, oven(degrees="hot", ratio="x"), oven(), root="spec")]
    assert found[:2] == [
        'spec.degrees: Invalid value: "string": degrees in body must be of type integer: "string"',
        'spec.ratio: Invalid value: "string": ratio in body must be of type number: "string"',
    ]
    whole, *_ = validate(SCHEMA, {"spec": "x"}, oven(), root="spec")
    assert str(whole) == 'spec: Invalid value: "string":  in body must be of type object: "string"'


def test_rules_do_not_run_after_other_errors() -> None:
    assert validate(SCHEMA, oven(mode="Fan"), earlier=[fields.invalid("metadata.name", "A", "no name")]) == []
    [note] = validate(SCHEMA, oven(mode="Fan"), earlier=[fields.required("metadata.name")])
    assert str(note).startswith(UNCHECKED)


def test_rules_about_change_run_only_where_there_is_an_old_value() -> None:
    old = oven(mode="Fan", trays=[{"level": 1, "food": "bread", "owner": "ann"}])
    assert faults(oven(trays=[{"level": 1, "owner": "bob"}]), old) == [
        'spec.trays[0].owner: Invalid value: "bob": owner is fixed'
    ]
    assert faults(oven(trays=[{"level": 2, "owner": "bob"}]), old) == []
    assert faults(oven(trays=[{"level": 1}]), old) == []


def test_unchanged_invalid_values_pass() -> None:
    old = oven(degrees=10, mode="Fan")
    assert faults(oven(degrees=10, label="ok"), old) == []
    assert len(faults(oven(degrees=11, label="ok"), old)) == 1


@pytest.mark.parametrize(
    ("rule", "reads"),
    [
        ("self.a.b == 1 && has(self.c)", (("a", "b"), ("c",))),
        ("self.list.all(x, x > oldSelf.list.size())", (("list",),)),
        ("self.list[0].x == 1", (("list",),)),
        ("self == oldSelf", ((),)),
        ("self.size() > 1", ((),)),
        ("self.?a.orValue(1) == 1", ((),)),
        ("self.x__dash__y == 1", ((),)),
    ],
)
def test_the_fields_that_a_rule_reads(rule: str, reads: tuple[tuple[str, ...], ...]) -> None:
    assert cel.reads_of(rule) == reads


def test_a_transition_rule_runs_only_if_a_field_that_it_reads_has_changed() -> None:
    grows = [{"rule": f"self.{name} > oldSelf.{name}", "message": name} for name in "ab"]
    numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    schema = Schema({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": numbers, "x-kubernetes-validations": grows}},
    })  # fmt: skip
    old = {"spec": {"a": 5, "b": 5}}
    assert [error.detail for error in validate(schema, {"spec": {"a": 5, "b": 4}}, old)] == ["b"]
    assert validate(schema, {"spec": {"a": 6, "b": 6}}, old) == []


def test_a_number_is_a_double_and_a_reserved_name_is_escaped_for_rules() -> None:
    rules = [{"rule": "self.__namespace__ == 'a' && self.x__dash__y == 2.0"}]
    numbers = {"namespace": {"type": "string"}, "x-y": {"type": "number"}}
    schema = Schema({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": numbers, "x-kubernetes-validations": rules}},
    })  # fmt: skip
    assert validate(schema, {"spec": {"namespace": "a", "x-y": 2}}) == []
    assert len(validate(schema, {"spec": {"namespace": "b", "x-y": 2}})) == 1


def test_an_optional_old_value_is_there_for_creation_too() -> None:
    rule = {"rule": "oldSelf.hasValue() || self == 0", "optionalOldSelf": True, "message": "starts at zero"}
    schema = Schema({"type": "object", "properties": {"n": {"type": "integer", "x-kubernetes-validations": [rule]}}})
    assert validate(schema, {"n": 0}) == []
    assert validate(schema, {"n": 5}, {"n": 0}) == []
    assert [str(error) for error in validate(schema, {"n": 5})] == ["n: Invalid value: 5: starts at zero"]


def test_patterns_of_go_are_understood() -> None:
    patterns = {"a": "^(?i)[a-z]+$", "b": "^[[:digit:]]+$", "c": r"^x\z"}
    properties = {name: {"type": "string", "pattern": text} for name, text in patterns.items()}
    schema = Schema({"type": "object", "properties": properties})
    assert validate(schema, {"a": "ABC", "b": "12", "c": "x"}) == []
    assert [error.field for error in validate(schema, {"a": "1", "b": "x", "c": "xy"})] == ["a", "b", "c"]


def test_functions_of_kubernetes_in_rules() -> None:
    def holds(rule: str) -> bool:
        program = cel.compile_rule({"rule": rule}).program
        return bool(program.eval(data={"self": {"list": [1, 2, 3]}, "oldValues": []}).value())

    assert holds("self.list.isSorted() && self.list.sum() == 6")
    assert holds("quantity('1Gi').isGreaterThan(quantity('500M')) && quantity('1').compareTo(quantity('1000m')) == 0")
    assert holds("isQuantity('2k') && !isQuantity('2x')")
    assert holds("'job-17'.find('[0-9]+') == '17'")


def definition(**version: Any) -> Json:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    return {
        "metadata": {"name": "ovens.kitchen.example.com"},
        "spec": {
            "group": "kitchen.example.com",
            "scope": "Namespaced",
            "names": {"plural": "ovens", "kind": "Oven"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema, **version}],
        },
    }


def test_a_definition_gets_its_names_and_its_first_status() -> None:
    oven_definition = definition()
    crd.default_definition(oven_definition)
    crd.prepare_definition(oven_definition)
    names = oven_definition["spec"]["names"]
    assert (names["singular"], names["listKind"]) == ("oven", "OvenList")
    assert oven_definition["status"]["storedVersions"] == ["v1"]


def test_a_version_says_what_is_served() -> None:
    subresources = {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}
    (version,) = crd.versions_of(definition(subresources=subresources, deprecated=True))
    assert version.has_status
    assert version.scale == subresources["scale"]
    assert version.deprecation == "kitchen.example.com/v1 Oven is deprecated"
    assert "ownerReferences" in version.schema.properties["metadata"].properties
