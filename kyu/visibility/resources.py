"""
The resources of the visibility API: queues whose only subresource is pendingworkloads.

The queues themselves cannot be read here; the group kueue.x-k8s.io has them.
"""

from __future__ import annotations

from kyu.api.meta import Kind
from kyu.server.builtin.kind import BuiltinKind
from kyu.server.registry import Registry, Resource, Subresource
from kyu.server.schema.node import Schema
from kyu.visibility.pending import CLUSTER_QUEUES, GROUP, LOCAL_QUEUES, SUBRESOURCE, VERSIONS


def resources() -> list[Resource]:
    return [
        make_resource(Kind(GROUP, version, kind, plural, namespaced))
        for version in VERSIONS
        for kind, plural, namespaced in (("ClusterQueue", CLUSTER_QUEUES, False), ("LocalQueue", LOCAL_QUEUES, True))
    ]


def make_resource(kind: Kind) -> Resource:
    body = Kind(GROUP, kind.version, "PendingWorkloadsSummary", "")
    return Resource(
        kind=kind,
        singular=kind.kind.lower(),
        list_kind=f"{kind.kind}List",
        schema=Schema({"type": "object"}),
        rules=BuiltinKind(kind),
        verbs=(),
        subresources={SUBRESOURCE: Subresource(SUBRESOURCE, ("get",), body)},
    )


def make_registry() -> Registry:
    """Return a registry of these resources alone, for the server on a cluster."""
    registry = Registry()
    registry.add(resources())
    return registry
