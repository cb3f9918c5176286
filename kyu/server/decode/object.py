"""
Decode JSON to an object of a kind: reject another kind and wrong types, report unknown and duplicate fields.

The same fault has another answer in each verb. A wrong body is a 400, the wrong result of a patch is a 422 about the
patch, and a wrong apply is rejected before the merge.

Kubernetes: the decoders of apiserver/pkg/endpoints/handlers.
"""

from __future__ import annotations

from typing import Any

from kyu.api import errors as fields
from kyu.api.meta import Json, Kind
from kyu.server import errors
from kyu.server.decode import body as bodies
from kyu.server.exchange import encode
from kyu.server.options import FieldValidation
from kyu.server.registry import Resource
from kyu.server.schema import schema
from kyu.server.schema.typed import TypeMismatch

# Problems of one body that its sender is told of.
MOST_PROBLEMS = 100
_NO_KIND = Kind("", "", "", "")


def typed(resource: Resource, obj: Json) -> Json:
    """Return the object with kind and apiVersion."""
    return {"kind": resource.kind.kind, "apiVersion": resource.api_version, **obj}


def version_required(kind: Kind, name: str) -> errors.StatusError:
    """Return the error for an update without a resourceVersion.

    Kubernetes names the resource in it, not the Kind.
    """
    found = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
    return errors.invalid(Kind(kind.group, kind.version, kind.plural, kind.plural), name, [found])


def from_body(
    resource: Resource, body: Json, duplicates: list[str], validation: FieldValidation
) -> tuple[Json, tuple[str, ...]]:
    """Return the object of a POST or PUT, and the warnings about it."""
    kind = resource.kind
    _check_type(resource, body)
    try:
        obj, unknown = _read(resource, {**body, "kind": kind.kind, "apiVersion": resource.api_version})
    except TypeMismatch as error:
        raise errors.bad_request(f"{_handled_as(kind)}: {error}") from error
    if not unknown and not duplicates:
        return obj, ()
    problems = _problems(unknown, _reported(resource, duplicates, unknown), validation)
    if problems and validation == "Strict":
        raise errors.bad_request(f"{_handled_as(kind)}: strict decoding error: {', '.join(problems)}")
    return obj, _warnings(problems)


def from_patch(
    resource: Resource,
    patched: Json,
    found: list[str],
    validation: FieldValidation,
    stored: Json | None = None,
) -> tuple[Json, tuple[str, ...]]:
    """Return the object after a patch, and the warnings about it.

    ``found`` are the problems of the patch itself. The patched object may share parts with the stored one.
    """
    _check_patched_type(resource, patched, stored or patched)
    try:
        obj, unknown = _read(resource, patched, stored)
    except TypeMismatch as error:
        raise _invalid_patch(patched, str(error)) from error
    if not unknown and not found:
        return obj, ()
    problems = [] if validation == "Ignore" else found + _problems(unknown, [], validation)
    if problems and validation == "Strict":
        raise _invalid_patch(patched, f"strict decoding error: {', '.join(problems)}")
    return obj, _warnings(problems)


def _read(resource: Resource, body: Json, stored: Json | None = None) -> tuple[Json, list[str]]:
    """Decode, and drop nulls of fields that a custom kind does not allow to be null. An apply keeps them."""
    obj, unknown = resource.rules.read(body, stored)
    if resource.is_custom:
        schema.drop_nulls(resource.schema, obj, stored)
    return obj, unknown


def from_apply(resource: Resource, config: Any) -> Json:
    """Return the configuration of an apply; reject a wrong type or managedFields."""
    config = {} if config is None else config
    if not isinstance(config, dict):
        raise errors.bad_request("error decoding YAML: the body is not an object")
    kind = resource.kind
    if config.get("apiVersion") != resource.api_version or config.get("kind") != kind.kind:
        version, name = (value if isinstance(value := config.get(key), str) else "" for key in ("apiVersion", "kind"))
        shown = version if "/" in version else f"/{version}"
        raise errors.bad_request(f"invalid object type: {shown}, Kind={name}")
    metadata = config.get("metadata")
    if metadata is None:
        return {name: value for name, value in config.items() if name != "metadata"}
    if not isinstance(metadata, dict):
        # The check of the schema reports the wrong type.
        return config
    if metadata.get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")
    return {**config, "metadata": dict(metadata)}


def from_apply_result(resource: Resource, applied: Json, stored: Json | None = None) -> tuple[Json, tuple[str, ...]]:
    """Return the result of an apply in its canonical form."""
    try:
        obj, unknown = resource.rules.read(applied, stored)
    except TypeMismatch as error:
        raise errors.internal(f"failed to update object: {error}") from error
    return obj, _warnings(_problems(unknown, [], "Warn")) if unknown else ()


def _check_type(resource: Resource, body: Json) -> None:
    kind = resource.kind
    given_kind, given_version = body.get("kind"), body.get("apiVersion")
    if resource.is_custom and not given_kind:
        raise errors.bad_request(f"Object 'Kind' is missing in '{encode(body).decode()}'")
    if resource.is_custom and given_version != resource.api_version:
        raise errors.bad_request(
            f"the API version in the data ({given_version or ''}) does not match the expected API version"
            f" ({kind.api_version})"
        )
    if given_kind not in (None, "", kind.kind):
        raise _type_mismatch(resource, body) if resource.is_custom else wrong_kind(kind, body)
    if given_version not in (None, "", resource.api_version):
        raise errors.bad_request(f'no kind "{kind.kind}" is registered for version "{given_version}"')


def wrong_kind(kind: Kind, body: Json) -> errors.StatusError:
    """Return the error for a body of another kind."""
    given, version = body.get("kind"), str(body.get("apiVersion") or "").rpartition("/")[2]
    text = f'{given} in version "{version}" cannot be handled as a {kind.kind}'
    package = kind.group.partition(".")[0] or "core"
    return errors.bad_request(f"{text}: converting ({version}.{given}) to ({package}.{kind.kind}): unknown conversion")


def _check_patched_type(resource: Resource, patched: Json, named: Json) -> None:
    """Reject a patch that changes the type. A custom object must have one; a built-in object may leave out the kind."""
    kind = resource.kind
    given_kind, given_version = patched.get("kind"), patched.get("apiVersion")
    if (given_kind, given_version) == (kind.kind, kind.api_version):
        return
    if not resource.is_custom:
        if not given_version:
            raise _name_undeterminable(patched, bodies.section(named, "metadata").get("name", ""))
        if given_kind or given_version != kind.api_version:
            found = f"{given_version or ''}, Kind={given_kind or ''}"
            raise _invalid_patch(patched, f"expected {kind.api_version}, Kind={kind.kind}, found {found}")
        return
    if not given_kind:
        raise _invalid_patch(patched, "Object 'Kind' is missing")
    if not given_version:
        raise errors.internal_error("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    raise _type_mismatch(resource, patched)


def _name_undeterminable(patched: Json, name: str) -> errors.StatusError:
    """Return the error for a patched object without an apiVersion. Kubernetes calls all its fields unknown."""
    text = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
    error = errors.bad_request(text)
    error.warnings = _warnings(_problems(sorted({*patched} - {"kind", "apiVersion"}), [], "Warn"))
    return error


def _type_mismatch(resource: Resource, obj: Json) -> errors.StatusError:
    """Return the error for a custom object of another type. Kubernetes names the given type in it."""
    kind = resource.kind
    given_kind, given_version = str(obj.get("kind")), str(obj.get("apiVersion"))
    named = Kind(given_version.rpartition("/")[0], "", given_kind, "")
    metadata = obj.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    wrong = [
        fields.invalid(field, given, f"must be {wanted}")
        for field, given, wanted in (
            ("kind", given_kind, kind.kind),
            ("apiVersion", given_version, kind.api_version),
        )
        if given != wanted
    ]
    return errors.invalid(named, name, wrong)


def _reported(resource: Resource, duplicates: list[str], unknown: list[str]) -> list[str]:
    """Drop duplicates that are also unknown fields: built-in kinds report these once."""
    return duplicates if resource.is_custom else [path for path in duplicates if path not in unknown]


def _handled_as(kind: Kind) -> str:
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


def _problems(unknown: list[str], duplicates: list[str], validation: FieldValidation) -> list[str]:
    if validation == "Ignore":
        return []
    found = [f'duplicate field "{path}"' for path in duplicates] + [f'unknown field "{path}"' for path in unknown]
    return found[:MOST_PROBLEMS]


def _warnings(problems: list[str]) -> tuple[str, ...]:
    return tuple(map(warning, problems))


def warning(text: str) -> str:
    """Return the text as the value of a Warning header."""
    return '299 - "{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


def _invalid_patch(patched: Json, detail: str) -> errors.StatusError:
    shown = encode(patched).decode()
    return errors.invalid(_NO_KIND, "", [fields.invalid("patch", shown, detail)])
