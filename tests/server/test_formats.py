"""Validation by schemas: formats, alternatives, embedded objects, numbers."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.server.crd import custom
from kyu.server.schema import checks, fast
from kyu.server.schema.node import MISSING, Schema
from kyu.server.tables import table


def faults(raw: dict[str, Any], value: Any) -> list[str]:
    """Return the errors of a value, and check that the quick check does not accept it."""
    schema, found = Schema(raw), list[Any]()
    checks.check(schema, value, MISSING, "f", found)
    assert not (found and fast.is_certain(schema, fast.valid, value))
    return [str(fault) for fault in found]


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("hostname", "a.example", "a.b"),
        ("byte", "aGk=", "!"),
        ("duration", "1h30m", "x"),
        ("duration", "5 days", "5 moons"),
        ("cidr", "10.0.0.0/8", "10.0.0.1"),
        ("mac", "00:00:5e:00:53:01", "00:00"),
        ("hexcolor", "#00ff00", "green"),
        ("date-time", "2026-01-01T00:00:00Z", "2026-01-01"),
        ("date", "2026-01-01", "2026-13-01"),
        ("ipv4", "10.0.0.1", "10.0.0"),
    ],
)
def test_formats_of_texts(format_: str, good: str, bad: str) -> None:
    schema = {"type": "string", "format": format_}
    assert faults(schema, good) == []
    assert faults(schema, bad) == [f'f: Invalid value: "{bad}": f in body must be of type {format_}: "{bad}"']


def test_an_unknown_format_asks_nothing() -> None:
    assert faults({"type": "string", "format": "password"}, "any") == []


X_OR_Y = [{"required": ["x"]}, {"required": ["y"]}]


@pytest.mark.parametrize(
    ("raw", "value", "expected"),
    [
        ({"anyOf": X_OR_Y}, {"x": 1}, []),
        ({"anyOf": X_OR_Y}, {}, ['"f" must validate at least one schema (anyOf)', "f.x: Required value"]),
        (
            {"oneOf": X_OR_Y},
            {},
            ['"f" must validate one and only one schema (oneOf). Found none valid', "f.x: Required value"],
        ),
        (
            {"oneOf": X_OR_Y},
            {"x": 1, "y": 1},
            ['"f" must validate one and only one schema (oneOf). Found 2 valid alternatives'],
        ),
        ({"not": {"required": ["x"]}}, {"x": 1}, ['"f" must not validate the schema (not)']),
        ({"allOf": X_OR_Y}, {"x": 1}, ['"f" must validate all the schemas (allOf)', "f.y: Required value"]),
    ],
)
def test_errors_of_the_first_alternative_are_reported(
    raw: dict[str, Any], value: Any, expected: list[str]
) -> None:
    found = faults({"type": "object", **raw}, value)
    assert [text.removeprefix('<nil>: Invalid value: "": ') for text in found] == expected


def test_an_undecided_part_of_not_is_no_yes() -> None:
    form = {"type": "string", "format": "byte"}
    assert faults({"not": form}, "aGk=") != []
    assert faults({"oneOf": [form, {"type": "string"}]}, "aGk=") != []


def test_all_errors_of_a_number_are_reported() -> None:
    raw = {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "multipleOf": 3}
    assert faults(raw, 1) == [
        "f: Invalid value: 1: f in body should be a multiple of 3",
        "f: Invalid value: 1: f in body should be greater than 1",
    ]


@pytest.mark.parametrize("value", [2**63, 10**400, 1.5])
def test_a_number_that_its_format_cannot_hold(value: float) -> None:
    assert faults({"type": "integer", "format": "int64"}, value) == [
        'f: Invalid value: "float64": f in body must be of type int64: "float64"',
        '<nil>: Invalid value: "": Checked value must be of type integer with format int64 in f',
    ]


def test_an_embedded_object_needs_its_type() -> None:
    raw = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    assert faults(raw, {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}}) == []
    assert faults(raw, {}) == ["f.apiVersion: Required value", "f.kind: Required value"]
    labelled = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b c"}}}
    assert faults(raw, labelled)[0].startswith('f.metadata.labels: Invalid value: "b c"')


@pytest.mark.parametrize(
    ("type_", "value", "cell"),
    [
        ("string", ["p", 1], '["p",1]'),
        ("string", {"k": True}, '{"k":true}'),
        ("string", 5, "5"),
        ("date", "x", "<invalid>"),
        ("date", 5, None),
        ("integer", "x", None),
        ("boolean", True, True),
    ],
)
def test_a_cell_is_empty_where_the_value_is_not_of_the_type_of_the_column(type_: str, value: Any, cell: Any) -> None:
    definition = {
        "metadata": {"name": "things.x.com"},
        "spec": {
            "group": "x.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                    "additionalPrinterColumns": [{"name": "C", "type": type_, "jsonPath": ".spec.c"}],
                }
            ],
        },
    }
    (resource,) = custom.resources_of(definition)
    obj = {"metadata": {"name": "a"}, "spec": {"c": value}}
    assert table.cells(resource, obj, table.now()) == ["a", cell]
