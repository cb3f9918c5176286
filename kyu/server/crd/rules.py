"""
Validation of a CustomResourceDefinition, except its schemas: names, group, versions, columns, conversion.

As in Kubernetes, errors have the paths of the internal version: a field that all versions have in common is reported at
the definition (``spec.additionalPrinterColumns``), others at their version.

Kubernetes: apiextensions-apiserver/pkg/apis/apiextensions/validation
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import dns_1035_label, subdomain
from kyu.server.crd import conversion, schema_rules
from kyu.server.crd import schema as crd_schema
from kyu.server.validation.checks import immutable, one_of

SCOPES: Final = ("Cluster", "Namespaced")
COLUMN_TYPES: Final = "boolean,date,integer,number,string"
COLUMN_FORMATS: Final = "byte,date,date-time,double,float,int32,int64,password"
NO_PATH: Final = "must be a simple json path starting with ."
# The parents that the paths of a scale may have.
SCALE_PATHS: Final = {
    "specReplicasPath": (".spec",), "statusReplicasPath": (".status",), "labelSelectorPath": (".spec", ".status"),
}  # fmt: skip
SELECTABLE_TYPES: Final = ("string", "boolean", "integer")
MAX_SELECTABLE_FIELDS: Final = 8
MAX_WARNING_LENGTH: Final = 256
# Groups of Kubernetes: a definition in one of them needs an annotation with its approval.
PROTECTED_GROUPS: Final = ("k8s.io", "kubernetes.io")
APPROVAL: Final = "api-approved.kubernetes.io"
PRESERVED: Final = (
    "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
)
APPROVAL_POLICY: Final = "see https://github.com/kubernetes/enhancements/pull/1111"
# The internal fields of a version, which an error shows.
VERSION_FIELDS: Final = {"Schema": "schema", "Subresources": "subresources",
    "AdditionalPrinterColumns": "additionalPrinterColumns", "SelectableFields": "selectableFields"}  # fmt: skip


def validate_definition(definition: Json) -> Iterator[FieldError]:
    """Validate a new definition, with its defaults and first status."""
    metadata, spec = definition["metadata"], definition["spec"]
    wanted = f"{spec['names'].get('plural', '')}.{spec.get('group', '')}"
    if metadata.get("name") and metadata["name"] != wanted:
        yield fields.invalid("metadata.name", metadata["name"], 'must be spec.names.plural+"."+spec.group')
    yield from _spec_faults(spec)
    yield from _stored_version_faults(definition)
    if spec.get("preserveUnknownFields"):
        yield fields.invalid("spec.preserveUnknownFields", True, PRESERVED)
    yield from _approval_faults(spec.get("group", ""), metadata.get("annotations") or {})


def validate_definition_update(new: Json, old: Json) -> Iterator[FieldError]:
    """Validate an update. Names and scope are immutable once the kind is established."""
    after, before = new["spec"], old["spec"]
    yield from _spec_faults(after)
    conditions = (old.get("status") or {}).get("conditions") or ()
    if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
        yield from immutable("spec.", after, before, "scope")
        yield from immutable("spec.names.", after["names"], before["names"], "kind")
    yield from immutable("spec.", after, before, "group")
    yield from immutable("spec.names.", after["names"], before["names"], "plural")
    if after.get("preserveUnknownFields") and not before.get("preserveUnknownFields"):
        yield fields.invalid("spec.preserveUnknownFields", True, PRESERVED)
    yield from _stored_version_faults(new)


def _spec_faults(spec: Json) -> Iterator[FieldError]:
    yield from _group_faults(spec.get("group", ""))
    if not spec.get("scope"):
        yield fields.required("spec.scope")
    else:
        yield from one_of("spec.scope", spec["scope"], SCOPES)
    yield from _version_faults(spec.get("versions") or [])
    yield from _name_faults(spec["names"])
    yield from conversion.faults(spec.get("conversion"))


def _group_faults(group: str) -> Iterator[FieldError]:
    if not group:
        yield fields.required("spec.group")
    elif wrong := subdomain(group):
        yield fields.invalid("spec.group", group, ",".join(wrong))
    elif "." not in group:
        yield fields.invalid("spec.group", group, "should be a domain with at least one dot")


def _approval_faults(group: str, annotations: Json) -> Iterator[FieldError]:
    if not f".{group}".endswith(tuple(f".{each}" for each in PROTECTED_GROUPS)):
        return
    path, approval = f"metadata.annotations[{APPROVAL}]", annotations.get(APPROVAL, "")
    wanted, address = f'protected groups must have approval annotation "{APPROVAL}"', urlsplit(approval)
    if not approval:
        yield fields.required(path, f"{wanted}, {APPROVAL_POLICY}")
    elif not approval.startswith("unapproved") and not (address.scheme and address.netloc):
        either = 'with either a URL or a reason starting with "unapproved"'
        yield fields.invalid(path, approval, f"{wanted} {either}, {APPROVAL_POLICY}")


def _name_faults(names: Json) -> Iterator[FieldError]:
    for name in ("plural", "singular", "kind", "listKind"):
        text = names.get(name, "")
        is_kind = name in ("kind", "listKind")
        if not text:
            yield fields.required(f"spec.names.{name}")
        elif wrong := dns_1035_label(text.lower() if is_kind else text):
            prefix = "may have mixed case, but should otherwise match: " if is_kind else ""
            yield fields.invalid(f"spec.names.{name}", text, prefix + ",".join(wrong))
    for name in ("shortNames", "categories"):
        for index, text in enumerate(names.get(name) or ()):
            if wrong := dns_1035_label(text):
                yield fields.invalid(f"spec.names.{name}[{index}]", text, ",".join(wrong))
    if names.get("kind") and names["kind"] == names.get("listKind"):
        yield fields.invalid("spec.names.listKind", names["kind"], "kind and listKind may not be the same")


def _stored_version_faults(definition: Json) -> Iterator[FieldError]:
    """Check that every version with stored objects is still defined."""
    path, stored = "status.storedVersions", list((definition.get("status") or {}).get("storedVersions") or ())
    if not stored:
        yield fields.invalid(path, None, "must have at least one stored version")
        return
    missing = {name: index for index, name in enumerate(stored)}
    for version in definition["spec"].get("versions") or ():
        name = version.get("name", "")
        if version.get("storage") and name not in missing:
            yield fields.invalid(path, stored, f"must have the storage version {name}")
        missing.pop(name, None)
    for name, index in missing.items():
        detail = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions"
            f" until a storage migration ensures no data remains persisted in {name} and removes {name}"
            " from status.storedVersions"
        )
        yield fields.invalid(f"{path}[{index}]", name, detail)


def _is_common(versions: list[Json], name: str) -> bool:
    """Return whether all versions have the same value, so that it is reported at the definition."""
    return all(version.get(name) == versions[0].get(name) for version in versions)


def _version_faults(versions: list[Json]) -> Iterator[FieldError]:
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name", "")
        if wrong := dns_1035_label(name):
            yield fields.invalid(f"{path}.name", name, ",".join(wrong))
            if index == 0 and name:
                yield fields.invalid("spec.version", name, ",".join(wrong))
        if (version.get("schema") or {}).get("openAPIV3Schema") is None:
            yield fields.required(f"{path}.schema.openAPIV3Schema")
        yield from _warning_faults(version, path)
    names = [version.get("name") for version in versions]
    if len(set(names)) != len(names):
        yield fields.invalid("spec.versions", _shown(versions), "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        yield fields.invalid("spec.versions", _shown(versions), detail)
    for path, name, version in _parts(versions):
        yield from _part_faults(path, name, version)


def _parts(versions: list[Json]) -> Iterator[tuple[str, str, Json]]:
    """Yield the path and the name of each field to check, and its version."""
    for name in VERSION_FIELDS.values():
        if versions and _is_common(versions, name):
            yield f"spec.{'validation' if name == 'schema' else name}", name, versions[0]
        else:
            yield from ((f"spec.versions[{index}].{name}", name, version) for index, version in enumerate(versions))


def _part_faults(path: str, name: str, version: Json) -> Iterator[FieldError]:
    value: Any = version.get(name)
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not value:
        return
    match name:
        case "schema":
            has_status = (version.get("subresources") or {}).get("status") is not None
            if schema is not None:
                yield from crd_schema.validate_root(schema, f"{path}.openAPIV3Schema", has_status=has_status)
        case "subresources":
            if value.get("scale") is not None:
                yield from _scale_faults(value["scale"], f"{path}.scale")
        case "additionalPrinterColumns":
            for index, column in enumerate(value):
                yield from _column_faults(column, f"{path}[{index}]")
        case _:
            yield from _selectable_faults(value, schema or {}, path)


def _shown(versions: list[Json]) -> list[Json] | None:
    hidden = {title for title, name in VERSION_FIELDS.items() if versions and _is_common(versions, name)}
    return [
        {
            "Name": version.get("name", ""),
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
            **{title: None if title in hidden else version.get(name) for title, name in VERSION_FIELDS.items()},
        }
        for version in versions
    ] or None


def _warning_faults(version: Json, path: str) -> Iterator[FieldError]:
    if (text := version.get("deprecationWarning")) is None:
        return
    path = f"{path}.deprecationWarning"
    if not version.get("deprecated"):
        yield fields.invalid(path, text, "can only be set for deprecated versions")
        return
    if not text:
        yield fields.invalid(path, text, "must not be an empty string")
    if len(text.encode()) > MAX_WARNING_LENGTH:
        yield fields.invalid(path, text, f"must be <= {MAX_WARNING_LENGTH} characters long")
    wrong = next((index for index, letter in enumerate(text) if not letter.isprintable()), None)
    if wrong is not None:
        place = f"non-printable character found at index {len(text[:wrong].encode())}"
        yield fields.invalid(path, text, f"must only contain printable UTF-8 characters; {place}")


def _column_faults(column: Json, path: str) -> Iterator[FieldError]:
    kind, form, place = column.get("type"), column.get("format"), column.get("jsonPath")
    if not column.get("name"):
        yield fields.required(f"{path}.name")
    if not kind:
        yield fields.required(f"{path}.type", f"must be one of {COLUMN_TYPES}")
    elif kind not in COLUMN_TYPES.split(","):
        yield fields.invalid(f"{path}.type", kind, f"must be one of {COLUMN_TYPES}")
    if form and form not in COLUMN_FORMATS.split(","):
        yield fields.invalid(f"{path}.format", form, f"must be one of {COLUMN_FORMATS}")
    if not place:
        yield fields.required(f"{path}.JSONPath")
    elif not place.startswith("."):
        yield fields.invalid(f"{path}.JSONPath", place, NO_PATH)


def _scale_faults(scale: Json, path: str) -> Iterator[FieldError]:
    for name, parents in SCALE_PATHS.items():
        value, where = scale.get(name), f"{path}.{name}"
        if not value:
            if name != "labelSelectorPath":
                yield fields.required(where)
        elif not value.startswith("."):
            yield fields.invalid(where, value, NO_PATH)
        elif not value.startswith(tuple(f"{parent}." for parent in parents)):
            either = f"{'either ' if len(parents) > 1 else ''}{' or '.join(parents)}"
            yield fields.invalid(where, value, f"should be a json path under {either}")


def _selectable_faults(selectable: list[Json], schema: Json, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, each in enumerate(selectable):
        where, value = f"{path}[{index}].jsonPath", each.get("jsonPath", "")
        if not value:
            yield fields.required(where)
            continue
        try:
            target = schema_rules.field_at(schema, value, allows_brackets=False)
        except schema_rules.PathError as error:
            yield fields.invalid(where, value, f"is an invalid path: {error}")
            continue
        if value.startswith(".metadata"):
            yield fields.invalid(where, value, "must not point to fields in metadata")
        if target.get("type") not in SELECTABLE_TYPES:
            detail = (
                "must point to a field of type string, boolean or integer."
                " Enum string fields and strings with formats are allowed."
            )
            yield fields.invalid(where, value, detail)
        if value in seen:
            yield fields.duplicate(where, value)
        seen.add(value)
    if len(seen) > MAX_SELECTABLE_FIELDS:
        yield fields.too_many(path, len(seen), MAX_SELECTABLE_FIELDS)
