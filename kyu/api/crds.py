"""
The CustomResourceDefinitions of all kinds, generated from their Structs.

One table says what a Struct cannot: short names, columns of ``kubectl get``, status subresource, how versions are
converted. The schema of v1beta2 comes from ``schema.py``; those of older versions are made from it by
``older_schemas.py``.

Used by: `kyu manifests`, server (its built-in kinds), tests. Kueue: config/components/crd
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kyu.api import convert, kueue, older_schemas, schema
from kyu.api.meta import Json, Object

CONVERSION_SERVICE: Json = {"name": "kueue-webhook-service", "namespace": "kueue-system", "path": "/convert"}


class Column(msgspec.Struct, frozen=True):
    """A column of ``kubectl get``; with priority 1 only of ``-o wide``."""

    name: str
    path: str
    description: str
    type: str = "string"
    priority: int = 0


class Resource(msgspec.Struct, frozen=True):
    """What a definition says besides the schema."""

    short_names: tuple[str, ...]
    has_status: bool = False
    columns: tuple[Column, ...] = ()
    # v1beta1 and v1beta2 differ in more than bounds.
    needs_conversion: bool = False
    selectable_fields: tuple[str, ...] = ()
    is_older_deprecated: bool = True


_AGE = Column("Age", ".metadata.creationTimestamp", "Time since it was created", "date")
_COUNT = "integer"

RESOURCES: Mapping[type[Object], Resource] = {
    kueue.ResourceFlavor: Resource(("flavor", "flavors", "rf")),
    kueue.ClusterQueue: Resource(
        ("cq",),
        has_status=True,
        needs_conversion=True,
        columns=(
            Column("Cohort", ".spec.cohortName", "Cohort that this queue borrows from and lends to"),
            Column("Strategy", ".spec.queueingStrategy", "Whether those behind may pass", priority=1),
            Column("Pending Workloads", ".status.pendingWorkloads", "Workloads that wait", _COUNT),
            Column("Admitted Workloads", ".status.admittedWorkloads", "Workloads that run", _COUNT, priority=1),
        ),
    ),
    kueue.LocalQueue: Resource(
        ("queue", "queues", "lq"),
        has_status=True,
        needs_conversion=True,
        columns=(
            Column("ClusterQueue", ".spec.clusterQueue", "ClusterQueue that its workloads go to"),
            Column("Pending Workloads", ".status.pendingWorkloads", "Workloads that wait", _COUNT),
            Column("Admitted Workloads", ".status.admittedWorkloads", "Workloads that run", _COUNT),
        ),
    ),
    kueue.Workload: Resource(
        ("kwl", "kueueworkload", "kueueworkloads"),
        has_status=True,
        needs_conversion=True,
        columns=(
            Column("Queue", ".spec.queueName", "LocalQueue that it was submitted to"),
            Column("Reserved in", ".status.admission.clusterQueue", "ClusterQueue whose quota it holds"),
            Column("Admitted", ".status.conditions[?(@.type=='Admitted')].status", "Whether it may run"),
            Column("Finished", ".status.conditions[?(@.type=='Finished')].status", "Whether it is done"),
            _AGE,
        ),
        selectable_fields=(".status.admission.clusterQueue",),
    ),
    kueue.WorkloadPriorityClass: Resource(("wpc",), columns=(Column("Value", ".value", "The priority", _COUNT),)),
    kueue.Cohort: Resource(("co",), has_status=True, needs_conversion=True),
    kueue.AdmissionCheck: Resource(("ac",), has_status=True, needs_conversion=True),
    kueue.ProvisioningRequestConfig: Resource(("prc",)),
    kueue.Topology: Resource(("topo",)),
    kueue.MultiKueueCluster: Resource(
        ("mkc",),
        has_status=True,
        needs_conversion=True,
        columns=(
            Column("Connected", ".status.conditions[?(@.type=='Active')].status", "Whether the cluster is reached"),
            _AGE,
        ),
    ),
    kueue.MultiKueueConfig: Resource(("mkconf",), needs_conversion=True, is_older_deprecated=False),
}


def definitions() -> list[Json]:
    """All definitions, in the order of ``kueue.KINDS``."""
    return [definition(type_) for type_ in kueue.KINDS]


def definition(type_: type[Object]) -> Json:
    kind, resource = type_.KIND, RESOURCES[type_]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "shortNames": list(resource.short_names),
                "singular": kind.kind.lower(),
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "conversion": _conversion(resource),
            "versions": [_version(type_, api_version) for api_version in reversed(convert.versions(kind.kind))],
        },
    }


def _conversion(resource: Resource) -> Json:
    """Without a converter the API server would silently drop what it does not know: then rather none than that."""
    if not resource.needs_conversion:
        return {"strategy": "None"}
    client = {"service": CONVERSION_SERVICE}
    return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}


def _version(type_: type[Object], api_version: str) -> Json:
    resource, is_current = RESOURCES[type_], api_version == convert.CURRENT
    version: Json = {
        "name": api_version.rpartition("/")[2],
        "served": True,
        "storage": is_current,
        "schema": {"openAPIV3Schema": schema_of_version(type_, api_version)},
    }
    if resource.has_status:
        version["subresources"] = {"status": {}}
    if resource.columns:
        version["additionalPrinterColumns"] = [_column(column, api_version) for column in resource.columns]
    if resource.selectable_fields and is_current:
        version["selectableFields"] = [{"jsonPath": path} for path in resource.selectable_fields]
    if not is_current and resource.is_older_deprecated:
        version["deprecated"] = True
        version["deprecationWarning"] = f"{api_version} {type_.KIND.kind} is deprecated; use {convert.CURRENT}"
    return version


def _column(column: Column, api_version: str) -> Json:
    # The one column whose field has another name in v1beta1.
    path = column.path if api_version == convert.CURRENT else column.path.replace(".spec.cohortName", ".spec.cohort")
    words: Json = {"name": column.name, "jsonPath": path, "type": column.type, "description": column.description}
    return {**words, "priority": column.priority} if column.priority else words


def schema_of_version(type_: type[Object], api_version: str) -> Json:
    """The schema of a kind in any of its versions. It is a copy: change it as you like."""
    whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema.schema_of(type_)))
    whole["properties"] = {
        "apiVersion": {"type": "string", "description": "Version of the shape of this object."},
        "kind": {"type": "string", "description": "Kind of this object."},
        **whole["properties"],
        "metadata": {"type": "object"},
    }
    if api_version != convert.CURRENT:
        older_schemas.make_older(whole, type_.KIND.kind, api_version.rpartition("/")[2])
    return whole
