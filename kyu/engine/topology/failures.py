"""
The reasons for which a pod set cannot be placed, and the function that renders them as messages.

Called by: engine/reasons.py (the messages); built by engine/topology/placement.py and its neighbours.
Kueue: pkg/cache/scheduler/tas_flavor_snapshot.go, notFitMessage and its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from kyu.engine.topology.types import Values


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The number of leaves that can host no pod, by reason, of a ``total``. Each leaf is counted once."""

    total: int
    counts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """A request of which only ``fitting`` of ``wanted`` slices fit. A slice of size 1 is a pod."""

    topology: str
    fitting: int
    wanted: int
    slice_size: int
    exclusions: Exclusions


@dataclass(frozen=True, slots=True)
class LayerFit:
    level: str
    fitting: int
    wanted: int


@dataclass(frozen=True, slots=True)
class LayersDoNotFit:
    """A request with several slice layers that does not fit, and how much of each layer fits in the best domain."""

    topology: str
    layers: tuple[LayerFit, ...]
    exclusions: Exclusions


@dataclass(frozen=True, slots=True)
class FlavorUnknown:
    flavor: str


@dataclass(frozen=True, slots=True)
class NoDomains:
    """A flavor without a usable node."""

    level: str


@dataclass(frozen=True, slots=True)
class NoLevel:
    level: str


@dataclass(frozen=True, slots=True)
class NoSliceLevel:
    level: str


@dataclass(frozen=True, slots=True)
class NoSliceSize:
    pass


@dataclass(frozen=True, slots=True)
class SliceAboveLevel:
    slice_level: str
    level: str


@dataclass(frozen=True, slots=True)
class LayerNotFiner:
    level: str
    previous: str


@dataclass(frozen=True, slots=True)
class LayerSizeNotDivisor:
    size: int
    previous: int


@dataclass(frozen=True, slots=True)
class BadGroup:
    """A pod set group that is not a leader of one pod with its workers."""

    group: str


@dataclass(frozen=True, slots=True)
class DomainGone:
    """A domain of the current placement that the tree no longer has, so that the placement cannot be kept."""

    values: Values


@dataclass(frozen=True, slots=True)
class ElasticNotUnconstrained:
    """A topology request that an elastic workload may not have: a growing slice may need further domains."""

    wish: Literal["required", "preferred"]


@dataclass(frozen=True, slots=True)
class UpdateConflict:
    """An admission check that requires another value of a node selector than the pods have."""

    pod_set: str
    key: str
    value: str
    wanted: str


Failure: TypeAlias = (
    DoesNotFit
    | LayersDoNotFit
    | FlavorUnknown
    | NoDomains
    | NoLevel
    | NoSliceLevel
    | NoSliceSize
    | SliceAboveLevel
    | LayerNotFiner
    | LayerSizeNotDivisor
    | BadGroup
    | DomainGone
    | ElasticNotUnconstrained
    | UpdateConflict
)


def render_failure(failure: Failure) -> str:
    """Return the message of a failure for conditions and events."""
    match failure:
        case DoesNotFit():
            return _shortage(failure) + _excluded(failure.exclusions)
        case LayersDoNotFit():
            fits = "".join(f"; {f.fitting}/{f.wanted} slice(s) fit on level {f.level}" for f in failure.layers)
            return f'topology "{failure.topology}" doesn\'t allow to fit{fits}' + _excluded(failure.exclusions)
        case FlavorUnknown():
            return f'Flavor "{failure.flavor}" information missing in TAS cache'
        case NoDomains():
            return f"no topology domains at level: {failure.level}"
        case NoLevel():
            return f"no requested topology level: {failure.level}"
        case NoSliceLevel():
            return f"no requested topology level for slices: {failure.level}"
        case NoSliceSize():
            return "slice topology requested, but slice size not provided"
        case SliceAboveLevel():
            return f"podset slice topology {failure.slice_level} is above the podset topology {failure.level}"
        case LayerNotFiner():
            return f"additional slice layer topology {failure.level} must be at a lower level than {failure.previous}"
        case LayerSizeNotDivisor():
            return f"additional slice layer size {failure.size} must evenly divide parent layer size {failure.previous}"
        case BadGroup():
            return f'pod set group "{failure.group}" is not a leader of one pod with its workers'
        case DomainGone():
            stale = " ".join(failure.values)
            return (
                "Cannot replace the node, because the existing topologyAssignment is invalid, "
                f"as it contains the stale domain [{stale}]"
            )
        case ElasticNotUnconstrained():
            return f"{failure.wish} topology is not supported with ElasticJobsViaWorkloadSlices"
        case UpdateConflict(pod_set, key, value, wanted):
            return (
                f"invalid podSetUpdate for PodSet {pod_set}, error: invalid admission check PodSetUpdate: "
                f"conflict for nodeSelector: conflict for key={key}, value1={value}, value2={wanted}"
            )
        case _:
            assert_never(failure)


def _shortage(failure: DoesNotFit) -> str:
    unit = "pod" if failure.slice_size == 1 else "slice"
    if failure.fitting == 0:
        return f'topology "{failure.topology}" doesn\'t allow to fit any of {failure.wanted} {unit}(s)'
    return f'topology "{failure.topology}" allows to fit only {failure.fitting} out of {failure.wanted} {unit}(s)'


def _excluded(exclusions: Exclusions) -> str:
    if not exclusions.counts:
        return ""
    entries = sorted(f"{what}: {count}" for what, count in exclusions.counts)
    return f". Total nodes: {exclusions.total}; excluded: {', '.join(entries)}"
