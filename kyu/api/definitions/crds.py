"""
The CustomResourceDefinitions of all kinds, generated from their Structs.

One table lists the properties that a Struct does not have: short names, columns of ``kubectl get``, status subresource,
conversion. ``schema.py`` builds the schema of v1beta2; ``older_schemas.py`` derives those of older versions from it.

Kueue: config/components/crd
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kyu.api import convert, kueue
from kyu.api.definitions import older_schemas, schema
from kyu.api.meta import Json, Object

CONVERSION_SERVICE: Json = {"name": "kyu-webhook", "namespace": "kueue-system", "path": "/convert"}


class PrinterColumn(msgspec.Struct, frozen=True):
    """A column of ``kubectl get``; with priority 1 only in ``-o wide``."""

    name: str
    path: str
    description: str
    type: str = "string"
    priority: int = 0


class DefinitionOptions(msgspec.Struct, frozen=True):
    """The properties of a definition besides its schema."""

    short_names: tuple[str, ...]
    has_status: bool = False
    columns: tuple[PrinterColumn, ...] = ()
    # v1beta1 and v1beta2 differ in more than bounds.
    needs_conversion: bool = False
    selectable_fields: tuple[str, ...] = ()
    is_older_deprecated: bool = True


_AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was created", "date")
_COUNT = "integer"

RESOURCES: Mapping[type[Object], DefinitionOptions] = {
    kueue.ResourceFlavor: DefinitionOptions(("flavor", "flavors", "rf")),
    kueue.ClusterQueue: DefinitionOptions(
        ("cq",),
        has_status=True,
        needs_conversion=True,
        columns=(
            PrinterColumn("Cohort", ".spec.cohortName", "Cohort that this queue borrows from and lends to"),
            PrinterColumn("Strategy", ".spec.queueingStrategy", "Order of pending workloads", priority=1),
            PrinterColumn("Pending Workloads", ".status.pendingWorkloads", "Pending workloads", _COUNT),
            PrinterColumn("Admitted Workloads", ".status.admittedWorkloads", "Admitted workloads", _COUNT, priority=1),
        ),
    ),
    kueue.LocalQueue: DefinitionOptions(
        ("queue", "queues", "lq"),
        has_status=True,
        needs_conversion=True,
        columns=(
            PrinterColumn("ClusterQueue", ".spec.clusterQueue", "ClusterQueue that its workloads go to"),
            PrinterColumn("Pending Workloads", ".status.pendingWorkloads", "Pending workloads", _COUNT),
            PrinterColumn("Admitted Workloads", ".status.admittedWorkloads", "Admitted workloads", _COUNT),
        ),
    ),
    kueue.Workload: DefinitionOptions(
        ("kwl", "kueueworkload", "kueueworkloads"),
        has_status=True,
        needs_conversion=True,
        columns=(
            PrinterColumn("Queue", ".spec.queueName", "LocalQueue that it was submitted to"),
            PrinterColumn("Reserved in", ".status.admission.clusterQueue", "ClusterQueue whose quota it holds"),
            PrinterColumn("Admitted", ".status.conditions[?(@.type=='Admitted')].status", "Whether it is admitted"),
            PrinterColumn("Finished", ".status.conditions[?(@.type=='Finished')].status", "Whether it is finished"),
            _AGE,
        ),
        selectable_fields=(".status.admission.clusterQueue",),
    ),
    kueue.WorkloadPriorityClass: DefinitionOptions(
        ("wpc",), columns=(PrinterColumn("Value", ".value", "The priority", _COUNT),)
    ),
    kueue.Cohort: DefinitionOptions(("co",), has_status=True, needs_conversion=True),
    kueue.AdmissionCheck: DefinitionOptions(("ac",), has_status=True, needs_conversion=True),
    kueue.ProvisioningRequestConfig: DefinitionOptions(("prc",)),
    kueue.Topology: DefinitionOptions(("topo",)),
    kueue.MultiKueueCluster: DefinitionOptions(
        ("mkc",),
        has_status=True,
        needs_conversion=True,
        columns=(
            PrinterColumn(
                "Connected", ".status.conditions[?(@.type=='Active')].status", "Whether the cluster is connected"
            ),
            _AGE,
        ),
    ),
    kueue.MultiKueueConfig: DefinitionOptions(("mkconf",), needs_conversion=True, is_older_deprecated=False),
}


def definitions() -> list[Json]:
    """Return all definitions, in the order of ``kueue.KINDS``."""
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


def _conversion(resource: DefinitionOptions) -> Json:
    """Return the conversion of a definition. With strategy None the API server drops fields that it does not know."""
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


def _column(column: PrinterColumn, api_version: str) -> Json:
    # This is the only column whose field has another name in v1beta1.
    path = column.path if api_version == convert.CURRENT else column.path.replace(".spec.cohortName", ".spec.cohort")
    words: Json = {"name": column.name, "jsonPath": path, "type": column.type, "description": column.description}
    return {**words, "priority": column.priority} if column.priority else words


def schema_of_version(type_: type[Object], api_version: str) -> Json:
    """Return the schema of a kind in any of its versions, as a copy that the caller may change."""
    whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema.schema_of(type_)))
    whole["properties"] = {
        "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
        "kind": {"type": "string", "description": "Kind of this object."},
        **whole["properties"],
        "metadata": {"type": "object"},
    }
    if api_version != convert.CURRENT:
        older_schemas.make_older(whole, type_.KIND.kind, api_version.rpartition("/")[2])
    return whole
