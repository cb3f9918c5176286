"""
CustomResourceDefinitions: defaults, status, and the versions with their schema, columns and subresources.

rules.py validates a definition. background/definitions.py accepts its names, and deletes its objects with it.

Kubernetes: apiextensions-apiserver/pkg/apis/apiextensions
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kyu.api.meta import Json, Kind
from kyu.server.metadata import timestamp
from kyu.server.schema.node import REF_PREFIX, Schema
from kyu.server.schema.published import META, object_meta

KIND: Final = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)
CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
# The default port of a conversion webhook.
WEBHOOK_PORT: Final = 443
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a custom kind."""

    name: str
    is_served: bool
    is_stored: bool
    schema: Schema
    has_status: bool
    # specReplicasPath, statusReplicasPath, labelSelectorPath
    scale: Json | None
    columns: tuple[Json, ...]
    selectable_fields: tuple[str, ...]
    # The warning with every answer of a deprecated version; empty for others.
    deprecation: str


def versions_of(definition: Json) -> tuple[Version, ...]:
    return tuple(_version(definition, raw) for raw in definition["spec"].get("versions") or ())


def _version(definition: Json, raw: Json) -> Version:
    subresources = raw.get("subresources") or {}
    selectable = tuple(field["jsonPath"] for field in raw.get("selectableFields") or ())
    return Version(
        name=raw["name"],
        is_served=bool(raw.get("served")),
        is_stored=bool(raw.get("storage")),
        schema=schema_of(raw),
        has_status=subresources.get("status") is not None,
        scale=subresources.get("scale"),
        columns=tuple(raw.get("additionalPrinterColumns") or ()),
        selectable_fields=selectable,
        deprecation=_deprecation(definition, raw),
    )


def _deprecation(definition: Json, raw: Json) -> str:
    if not raw.get("deprecated"):
        return ""
    spec = definition["spec"]
    return raw.get("deprecationWarning") or f"{spec['group']}/{raw['name']} {spec['names']['kind']} is deprecated"


def schema_of(version: Json) -> Schema:
    """Return the schema with the metadata of every object."""
    raw: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object", PRESERVE: True}
    typed = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    properties = {**typed, **(raw.get("properties") or {}), "metadata": {"$ref": f"{REF_PREFIX}{META}ObjectMeta"}}
    return Schema({**raw, "properties": properties}, object_meta().definitions)


def default_definition(definition: Json) -> None:
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if kind := names.get("kind"):
        if not names.get("singular"):
            names["singular"] = kind.lower()
        if not names.get("listKind"):
            names["listKind"] = f"{kind}List"
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    webhook = conversion.get("webhook") or {}
    service = (webhook.get("clientConfig") or {}).get("service")
    if service is not None:
        service.setdefault("port", WEBHOOK_PORT)
    if webhook.get("clientConfig") is None and not webhook.get("conversionReviewVersions"):
        conversion.pop("webhook", None)
    status = definition.get("status")
    if status is not None and not status.get("storedVersions"):
        status["storedVersions"] = stored_versions(definition)


def prepare_definition(definition: Json) -> None:
    """Set the status of a new definition. The kind is not served until its names are accepted."""
    definition["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored_versions(definition),
    }


def prepare_definition_update(new: Json, old: Json) -> None:
    before = tuple((old.get("status") or {}).get("storedVersions") or ())
    new["status"] = {**(old.get("status") or {}), "storedVersions": stored_versions(new, before)}


def stored_versions(definition: Json, before: tuple[str, ...] = ()) -> list[str]:
    """Return the versions in which objects may be stored. Only a write of the status removes a version."""
    now = next((each.get("name", "") for each in definition["spec"].get("versions") or () if each.get("storage")), None)
    return [*before] if now is None or now in before else [*before, now]


def prepare_deletion(definition: Json, now: datetime) -> None:
    """Keep a definition until its objects are deleted."""
    metadata, status = definition["metadata"], definition.get("status") or {}
    del metadata["deletionGracePeriodSeconds"]
    metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CLEANUP_FINALIZER]
    terminating = {
        "type": "Terminating", "status": "True", "lastTransitionTime": timestamp(now),
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }  # fmt: skip
    definition["status"] = {**status, "conditions": [*(status.get("conditions") or ()), terminating]}


def cleaning_status(definition: Json) -> Json:
    """Return the status of a definition while its objects are deleted."""
    status = definition.get("status") or {}
    told = {"reason": "InstanceDeletionInProgress", "message": "CustomResource deletion is in progress"}
    conditions = [
        {**each, **told} if each["type"] == "Terminating" else each for each in status.get("conditions") or ()
    ]
    return {**status, "conditions": conditions}
