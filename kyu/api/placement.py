"""
Topology assignments as a list of domains, and the compressed form that a Workload stores.

A domain has a value for each level of the topology and a number of pods. The compressed form stores a value once if all
domains share it. Otherwise it stores the common prefix and suffix apart, so that thousands of hosts fit in one object.

Kueue: pkg/util/tas, apis/kueue/v1beta2/workload_types.go
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kyu.api.workloads import (
    TopologyAssignment,
    TopologyAssignmentSlice,
    TopologyAssignmentSliceLevelIndividualValues,
    TopologyAssignmentSliceLevelValues,
    TopologyAssignmentSlicePodCounts,
)

MAX_DOMAINS_PER_SLICE = 100_000


class Domain(msgspec.Struct, frozen=True):
    """One domain: its values from the widest level to the narrowest, and its number of pods."""

    values: tuple[str, ...]
    count: int


def domains(assignment: TopologyAssignment) -> tuple[Domain, ...]:
    """Return all domains in their stored order. Raises ValueError if the lengths in a slice do not agree."""
    return tuple(domain for part in assignment.slices for domain in _slice_domains(part))


def compress(levels: Sequence[str], places: Sequence[Domain]) -> TopologyAssignment:
    """Compress the domains; ``domains`` gives them back in the same order."""
    starts = range(0, len(places), MAX_DOMAINS_PER_SLICE)
    slices = tuple(_slice(places[start : start + MAX_DOMAINS_PER_SLICE]) for start in starts)
    return TopologyAssignment(levels=tuple(levels), slices=slices)


def _slice_domains(part: TopologyAssignmentSlice) -> Iterator[Domain]:
    size = part.domain_count
    counts = part.pod_counts
    columns = [_column(values, size) for values in part.values_per_level]
    pods = counts.individual if counts.universal is None else (counts.universal,) * size
    if len(pods) != size:
        raise ValueError(f"podCounts has {len(pods)} entries for {size} domains")
    for index in range(size):
        yield Domain(tuple(column[index] for column in columns), pods[index])


def _column(values: TopologyAssignmentSliceLevelValues, size: int) -> Sequence[str]:
    if values.individual is None:
        return (values.universal or "",) * size
    individual = values.individual
    if len(individual.roots) != size:
        raise ValueError(f"roots has {len(individual.roots)} entries for {size} domains")
    prefix, suffix = individual.prefix or "", individual.suffix or ""
    return [f"{prefix}{root}{suffix}" for root in individual.roots]


def _slice(places: Sequence[Domain]) -> TopologyAssignmentSlice:
    columns = zip(*(place.values for place in places), strict=True)
    counts = tuple(place.count for place in places)
    same = len(set(counts)) == 1
    return TopologyAssignmentSlice(
        domain_count=len(places),
        values_per_level=tuple(_compress_column(column) for column in columns),
        pod_counts=TopologyAssignmentSlicePodCounts(universal=counts[0])
        if same
        else TopologyAssignmentSlicePodCounts(individual=counts),
    )


def _compress_column(column: Sequence[str]) -> TopologyAssignmentSliceLevelValues:
    # The smallest and the largest text differ first where any two differ first: these two suffice.
    low, high = min(column), max(column)
    if low == high:
        return TopologyAssignmentSliceLevelValues(universal=low)
    prefix = _shared_beginning(low, high)
    reversed_rests = [text[len(prefix) :][::-1] for text in column]
    suffix = _shared_beginning(min(reversed_rests), max(reversed_rests))[::-1]
    return TopologyAssignmentSliceLevelValues(
        individual=TopologyAssignmentSliceLevelIndividualValues(
            roots=tuple(text[len(prefix) : len(text) - len(suffix)] for text in column),
            prefix=prefix or None,
            suffix=suffix or None,
        )
    )


def _shared_beginning(a: str, b: str) -> str:
    length = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        length += 1
    return a[:length]
