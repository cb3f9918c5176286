"""
Placing pod sets on racks and hosts.

Think of a tree per topology flavor: its leaves (hosts, or the finest level that the Topology names) have room, and a
pod set asks to stay within one domain of some level, or to prefer that, or just for room somewhere. ``topology_forest``
keeps the trees and who holds what; this file places the pod sets of one workload on them.

The engine uses it like this (names without a module are of ``topology_types``; taints, tolerations, selector terms and
domains are those of ``kyu.api``)::

    forest = topology_forest.Forest(Gates())
    forest.put_flavor(FlavorInfo("gpu", topology="racks", levels=("rack", HOSTNAME), node_labels={"pool": "gpu"}))
    forest.put_node(NodeInfo("n1", labels, {"cpu": 96000, "pods": 110}, taints, ready=True, unschedulable=False))
    forest.occupy("n1", (("cpu", 500),))            # a bound pod that topology does not manage; inverse: vacate

    request = PodSetRequest("main", "gpu", 4, (("cpu", 1000),), TopologyRequest(required="rack"), PodFilter(...))
    outcome = topology.place(forest, [request])              # on what is free now
    outcome = topology.place(forest, [request], empty=True)  # if no workload with a placement ran
    outcome.placements["main"].domains                       # the topologyAssignment, or
    topology_failures.render_failure(outcome.failure)        # why not

    usages = topology.usages(request, outcome.placements["main"])
    forest.add(usages)      # admitted: lasting, seen by flavors on the same hosts; inverse: remove
    with forest.scope():    # a cycle, a search for victims: gone on exit; mark() and undo(mark) do the same by hand
        forest.release(usages_of_victim)
        forest.charge(usages)
        forest.fits(other_usages)   # the check before an entry is admitted

* ``requests`` are the raw requests of one pod (before exclusions and transformations), without ``pods``, by resource in
  engine units; an explicit zero stays in the tuple. Equal requests should be equal tuples: keep them sorted by name.
* ``PodSetRequest.count`` is what is to be placed (reclaimable pods and partial admission applied); 0 is skipped.
* ``group`` is the podSetGroupName; the smaller member is the leader. A pod set with an implied request passes
  ``TopologyRequest(unconstrained=True)``. podSetUpdates of Ready checks: ``PodFilter.merged``.
* Admissions of a cycle: charge in the cycle's scope, and ``add`` them once the scope is closed. What was charged for a
  preemptor, or for an entry that waits, is simply gone with the scope.
* Changes of nodes and flavors are refused (AssertionError) while a what-if is open.
* Before a flavor is considered: ``topology_request.lacks_levels(levels, request)``.
* ``net_usages`` is what a workload that already holds a placement adds, for ``fits`` and ``charge``.
* ``replace`` is the second pass for an unhealthy node; ``place(..., previous=...)`` is the one of an elastic job.

Called by: engine/placing.py, engine/nomination.py.
Kueue: pkg/cache/scheduler/tas_flavor_snapshot.go, clusterqueue_snapshot.go, KEP-2724.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kyu.engine import topology_elastic as elastic
from kyu.engine.topology_failures import BadGroup, Failure
from kyu.engine.topology_forest import Forest
from kyu.engine.topology_group import Answer, Group, Placed, Scene, place_group
from kyu.engine.topology_replace import repair
from kyu.engine.topology_types import DomainUsage, Placement, PodSetRequest


@dataclass(frozen=True, slots=True)
class Outcome:
    """By pod set: where it goes, or why it cannot. One failure means that the workload is not placed."""

    placements: dict[str, Placement] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)

    @property
    def failure(self) -> Failure | None:
        """The first failure, in order of flavors and pod sets."""
        return next(iter(self.failures.values()), None)


def place(
    forest: Forest,
    requests: Sequence[PodSetRequest],
    *,
    empty: bool = False,
    previous: Mapping[str, Placement] = MappingProxyType({}),
) -> Outcome:
    """
    Place all pod sets of one workload, each with what the ones before it take.

    ``empty`` looks at the nodes as if no workload with a placement ran. ``previous`` are the placements of the slice
    that an elastic workload replaces: they are kept and charged here, and only further pods are searched for.
    """
    scene = Scene(forest, empty)

    def find(group: Group) -> Answer:
        return elastic.grow(scene, group, previous) if previous else place_group(scene, group)

    return _place_each(_groups(requests), find)


def replace(
    forest: Forest, requests: Sequence[PodSetRequest], current: Mapping[str, Placement], unhealthy_node: str
) -> Outcome:
    """
    The second pass of an admitted workload: move what is on an unhealthy node, and leave the rest where it is.

    The forest goes on holding all of the workload's pods. A pod set without a current placement (a delayed one) is
    placed as usual. ``unhealthy_node`` is the hostname, the first entry of status.unhealthyNodes.
    """
    scene = Scene(forest, empty=False)

    def find(group: Group) -> Answer:
        placed = current.get(group.workers.name)
        return place_group(scene, group) if placed is None else repair(scene, group.workers, placed, unhealthy_node)

    held = [[request] for request in requests if request.name in current]
    delayed = _groups([request for request in requests if request.name not in current])
    return _place_each(sorted([*held, *delayed], key=lambda group: group[0].flavor), find)


def usages(request: PodSetRequest, placed: Placement) -> tuple[DomainUsage, ...]:
    """What a placed pod set takes, a line per domain."""
    return tuple(DomainUsage(request.flavor, d.values, d.count, request.requests) for d in placed.domains)


def net_usages(request: PodSetRequest, placed: Placement, current: Placement | None) -> tuple[DomainUsage, ...]:
    """The same less the pods that the current admission has in each domain; what it gives up is not returned."""
    held = {domain.values: domain.count for domain in current.domains} if current is not None else {}
    return tuple(
        DomainUsage(request.flavor, domain.values, more, request.requests)
        for domain in placed.domains
        if (more := domain.count - held.get(domain.values, 0)) > 0
    )


def _groups(requests: Sequence[PodSetRequest]) -> list[list[PodSetRequest]]:
    """Pod sets with pods by flavor name, then by first appearance of their group."""
    members: dict[tuple[str, str, str], list[PodSetRequest]] = {}
    for request in requests:
        if request.count > 0:
            alone = request.name if request.group is None else ""
            members.setdefault((request.flavor, request.group or "", alone), []).append(request)
    return sorted(members.values(), key=lambda group: group[0].flavor)


def _place_each(groups: Sequence[list[PodSetRequest]], find: Callable[[Group], Answer]) -> Outcome:
    """The first failure ends its flavor: the groups after it are not looked at."""
    outcome = Outcome()
    failed_flavors: set[str] = set()
    for members in groups:
        if members[0].flavor in failed_flavors:
            continue
        group = _group(members)
        answer: Answer = group if isinstance(group, BadGroup) else find(group)
        if not isinstance(answer, Placed):
            failed_flavors.add(members[0].flavor)
            outcome.failures.update({member.name: answer for member in members})
            continue
        assert isinstance(group, Group)
        outcome.placements[group.workers.name] = answer.workers
        if group.leader is not None and answer.leader is not None:
            outcome.placements[group.leader.name] = answer.leader
    return outcome


def _group(members: list[PodSetRequest]) -> Group | BadGroup:
    """The smaller of two pod sets leads, of equal ones the second."""
    if len(members) == 1:
        return Group(members[0])
    first, second = members[:2]
    workers, leader = (second, first) if first.count < second.count else (first, second)
    if len(members) > 2 or leader.count != 1:
        return BadGroup(members[0].group or "")
    return Group(workers, leader)
