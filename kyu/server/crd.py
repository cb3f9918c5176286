"""
CustomResourceDefinitions: an object that a user applies becomes kinds that are served.

Here a definition is filled in and checked like any other object, and read: which versions it serves, with which schema,
columns and subresources. Whether its names are free, and that its objects go before it does, is for the server to see.

Called by: builtin.py (the kind itself), server/catalog.py (the kinds that it defines).
Kubernetes: apiextensions-apiserver/pkg/apis/apiextensions
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json, Kind
from kyu.server import cel, schema_checks, schema_fast
from kyu.server.builtin_data import META, object_meta
from kyu.server.builtin_metadata import IMMUTABLE
from kyu.server.builtin_names import dns_1035_label, subdomain
from kyu.server.metadata import timestamp
from kyu.server.schema_node import MISSING, REF_PREFIX, Schema

KIND: Final = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)
CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
SCOPES: Final = ("Cluster", "Namespaced")
COLUMN_TYPES: Final = ("integer", "number", "string", "boolean", "date")
# Groups that belong to Kubernetes; who defines a kind there says that the project has approved it.
PROTECTED_SUFFIXES: Final = (".k8s.io", ".kubernetes.io")
APPROVAL: Final = "api-approved.kubernetes.io"
UNSUPPORTED: Final = ("$ref", "definitions", "dependencies", "patternProperties", "uniqueItems")
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a custom kind, as it is served."""

    name: str
    is_served: bool
    is_stored: bool
    schema: Schema
    has_status: bool
    # specReplicasPath, statusReplicasPath, labelSelectorPath
    scale: Json | None
    columns: tuple[Json, ...]
    selectable_fields: tuple[str, ...]
    # What every answer of a deprecated version warns of; empty for others.
    deprecation: str


@dataclass(frozen=True, slots=True)
class Names:
    plural: str
    singular: str
    kind: str
    list_kind: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]


def names_of(definition: Json) -> Names:
    names = definition["spec"]["names"]
    return Names(
        names["plural"], names.get("singular", ""), names["kind"], names.get("listKind", ""),
        tuple(names.get("shortNames") or ()), tuple(names.get("categories") or ()),
    )  # fmt: skip


def is_namespaced(definition: Json) -> bool:
    return bool(definition["spec"].get("scope") == "Namespaced")


def versions_of(definition: Json) -> tuple[Version, ...]:
    """In the order of the definition."""
    return tuple(_version(definition, raw) for raw in definition["spec"].get("versions") or ())


def _version(definition: Json, raw: Json) -> Version:
    subresources = raw.get("subresources") or {}
    selectable = tuple(field["jsonPath"] for field in raw.get("selectableFields") or ())
    return Version(
        name=raw["name"],
        is_served=bool(raw.get("served")),
        is_stored=bool(raw.get("storage")),
        schema=schema_of(raw),
        has_status=subresources.get("status") is not None,
        scale=subresources.get("scale"),
        columns=tuple(raw.get("additionalPrinterColumns") or ()),
        selectable_fields=selectable,
        deprecation=_deprecation(definition, raw),
    )


def _deprecation(definition: Json, raw: Json) -> str:
    if not raw.get("deprecated"):
        return ""
    spec = definition["spec"]
    return raw.get("deprecationWarning") or f"{spec['group']}/{raw['name']} {spec['names']['kind']} is deprecated"


def schema_of(version: Json) -> Schema:
    """The schema with the metadata that every object has."""
    raw: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object", PRESERVE: True}
    typed = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    properties = {**typed, **(raw.get("properties") or {}), "metadata": {"$ref": f"{REF_PREFIX}{META}ObjectMeta"}}
    return Schema({**raw, "properties": properties}, object_meta().definitions)


def default_definition(definition: Json) -> None:
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if kind := names.get("kind"):
        if not names.get("singular"):
            names["singular"] = kind.lower()
        if not names.get("listKind"):
            names["listKind"] = f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})


def prepare_definition(definition: Json) -> None:
    """A new definition is not served until its names are accepted."""
    definition["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored_versions(definition),
    }


def prepare_definition_update(new: Json, old: Json) -> None:
    before = tuple((old.get("status") or {}).get("storedVersions") or ())
    new["status"] = {**(old.get("status") or {}), "storedVersions": stored_versions(new, before)}


def stored_versions(definition: Json, before: tuple[str, ...] = ()) -> list[str]:
    """The versions in which objects may be stored: once in the list, a version stays until somebody takes it out."""
    now = [version["name"] for version in definition["spec"].get("versions") or () if version.get("storage")]
    return [*before, *(name for name in now if name not in before)]


def established_status(definition: Json, now: datetime) -> Json:
    """The status when the names are accepted and the kind is served."""
    status = definition.get("status") or {}
    kept = [each for each in status.get("conditions") or () if each["type"] not in ("NamesAccepted", "Established")]
    conditions = [
        condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted", now),
    ]
    for index, made in enumerate(conditions):
        for each in status.get("conditions") or ():
            if each["type"] == made["type"] and each["status"] == "True":
                conditions[index] = each
    return {**status, "conditions": conditions + kept, "acceptedNames": dict(definition["spec"]["names"])}


def terminating_condition(now: datetime) -> Json:
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    return condition("Terminating", "InstanceDeletionPending", text, now)


def condition(type_: str, reason: str, message: str, now: datetime) -> Json:
    return {
        "type": type_, "status": "True", "lastTransitionTime": timestamp(now), "reason": reason, "message": message,
    }  # fmt: skip


def validate_definition(definition: Json) -> list[FieldError]:
    spec, found = definition.get("spec") or {}, list[FieldError]()
    names, group = spec.get("names") or {}, spec.get("group", "")
    if definition["metadata"].get("name") != f"{names.get('plural', '')}.{group}":
        detail = 'must be spec.names.plural+"."+spec.group'
        found.append(fields.invalid("metadata.name", definition["metadata"].get("name", ""), detail))
    if not group:
        found.append(fields.required("spec.group"))
    else:
        found += [fields.invalid("spec.group", group, text) for text in subdomain(group)]
        if "." not in group:
            found.append(fields.invalid("spec.group", group, "should be a domain with at least one dot"))
    if group.endswith(PROTECTED_SUFFIXES) and APPROVAL not in (definition["metadata"].get("annotations") or {}):
        detail = f'protected groups must have approval annotation "{APPROVAL}"'
        found.append(fields.required("metadata.annotations[api-approved.kubernetes.io]", detail))
    if spec.get("scope") not in SCOPES:
        found.append(fields.not_supported("spec.scope", spec.get("scope", ""), SCOPES))
    for name in ("plural", "singular", "kind", "listKind"):
        text = names.get(name, "")
        if not text:
            found.append(fields.required(f"spec.names.{name}"))
        else:
            found += [fields.invalid(f"spec.names.{name}", text, each) for each in dns_1035_label(text.lower())]
    return found + _validate_versions(spec.get("versions") or [])


def _validate_versions(versions: list[Json]) -> list[FieldError]:
    found: list[FieldError] = []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        found.append(fields.invalid("spec.versions", versions, detail))
    # One schema for all versions is checked once, where it stood before versions had their own.
    is_shared = bool(versions) and all(version.get("schema") == versions[0].get("schema") for version in versions)
    if is_shared and (schema := (versions[0].get("schema") or {}).get("openAPIV3Schema")) is not None:
        found += validate_schema(schema, "spec.validation.openAPIV3Schema", is_root=True)
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name", "")
        found += [fields.invalid(f"{path}.name", name, text) for text in dns_1035_label(name)]
        if name in seen:
            found.append(fields.duplicate(f"{path}.name", name))
        seen.add(name)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            found.append(fields.required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
        elif not is_shared:
            found += validate_schema(schema, f"{path}.schema.openAPIV3Schema", is_root=True)
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            found += _validate_column(column, f"{path}.additionalPrinterColumns[{number}]")
    return found


def _validate_column(column: Json, path: str) -> list[FieldError]:
    found = [fields.required(f"{path}.{name}") for name in ("name", "type", "jsonPath") if not column.get(name)]
    if column.get("type") and column["type"] not in COLUMN_TYPES:
        found.append(fields.not_supported(f"{path}.type", column["type"], sorted(COLUMN_TYPES)))
    return found


def validate_schema(raw: Json, path: str, *, is_root: bool = False) -> list[FieldError]:
    """A structural schema: every value has a type, and nothing is left that could not be checked."""
    found: list[FieldError] = []
    any_type = raw.get(PRESERVE) or raw.get("x-kubernetes-int-or-string")
    if is_root and raw.get("type") != "object":
        found.append(fields.invalid(f"{path}.type", raw.get("type", ""), "must be object at the root"))
    elif not raw.get("type") and not any_type:
        found.append(fields.required(f"{path}.type", "must not be empty for specified object fields"))
    if raw.get("type") == "array" and not raw.get("items"):
        found.append(fields.required(f"{path}.items", "must be specified"))
    found += [fields.forbidden(f"{path}.{name}", f"{name} is not supported") for name in UNSUPPORTED if raw.get(name)]
    if isinstance(raw.get("items"), list):
        found.append(fields.forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if raw.get("properties") and raw.get("additionalProperties"):
        detail = "additionalProperties and properties are mutual exclusive"
        found.append(fields.forbidden(f"{path}.additionalProperties", detail))
    if (pattern := raw.get("pattern")) and not schema_fast.is_pattern(pattern):
        found.append(fields.invalid(f"{path}.pattern", pattern, "must be a valid regular expression"))
    found += _validate_list_type(raw, path)
    if raw.get("default") is not None:
        wrong: list[FieldError] = []
        schema_checks.check(Schema(raw), raw["default"], MISSING, "", wrong)
        found += [fields.invalid(f"{path}.default", raw["default"], error.message) for error in wrong]
    for index, rule in enumerate(raw.get("x-kubernetes-validations") or ()):
        found += _validate_rule(rule, f"{path}.x-kubernetes-validations[{index}]")
    for where, child in _children(raw):
        found += validate_schema(child, f"{path}{where}")
    return found


def _children(raw: Json) -> Iterator[tuple[str, Json]]:
    for name, child in (raw.get("properties") or {}).items():
        yield f".properties[{name}]", child
    for name in ("items", "additionalProperties"):
        if isinstance(child := raw.get(name), dict):
            yield f".{name}", child


def _validate_list_type(raw: Json, path: str) -> list[FieldError]:
    kind, keys = raw.get("x-kubernetes-list-type"), raw.get("x-kubernetes-list-map-keys") or ()
    where = f"{path}.x-kubernetes-list-type"
    if kind is None:
        return []
    if kind not in ("atomic", "map", "set"):
        return [fields.not_supported(where, kind, ("atomic", "map", "set"))]
    if raw.get("type") != "array":
        return [fields.invalid(f"{path}.type", raw.get("type", ""), f"must be array if {where} is set")]
    if kind == "map" and not keys:
        detail = 'must not be empty if x-kubernetes-list-type is "map"'
        return [fields.required(f"{path}.x-kubernetes-list-map-keys", detail)]
    items: Any = raw.get("items")
    known = items.get("properties") or {} if isinstance(items, dict) else {}
    return [
        fields.invalid(f"{path}.x-kubernetes-list-map-keys", key, "entries must all be names of item properties")
        for key in keys
        if key not in known
    ]


def _validate_rule(rule: Json, path: str) -> list[FieldError]:
    if not (rule.get("rule") or "").strip():
        return [fields.required(f"{path}.rule", "rule is not specified")]
    try:
        if cel.IS_AVAILABLE:
            cel.compile_rule(rule)
    except cel.RuleError as error:
        return [fields.invalid(f"{path}.rule", rule["rule"], f"compilation failed: {error}")]
    return []


def validate_definition_update(new: Json, old: Json) -> list[FieldError]:
    found = validate_definition(new)
    after, before = new["spec"], old["spec"]
    for name in ("group", "scope"):
        if after.get(name) != before.get(name):
            found.append(fields.invalid(f"spec.{name}", after.get(name), IMMUTABLE))
    for name in ("plural", "kind"):
        if after["names"].get(name) != before["names"].get(name):
            found.append(fields.invalid(f"spec.names.{name}", after["names"].get(name), IMMUTABLE))
    kept = [version["name"] for version in after.get("versions") or ()]
    missing = [name for name in (old.get("status") or {}).get("storedVersions") or () if name not in kept]
    for index, name in enumerate(missing):
        detail = "missing from spec.versions; must remain in spec.versions until status.storedVersions is updated"
        found.append(fields.invalid(f"status.storedVersions[{index}]", name, detail))
    return found
