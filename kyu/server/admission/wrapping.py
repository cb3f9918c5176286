"""
AppWrappers: users cannot wrap an object that they could not create themselves.

Kyu creates the wrapped objects with its own rights when the AppWrapper is admitted. So its user must be allowed to
create each of them, and they belong to its namespace. Roles and bindings cannot be wrapped, because the rights to grant
depend on the user.

AppWrapper: its webhook asks the same with SubjectAccessReviews.
"""

from __future__ import annotations

from collections.abc import Iterator

from kyu.api.errors import FieldError, forbidden
from kyu.api.meta import Json
from kyu.kinds import fields
from kyu.server.admission.request import AdmissionRequest
from kyu.server.auth import rbac
from kyu.server.builtin.rbac import GROUP
from kyu.server.registry import Registry


def find_faults(request: AdmissionRequest, registry: Registry, authorizer: rbac.Authorizer) -> list[FieldError]:
    """Return an error for each wrapped object that the user may not create."""
    if request.resource.kind.kind != "AppWrapper" or request.subresource:
        return []
    components = fields.list_at(request.new, ("spec", "components"))
    return [
        forbidden(f"spec.components[{position}].template", why)
        for position, component in enumerate(components)
        for why in objections(fields.json_at(component, ("template",)), request, registry, authorizer)
    ]


def objections(
    wrapped: Json, request: AdmissionRequest, registry: Registry, authorizer: rbac.Authorizer
) -> Iterator[str]:
    name = f"{wrapped.get('apiVersion')} {wrapped.get('kind')}"
    resource = registry.find_kind(str(wrapped.get("apiVersion")), str(wrapped.get("kind")))
    namespace = request.new["metadata"].get("namespace", "")
    if resource is None:
        yield f"{name} is not served"
        return
    if not resource.kind.namespaced or fields.text_at(wrapped, ("metadata", "namespace")) not in ("", namespace):
        yield "a wrapped object must be in the namespace of its AppWrapper"
    if resource.kind.group == GROUP:
        yield "roles and bindings cannot be wrapped"
    wanted = rbac.Attributes("create", resource.kind.group, resource.kind.plural, "", namespace)
    if not authorizer.is_allowed(request.user, wanted):
        yield f'User "{request.user.name}" cannot create {name} in namespace {namespace}'
