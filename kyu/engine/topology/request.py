"""
The resolution of a topology request to the levels of one flavor.

Called by: engine/topology/group.py, engine/topology/replace.py; ``lacks_levels`` by engine/flavors/eligibility.py,
before a flavor is considered.
Kueue: tas_flavor_snapshot.go, findTopologyAssignment (its first part), flavorassigner/tas_flavorassigner.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from kyu.engine.topology import failures
from kyu.engine.topology.types import Gates, SliceLayer, TopologyRequest


class Reach(Enum):
    """The limit on the spread of the pods over domains."""

    REQUIRED = auto()  # one domain of the level
    PREFERRED = auto()  # one domain of the level, else of a coarser one, else several at the top
    UNCONSTRAINED = auto()  # several domains of the level


@dataclass(frozen=True, slots=True)
class Ask:
    """A topology request resolved to level numbers, for some count of pods."""

    reach: Reach
    level: int
    layers: tuple[SliceLayer, ...]  # outermost first, as requested; empty without slices
    slice_level: int
    slice_size: int
    units: tuple[int, ...]  # by level: the size of the inner slice
    slices: int
    best_fit: bool


def lacks_levels(levels: tuple[str, ...], request: TopologyRequest) -> bool:
    """Return whether the flavor lacks a requested level, or the request names no level and is not unconstrained."""
    wanted = {request.required, request.preferred, request.slice_level, *(layer.level for layer in request.layers)}
    wanted.discard(None)
    if not wanted:
        return not request.unconstrained
    return not wanted.issubset(levels)


def resolve(levels: tuple[str, ...], request: TopologyRequest, count: int, gates: Gates) -> Ask | failures.Failure:
    layers = _layers(levels, request)
    if isinstance(layers, failures.NoSliceSize):
        return layers
    reach, key = _level(levels, request)
    if key not in levels:
        return failures.NoLevel(key)
    level = levels.index(key)
    for layer in layers:
        if layer.level not in levels:
            return failures.NoSliceLevel(layer.level)
    slice_level = levels.index(layers[0].level) if layers else len(levels) - 1
    slice_size = layers[0].size if layers else 1
    if slice_level < level:
        return failures.SliceAboveLevel(levels[slice_level], key)
    units = _units(levels, layers)
    if not isinstance(units, tuple):
        return units
    best_fit = reach is not Reach.UNCONSTRAINED or not gates.mixed_profile
    return Ask(reach, level, layers, slice_level, slice_size, units, count // slice_size, best_fit)


def _layers(levels: tuple[str, ...], request: TopologyRequest) -> tuple[SliceLayer, ...] | failures.NoSliceSize:
    layers = request.layers
    if not layers and request.slice_size is not None:
        layers = (SliceLayer(request.slice_level or levels[-1], request.slice_size),)
    if any(layer.size < 1 for layer in layers) or (request.slice_level is not None and not layers):
        return failures.NoSliceSize()
    return layers


def _level(levels: tuple[str, ...], request: TopologyRequest) -> tuple[Reach, str]:
    """Return the reach and its level. A request for slices only may use all domains, so it starts at the top level."""
    if request.required is not None:
        return Reach.REQUIRED, request.required
    if request.preferred is not None:
        return Reach.PREFERRED, request.preferred
    if request.slice_level is not None or request.layers:
        return Reach.UNCONSTRAINED, levels[0]
    return Reach.UNCONSTRAINED, levels[-1]


def _units(
    levels: tuple[str, ...], layers: tuple[SliceLayer, ...]
) -> tuple[int, ...] | failures.LayerNotFiner | failures.LayerSizeNotDivisor:
    """Return the unit of each level: an inner layer sets it for its own level and up to the outer layer."""
    units = [1] * len(levels)
    for outer, inner in pairwise(layers):
        if levels.index(inner.level) <= levels.index(outer.level):
            return failures.LayerNotFiner(inner.level, outer.level)
        if outer.size % inner.size:
            return failures.LayerSizeNotDivisor(inner.size, outer.size)
        for level in range(levels.index(outer.level) + 1, levels.index(inner.level) + 1):
            units[level] = inner.size
    return tuple(units)
