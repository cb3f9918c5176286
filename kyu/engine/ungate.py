"""
Which waiting pod goes to which domain of its pod set's placement.

Pods of a placed workload are created with a scheduling gate; taking it off and naming the domain in the node selector
are one step. Where pods carry an index, pod number r belongs to slot r of the placement, its domains written out one
slot per pod; so neighbours in a job are neighbours in the network. Where the indexes cannot be trusted, the domains are
filled in order instead. Either way no domain ever gets more pods than its count.

Called by: plans/topology.py. Kueue: pkg/controller/tas/topology_ungater.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kyu.engine.topology_types import Placement, Values


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod of the pod set that has not ended. ``node_selector`` tells where one without the gate was sent."""

    name: str
    labels: Mapping[str, str]
    gated: bool
    node_selector: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ranks:
    """
    How a pod's labels tell its place in the pod set.

    Workers whose indexes go on after those of their leaders have the number of leaders as ``offset``. A pod set made of
    several equal jobs has the label of the job's number, and how many there are.
    """

    index_label: str
    offset: int = 0
    sub_group_index_label: str | None = None
    sub_group_count: int = 1


@dataclass(frozen=True, slots=True)
class Ungate:
    """Take the gate off this pod and add this to its node selector."""

    pod: str
    node_selector: Mapping[str, str]


def plan_ungating(
    placement: Placement, pods: Sequence[PlacedPod], ranks: Ranks | None, unhealthy_nodes: Collection[str] = ()
) -> list[Ungate]:
    """The pods to start now, in order of their names. Pods for an unhealthy node wait for another placement."""
    values_by_pod = _by_rank(placement, pods, ranks) if ranks is not None else None
    if values_by_pod is None:
        values_by_pod = _in_order(placement, pods)
    return [
        Ungate(pod, dict(zip(placement.levels, values, strict=True)))
        for pod, values in sorted(values_by_pod.items())
        if values[-1] not in unhealthy_nodes
    ]


def _by_rank(placement: Placement, pods: Sequence[PlacedPod], ranks: Ranks) -> dict[str, Values] | None:
    """None if a rank is missing, out of range or taken twice, or if a running pod is not where its rank says."""
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
    """The slot of a pod, between 0 and the number of slots."""
    group_size = size // max(1, ranks.sub_group_count) if ranks.sub_group_index_label is not None else size
    index = _number(pod.labels.get(ranks.index_label), at_least=ranks.offset, below=ranks.offset + group_size)
    if index is None:
        return None
    if ranks.sub_group_index_label is None:
        return index - ranks.offset
    group = _number(pod.labels.get(ranks.sub_group_index_label), at_least=0, below=ranks.sub_group_count)
    return None if group is None else index - ranks.offset + group * group_size


def _in_order(placement: Placement, pods: Sequence[PlacedPod]) -> dict[str, Values]:
    """Fill the domains one after the other, with what their running pods leave; pods in order of their names."""
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
