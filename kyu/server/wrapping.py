"""
AppWrappers: nobody may wrap an object that they could not create themselves.

An AppWrapper carries whole objects, which Kyu creates when it is admitted, with its own rights. So whoever writes one
must be allowed to create each of them, and they belong in its own namespace. Roles and bindings are never wrapped: what
may be given away with them depends on who gives it.

Called by: embedded.py, at the door. AppWrapper: its webhook asks the same with SubjectAccessReviews.
"""

from __future__ import annotations

from collections.abc import Iterator

from kyu.api.errors import FieldError, forbidden
from kyu.api.meta import Json
from kyu.kinds import fields
from kyu.server import rbac
from kyu.server.attempts import Attempt
from kyu.server.registry import Registry


def find_faults(attempt: Attempt, registry: Registry, authorizer: rbac.Authorizer) -> list[FieldError]:
    """All wrapped objects that the user may not have made."""
    if attempt.resource.kind.kind != "AppWrapper" or attempt.subresource:
        return []
    components = fields.list_at(attempt.new, ("spec", "components"))
    return [
        forbidden(f"spec.components[{position}].template", why)
        for position, component in enumerate(components)
        for why in objections(fields.json_at(component, ("template",)), attempt, registry, authorizer)
    ]


def objections(wrapped: Json, attempt: Attempt, registry: Registry, authorizer: rbac.Authorizer) -> Iterator[str]:
    name = f"{wrapped.get('apiVersion')} {wrapped.get('kind')}"
    resource = registry.find_kind(str(wrapped.get("apiVersion")), str(wrapped.get("kind")))
    namespace = attempt.new["metadata"].get("namespace", "")
    if resource is None:
        yield f"{name} is not served"
        return
    if not resource.kind.namespaced or fields.text_at(wrapped, ("metadata", "namespace")) not in ("", namespace):
        yield "a wrapped object must be in the namespace of its AppWrapper"
    if resource.kind.group == rbac.GROUP:
        yield "roles and bindings cannot be wrapped"
    wanted = rbac.Attributes("create", resource.kind.group, resource.kind.plural, "", namespace)
    if not authorizer.is_allowed(attempt.user, wanted):
        yield f'User "{attempt.user.name}" cannot create {name} in namespace {namespace}'
