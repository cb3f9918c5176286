"""The objects of Kueue and Kubernetes that a Tenant stands for: namespaces, queues, cohorts, priorities and rights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kyu.api.kueue import ClusterQueue, Cohort, LocalQueue, WorkloadPriorityClass
from kyu.api.meta import Json, Kind
from kyu.tenants.tenant import FlavorQuota, People, Tenant, TenantShare

TENANT_LABEL = "kyu.dev/tenant"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
RBAC = "rbac.authorization.k8s.io"
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
ROLE_BINDING = Kind(RBAC, "v1", "RoleBinding", "rolebindings")
# The kinds that are made, in the order in which they are applied.
KINDS = (NAMESPACE, WorkloadPriorityClass.KIND, Cohort.KIND, ClusterQueue.KIND, LocalQueue.KIND, ROLE_BINDING)


def make_objects(tenants: Iterable[Tenant], *, roles: tuple[str, str]) -> list[Json]:
    """Return all objects of the Tenants, in an order in which they can be applied.

    ``roles`` are the ClusterRoles of members and of administrators.
    """
    tenants = list(tenants)
    found = [obj for tenant in tenants for obj in objects_of(tenant, tenants, roles)]
    order = {kind.kind: index for index, kind in enumerate(KINDS)}
    return sorted(found, key=lambda obj: order[obj["kind"]])


def objects_of(tenant: Tenant, tenants: list[Tenant], roles: tuple[str, str]) -> Iterator[Json]:
    spec = tenant.spec
    for name, value in sorted(spec.priorities.items()):
        yield {**named(WorkloadPriorityClass.KIND, tenant, f"{tenant.name}-{name}"), "value": value}
    if tenant.has_cohort:
        yield {**named(Cohort.KIND, tenant, tenant.cohort), "spec": cohort_spec(tenant)}
    if tenant.owns_queue:
        yield {**named(ClusterQueue.KIND, tenant, tenant.cluster_queue), "spec": queue_spec(tenant, tenants)}
    for namespace in tenant.namespaces:
        yield named(NAMESPACE, tenant, namespace)
        for queue in tenant.queue_names():
            body = named(LocalQueue.KIND, tenant, queue, namespace)
            yield {**body, "spec": {"clusterQueue": tenant.cluster_queue}}
        yield from bindings(tenant, namespace, roles)


def named(kind: Kind, tenant: Tenant, name: str, namespace: str = "") -> Json:
    metadata: Json = {"name": name, "labels": {TENANT_LABEL: tenant.name}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def cohort_spec(tenant: Tenant) -> Json:
    spec: Json = {}
    if tenant.parent is not None:
        spec["parentName"] = tenant.parent.cohort
    if tenant.spec.quotas:
        spec["resourceGroups"] = resource_groups(tenant.spec.quotas)
    return with_weight(spec, tenant)


def queue_spec(tenant: Tenant, tenants: list[Tenant]) -> Json:
    """Return the spec of a ClusterQueue. It takes jobs of the namespaces of its Tenants only."""
    namespaces = sorted(
        {each for one in tenants if one.cluster_queue == tenant.cluster_queue for each in one.namespaces}
    )
    selected = {"key": NAMESPACE_NAME, "operator": "In", "values": namespaces}
    spec: Json = {
        "namespaceSelector": {"matchExpressions": [selected]},
        "resourceGroups": resource_groups(tenant.spec.quotas),
    }
    if tenant.parent is not None:
        spec["cohortName"] = tenant.parent.cohort
    if tenant.spec.queueing_strategy:
        spec["queueingStrategy"] = tenant.spec.queueing_strategy
    if tenant.spec.preemption is not None:
        spec["preemption"] = tenant.spec.preemption
    if tenant.spec.admission_checks:
        checks = [{"name": name} for name in tenant.spec.admission_checks]
        spec["admissionChecksStrategy"] = {"admissionChecks": checks}
    return with_weight(spec, tenant)


def with_weight(spec: Json, tenant: Tenant) -> Json:
    if tenant.spec.weight is not None:
        spec["fairSharing"] = {"weight": str(tenant.spec.weight)}
    return spec


def resource_groups(quotas: Iterable[FlavorQuota]) -> list[Json]:
    """Return the flavors grouped by the resources that they cover, in the order of the Tenant."""
    groups: dict[tuple[str, ...], list[Json]] = {}
    for quota in quotas:
        shares = quota.shares()
        flavor = {"name": quota.flavor, "resources": [resource(name, share) for name, share in shares.items()]}
        groups.setdefault(tuple(shares), []).append(flavor)
    return [{"coveredResources": list(covered), "flavors": flavors} for covered, flavors in groups.items()]


def resource(name: str, share: TenantShare) -> Json:
    found: Json = {"name": name, "nominalQuota": str(share.nominal)}
    if share.borrow is not None:
        found["borrowingLimit"] = str(share.borrow)
    if share.lend is not None:
        found["lendingLimit"] = str(share.lend)
    return found


def bindings(tenant: Tenant, namespace: str, roles: tuple[str, str]) -> Iterator[Json]:
    """Yield the rights of the members and administrators in a namespace."""
    for name, people, role in (("members", tenant.spec.members, roles[0]), ("admins", tenant.spec.admins, roles[1])):
        if subjects := subjects_of(people):
            body = named(ROLE_BINDING, tenant, f"tenant-{name}", namespace)
            reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
            yield {**body, "subjects": subjects, "roleRef": reference}


def subjects_of(people: People) -> list[Json]:
    return [
        {"apiGroup": RBAC, "kind": kind, "name": name}
        for kind, names in (("User", people.users), ("Group", people.groups))
        for name in names
    ]
