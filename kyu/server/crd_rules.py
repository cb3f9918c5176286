"""
What a CustomResourceDefinition may say, apart from its schemas: names, group, versions, columns, conversion.

Refusals name fields of the oldest form of a definition, as Kubernetes does: what all versions have in common is told of
the definition (``spec.additionalPrinterColumns``), and only what differs is told of a version.

Called by: builtin.py (the kind itself). Calls: crd_schema.py (the schemas), crd_conversion.py.
Kubernetes: apiextensions-apiserver/pkg/apis/apiextensions/validation
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server import crd_conversion, crd_schema, crd_schema_rules
from kyu.server.builtin_metadata import IMMUTABLE
from kyu.server.builtin_names import dns_1035_label, subdomain

SCOPES: Final = ("Cluster", "Namespaced")
COLUMN_TYPES: Final = "boolean,date,integer,number,string"
COLUMN_FORMATS: Final = "byte,date,date-time,double,float,int32,int64,password"
SELECTABLE_TYPES: Final = ("string", "boolean", "integer")
MAX_SELECTABLE_FIELDS: Final = 8
MAX_WARNING_LENGTH: Final = 256
# Groups that belong to Kubernetes; who defines a kind there says that the project has approved it.
PROTECTED_GROUPS: Final = ("k8s.io", "kubernetes.io")
APPROVAL: Final = "api-approved.kubernetes.io"
APPROVAL_POLICY: Final = "see https://github.com/kubernetes/enhancements/pull/1111"
# What a refusal shows of a version besides what is told of the definition.
VERSION_FIELDS: Final = {"Schema": "schema", "Subresources": "subresources",
    "AdditionalPrinterColumns": "additionalPrinterColumns", "SelectableFields": "selectableFields"}  # fmt: skip


def validate_definition(definition: Json) -> list[FieldError]:
    """A new definition, filled in and with its first status."""
    metadata, spec = definition["metadata"], definition["spec"]
    found: list[FieldError] = []
    wanted = f"{spec['names'].get('plural', '')}.{spec.get('group', '')}"
    if metadata.get("name") and metadata["name"] != wanted:
        found.append(fields.invalid("metadata.name", metadata["name"], 'must be spec.names.plural+"."+spec.group'))
    found += _validate_spec(spec) + _validate_stored_versions(definition)
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        found.append(fields.invalid("spec.preserveUnknownFields", True, detail))
    return found + _validate_approval(spec.get("group", ""), metadata.get("annotations") or {})


def validate_definition_update(new: Json, old: Json) -> list[FieldError]:
    """Names and scope are free until objects may have been stored."""
    after, before = new["spec"], old["spec"]
    found = _validate_spec(after)
    conditions = (old.get("status") or {}).get("conditions") or ()
    if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
        if after.get("scope") != before.get("scope"):
            found.append(fields.invalid("spec.scope", after.get("scope"), IMMUTABLE))
        if after["names"].get("kind") != before["names"].get("kind"):
            found.append(fields.invalid("spec.names.kind", after["names"].get("kind"), IMMUTABLE))
    if after.get("group") != before.get("group"):
        found.append(fields.invalid("spec.group", after.get("group"), IMMUTABLE))
    if after["names"].get("plural") != before["names"].get("plural"):
        found.append(fields.invalid("spec.names.plural", after["names"].get("plural"), IMMUTABLE))
    if after.get("preserveUnknownFields") and not before.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        found.append(fields.invalid("spec.preserveUnknownFields", True, detail))
    return found + _validate_stored_versions(new)


def _validate_spec(spec: Json) -> list[FieldError]:
    found = _validate_group(spec.get("group", ""))
    if not spec.get("scope"):
        found.append(fields.required("spec.scope"))
    elif spec["scope"] not in SCOPES:
        found.append(fields.not_supported("spec.scope", spec["scope"], SCOPES))
    found += _validate_versions(spec.get("versions") or [])
    found += _validate_names(spec["names"])
    return found + crd_conversion.validate(spec.get("conversion"))


def _validate_group(group: str) -> list[FieldError]:
    if not group:
        return [fields.required("spec.group")]
    if wrong := subdomain(group):
        return [fields.invalid("spec.group", group, ",".join(wrong))]
    if "." not in group:
        return [fields.invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _validate_approval(group: str, annotations: Json) -> list[FieldError]:
    if not f".{group}".endswith(tuple(f".{each}" for each in PROTECTED_GROUPS)):
        return []
    path, approval = f"metadata.annotations[{APPROVAL}]", annotations.get(APPROVAL, "")
    wanted = f'protected groups must have approval annotation "{APPROVAL}"'
    if not approval:
        return [fields.required(path, f"{wanted}, {APPROVAL_POLICY}")]
    address = urlsplit(approval)
    if approval.startswith("unapproved") or (address.scheme and address.netloc):
        return []
    either = 'with either a URL or a reason starting with "unapproved"'
    return [fields.invalid(path, approval, f"{wanted} {either}, {APPROVAL_POLICY}")]


def _validate_names(names: Json) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("plural", "singular", "kind", "listKind"):
        text = names.get(name, "")
        is_kind = name in ("kind", "listKind")
        if not text:
            found.append(fields.required(f"spec.names.{name}"))
        elif wrong := dns_1035_label(text.lower() if is_kind else text):
            prefix = "may have mixed case, but should otherwise match: " if is_kind else ""
            found.append(fields.invalid(f"spec.names.{name}", text, prefix + ",".join(wrong)))
    for name in ("shortNames", "categories"):
        for index, text in enumerate(names.get(name) or ()):
            if wrong := dns_1035_label(text):
                found.append(fields.invalid(f"spec.names.{name}[{index}]", text, ",".join(wrong)))
    if names.get("kind") and names["kind"] == names.get("listKind"):
        found.append(fields.invalid("spec.names.listKind", names["kind"], "kind and listKind may not be the same"))
    return found


def _validate_stored_versions(definition: Json) -> list[FieldError]:
    """Objects may be stored in these versions, so each of them must still be defined."""
    path, stored = "status.storedVersions", list((definition.get("status") or {}).get("storedVersions") or ())
    if not stored:
        return [fields.invalid(path, None, "must have at least one stored version")]
    found, missing = list[FieldError](), {name: index for index, name in enumerate(stored)}
    for version in definition["spec"].get("versions") or ():
        name = version.get("name", "")
        if version.get("storage") and name not in missing:
            found.append(fields.invalid(path, stored, f"must have the storage version {name}"))
        missing.pop(name, None)
    for name, index in missing.items():
        detail = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions"
            f" until a storage migration ensures no data remains persisted in {name} and removes {name}"
            " from status.storedVersions"
        )
        found.append(fields.invalid(f"{path}[{index}]", name, detail))
    return found


def _is_common(versions: list[Json], name: str) -> bool:
    """All versions say the same, so it is told of the definition."""
    return all(version.get(name) == versions[0].get(name) for version in versions)


def _validate_versions(versions: list[Json]) -> list[FieldError]:
    found: list[FieldError] = []
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name", "")
        if wrong := dns_1035_label(name):
            found.append(fields.invalid(f"{path}.name", name, ",".join(wrong)))
            if index == 0 and name:
                found.append(fields.invalid("spec.version", name, ",".join(wrong)))
        if (version.get("schema") or {}).get("openAPIV3Schema") is None:
            found.append(fields.required(f"{path}.schema.openAPIV3Schema"))
        found += _validate_warning(version, path)
    names = [version.get("name") for version in versions]
    if len(set(names)) != len(names):
        found.append(fields.invalid("spec.versions", _shown(versions), "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        found.append(fields.invalid("spec.versions", _shown(versions), detail))
    for path, name, version in _parts(versions):
        found += _validate_part(path, name, version)
    return found


def _parts(versions: list[Json]) -> Iterator[tuple[str, str, Json]]:
    """The path and the name of each field to check, and the version in which it stands."""
    for name in VERSION_FIELDS.values():
        if versions and _is_common(versions, name):
            yield f"spec.{'validation' if name == 'schema' else name}", name, versions[0]
        else:
            yield from ((f"spec.versions[{index}].{name}", name, version) for index, version in enumerate(versions))


def _validate_part(path: str, name: str, version: Json) -> list[FieldError]:
    value: Any = version.get(name)
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not value:
        return []
    match name:
        case "schema":
            has_status = (version.get("subresources") or {}).get("status") is not None
            where = f"{path}.openAPIV3Schema"
            return [] if schema is None else crd_schema.validate_root(schema, where, has_status=has_status)
        case "subresources":
            return _validate_scale(value.get("scale"), f"{path}.scale")
        case "additionalPrinterColumns":
            return [error for at, each in enumerate(value) for error in _validate_column(each, f"{path}[{at}]")]
        case _:
            return _validate_selectable(value, schema or {}, path)


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


def _validate_warning(version: Json, path: str) -> list[FieldError]:
    text = version.get("deprecationWarning")
    if text is None:
        return []
    details: list[str] = []
    if not version.get("deprecated"):
        details.append("can only be set for deprecated versions")
    elif not text:
        details.append("must not be an empty string")
    else:
        if len(text.encode()) > MAX_WARNING_LENGTH:
            details.append(f"must be <= {MAX_WARNING_LENGTH} characters long")
        wrong = next((index for index, letter in enumerate(text) if not letter.isprintable()), None)
        if wrong is not None:
            place = f"non-printable character found at index {len(text[:wrong].encode())}"
            details.append(f"must only contain printable UTF-8 characters; {place}")
    return [fields.invalid(f"{path}.deprecationWarning", text, detail) for detail in details]


def _validate_path(value: str, path: str) -> list[FieldError]:
    return [] if value.startswith(".") else [fields.invalid(path, value, "must be a simple json path starting with .")]


def _validate_column(column: Json, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    kind, form, place = column.get("type"), column.get("format"), column.get("jsonPath")
    if not column.get("name"):
        found.append(fields.required(f"{path}.name"))
    if not kind:
        found.append(fields.required(f"{path}.type", f"must be one of {COLUMN_TYPES}"))
    elif kind not in COLUMN_TYPES.split(","):
        found.append(fields.invalid(f"{path}.type", kind, f"must be one of {COLUMN_TYPES}"))
    if form and form not in COLUMN_FORMATS.split(","):
        found.append(fields.invalid(f"{path}.format", form, f"must be one of {COLUMN_FORMATS}"))
    where = f"{path}.JSONPath"
    return found + (_validate_path(place, where) if place else [fields.required(where)])


def _validate_scale(scale: Json | None, path: str) -> list[FieldError]:
    if scale is None:
        return []
    found: list[FieldError] = []
    for name, parents in (("spec", (".spec",)), ("status", (".status",)), ("labelSelector", (".spec", ".status"))):
        where = f"{path}.{name}Path" if name == "labelSelector" else f"{path}.{name}ReplicasPath"
        value = scale.get(where.rpartition(".")[2])
        if not value:
            found += [] if name == "labelSelector" else [fields.required(where)]
        elif wrong := _validate_path(value, where):
            found += wrong
        elif not value.startswith(tuple(f"{parent}." for parent in parents)):
            either = f"{'either ' if len(parents) > 1 else ''}{' or '.join(parents)}"
            found.append(fields.invalid(where, value, f"should be a json path under {either}"))
    return found


def _validate_selectable(selectable: list[Json], schema: Json, path: str) -> list[FieldError]:
    found, seen = list[FieldError](), set[str]()
    for index, each in enumerate(selectable):
        where, value = f"{path}[{index}].jsonPath", each.get("jsonPath", "")
        if not value:
            found.append(fields.required(where))
            continue
        try:
            target = crd_schema_rules.field_at(schema, value, allows_brackets=False)
        except crd_schema_rules.PathError as error:
            found.append(fields.invalid(where, value, f"is an invalid path: {error}"))
            continue
        if value.startswith(".metadata"):
            found.append(fields.invalid(where, value, "must not point to fields in metadata"))
        if target.get("type") not in SELECTABLE_TYPES:
            detail = (
                "must point to a field of type string, boolean or integer."
                " Enum string fields and strings with formats are allowed."
            )
            found.append(fields.invalid(where, value, detail))
        if value in seen:
            found.append(fields.duplicate(where, value))
        seen.add(value)
    if len(seen) > MAX_SELECTABLE_FIELDS:
        found.append(fields.too_many(path, len(seen), MAX_SELECTABLE_FIELDS))
    return found
