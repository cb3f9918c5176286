"""
Conversion of kueue.x-k8s.io objects between versions, JSON to JSON, without loss.

Kyu works with v1beta2. It converts v1beta1 both ways, and v1alpha1 of Cohort and Topology. A table lists the fields
that moved; a few functions do the rest.

Fields that the target version does not have are kept in an annotation of the target, as differences: "if this field
comes back as A, it was B". So a round trip gives the same object, and an edit in the other version wins over the
annotation.

Kueue: apis/kueue/v1beta1/*_conversion.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec

from kyu.api import kueue, placement
from kyu.api.meta import Json

GROUP: Final = kueue.GROUP
CURRENT: Final = f"{GROUP}/{kueue.VERSION}"
V1BETA1: Final = f"{GROUP}/v1beta1"
V1ALPHA1: Final = f"{GROUP}/v1alpha1"
KIND_NAMES: Final = frozenset(type_.KIND.kind for type_ in kueue.KINDS)
ALPHA_KINDS: Final = frozenset({"Cohort", "Topology"})

# kyu.dev/v1beta1-fields on a v1beta2 object holds the fields that only v1beta1 has, and vice versa.
ANNOTATION: Final = "kyu.dev/{}-fields"

Path: TypeAlias = tuple[str | int, ...]
_ABSENT: Final = msgspec.UNSET

# (field of the older version, field of v1beta2)
_MOVED: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = {
    (V1BETA1, "ClusterQueue"): (("spec.cohort", "spec.cohortName"),),
    (V1BETA1, "LocalQueue"): (("status.flavorUsage", "status.flavorsUsage"),),
    (V1BETA1, "MultiKueueCluster"): (
        ("spec.kubeConfig", "spec.clusterSource.kubeConfig"),
        ("spec.clusterProfileRef", "spec.clusterSource.clusterProfileRef"),
    ),
    (V1BETA1, "Workload"): (
        ("status.accumulatedPastExexcutionTimeSeconds", "status.accumulatedPastExecutionTimeSeconds"),
    ),
    (V1ALPHA1, "Cohort"): (("spec.parent", "spec.parentName"),),
}
_ONLY_OLDER: Mapping[str, tuple[str, ...]] = {
    "AdmissionCheck": ("spec.retryDelayMinutes",),
    "ClusterQueue": ("status.pendingWorkloadsStatus", "status.fairSharing.admissionFairSharingStatus"),
    "Cohort": ("status.fairSharing.admissionFairSharingStatus",),
    "LocalQueue": ("status.flavors",),
}
_ONLY_CURRENT: Mapping[str, tuple[str, ...]] = {
    "ClusterQueue": ("spec.concurrentAdmissionPolicy",),
    "MultiKueueConfig": ("spec.quotaManagement",),
    "Workload": ("spec.preemptionGates", "status.preemptionGates"),
}
# priorityClassSource of v1beta1 ⇄ group and kind of priorityClassRef
_PRIORITY_SOURCES = {
    "kueue.x-k8s.io/workloadpriorityclass": (GROUP, "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
_SOURCE_BY_KIND = {group_kind: source for source, group_kind in _PRIORITY_SOURCES.items()}


class ConversionError(ValueError):
    """The object cannot be expressed in the other version."""

    def __init__(self, detail: str, field: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.detail = detail
        self.field = field


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """A remembered field: if ``path`` comes back as ``was``, it really is ``now``. An unset value means that the field
    is absent.
    """

    path: Path
    was: Any = _ABSENT
    now: Any = _ABSENT


def versions(kind: str) -> tuple[str, ...]:
    """Return all apiVersions of a kind of kueue.x-k8s.io, the current one first."""
    if kind not in KIND_NAMES:
        return ()
    return (CURRENT, V1BETA1, V1ALPHA1) if kind in ALPHA_KINDS else (CURRENT, V1BETA1)


def current_api_version(api_version: str, kind: str) -> str:
    """Return the version that Kyu works with, for every version that can be converted. Others are returned unchanged.
    """
    return CURRENT if api_version in versions(kind) else api_version


def convert(object_: Json, api_version: str) -> Json:
    """Convert the object to another version. The given object is not changed, but parts of it may be shared."""
    source, kind = str(object_.get("apiVersion", "")), str(object_.get("kind", ""))
    if source == api_version:
        return object_
    for version in (source, api_version):
        if version not in versions(kind):
            raise ConversionError(
                f"there is no conversion of {kind!r} from {source!r} to {api_version!r}", "apiVersion"
            )
    if CURRENT not in (source, api_version):
        return convert(convert(object_, CURRENT), api_version)
    original, remembered = _take_annotation(object_, api_version)
    converted = _restore(_plain(original, source, api_version, kind), remembered)
    back = _plain(converted, api_version, source, kind)
    lost = [difference for difference in _differences(back, original, ()) if not _is_placement(difference.path)]
    return _put_annotation(converted, source, lost)


def _plain(object_: Json, source: str, target: str, kind: str) -> Json:
    """Convert between v1beta2 and an older version, without the annotation."""
    up = target == CURRENT
    older = source if up else target
    for moved in _MOVED.get((older, kind), ()):
        object_ = _move(object_, *(map(_path, moved if up else reversed(moved))))
    for name in (_ONLY_OLDER if up else _ONLY_CURRENT).get(kind, ()):
        object_ = _set(object_, _path(name), _ABSENT)
    if change := _CHANGES.get((kind, up)):
        object_ = change(object_)
    return {**object_, "apiVersion": target}


# ClusterQueue


def _cluster_queue_up(object_: Json) -> Json:
    names = _get(object_, ("spec", "admissionChecks"))
    if isinstance(names, list):
        object_ = _set(object_, ("spec", "admissionChecks"), _ABSENT)
        if names and _get(object_, ("spec", "admissionChecksStrategy")) is _ABSENT:
            rules = [{"name": name} for name in names]
            object_ = _set(object_, ("spec", "admissionChecksStrategy"), {"admissionChecks": rules})
    for field, old in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
        path = ("spec", "flavorFungibility", field)
        if _get(object_, path) == old:
            object_ = _set(object_, path, "MayStopSearch")
    return object_


# Workload


def _workload_up(object_: Json) -> Json:
    name, source = _get(object_, ("spec", "priorityClassName")), _get(object_, ("spec", "priorityClassSource"))
    for field in ("priorityClassName", "priorityClassSource"):
        object_ = _set(object_, ("spec", field), _ABSENT)
    if isinstance(source, str) and source in _PRIORITY_SOURCES and name is not _ABSENT:
        group, kind = _PRIORITY_SOURCES[source]
        object_ = _set(object_, ("spec", "priorityClassRef"), {"group": group, "kind": kind, "name": name})
    return _each_assignment(object_, _assignment_up)


def _workload_down(object_: Json) -> Json:
    reference = _get(object_, ("spec", "priorityClassRef"))
    if isinstance(reference, dict):
        object_ = _set(object_, ("spec", "priorityClassRef"), _ABSENT)
        source = _SOURCE_BY_KIND.get((reference.get("group", ""), reference.get("kind", "")))
        if source is not None and "name" in reference:
            object_ = _set(object_, ("spec", "priorityClassName"), reference["name"])
            object_ = _set(object_, ("spec", "priorityClassSource"), source)
    for index in range(_length(object_, ("spec", "podSets"))):
        path: Path = ("spec", "podSets", index, "topologyRequest", "podsetSliceRequiredTopologyConstraints")
        object_ = _set(object_, path, _ABSENT)
    return _each_assignment(object_, _assignment_down)


def _each_assignment(object_: Json, change: Callable[[Json, str], Json]) -> Json:
    for index in range(_length(object_, ("status", "admission", "podSetAssignments"))):
        path: Path = ("status", "admission", "podSetAssignments", index, "topologyAssignment")
        assignment = _get(object_, path)
        if isinstance(assignment, dict):
            field = f"status.admission.podSetAssignments[{index}].topologyAssignment"
            object_ = _set(object_, path, change(assignment, field))
    return object_


def _assignment_up(assignment: Json, field: str) -> Json:
    """Convert a list of domains to slices."""
    if "domains" not in assignment:
        return assignment
    try:
        domains = msgspec.convert(assignment["domains"], list[placement.Domain])
        levels = msgspec.convert(assignment.get("levels", []), list[str])
        if any(len(domain.values) != len(levels) for domain in domains):
            raise ValueError("each domain needs one value for each level")
        stored = msgspec.json.decode(msgspec.json.encode(placement.compress(levels, domains)))
    except ValueError as error:
        raise ConversionError(str(error), f"{field}.domains") from None
    return {**{key: value for key, value in assignment.items() if key != "domains"}, **stored}


def _assignment_down(assignment: Json, field: str) -> Json:
    """Convert slices to a list of domains."""
    if "slices" not in assignment:
        return assignment
    try:
        domains = placement.domains(msgspec.convert(assignment, kueue.TopologyAssignment))
    except ValueError as error:
        raise ConversionError(str(error), f"{field}.slices") from None
    rest = {key: value for key, value in assignment.items() if key != "slices"}
    return {**rest, "domains": [{"values": list(domain.values), "count": domain.count} for domain in domains]}


def _is_placement(path: Path) -> bool:
    """Return whether the path is inside a topology assignment. Its slices can differ and mean the same domains."""
    return path[:3] == ("status", "admission", "podSetAssignments") and path[4:5] == ("topologyAssignment",)


_CHANGES: Mapping[tuple[str, bool], Callable[[Json], Json]] = {
    ("ClusterQueue", True): _cluster_queue_up,
    ("Workload", True): _workload_up,
    ("Workload", False): _workload_down,
}


# The annotation


def _take_annotation(object_: Json, api_version: str) -> tuple[Json, list[Difference]]:
    """Remove the annotation of ``api_version`` from the object. Return both."""
    name = ANNOTATION.format(api_version.rpartition("/")[2])
    note = _get(object_, ("metadata", "annotations", name))
    if note is _ABSENT:
        return object_, []
    object_ = _set(object_, ("metadata", "annotations", name), _ABSENT)
    if not _get(object_, ("metadata", "annotations")):
        object_ = _set(object_, ("metadata", "annotations"), _ABSENT)
    try:
        return object_, msgspec.json.decode(note, type=list[Difference])
    except (msgspec.DecodeError, TypeError):
        return object_, []  # an edited annotation has no meaning any more


def _restore(object_: Json, remembered: list[Difference]) -> Json:
    """Put back the remembered fields. Sibling fields may express one value in two ways, so they come back together or
    not at all.
    """
    for _, group in groupby(remembered, key=lambda difference: difference.path[:-1]):
        differences = list(group)
        if all(_get(object_, difference.path) == difference.was for difference in differences):
            for difference in differences:
                object_ = _set(object_, difference.path, difference.now)
    return object_


def _put_annotation(object_: Json, api_version: str, lost: list[Difference]) -> Json:
    if not lost:
        return object_
    name = ANNOTATION.format(api_version.rpartition("/")[2])
    annotated: Json = _set(object_, ("metadata", "annotations", name), msgspec.json.encode(lost).decode())
    return annotated


def _differences(was: Any, now: Any, path: Path) -> Iterator[Difference]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            yield from _differences(was.get(key, _ABSENT), now.get(key, _ABSENT), (*path, key))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (before, after) in enumerate(zip(was, now, strict=True)):
            yield from _differences(before, after, (*path, index))
    elif was is not now and was != now:
        yield Difference(path, was, now)


# Paths. A path that does not exist, or crosses a value of another type, has no effect.


def _path(name: str) -> Path:
    return tuple(name.split("."))


def _get(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step, _ABSENT)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return _ABSENT
    return value


def _set(value: Any, path: Path, new: Any) -> Any:
    """Return a copy with ``new`` at the path. The rest is shared, and missing objects on the path are created."""
    step, rest = path[0], path[1:]
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        changed = _set(value[step], rest, new) if rest else new
        return [*value[:step], changed, *value[step + 1 :]]
    if not isinstance(value, dict) or not isinstance(step, str):
        return value
    if step not in value and new is _ABSENT:
        return value
    if rest:
        child = value.get(step)
        return {**value, step: _set({} if child is None else child, rest, new)}
    if new is _ABSENT:
        return {key: item for key, item in value.items() if key != step}
    return {**value, step: new}


def _move(object_: Json, source: Path, target: Path) -> Json:
    value = _get(object_, source)
    if value is _ABSENT:
        return object_
    object_ = _set(_set(object_, source, _ABSENT), target, value)
    # Remove the object that held the field if it is empty now.
    parent = source[:-1]
    return _set(object_, parent, _ABSENT) if len(parent) > 1 and _get(object_, parent) == {} else object_


def _length(object_: Json, path: Path) -> int:
    value = _get(object_, path)
    return len(value) if isinstance(value, list) else 0
