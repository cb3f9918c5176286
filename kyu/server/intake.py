"""
From the JSON that a client sent to an object of the kind, with the refusals and warnings on the way: another kind,
unknown fields, fields that stand twice, wrong types.

The same fault has another answer in each kind of request: a body that does not fit is a 400, a patch whose result does
not fit is a 422 about the patch, and an apply that does not fit is found before it is merged.

Called by: server/writes.py. Kubernetes: the decoders of apiserver/pkg/endpoints/handlers.
"""

from __future__ import annotations

from typing import Any

from kyu.api import errors as fields
from kyu.api.meta import Json, Kind
from kyu.server import bodies, errors, schema
from kyu.server.exchange import encode
from kyu.server.options import FieldValidation
from kyu.server.registry import Resource
from kyu.server.schema_typed import TypeMismatch

_NOTHING = Kind("", "", "", "")


def typed(resource: Resource, obj: Json) -> Json:
    """With kind and apiVersion, as clients see it."""
    return {"kind": resource.kind.kind, "apiVersion": resource.api_version, **obj}


def version_required(kind: Kind, name: str) -> errors.ApiError:
    """The one refusal of this sort in which the resource stands in place of the Kind."""
    found = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
    return errors.invalid(Kind(kind.group, kind.version, kind.plural, kind.plural), name, [found])


def from_body(
    resource: Resource, body: Json, duplicates: list[str], validation: FieldValidation
) -> tuple[Json, tuple[str, ...]]:
    """The object of a POST or PUT, and the warnings about it."""
    kind = resource.kind
    _check_type(resource, body)
    try:
        obj, unknown = _read(resource, {**body, "kind": kind.kind, "apiVersion": resource.api_version})
    except TypeMismatch as error:
        raise errors.bad_request(f"{_handled_as(kind)}: {error}") from error
    if not unknown and not duplicates:
        return obj, ()
    problems = _problems(unknown, _told(resource, duplicates, unknown), validation)
    if problems and validation == "Strict":
        raise errors.bad_request(f"{_handled_as(kind)}: strict decoding error: {', '.join(problems)}")
    return obj, _warnings(problems)


def from_patch(
    resource: Resource,
    patched: Json,
    told: list[str],
    validation: FieldValidation,
    stored: Json | None = None,
) -> tuple[Json, tuple[str, ...]]:
    """The object that a patch made, of the stored one if it shares parts with it. ``told`` is what is odd about it."""
    _check_patched_type(resource, patched, stored or patched)
    try:
        obj, unknown = _read(resource, patched, stored)
    except TypeMismatch as error:
        raise _unfit(patched, str(error)) from error
    if not unknown and not told:
        return obj, ()
    problems = [] if validation == "Ignore" else told + _problems(unknown, [], validation)
    if problems and validation == "Strict":
        raise _unfit(patched, f"strict decoding error: {', '.join(problems)}")
    return obj, _warnings(problems)


def _read(resource: Resource, body: Json, stored: Json | None = None) -> tuple[Json, list[str]]:
    """What a custom kind does not allow to be null is not there; an apply is the one write that does not come here."""
    obj, unknown = resource.rules.read(body, stored)
    if resource.is_custom:
        schema.drop_nulls(resource.schema, obj, stored)
    return obj, unknown


def from_apply(resource: Resource, config: Any) -> Json:
    """The checks on the body of an apply that come before all others."""
    config = {} if config is None else config
    if not isinstance(config, dict):
        raise errors.bad_request("error decoding YAML: the body is not an object")
    kind = resource.kind
    if config.get("apiVersion") != resource.api_version or config.get("kind") != kind.kind:
        # What is no text is as good as nothing.
        version, name = (value if isinstance(value := config.get(key), str) else "" for key in ("apiVersion", "kind"))
        shown = version if "/" in version else f"/{version}"
        raise errors.bad_request(f"invalid object type: {shown}, Kind={name}")
    metadata = config.get("metadata")
    if metadata is None:
        return {name: value for name, value in config.items() if name != "metadata"}
    if not isinstance(metadata, dict):
        # Told by those who look at all types, below.
        return config
    if metadata.get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")
    return {**config, "metadata": dict(metadata)}


def from_apply_result(resource: Resource, applied: Json, stored: Json | None = None) -> tuple[Json, tuple[str, ...]]:
    """The merged object in its canonical form. What does not fit was refused before."""
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
        raise _untrue_type(resource, body) if resource.is_custom else wrong_kind(kind, body)
    if given_version not in (None, "", resource.api_version):
        raise errors.bad_request(f'no kind "{kind.kind}" is registered for version "{given_version}"')


def wrong_kind(kind: Kind, body: Json) -> errors.ApiError:
    """The body is an object of another kind."""
    given, version = body.get("kind"), str(body.get("apiVersion") or "").rpartition("/")[2]
    text = f'{given} in version "{version}" cannot be handled as a {kind.kind}'
    package = kind.group.partition(".")[0] or "core"
    return errors.bad_request(f"{text}: converting ({version}.{given}) to ({package}.{kind.kind}): unknown conversion")


def _check_patched_type(resource: Resource, patched: Json, named: Json) -> None:
    """A custom object must say what it is, and is blamed for what it says; a built-in one only must not lie."""
    kind = resource.kind
    given_kind, given_version = patched.get("kind"), patched.get("apiVersion")
    if (given_kind, given_version) == (kind.kind, kind.api_version):
        return
    if not resource.is_custom:
        if not given_version:
            raise _nameless(patched, bodies.section(named, "metadata").get("name", ""))
        if given_kind or given_version != kind.api_version:
            found = f"{given_version or ''}, Kind={given_kind or ''}"
            raise _unfit(patched, f"expected {kind.api_version}, Kind={kind.kind}, found {found}")
        return
    if not given_kind:
        raise _unfit(patched, "Object 'Kind' is missing")
    if not given_version:
        raise errors.internal_error("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    raise _untrue_type(resource, patched)


def _nameless(patched: Json, name: str) -> errors.ApiError:
    """Of an object without a version nothing is known, not even that it may have a name."""
    text = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
    error = errors.bad_request(text)
    error.warnings = _warnings(_problems(sorted({*patched} - {"kind", "apiVersion"}), [], "Warn"))
    return error


def _untrue_type(resource: Resource, obj: Json) -> errors.ApiError:
    """A custom object that says it is something else; the refusal calls it what it calls itself."""
    kind = resource.kind
    given_kind, given_version = str(obj.get("kind")), str(obj.get("apiVersion"))
    named = Kind(given_version.rpartition("/")[0], "", given_kind, "")
    name = (obj.get("metadata") or {}).get("name", "")
    wrong = [
        fields.invalid(field, given, f"must be {wanted}")
        for field, given, wanted in (
            ("kind", given_kind, kind.kind),
            ("apiVersion", given_version, kind.api_version),
        )
        if given != wanted
    ]
    return errors.invalid(named, name, wrong)


def _told(resource: Resource, duplicates: list[str], unknown: list[str]) -> list[str]:
    """Of a built-in kind, an unknown field that stands twice is unknown and nothing else."""
    return duplicates if resource.is_custom else [path for path in duplicates if path not in unknown]


def _handled_as(kind: Kind) -> str:
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


def _problems(unknown: list[str], duplicates: list[str], validation: FieldValidation) -> list[str]:
    if validation == "Ignore":
        return []
    return [f'duplicate field "{path}"' for path in duplicates] + [f'unknown field "{path}"' for path in unknown]


def _warnings(problems: list[str]) -> tuple[str, ...]:
    return tuple(map(warning, problems))


def warning(text: str) -> str:
    """A text as the value of a Warning header."""
    return '299 - "{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


def _unfit(patched: Json, detail: str) -> errors.ApiError:
    shown = encode(patched).decode()
    return errors.invalid(_NOTHING, "", [fields.invalid("patch", shown, detail)])
