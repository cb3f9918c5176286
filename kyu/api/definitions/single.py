"""The CustomResourceDefinition of a kind that has one version only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kyu.api.definitions import schema
from kyu.api.definitions.crds import PrinterColumn
from kyu.api.meta import Json, Object


def definition_of(type_: type[Object], short_names: Sequence[str], columns: Sequence[PrinterColumn]) -> Json:
    """Return the definition of a kind with a status subresource."""
    kind = type_.KIND
    whole: Json = msgspec.json.decode(msgspec.json.encode(schema.schema_of(type_)))
    whole["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        **whole["properties"],
        "metadata": {"type": "object"},
    }
    version: Json = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": whole},
        "subresources": {"status": {}},
    }
    if columns:
        version["additionalPrinterColumns"] = [
            {"name": column.name, "jsonPath": column.path, "type": column.type, "description": column.description}
            for column in columns
        ]
    names = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {**names, "shortNames": list(short_names), "singular": kind.kind.lower()},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }
