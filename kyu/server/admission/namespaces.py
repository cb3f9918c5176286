"""
The NamespaceLifecycle plugin: reject new objects in a missing or terminating namespace.

Kubernetes: plugin/pkg/admission/namespace/lifecycle.
"""

from __future__ import annotations

from kyu.api.meta import Json, Kind
from kyu.server import errors
from kyu.server.admission.request import AdmissionRequest
from kyu.server.exchange import User
from kyu.server.registry import Resource
from kyu.server.storage.store import Store

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
# Namespaces that cannot be deleted.
IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle:
    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, request: AdmissionRequest) -> None:
        kind = request.resource.kind
        if request.old is not None or not kind.namespaced or request.subresource:
            return
        name = request.new["metadata"]["namespace"]
        record = self._store.latest("namespaces", "", name)
        if record is None:
            raise errors.not_found(NAMESPACE, name)
        if record.is_ending:
            own = request.new["metadata"].get("name", "")
            text = f"unable to create new content in namespace {name} because it is being terminated"
            cause = errors.cause("NamespaceTerminating", f"namespace {name} is being terminated", "metadata.namespace")
            raise errors.forbidden(kind, own, text, causes=[cause])

    def check_delete(self, resource: Resource, obj: Json, user: User) -> None:
        name = obj["metadata"]["name"]
        if resource.storage == "namespaces" and name in IMMORTAL:
            raise errors.forbidden(resource.kind, name, "this namespace may not be deleted")
