"""
The assignment of gated pods to the domains of their pod set's placement.

Pods of a placed workload are created with a scheduling gate. One update removes the gate and sets the node selector of
the domain. The placement has one slot per pod, domain by domain, and the pod with index r gets slot r. Pods with
neighbouring indexes are therefore close in the network. Without valid indexes, the domains are filled in order. No
domain gets more pods than its count.

Called by: plans/workload/topology.py. Kueue: pkg/controller/tas/topology_ungater.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kyu.engine.topology.types import Placement, Values


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod of the pod set that has not ended. The ``node_selector`` of an ungated pod names its domain."""

    name: str
    labels: Mapping[str, str]
    gated: bool
    node_selector: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ranks:
    """
    The labels that give the index of a pod in its pod set.

    ``offset`` is the number of leaders, if the indexes of workers follow those of the leaders. A pod set of several
    equal jobs has a label with the index of the job, and the number of jobs.
    """

    index_label: str
    offset: int = 0
    sub_group_index_label: str | None = None
    sub_group_count: int = 1


@dataclass(frozen=True, slots=True)
class Ungate:
    """A pod from which to remove the gate, and the node selector to add."""

    pod: str
    node_selector: Mapping[str, str]


def plan_ungating(
    placement: Placement, pods: Sequence[PlacedPod], ranks: Ranks | None, unhealthy_nodes: Collection[str] = ()
) -> list[Ungate]:
    """Return the pods to ungate, sorted by name. Pods of an unhealthy node stay gated until they are placed again."""
    values_by_pod = _by_rank(placement, pods, ranks) if ranks is not None else None
    if values_by_pod is None:
        values_by_pod = _in_order(placement, pods)
    return [
        Ungate(pod, dict(zip(placement.levels, values, strict=True)))
        for pod, values in sorted(values_by_pod.items())
        if values[-1] not in unhealthy_nodes
    ]


def _by_rank(placement: Placement, pods: Sequence[PlacedPod], ranks: Ranks) -> dict[str, Values] | None:
    """
    Return the domain of each gated pod by its rank, or None if the ranks are not valid.

    Ranks are not valid if one is missing, out of range or duplicate, or if an ungated pod is in another domain.
    """
    slots = [domain.values for domain in placement.domains for _ in range(domain.count)]
    pod_by_rank: dict[int, PlacedPod] = {}
    for pod in pods:
        rank = find_rank(pod, ranks, len(slots))
        if rank is None or rank in pod_by_rank:
            return None
        pod_by_rank[rank] = pod
        if not pod.gated and _location(placement, pod) != slots[rank]:
            return None
    return {pod.name: slots[rank] for rank, pod in pod_by_rank.items() if pod.gated}


def find_rank(pod: PlacedPod, ranks: Ranks, size: int) -> int | None:
    """Return the slot of a pod, or None without a valid index."""
    group_size = size // max(1, ranks.sub_group_count) if ranks.sub_group_index_label is not None else size
    index = _number(pod.labels.get(ranks.index_label), at_least=ranks.offset, below=ranks.offset + group_size)
    if index is None:
        return None
    if ranks.sub_group_index_label is None:
        return index - ranks.offset
    group = _number(pod.labels.get(ranks.sub_group_index_label), at_least=0, below=ranks.sub_group_count)
    return None if group is None else index - ranks.offset + group * group_size


def _in_order(placement: Placement, pods: Sequence[PlacedPod]) -> dict[str, Values]:
    """Return the domain of each gated pod: pods sorted by name fill the free slots of the domains in order."""
    running = Counter(_location(placement, pod) for pod in pods if not pod.gated)
    free = [domain.values for domain in placement.domains for _ in range(max(0, domain.count - running[domain.values]))]
    waiting = sorted(pod.name for pod in pods if pod.gated)
    return dict(zip(waiting, free, strict=False))


def _location(placement: Placement, pod: PlacedPod) -> Values:
    return tuple(pod.node_selector.get(level, "") for level in placement.levels)


def _number(text: str | None, *, at_least: int, below: int) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if at_least <= number < below else None
