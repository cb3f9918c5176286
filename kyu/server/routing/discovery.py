"""
Discovery: the groups, versions, resources and verbs that a client reads before its first request.

Two forms of the same facts: the aggregated one (one document for everything, kubectl asks for it) and the older one, a
document per group and version. Both are made from the registry, nothing is listed twice.

Kubernetes: apiserver/pkg/endpoints/discovery.
"""

from __future__ import annotations

import base64
import hashlib

from kyu.api.meta import Json, Kind
from kyu.server.registry import Registry, Resource, Subresource

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
AGGREGATED_VERSIONS = ("v2", "v2beta1")


def aggregated_version(accept: str) -> str | None:
    """Return the version of the aggregated document that the client prefers, or None for the older form."""
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type not in ("application/json", "*/*"):
            continue
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        if values.get("as") == "APIGroupDiscoveryList":
            if values.get("g") == "apidiscovery.k8s.io" and values.get("v") in AGGREGATED_VERSIONS:
                return values["v"]
            continue
        return None
    return None


def aggregated(registry: Registry, version: str, *, core: bool) -> Json:
    groups = [""] if core else [group for group in registry.groups() if group]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_aggregated_group(registry, group) for group in groups],
    }


def _aggregated_group(registry: Registry, group: str) -> Json:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {
                "version": version,
                "resources": [_aggregated_resource(resource) for resource in _sorted(registry, group, version)],
                "freshness": "Current",
            }
            for version in registry.versions(group)
        ],
    }


def _aggregated_resource(resource: Resource) -> Json:
    entry: Json = {
        "resource": resource.kind.plural,
        "responseKind": _response_kind(resource.kind),
        "scope": "Namespaced" if resource.kind.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        **_further_names(resource),
    }
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": s.name, "responseKind": _response_kind(s.body or resource.kind), "verbs": list(s.verbs)}
            for s in _sorted_subresources(resource)
        ]
    return entry


def _further_names(resource: Resource) -> Json:
    names = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {name: listed for name, listed in names.items() if listed}


def _response_kind(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def core_versions(address: str) -> Json:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(registry: Registry) -> Json:
    groups = [_group(registry, group) for group in registry.groups() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Json:
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(registry, name)}


def _group(registry: Registry, name: str) -> Json:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in registry.versions(name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def resource_list(registry: Registry, group: str, version: str) -> Json:
    entries: list[Json] = []
    for resource in _sorted(registry, group, version):
        entries.append(_entry(resource))
        entries += [_subresource_entry(resource, s) for s in _sorted_subresources(resource)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": entries,
    }


def _entry(resource: Resource) -> Json:
    kind = resource.kind
    entry: Json = {
        "name": kind.plural,
        "singularName": resource.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(resource.verbs),
        **_further_names(resource),
    }
    if "list" in resource.verbs:
        entry["storageVersionHash"] = _storage_hash(kind, resource.stored_version)
    return entry


def _subresource_entry(resource: Resource, subresource: Subresource) -> Json:
    own, kind = resource.kind, subresource.body or resource.kind
    entry: Json = {"name": f"{own.plural}/{subresource.name}", "singularName": "", "namespaced": own.namespaced}
    if (kind.group, kind.version) != (own.group, own.version):
        entry |= {"group": kind.group, "version": kind.version}
    return {**entry, "kind": kind.kind, "verbs": list(subresource.verbs)}


def _storage_hash(kind: Kind, version: str) -> str:
    digest = hashlib.sha256(f"{kind.group}/{version or kind.version}/{kind.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _sorted(registry: Registry, group: str, version: str) -> list[Resource]:
    return sorted(registry.resources(group, version), key=lambda resource: resource.kind.plural)


def _sorted_subresources(resource: Resource) -> list[Subresource]:
    """Return the subresources by name; for a custom kind with the status first, as Kubernetes does."""
    names = resource.subresources if resource.is_custom else sorted(resource.subresources)
    return [resource.subresources[name] for name in names]
