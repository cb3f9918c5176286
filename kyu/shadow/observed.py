"""
The decisions of another scheduler, as Workload objects show them.

Called by: shadow/comparison.py.
Kueue: pkg/workload/workload.go (the conditions), pkg/scheduler/preemption (the message).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from kyu.api import placement
from kyu.api.meta import find_condition, is_true
from kyu.api.placement import Domain
from kyu.api.workloads import EVICTED, FINISHED, PREEMPTED, QUOTA_RESERVED, Workload
from kyu.engine.workloads import AssignedPodSet

# Count, flavors by resource, and domains with their pods.
PodSetPlace: TypeAlias = tuple[int | None, tuple[tuple[str, str], ...], frozenset[tuple[tuple[str, ...], int]]]
Assignment: TypeAlias = dict[str, PodSetPlace]
_PREEMPTOR = re.compile(r"\(UID: ([^,)]+)")


class Reserved(NamedTuple):
    """A workload has got quota."""

    cluster_queue: str
    assignment: Assignment


class Preempted(NamedTuple):
    """A workload is evicted for another one."""

    preemptor_uid: str
    reason: str


def new_reservation(old: Workload | None, new: Workload | None) -> Reserved | None:
    """Return the quota that the change gives to a workload that was seen without before."""
    if old is None or new is None or _holds_quota(old) or not _holds_quota(new):
        return None
    admission = new.status.admission
    assert admission is not None
    assignment: Assignment = {}
    for one in admission.pod_set_assignments:
        domains = () if one.topology_assignment is None else placement.domains(one.topology_assignment)
        assignment[one.name] = _place(one.count, one.flavors, domains)
    return Reserved(admission.cluster_queue, assignment)


def new_preemption(old: Workload | None, new: Workload | None) -> Preempted | None:
    """Return the preemption that the change tells."""
    if old is None or new is None or _is_preempted(old) or not _is_preempted(new):
        return None
    found = find_condition(new.status.conditions, PREEMPTED)
    if found is None:
        return None
    named = _PREEMPTOR.search(found.message or "")
    return Preempted(named.group(1) if named else "", found.reason)


def is_over(workload: Workload | None) -> bool:
    return workload is None or is_true(workload.status.conditions, FINISHED)


def assignment_of(pod_sets: Iterable[AssignedPodSet]) -> Assignment:
    """Return an assignment of the engine in the form of an observed one."""
    return {
        one.name: _place(one.count, one.flavors, () if one.placement is None else one.placement.domains)
        for one in pod_sets
    }


def _place(count: int | None, flavors: Mapping[str, str], domains: Iterable[Domain]) -> PodSetPlace:
    return count, tuple(sorted(flavors.items())), frozenset((domain.values, domain.count) for domain in domains)


def without_places(assignment: Assignment) -> dict[str, tuple[int | None, tuple[tuple[str, str], ...]]]:
    """Return counts and flavors alone."""
    return {name: (count, flavors) for name, (count, flavors, _) in assignment.items()}


def render(assignment: Assignment) -> str:
    """Return one line with counts, flavors and nodes by pod set."""
    parts: list[str] = []
    for name, (count, flavors, domains) in assignment.items():
        used = ", ".join(f"{resource} from {flavor}" for resource, flavor in flavors) or "no quota"
        at = ", ".join(f"{'/'.join(values)} ({pods})" for values, pods in sorted(domains))
        parts.append(f"{count} of {name}: {used}" + (f" at {at}" if at else ""))
    return "; ".join(parts)


def _holds_quota(workload: Workload) -> bool:
    return is_true(workload.status.conditions, QUOTA_RESERVED) and workload.status.admission is not None


def _is_preempted(workload: Workload) -> bool:
    found = find_condition(workload.status.conditions, EVICTED)
    return found is not None and found.status == "True" and found.reason == "Preempted"
