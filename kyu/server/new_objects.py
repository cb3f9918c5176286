"""
The body of a create to an object of the kind, and a short way for those whose spec came before in the same words.

Of a custom object the text of its spec tells whether the spec is accepted, with which defaults, and what its writer
owns by it. So the next object with the same text takes the spec as it was stored, and of its own only the metadata is
looked at. Whatever is unusual about a body (other parts, spaces, a field that stands twice) is read as if it were new.

Called by: server/writes.py. Calls: server/bodies.py, server/intake.py. Remembers with the help of server/repeats.py.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kyu.api.meta import Json
from kyu.server import bodies, custom_metadata, intake
from kyu.server.attempts import Written
from kyu.server.bodies import Parted
from kyu.server.custom import CustomRules
from kyu.server.exchange import Request, encode
from kyu.server.options import FieldValidation
from kyu.server.registry import Resource
from kyu.server.repeats import AcceptedSpec
from kyu.server.schema_typed import TypeMismatch

# What a body has besides the spec; those that have more are read to the end.
BESIDES: Final = frozenset({"apiVersion", "kind", "metadata"})


class NewObject(msgspec.Struct, frozen=True):
    """What was read of a body: with the text of its spec if that can be remembered, or with what is known of it."""

    obj: Json
    warnings: tuple[str, ...] = ()
    spec_text: bytes = b""
    accepted: AcceptedSpec | None = None


def read(resource: Resource, request: Request, validation: FieldValidation) -> NewObject:
    """The body of a request."""
    is_json = request.content_type in ("", bodies.JSON)
    body = bodies.parted(request.body, "spec") if is_json and _remembers(resource) else None
    known = None if body is None else _repeated(resource, body)
    if known is not None and body is not None and body.is_all_of(request.body):
        return known
    value, duplicates = bodies.decode(request, resource.kind, is_custom=resource.is_custom)
    return _looked_into(resource, value, duplicates, body, validation)


def copied(resource: Resource, given: Json, validation: FieldValidation) -> NewObject:
    """The object of somebody in the same process: of what is shown nothing is kept, it is written as text."""
    body = None
    if "spec" in given and "metadata" in given and _remembers(resource):
        body = bodies.in_parts({**given, "metadata": bodies.parse_json(encode(given["metadata"]))}, "spec")
        if (known := _repeated(resource, body)) is not None:
            return known
    return _looked_into(resource, bodies.parse_json(encode(given)), [], body, validation)


def _remembers(resource: Resource) -> bool:
    return isinstance(resource.rules, CustomRules) and resource.rules.decides_by_spec


def _looked_into(
    resource: Resource, value: Json, duplicates: list[str], body: Parted | None, validation: FieldValidation
) -> NewObject:
    obj, warnings = intake.from_body(resource, value, duplicates, validation)
    # Where nobody is told of unknown fields, it is not known that there are none.
    is_certain = not warnings and validation != "Ignore"
    is_usual = body is not None and body.besides.keys() == BESIDES
    return NewObject(obj, warnings, body.text if body is not None and is_usual and is_certain else b"")


def _repeated(resource: Resource, body: Parted) -> NewObject | None:
    """The object of a body whose spec is known; None if there is more to say about the rest than that it is right."""
    assert isinstance(resource.rules, CustomRules)
    accepted, given = resource.rules.specs.find(body.text), body.besides
    if accepted is None or given.keys() != BESIDES or type(given["metadata"]) is not dict:
        return None
    if given["kind"] != resource.kind.kind or given["apiVersion"] != resource.api_version:
        return None
    try:
        metadata, unknown = custom_metadata.read(given["metadata"], {})
    except TypeMismatch:
        return None
    obj = {**given, "metadata": metadata, "spec": accepted.spec}
    return None if unknown else NewObject(obj, accepted=accepted)


def remember(resource: Resource, new: NewObject, written: Written) -> None:
    """Keep what was decided about the spec of an object that is stored, unless somebody has changed it on its way."""
    if not new.spec_text or written.obj is None:
        return
    assert isinstance(resource.rules, CustomRules)
    spec = new.obj.get("spec")
    owners = written.obj["metadata"].get("managedFields") or []
    if written.obj.get("spec") is spec and isinstance(spec, dict) and len(owners) == 1:
        owned = owners[0]["fieldsV1"].get("f:spec")
        if owned is not None:
            resource.rules.specs.keep(new.spec_text, AcceptedSpec(spec, {"f:spec": owned}), len(new.spec_text))
