"""
Custom kinds: the versions of a CustomResourceDefinition as Resources with Rules.

Kubernetes: apiextensions-apiserver/pkg/registry/customresource/strategy.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from kyu.api import convert, rules
from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json, Kind
from kyu.server import errors, go_words, json_values, selectors
from kyu.server.crd import crd, custom_metadata
from kyu.server.fieldmanager import manager
from kyu.server.options import Propagation
from kyu.server.registry import READ_WRITE, SCALE, Column, Converter, Resource, ScalePaths, Subresource
from kyu.server.schema import fast, quick, schema
from kyu.server.validation import metadata as builtin_metadata

# The order in which Kubernetes lists the verbs of custom kinds.
VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
MAX_REPLICAS = 2**31 - 1
AGE = Column("Age", "date", ".metadata.creationTimestamp", "The time since the object was created.")


def resources_of(definition: Json) -> list[Resource]:
    """Return a Resource for each served version."""
    versions = crd.versions_of(definition)
    return [_resource(definition, version, versions) for version in versions if version.is_served]


def _resource(definition: Json, version: crd.Version, versions: tuple[crd.Version, ...]) -> Resource:
    spec, names = definition["spec"], definition["spec"]["names"]
    kind = Kind(spec["group"], version.name, names["kind"], names["plural"], spec.get("scope") == "Namespaced")
    is_terminating = bool(definition["metadata"].get("deletionTimestamp"))
    return Resource(
        kind=kind,
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        schema=version.schema,
        rules=(KueueRules if kind.group == convert.GROUP else CustomRules)(
            kind, version, is_terminating=is_terminating
        ),
        verbs=VERBS,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=_subresources(version),
        columns=tuple(map(_column, version.columns)) or (AGE,),
        scale=_scale(version.scale),
        field_labels=selectors.custom_labels(version.selectable_fields, namespaced=kind.namespaced),
        stored_version=next(each.name for each in versions if each.is_stored),
        convert=_converter(definition, kind, versions),
        is_custom=True,
        deprecation=version.deprecation,
    )


def _subresources(version: crd.Version) -> dict[str, Subresource]:
    found = [Subresource("status", READ_WRITE)] if version.has_status else []
    found += [SCALE] if version.scale is not None else []
    return {each.name: each for each in found}


def _column(raw: Json) -> Column:
    path = raw["jsonPath"]
    return Column(
        name=raw["name"],
        type=raw["type"],
        path=path,
        description=raw.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        format=raw.get("format", ""),
        priority=raw.get("priority", 0),
    )


def _scale(raw: Json | None) -> ScalePaths | None:
    if raw is None:
        return None
    return ScalePaths(raw["specReplicasPath"], raw["statusReplicasPath"], raw.get("labelSelectorPath", ""))


def _converter(definition: Json, kind: Kind, versions: tuple[crd.Version, ...]) -> Converter | None:
    """Return the conversion between versions. Kyu converts Kueue's kinds itself, and calls no webhooks."""
    if len(versions) == 1:
        return None
    schemas = {version.name: version.schema for version in versions}

    def prune_only(obj: Json, source: str, target: str) -> Json:
        pruned: Json = json_values.clone(obj)
        schema.prune(schemas[target], pruned)
        return pruned

    def convert_kueue(obj: Json, source: str, target: str) -> Json:
        typed = {"apiVersion": f"{kind.group}/{source}", "kind": kind.kind, **obj}
        result = convert.convert(typed, f"{kind.group}/{target}")
        return {name: value for name, value in result.items() if name not in ("apiVersion", "kind")}

    def refuse(obj: Json, source: str, target: str) -> Json:
        raise errors.not_implemented(f"conversion webhooks are not called by this server: use {kind.group}/{source}")

    if (definition["spec"].get("conversion") or {}).get("strategy") != "Webhook":
        return prune_only
    return convert_kueue if kind.group == convert.GROUP else refuse


class CustomRules:
    """The Rules of one version of a custom kind."""

    allows_unconditional_update = False
    creates_on_update = False
    counts_deletion = True
    answers_deleted_object = False
    shows_mark_before_going = False
    default_propagation: Propagation | None = None

    def __init__(self, kind: Kind, version: crd.Version, *, is_terminating: bool) -> None:
        self._kind = kind
        self._is_going = is_terminating
        self._api_version = kind.api_version
        self._schema = version.schema
        self._has_status = version.has_status
        scale = version.scale or {}
        self._replicas = tuple(scale[name] for name in ("specReplicasPath", "statusReplicasPath") if name in scale)
        self._selector: str = scale.get("labelSelectorPath", "")

    def read(self, body: Json, stored: Json | None = None) -> tuple[Json, list[str]]:
        given = body.get("metadata")
        metadata, unknown = custom_metadata.read({} if given is None else given, stored["metadata"] if stored else {})
        obj = {**body, "metadata": metadata}
        pruned = schema.prune(self._schema, obj, stored)
        return obj, [f"metadata.{path}" for path in unknown] + pruned if unknown else pruned

    def default(self, obj: Json, stored: Json | None = None) -> None:
        schema.apply_defaults(self._schema, obj, stored)

    def prepare_create(self, obj: Json) -> None:
        if self._is_going:
            detail = "create not allowed while custom resource definition is terminating"
            raise errors.forbidden(self._kind, obj["metadata"]["name"], detail)
        if self._has_status:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1

    def prepare_update(self, new: Json, old: Json, subresource: str) -> None:
        if subresource == "status":
            self._keep_all_but_status(new, old)
            return
        if self._has_status:
            json_values.carry_over("status", old, new)
        ignored = (
            {"metadata", "apiVersion", "kind", "status"} if self._has_status else {"metadata", "apiVersion", "kind"}
        )
        changed = any(new.get(name) != old.get(name) for name in {*new, *old} - ignored)
        generation = old["metadata"].get("generation", 0)
        new["metadata"]["generation"] = generation + 1 if changed else generation

    def _keep_all_but_status(self, new: Json, old: Json) -> None:
        for name in {*new, *old} - {"status", "apiVersion", "kind", "metadata"}:
            json_values.carry_over(name, old, new)
        managed_fields = new["metadata"].get("managedFields")
        new["metadata"] = {**old["metadata"]}
        if managed_fields is not None:
            new["metadata"]["managedFields"] = managed_fields

    def validate_create(self, obj: Json) -> list[FieldError]:
        found = builtin_metadata.validate_metadata(obj, namespaced=self._kind.namespaced)
        found += self._validate_scale(obj)
        return found + schema.validate(self._schema, obj, earlier=found) or self._review(obj, None)

    def validate_update(self, new: Json, old: Json, subresource: str) -> list[FieldError]:
        found = builtin_metadata.validate_metadata_update(new, old, builtin_metadata.ANY_FINALIZER)
        found += self._validate_scale(new)
        root = subresource if subresource == "status" else ""
        return found + schema.validate(self._schema, new, old, earlier=found, root=root) or self._review(new, old)

    def validate_status(self, new: Json, old: Json) -> list[FieldError] | None:
        """Validate an object with a new status and nothing else new.

        Return None if the quick checks cannot decide: then the whole object has to be validated.
        """
        is_sound = fast.is_certain(self._schema.properties["status"], fast.sound, new["status"])
        if not is_sound or not quick.certainly_passes(self._schema, new, old) or self._validate_scale(new):
            return None
        return self._review(new, old)

    def _review(self, new: Json, old: Json | None) -> list[FieldError]:
        """Return the errors of an object that obeys its schema."""
        return []

    def _validate_scale(self, obj: Json) -> list[FieldError]:
        found = [fault for path in self._replicas for fault in replica_faults(obj, path)]
        return found + list(selector_faults(obj, self._selector)) if self._selector else found

    def warnings(self, new: Json, old: Json | None) -> list[str]:
        return builtin_metadata.finalizer_warnings(new, old)

    def resets(self, subresource: str) -> frozenset[str]:
        return manager.resets_of(self._schema, subresource) if self._has_status or subresource else frozenset()

    def is_finally_deleted(self, obj: Json) -> bool:
        metadata = obj["metadata"]
        return bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers")

    def grace_seconds(self, obj: Json, asked: int | None) -> int:
        return 0

    def prepare_delete(self, obj: Json, now: datetime) -> None: ...


def replica_faults(obj: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of a replica count, beyond those of the schema."""
    try:
        value = _scale_value(obj, path, 0)
    except _AccessorError as error:
        yield fields.invalid(path, 0, str(error))
        return
    if value < 0:
        yield fields.invalid(path, value, "should be a non-negative integer")
    elif value > MAX_REPLICAS:
        yield fields.invalid(path, value, f"should be less than or equal to {MAX_REPLICAS}")


def selector_faults(obj: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of the label selector of a scale."""
    try:
        _scale_value(obj, path, "")
    except _AccessorError as error:
        yield fields.invalid(path, "", str(error))


class _AccessorError(Exception):
    """A value on the path of a scale has another type."""

    def __init__(self, path: str, value: Any, wanted: str) -> None:
        shown = f"{go_words.shown(value)} is of the type {go_words.type_of(value)}"
        super().__init__(f"{path} accessor error: {shown}, expected {wanted}")


def _scale_value(obj: Json, path: str, empty: int | str) -> Any:
    """Return the value at a path, or the empty value of its type if it is absent."""
    value: Any = obj
    for name in path.lstrip(".").split("."):
        if not isinstance(value, dict):
            raise _AccessorError(path, value, "map[string]interface{}")
        if name not in value:
            return empty
        value = value[name]
    if type(value) is not type(empty):
        raise _AccessorError(path, value, go_words.type_of(empty))
    return value


class KueueRules(CustomRules):
    """The Rules of Kueue's kinds: what its webhooks check."""

    def _review(self, new: Json, old: Json | None) -> list[FieldError]:
        if old is not None and not _needs_review(new, old):
            return []
        before = None if old is None else _reviewed(old)
        found = rules.review_as(self._api_version, self._kind.kind, _reviewed(new), before)
        if found and self._kind.kind in rules.KINDS_WITH_WEBHOOKS:
            raise errors.denied(self._kind, found)
        return found


def _reviewed(obj: Json) -> Json:
    """Return the object with the only metadata that the rules read: the annotations."""
    annotations = obj["metadata"].get("annotations")
    return {**obj, "metadata": {"annotations": annotations} if annotations else {}}


def _needs_review(new: Json, old: Json) -> bool:
    """Return whether a field that the rules read has changed. Of a condition they read only the status."""
    after, before = new["metadata"], old["metadata"]
    return (
        new.get("spec") != old.get("spec")
        or after.get("annotations") != before.get("annotations")
        or after.get("labels") != before.get("labels")
        or _is_new_state(new.get("status") or {}, old.get("status") or {})
    )


def _is_new_state(new: Json, old: Json) -> bool:
    return new.keys() != old.keys() or _state(new) != _state(old)


def _state(status: Json) -> Json:
    """Return the status with the type and the status of its conditions only."""
    return {**status, "conditions": {each.get("type"): each.get("status") for each in status.get("conditions") or ()}}
