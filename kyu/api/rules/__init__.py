"""
Defaulting and validation of the API, for servers, webhooks and files alike.

``defaults`` fills in the defaults of the API. ``validate`` finds all errors, in the order of a real API server: first
those of the schema and, if there are none, those of the rules. ``review`` checks the rules alone, for a server that has
checked the schema itself.

Kueue: pkg/webhooks and the CEL rules of its CRDs
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, cast

import msgspec

from kyu.api import codec, convert, kueue
from kyu.api.config.features import DEFAULT_GATES, FeatureGates
from kyu.api.definitions import crds, structure
from kyu.api.errors import FieldError, broken_rule
from kyu.api.meta import Json, Object
from kyu.api.quantity import QuantityError
from kyu.api.rules import checks, flavors, quotas, workload_updates, workloads
from kyu.api.rules.metadata import validate_metadata

_Rule = Callable[[Any, Any, FeatureGates], Iterator[FieldError]]

_RULE_BY_KIND: dict[type[Object], _Rule] = {
    kueue.AdmissionCheck: checks.validate_admission_check,
    kueue.ClusterQueue: quotas.validate_cluster_queue,
    kueue.Cohort: quotas.validate_cohort,
    kueue.LocalQueue: quotas.validate_local_queue,
    kueue.MultiKueueCluster: checks.validate_multi_kueue_cluster,
    kueue.MultiKueueConfig: checks.validate_multi_kueue_config,
    kueue.ResourceFlavor: flavors.validate_resource_flavor,
    kueue.Topology: flavors.validate_topology,
    kueue.Workload: workloads.validate_workload,
}
# The rules of the other kinds are part of their schemas.
KINDS_WITH_WEBHOOKS = frozenset(
    type_.KIND.kind for type_ in (kueue.ClusterQueue, kueue.Cohort, kueue.ResourceFlavor, kueue.Workload)
)
# These keep a finalizer while they are in use.
_KEPT_WHILE_USED = {kueue.ClusterQueue, kueue.ResourceFlavor}


def defaults(object_: Json) -> Json:
    """Return the object as the API server would store it, in its own version. Kinds without defaults are returned
    unchanged.
    """
    type_ = _kueue_type(object_)
    if type_ is None:
        return object_
    filled: Json = structure.apply_defaults(_defaults(type_, object_["apiVersion"]), object_)
    return filled


def prepare_create(object_: Json, gates: FeatureGates = DEFAULT_GATES) -> Json:
    """Return a new object with the changes of admission besides its defaults, such as finalizers."""
    type_ = _kueue_type(object_)
    if type_ in _KEPT_WHILE_USED:
        metadata = object_.get("metadata") or {}
        finalizers = metadata.get("finalizers") or []
        if kueue.RESOURCE_IN_USE_FINALIZER not in finalizers:
            finalizers = [*finalizers, kueue.RESOURCE_IN_USE_FINALIZER]
        return {**object_, "metadata": {**metadata, "finalizers": finalizers}}
    if type_ is kueue.Workload and not gates.enabled("PartialAdmission"):
        spec = object_.get("spec") or {}
        pod_sets = [{k: v for k, v in pod_set.items() if k != "minCount"} for pod_set in spec.get("podSets") or []]
        return {**object_, "spec": {**spec, "podSets": pod_sets}}
    return object_


def validate(object_: Json, old: Json | None = None, gates: FeatureGates = DEFAULT_GATES) -> list[FieldError]:
    """Return all errors of a new object, or of an update of ``old``. Fields are named as in v1beta2."""
    if faults := list(_validate_metadata_shape(object_)):
        return faults
    try:
        current, before = _current(object_), _current(old) if old is not None else None
        if faults := _validate_shape(current):
            return faults
    except (convert.ConversionError, codec.DecodeError) as error:
        return [broken_rule(error.field, error.detail)]
    return [*validate_metadata(current), *review(current, before, gates)]


def review(object_: Json, old: Json | None = None, gates: FeatureGates = DEFAULT_GATES) -> list[FieldError]:
    """Return the errors of an object whose schema is valid and whose defaults are filled in."""
    return review_as(str(object_.get("apiVersion")), str(object_.get("kind")), object_, old, gates)


def review_as(
    api_version: str, kind: str, object_: Json, old: Json | None, gates: FeatureGates = DEFAULT_GATES
) -> list[FieldError]:
    """Return the errors of an object of a known kind, which need not have apiVersion and kind itself."""
    type_ = _type_of(api_version, kind)
    if type_ is None:
        return []
    if api_version == convert.CURRENT:
        return _review(type_, object_, old, gates)
    typed = {"apiVersion": api_version, "kind": kind}
    before = convert.convert({**typed, **old}, convert.CURRENT) if old is not None else None
    return _review(type_, convert.convert({**typed, **object_}, convert.CURRENT), before, gates)


def _review(type_: type[Object], current: Json, before: Json | None, gates: FeatureGates) -> list[FieldError]:
    new_object = codec.decode_as(type_, current)
    old_object = _decode_before(type_, before, current, new_object) if before is not None else None
    try:
        faults = list(_RULE_BY_KIND[type_](new_object, old_object, gates)) if type_ in _RULE_BY_KIND else []
    except QuantityError as error:
        # The pattern of the schema lets it pass, as in Kubernetes, whose decoder refuses it.
        return [broken_rule("spec", str(error))]
    if isinstance(new_object, kueue.Workload) and isinstance(old_object, kueue.Workload) and before is not None:
        faults += workload_updates.validate_workload_update(new_object, old_object, gates)
        if old_object.is_true(kueue.QUOTA_RESERVED):
            faults += workload_updates.validate_pod_sets_update(current, before, gates)
    return faults


def _decode_before(type_: type[Object], before: Json, current: Json, new_object: Object) -> Object:
    """Decode the old object. In a status update of a Workload the spec is shared, and is decoded only once."""
    if isinstance(new_object, kueue.Workload) and "spec" in before and before["spec"] is current.get("spec"):
        rest = codec.decode_as(type_, {**before, "spec": {}})
        return msgspec.structs.replace(rest, spec=new_object.spec)
    return codec.decode_as(type_, before)


def _validate_metadata_shape(object_: Json) -> Iterator[FieldError]:
    metadata = object_.get("metadata")
    if metadata is not None:
        yield from structure.check(_METADATA, codec.without_nulls(metadata), "metadata")


def _validate_shape(current: Json) -> list[FieldError]:
    """Validate by the schema if there is one, and otherwise by decoding the projection."""
    type_ = _kueue_type(current)
    faults = list(structure.check(_schema(type_, convert.CURRENT), current)) if type_ is not None else []
    if not faults and codec.find_type(str(current.get("apiVersion")), str(current.get("kind"))) is not None:
        codec.decode(current)
    return faults


_TEXTS: Json = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "generateName": {"type": "string"},
        "namespace": {"type": "string"},
        "labels": _TEXTS,
        "annotations": _TEXTS,
        "finalizers": {"type": "array", "items": {"type": "string"}},
    },
}


def unknown_fields(object_: Json) -> list[str]:
    """Return the paths of fields that the version of an object of Kueue's kinds does not have. Others have none."""
    type_ = _kueue_type(object_)
    return [] if type_ is None else list(structure.unknown(_schema(type_, object_["apiVersion"]), object_))


def _kueue_type(object_: Json) -> type[Object] | None:
    return _type_of(str(object_.get("apiVersion")), str(object_.get("kind")))


@lru_cache(maxsize=256)
def _type_of(api_version: str, kind: str) -> type[Object] | None:
    type_ = codec.find_type(api_version, kind)
    return type_ if type_ in crds.RESOURCES else None


def _current(object_: Json) -> Json:
    """Convert to the version of the rules, with defaults and without nulls. Other kinds only lose their nulls."""
    tidy = cast(Json, codec.without_nulls(object_))
    return defaults(convert.convert(tidy, convert.CURRENT)) if _kueue_type(tidy) is not None else tidy


@cache
def _schema(type_: type[Object], api_version: str) -> Json:
    return crds.schema_of_version(type_, api_version)


@cache
def _defaults(type_: type[Object], api_version: str) -> Json:
    return structure.defaults_of(_schema(type_, api_version))
