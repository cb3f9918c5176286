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
from kyu.server.exchange import Request
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
    rules, text = resource.rules, b""
    if isinstance(rules, CustomRules) and rules.decides_by_spec and request.content_type in ("", bodies.JSON):
        body = bodies.parted(request.body, "spec")
        if body is not None and body.besides.keys() == BESIDES:
            text, accepted = body.text, rules.specs.find(body.text)
            if accepted is not None and (obj := _repeated(resource, request, body, accepted)) is not None:
                return NewObject(obj, accepted=accepted)
    value, duplicates = bodies.decode(request, resource.kind, is_custom=resource.is_custom)
    obj, warnings = intake.from_body(resource, value, duplicates, validation)
    # Where nobody is told of unknown fields, it is not known that there are none.
    return NewObject(obj, warnings, b"" if warnings or validation == "Ignore" else text)


def _repeated(resource: Resource, request: Request, body: Parted, accepted: AcceptedSpec) -> Json | None:
    """The object of a body whose spec is known; None if there is more to say about the rest than that it is right."""
    given = body.besides
    if given["kind"] != resource.kind.kind or given["apiVersion"] != resource.api_version:
        return None
    if type(given["metadata"]) is not dict or not body.is_all_of(request.body):
        return None
    try:
        metadata, unknown = custom_metadata.read(given["metadata"], {})
    except TypeMismatch:
        return None
    return None if unknown else {**given, "metadata": metadata, "spec": accepted.spec}


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
