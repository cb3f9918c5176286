"""Validation of CustomResourceDefinitions: the fields of the errors."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kyu.api import pools
from kyu.api.clusters import capacity
from kyu.api.definitions import crds
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.kinds import crds as job_crds
from kyu.server.crd import crd, rules
from kyu.server.schema import cel

SCHEMA = "spec.validation.openAPIV3Schema"
LIST_MAP = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
needs_cel = pytest.mark.skipif(not cel.IS_AVAILABLE, reason="the CEL library is not there")


def version(name: str = "v1", *, storage: bool = True, schema: Json | None = None, **said: object) -> Json:
    made = {"openAPIV3Schema": {"type": "object"} if schema is None else schema}
    return {"name": name, "served": True, "storage": storage, "schema": made, **said}


def definition(*versions: Json, names: Json | None = None, **spec: object) -> Json:
    return {
        "metadata": {"name": "ovens.kitchen.example.com"},
        "spec": {
            "group": "kitchen.example.com",
            "scope": "Namespaced",
            "names": {"plural": "ovens", "kind": "Oven", **(names or {})},
            "versions": list(versions) or [version()],
            **spec,
        },
    }


def refusals(made: Json) -> list[FieldError]:
    crd.default_definition(made)
    crd.prepare_definition(made)
    return list(rules.validate_definition(made))


def told(made: Json) -> list[str]:
    return [f"{error.type} {error.field}" for error in refusals(made)]


def with_field(**schema: Any) -> Json:
    return definition(version(schema={"type": "object", "properties": {"heat": schema}}))


def told_of_field(**schema: Any) -> list[str]:
    """Return the errors of a schema of one field, with paths from there."""
    return [text.replace(f"{SCHEMA}.properties[heat]", "") for text in told(with_field(**schema))]


def test_the_definitions_of_this_project_are_accepted() -> None:
    for made in (*crds.definitions(), pools.definition(), *capacity.definitions(), *job_crds.definitions()):
        assert refusals(deepcopy(made)) == [], made["metadata"]["name"]


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ({"plural": "Ovens"}, ["Invalid metadata.name", "Invalid spec.names.plural"]),
        ({"singular": "Oven"}, ["Invalid spec.names.singular"]),
        ({"kind": "oven-", "singular": "oven"}, ["Invalid spec.names.kind"]),
        ({"listKind": "Oven"}, ["Invalid spec.names.listKind"]),
        ({"shortNames": ["ov", "O"]}, ["Invalid spec.names.shortNames[1]"]),
        ({"categories": ["all", "a_b"]}, ["Invalid spec.names.categories[1]"]),
        ({"kind": "OvenWithDoor"}, []),
    ],
)
def test_names_of_a_definition_are_there_and_are_labels(names: Json, wanted: list[str]) -> None:
    assert told(definition(names=names)) == wanted


def test_the_scope_is_one_of_two() -> None:
    assert told(definition(scope="")) == ["Required spec.scope"]
    assert told(definition(scope="Kitchen")) == ["NotSupported spec.scope"]


@pytest.mark.parametrize(
    ("approval", "wanted"),
    [
        (None, ["Required"]),
        ("", ["Required"]),
        ("yes", ["Invalid"]),
        ("https://example.com/review/1", []),
        ("unapproved, a trial", []),
    ],
)
def test_a_group_of_kubernetes_needs_an_approval(approval: str | None, wanted: list[str]) -> None:
    made = definition(group="kitchen.k8s.io")
    made["metadata"] = {"name": "ovens.kitchen.k8s.io"}
    if approval is not None:
        made["metadata"]["annotations"] = {"api-approved.kubernetes.io": approval}
    assert [error.type for error in refusals(made)] == wanted


def test_exactly_one_version_is_stored() -> None:
    assert told(definition(version(storage=False))) == ["Invalid spec.versions", "Invalid status.storedVersions"]
    assert told(definition(version(), version("v2"))) == ["Invalid spec.versions", "Invalid status.storedVersions"]
    assert told(definition(version(), version("v2", storage=False))) == []


def test_an_error_about_versions_shows_the_fields_that_differ() -> None:
    error, _ = refusals(definition(version(storage=False)))
    assert error.value[0]["Name"] == "v1"
    assert error.value[0]["Schema"] is None


def test_a_version_has_a_name_of_its_own_and_a_schema() -> None:
    assert told(definition(version("V1"))) == ["Invalid spec.versions[0].name", "Invalid spec.version"]
    twice = told(definition(version(), version(storage=False)))
    assert twice == ["Invalid spec.versions"]
    bare = {"name": "v1", "served": True, "storage": True}
    assert told(definition(bare)) == ["Required spec.versions[0].schema.openAPIV3Schema"]


def test_errors_common_to_all_versions_are_reported_at_the_definition() -> None:
    columns = [{"name": "Heat", "type": "degree", "jsonPath": ".spec.heat"}]
    both = [version(additionalPrinterColumns=columns), version("v2", storage=False, additionalPrinterColumns=columns)]
    assert told(definition(*both)) == ["Invalid spec.additionalPrinterColumns[0].type"]
    one = [version(additionalPrinterColumns=columns), version("v2", storage=False)]
    assert told(definition(*one)) == ["Invalid spec.versions[0].additionalPrinterColumns[0].type"]


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ({}, ["Required name", "Required type", "Required JSONPath"]),
        ({"name": "Heat", "type": "string", "jsonPath": "spec.heat"}, ["Invalid JSONPath"]),
        ({"name": "Heat", "type": "string", "format": "celsius", "jsonPath": ".a"}, ["Invalid format"]),
        ({"name": "Heat", "type": "integer", "format": "int32", "jsonPath": ".a"}, []),
    ],
)
def test_a_column_has_a_name_a_known_type_and_a_path(column: Json, wanted: list[str]) -> None:
    found = told(definition(version(additionalPrinterColumns=[column])))
    assert [text.replace("spec.additionalPrinterColumns[0].", "") for text in found] == wanted


@pytest.mark.parametrize(
    ("scale", "wanted"),
    [
        ({}, ["Required specReplicasPath", "Required statusReplicasPath"]),
        ({"specReplicasPath": ".status.n", "statusReplicasPath": ".status.n"}, ["Invalid specReplicasPath"]),
        ({"specReplicasPath": ".spec.n", "statusReplicasPath": "status.n"}, ["Invalid statusReplicasPath"]),
        (
            {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".selector"},
            ["Invalid labelSelectorPath"],
        ),
    ],
)
def test_the_paths_of_scale(scale: Json, wanted: list[str]) -> None:
    found = told(definition(version(subresources={"scale": scale})))
    assert [text.replace("spec.subresources.scale.", "") for text in found] == wanted


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (".heat", ""),
        ("", "Required value"),
        ("heat", "is an invalid path: expected [ or . but got: heat"),
        (".door", "is an invalid path: does not refer to a valid field"),
        (".trays[0]", "is an invalid path: array notation is not allowed"),
        (".trays", "must point to a field of type string, boolean or integer"),
    ],
)
def test_a_selectable_field_is_a_plain_field_of_the_schema(path: str, wanted: str) -> None:
    properties = {"heat": {"type": "string"}, "trays": {"type": "array", "items": {"type": "string"}}}
    schema = {"type": "object", "properties": properties}
    errors = refusals(definition(version(schema=schema, selectableFields=[{"jsonPath": path}])))
    assert [wanted in error.message for error in errors] == ([True] if wanted else [])


def test_a_selectable_field_is_named_once() -> None:
    schema = {"type": "object", "properties": {"heat": {"type": "string"}}}
    made = definition(version(schema=schema, selectableFields=[{"jsonPath": ".heat"}, {"jsonPath": ".heat"}]))
    assert told(made) == ["Duplicate spec.selectableFields[1].jsonPath"]


@pytest.mark.parametrize(
    ("said", "is_refused"),
    [
        ({"deprecationWarning": "old"}, True),
        ({"deprecated": True, "deprecationWarning": ""}, True),
        ({"deprecated": True, "deprecationWarning": "a\nb"}, True),
        ({"deprecated": True, "deprecationWarning": "x" * 257}, True),
        ({"deprecated": True, "deprecationWarning": "use v2"}, False),
    ],
)
def test_the_warning_of_a_deprecated_version(said: Json, is_refused: bool) -> None:
    found = told(definition(version(**said)))
    assert found == (["Invalid spec.versions[0].deprecationWarning"] if is_refused else [])


@pytest.mark.parametrize(
    ("conversion", "wanted"),
    [
        ({}, ["Required strategy"]),
        ({"strategy": "Magic"}, ["NotSupported strategy"]),
        ({"strategy": "Webhook"}, ["Required webhookClientConfig", "Required conversionReviewVersions"]),
        (
            {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "ftp:a"}, "conversionReviewVersions": ["v1"]}},
            ["Invalid webhookClientConfig.url"] * 2,
        ),
        (
            {"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1", "v1"]}},
            ["Required webhookClientConfig", "Invalid conversionReviewVersions[1]"],
        ),
        (
            {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"port": 0, "path": "/a//b"}},
             "conversionReviewVersions": ["v9"]}},
            ["Required webhookClientConfig.service.name", "Required webhookClientConfig.service.namespace",
             "Invalid webhookClientConfig.service.port", "Invalid webhookClientConfig.service.path",
             "Invalid conversionReviewVersions"],
        ),
        ({"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}, ["Forbidden conversionReviewVersions"]),
    ],
)  # fmt: skip
def test_validation_of_conversions(conversion: Json, wanted: list[str]) -> None:
    found = told(definition(conversion=conversion))
    assert [text.replace("spec.conversion.", "") for text in found] == wanted


def test_the_service_of_a_conversion_has_a_port() -> None:
    webhook = {"clientConfig": {"service": {"name": "a", "namespace": "b"}}, "conversionReviewVersions": ["v1"]}
    made = definition(conversion={"strategy": "Webhook", "webhook": webhook})
    assert refusals(made) == []
    assert made["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] == 443


def test_unknown_fields_are_preserved_by_the_schema_only() -> None:
    assert told(definition(preserveUnknownFields=True)) == ["Invalid spec.preserveUnknownFields"]
    assert told(definition(preserveUnknownFields=False)) == []


def established(*versions: Json) -> Json:
    made = definition(*versions)
    assert refusals(made) == []
    made["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    return made


def updated(old: Json, **spec: Any) -> list[str]:
    new = {**old, "spec": {**old["spec"], **spec}}
    crd.prepare_definition_update(new, old)
    return [f"{error.type} {error.field}" for error in rules.validate_definition_update(new, old)]


def test_names_and_scope_stay_when_objects_may_be_stored() -> None:
    old = established()
    assert updated(old, scope="Cluster") == ["Invalid spec.scope"]
    assert updated(old, names={**old["spec"]["names"], "kind": "Stove"}) == ["Invalid spec.names.kind"]
    assert updated(old, group="other.example.com") == ["Invalid spec.group"]
    old["status"]["conditions"] = []
    assert updated(old, scope="Cluster") == []


def test_a_version_stays_as_long_as_objects_may_be_stored_in_it() -> None:
    old = established(version(), version("v2", storage=False))
    assert updated(old, versions=[version("v2")]) == ["Invalid status.storedVersions[0]"]
    assert updated(old, versions=[version(storage=False), version("v2")]) == []


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({}, ["Required .type"]),
        ({"type": "thing"}, ["NotSupported .type"]),
        ({"type": "array"}, ["Required .items"]),
        ({"type": "array", "items": {}}, ["Required .items.type"]),
        ({"type": "array", "items": [{"type": "string"}]}, ["Forbidden .items"]),
        ({"type": "string", "pattern": "("}, ["Invalid .pattern"]),
        ({"$ref": "#/x"}, ["Forbidden .$ref"]),
        ({"type": "string", "x-kubernetes-preserve-unknown-fields": False},
         ["Invalid .x-kubernetes-preserve-unknown-fields"]),
        ({"type": "string", "x-kubernetes-map-type": "atomic"}, ["Invalid .type"]),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, ["Required .properties"]),
        ({"type": "string", "allOf": [{"type": "string"}]}, ["Forbidden .allOf[0].type"]),
        ({"type": "string", "anyOf": [{"default": "a"}]}, ["Forbidden .anyOf[0].default"]),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}, []),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
         ["Forbidden .additionalProperties"]),
    ],
)  # fmt: skip
def test_a_schema_is_structural(schema: Json, wanted: list[str]) -> None:
    assert told_of_field(**schema) == wanted


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "string"}, ["Invalid .type"]),
        ({}, ["Required .type"]),
        ({"type": "object", "nullable": True}, ["Forbidden .nullable"]),
        ({"type": "object", "additionalProperties": {"type": "string"}}, ["Forbidden .additionalProperties"]),
        ({"type": "object", "properties": {"kind": {"type": "integer"}}}, ["Invalid .properties[kind].type"]),
        ({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"uid": {"type": "string"}}}}},
         ["Forbidden .properties[metadata]"]),
        ({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}}}},
         []),
        ({"type": "object", "properties": {"metadata": {"type": "object", "default": {}}}},
         ["Forbidden .properties[metadata].default"]),
        ({"type": "object", "allOf": [{"properties": {"heat": {"minLength": 1}}}]}, ["Required .properties[heat]"]),
    ],
)  # fmt: skip
def test_the_root_of_a_schema_is_an_object_with_metadata(schema: Json, wanted: list[str]) -> None:
    assert [text.replace(SCHEMA, "") for text in told(definition(version(schema=schema)))] == wanted


def test_the_root_of_a_schema_has_nothing_that_a_status_alone_would_miss() -> None:
    schema = {"type": "object", "maxProperties": 3}
    assert told(definition(version(schema=schema))) == []
    assert told(definition(version(schema=schema, subresources={"status": {}}))) == [f"Invalid {SCHEMA}"]


@pytest.mark.parametrize(
    ("items", "said", "wanted"),
    [
        ({"type": "string"}, {"x-kubernetes-list-type": "bag"}, ["NotSupported .x-kubernetes-list-type"]),
        ({"type": "object"}, {"x-kubernetes-list-type": "set"}, ["Invalid .items.x-kubernetes-map-type"]),
        ({"type": "string", "nullable": True}, {"x-kubernetes-list-type": "set"}, ["Forbidden .items.nullable"]),
        ({"type": "object"}, {"x-kubernetes-list-type": "map"}, ["Required .x-kubernetes-list-map-keys"]),
        ({"type": "object"}, LIST_MAP, ["Invalid .x-kubernetes-list-map-keys"]),
        ({"type": "string"}, LIST_MAP, ["Invalid .items.type"]),
        ({"type": "object", "properties": {"name": {"type": "string"}}}, LIST_MAP,
         ["Required .items.properties[name].default"]),
        ({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}, LIST_MAP, []),
        ({"type": "string"}, {"x-kubernetes-list-map-keys": ["name"]}, ["Required .x-kubernetes-list-type"]),
    ],
)  # fmt: skip
def test_validation_of_list_types(items: Json, said: Json, wanted: list[str]) -> None:
    assert told_of_field(type="array", items=items, **said) == wanted


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "string", "default": 5}, ["TypeInvalid .default"]),
        ({"type": "string", "enum": ["a"], "default": "b"}, ["NotSupported .default"]),
        ({"type": "object", "default": {"a": 1}}, ["Invalid .default"]),
        ({"type": "object", "default": {}, "properties": {"a": {"type": "string"}}, "required": ["a"]},
         ["Required .default.a"]),
        ({"type": "array", "items": {"type": "string"}, "default": ["a", 1]}, ["TypeInvalid .default.[1]"]),
        ({"type": "string", "default": "a"}, []),
    ],
)  # fmt: skip
def test_a_default_fits_its_schema(schema: Json, wanted: list[str]) -> None:
    assert told_of_field(**schema) == wanted


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ({"rule": " "}, ["Required rule"]),
        ({"rule": "true", "message": " "}, ["Invalid message"]),
        ({"rule": "true", "message": "a\nb"}, ["Invalid message"]),
        ({"rule": "true\n|| false"}, ["Required message"]),
        ({"rule": "true", "messageExpression": " "}, ["Required messageExpression"]),
        ({"rule": "true", "reason": "Mood"}, ["NotSupported reason"]),
        ({"rule": "true", "fieldPath": ".door"}, ["Invalid fieldPath"]),
        ({"rule": "true", "optionalOldSelf": True}, ["Invalid optionalOldSelf"]),
        ({"rule": "self == 'a'", "message": "only a", "reason": "FieldValueForbidden"}, []),
    ],
)
def test_validation_of_cel_rules(rule: Json, wanted: list[str]) -> None:
    found = told_of_field(type="string", **{"x-kubernetes-validations": [rule]})
    assert [text.replace(".x-kubernetes-validations[0].", "") for text in found] == wanted


def test_a_rule_compares_an_integer_with_a_fraction() -> None:
    assert told_of_field(type="integer", **{"x-kubernetes-validations": [{"rule": "self > 0.5"}]}) == []


def test_a_rule_cannot_ask_for_the_old_value_of_an_item_that_has_no_key() -> None:
    items = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    wanted = ["Invalid .items.x-kubernetes-validations[0].rule"]
    assert told_of_field(type="array", items=items) == wanted
    assert told_of_field(type="object", additionalProperties=items) == []


@needs_cel
@pytest.mark.parametrize(
    ("rule", "where", "words"),
    [
        (
            {"rule": "heat(self) && true"},
            "rule",
            "compilation failed: ERROR: <input>:1:5: undeclared reference to 'heat'",
        ),
        ({"rule": "self == 5"}, "rule", "found no matching overload for '_==_' applied to '(string, int)'"),
        ({"rule": "self.heat"}, "rule", "type 'string' does not support field selection"),
        ({"rule": "self"}, "rule", "cel expression must evaluate to a bool"),
        ({"rule": "1 + 1"}, "rule", "cel expression must evaluate to a bool"),
        ({"rule": "true", "messageExpression": "1"}, "messageExpression", "must evaluate to a string"),
        ({"rule": "true", "messageExpression": "heat"}, "messageExpression", "messageExpression compilation failed: "),
    ],
)
def test_a_rule_that_cannot_be_compiled_is_shown_whole(rule: Json, where: str, words: str) -> None:
    (error,) = refusals(with_field(type="string", **{"x-kubernetes-validations": [rule]}))
    assert error.field == f"{SCHEMA}.properties[heat].x-kubernetes-validations[0].{where}"
    assert words in error.message
    assert error.message.startswith('Invalid value: {"Rule":"' + rule["rule"].replace("&", "\\u0026"))


def test_a_status_without_stored_versions_gets_the_one_that_is_stored() -> None:
    made = {**definition(version(storage=False), version("v2")), "status": {"storedVersions": []}}
    crd.default_definition(made)
    assert made["status"]["storedVersions"] == ["v2"]


def test_a_default_that_is_too_long() -> None:
    (error,) = refusals(with_field(type="string", maxLength=1, default="ab"))
    assert error.message == "Too long: may not be more than 1 byte"
