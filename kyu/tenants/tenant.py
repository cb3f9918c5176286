"""
Tenants: one short document for an organisation or a team, from which everything else is made.

    apiVersion: kyu.dev/v1alpha1
    kind: Tenant
    metadata: {name: team1}
    spec:
      parent: research
      members: {users: [ana], groups: [physics]}
      quotas:
      - flavor: default-flavor
        resources: {cpu: 8, memory: 32Gi, nvidia.com/gpu: {nominal: 2, borrow: 1}}
      weight: 2
      jobTypes: [ray, spark]

A Tenant that others name as their parent becomes a Cohort, or with ``sharedQueue`` one ClusterQueue for all of them.
Every other Tenant becomes a ClusterQueue of its own. An unknown field is an error: nothing is silently ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kyu.api import names, quantity
from kyu.api.codec import Manifest
from kyu.api.meta import Json

API_VERSION = "kyu.dev/v1alpha1"
KIND = "Tenant"
Amount = str | int


class People(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Users and groups of the API server."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class TenantShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The quota of a resource; without a limit, all that the cohort has may be borrowed and lent."""

    nominal: Amount
    borrow: Amount | None = None
    lend: Amount | None = None


class FlavorQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The quotas of one ResourceFlavor."""

    flavor: str
    resources: Mapping[str, TenantShare | Amount]

    def shares(self) -> dict[str, TenantShare]:
        return {
            name: share if isinstance(share, TenantShare) else TenantShare(share)
            for name, share in sorted(self.resources.items())
        }


class TenantSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The fields of a Tenant. Empty names are derived from the name of the Tenant."""

    parent: str = ""
    namespaces: tuple[str, ...] | None = None
    members: People = People()
    admins: People = People()
    quotas: tuple[FlavorQuota, ...] = ()
    weight: Amount | None = None
    job_types: tuple[str, ...] = ()
    shared_queue: bool = False
    cluster_queue: str = ""
    cohort: str = ""
    queue_name: str = ""
    queueing_strategy: str = ""
    admission_checks: tuple[str, ...] = ()
    preemption: Json | None = None
    priorities: Mapping[str, int] = {}


class Tenant(msgspec.Struct, frozen=True):
    """A Tenant, with its parent resolved."""

    name: str
    spec: TenantSpec
    parent: Tenant | None = None
    is_parent: bool = False

    @property
    def namespaces(self) -> tuple[str, ...]:
        if self.spec.namespaces is not None:
            return self.spec.namespaces
        return () if self.is_parent else (self.name,)

    @property
    def cohort(self) -> str:
        """The name of the Cohort that a parent becomes."""
        return self.spec.cohort or self.name

    @property
    def cluster_queue(self) -> str:
        """The ClusterQueue that its jobs use."""
        if self.parent is not None and self.parent.spec.shared_queue:
            return self.parent.cluster_queue
        return self.spec.cluster_queue or self.name

    @property
    def owns_queue(self) -> bool:
        """Whether a ClusterQueue is made for it."""
        shares = self.parent is not None and self.parent.spec.shared_queue
        return self.spec.shared_queue if self.is_parent else not shares

    @property
    def has_cohort(self) -> bool:
        return self.is_parent and not self.spec.shared_queue

    def queue_name(self, job_type: str = "") -> str:
        """Return the LocalQueue for a type of job; without one, the first queue."""
        template = self.spec.queue_name or ("{tenant}.{type}" if self.spec.job_types else "default")
        type_ = job_type or (self.spec.job_types[0] if self.spec.job_types else "default")
        return template.replace("{tenant}", self.name).replace("{type}", type_)

    def queue_names(self) -> list[str]:
        return sorted({self.queue_name(type_) for type_ in self.spec.job_types or ("",)})


class TenantError(ValueError):
    """Tenants that cannot be used. The message names the file, the field and the remedy."""


def read(manifests: Iterable[Manifest]) -> list[Tenant]:
    """Return the Tenants of the documents, parents resolved, in the order of the documents."""
    specs: dict[str, TenantSpec] = {}
    for manifest in manifests:
        name, spec = read_one(manifest.object, manifest.source)
        if name in specs:
            raise TenantError(
                f"{manifest.source}: metadata.name: there are two Tenants {name}; give each a name of its own"
            )
        specs[name] = spec
    if not specs:
        raise TenantError(f"there is no {KIND} in the files; write one with apiVersion: {API_VERSION} and kind: {KIND}")
    parents = {spec.parent for spec in specs.values() if spec.parent}
    tenants = [resolve(name, specs, parents, ()) for name in specs]
    if faults := list(find_faults(tenants)):
        raise TenantError("\n".join(faults))
    return tenants


def read_one(obj: Json, source: str) -> tuple[str, TenantSpec]:
    """Decode a document. Raise a TenantError that names the field."""
    if obj.get("apiVersion") != API_VERSION or obj.get("kind") != KIND:
        found = f"{obj.get('apiVersion')} {obj.get('kind')}"
        raise TenantError(f"{source}: {found} is no {API_VERSION} {KIND}; keep other objects in another file")
    name = str((obj.get("metadata") or {}).get("name", ""))
    if problem := names.why_not_dns_label(name):
        raise TenantError(f"{source}: metadata.name: {name!r}: {problem}")
    try:
        return name, msgspec.convert(obj.get("spec") or {}, TenantSpec)
    except msgspec.ValidationError as error:
        raise TenantError(f"{source}: Tenant {name}: spec: {error}") from None


def resolve(name: str, specs: Mapping[str, TenantSpec], parents: set[str], below: tuple[str, ...]) -> Tenant:
    if name in below:
        raise TenantError(f"Tenant {name}: spec.parent: {' -> '.join((*below, name))} is a circle; remove one parent")
    spec = specs[name]
    if spec.parent and spec.parent not in specs:
        raise TenantError(
            f"Tenant {name}: spec.parent: there is no Tenant {spec.parent!r}; there are {', '.join(specs)}"
        )
    parent = resolve(spec.parent, specs, parents, (*below, name)) if spec.parent else None
    return Tenant(name, spec, parent, name in parents)


def find_faults(tenants: list[Tenant]) -> Iterator[str]:
    """Yield what contradicts itself, with a remedy each."""
    owners: dict[str, str] = {}
    for tenant in tenants:
        where = f"Tenant {tenant.name}: spec."
        for namespace in tenant.namespaces:
            if owners.setdefault(namespace, tenant.name) != tenant.name:
                yield f"{where}namespaces: {namespace} belongs to Tenant {owners[namespace]}; give it to one of them"
        if tenant.spec.shared_queue and not tenant.is_parent:
            yield f"{where}sharedQueue: no Tenant names {tenant.name} as its parent; remove the field"
        if not tenant.is_parent and not tenant.owns_queue and tenant.spec.quotas:
            yield f"{where}quotas: its jobs share the queue of Tenant {tenant.spec.parent}; set them there"
        if tenant.owns_queue and not tenant.spec.quotas:
            yield f"{where}quotas: a ClusterQueue without quotas admits nothing; give at least one flavor"
        if tenant.is_parent and tenant.namespaces and not tenant.spec.shared_queue:
            yield f"{where}namespaces: a parent becomes a Cohort and has no queue; make a Tenant of its own for these"
        yield from (f"{where}{fault}" for fault in amount_faults(tenant.spec))


def amount_faults(spec: TenantSpec) -> Iterator[str]:
    for index, quota in enumerate(spec.quotas):
        for name, share in quota.shares().items():
            for field in ("nominal", "borrow", "lend"):
                value: Any = getattr(share, field)
                if value is not None and not is_amount(name, value):
                    yield f"quotas[{index}].resources[{name}].{field}: {value!r} is no quantity; write 8, 500m or 32Gi"


def is_amount(resource: str, value: Amount) -> bool:
    try:
        return quantity.amount(resource, str(value)) >= 0
    except ValueError:
        return False
