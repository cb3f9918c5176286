"""
Placement of the pod sets of a workload on racks and hosts.

Each topology flavor has a tree of domains. Its leaves are hosts, or domains of the lowest level of the Topology. A pod
set requires or prefers one domain of some level, or is unconstrained. ``forest`` keeps the trees and their usage; this
module places the pod sets of one workload on them.

The engine uses this module as follows. Names without a module are from ``types`` and ``forest``; taints, tolerations,
selector terms and domains are from ``kyu.api``::

    forest = Forest(Gates())
    forest.put_flavor(FlavorInfo("gpu", topology="racks", levels=("rack", HOSTNAME), node_labels={"pool": "gpu"}))
    forest.put_node(NodeInfo("n1", labels, {"cpu": 96000, "pods": 110}, taints, ready=True, unschedulable=False))
    forest.occupy("n1", (("cpu", 500),))            # a bound pod without a topology assignment; inverse: vacate

    request = PlacementRequest("main", "gpu", 4, (("cpu", 1000),), TopologyRequest(required="rack"), PodFilter(...))
    outcome = search.place(forest, [request])                # on the free capacity
    outcome = search.place(forest, [request], empty=True)    # without the usage of workloads with a placement
    outcome.placements["main"].domains                       # the topologyAssignment, or
    failures.render_failure(outcome.failure)                 # the message of the failure

    usages = search.usages(request, outcome.placements["main"])
    forest.add(usages)      # lasting usage of an admitted workload, shared by flavors on equal hosts; inverse: remove
    with forest.scope():    # trial changes of a cycle, reverted on exit, as by mark() and undo(mark)
        forest.release(usages_of_target)
        forest.charge(usages)
        forest.fits(other_usages)   # the test before an admission

* ``requests`` are the requests of one pod by resource, in engine units, before exclusions and transformations. They
  omit ``pods``, keep an explicit zero, and are sorted by name, so that equal requests are equal tuples.
* ``PlacementRequest.count`` is the count after reclaimable pods and partial admission. A count of 0 is skipped.
* ``group`` is the podSetGroupName; the smaller member is the leader. A pod set with an implied request passes
  ``TopologyRequest(unconstrained=True)``. ``PodFilter.merged`` applies the podSetUpdates of Ready checks.
* An admission is charged in the scope of its cycle, and added after the scope is closed. The charge of a pending
  preemptor ends with the scope.
* Changes of nodes and flavors raise AssertionError while a trial change is open.
* ``request.lacks_levels(levels, request)`` excludes a flavor before it is considered.
* ``net_usages`` returns the additional usage of a workload that has a placement, for ``fits`` and ``charge``.
* ``replace`` is the second pass for an unhealthy node; ``place(..., previous=...)`` places an elastic workload.

Called by: engine/flavors/placement.py, engine/nominate.py.
Kueue: pkg/cache/scheduler/tas_flavor_snapshot.go, clusterqueue_snapshot.go, KEP-2724.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kyu.engine.topology import elastic
from kyu.engine.topology.failures import BadGroup, Failure
from kyu.engine.topology.forest import Forest
from kyu.engine.topology.group import Answer, Placed, PlacementGroup, Scene, place_group
from kyu.engine.topology.replace import repair
from kyu.engine.topology.types import DomainUsage, Placement, PlacementRequest


@dataclass(frozen=True, slots=True)
class PlacementOutcome:
    """The placement or failure of each pod set. After one failure the workload is not placed."""

    placements: dict[str, Placement] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)

    @property
    def failure(self) -> Failure | None:
        """The first failure, in order of flavors and pod sets."""
        return next(iter(self.failures.values()), None)


def place(
    forest: Forest,
    requests: Sequence[PlacementRequest],
    *,
    empty: bool = False,
    previous: Mapping[str, Placement] = MappingProxyType({}),
) -> PlacementOutcome:
    """
    Place all pod sets of one workload. Each pod set sees the usage of the pod sets before it.

    ``empty`` ignores the usage of all workloads with a placement. ``previous`` are the placements of the slice that an
    elastic workload replaces. They are kept and charged here, and only additional pods are placed.
    """
    scene = Scene(forest, empty)

    def find(group: PlacementGroup) -> Answer:
        return elastic.grow(scene, group, previous) if previous else place_group(scene, group)

    return _place_each(_groups(requests), find)


def replace(
    forest: Forest, requests: Sequence[PlacementRequest], current: Mapping[str, Placement], unhealthy_node: str
) -> PlacementOutcome:
    """
    Move the pods of an admitted workload from an unhealthy node, in its second pass. The other pods stay.

    The forest keeps the usage of all pods of the workload. A pod set without a current placement (a delayed one) is
    placed as usual. ``unhealthy_node`` is the hostname, the first entry of status.unhealthyNodes.
    """
    scene = Scene(forest, empty=False)

    def find(group: PlacementGroup) -> Answer:
        placed = current.get(group.workers.name)
        return place_group(scene, group) if placed is None else repair(scene, group.workers, placed, unhealthy_node)

    held = [[request] for request in requests if request.name in current]
    delayed = _groups([request for request in requests if request.name not in current])
    return _place_each(sorted([*held, *delayed], key=lambda group: group[0].flavor), find)


def usages(request: PlacementRequest, placed: Placement) -> tuple[DomainUsage, ...]:
    """Return the usage of a placed pod set, by domain."""
    return tuple(DomainUsage(request.flavor, d.values, d.count, request.requests) for d in placed.domains)


def net_usages(request: PlacementRequest, placed: Placement, current: Placement | None) -> tuple[DomainUsage, ...]:
    """Return the usage beyond that of the current admission, by domain. Domains with fewer pods are left out."""
    held = {domain.values: domain.count for domain in current.domains} if current is not None else {}
    return tuple(
        DomainUsage(request.flavor, domain.values, more, request.requests)
        for domain in placed.domains
        if (more := domain.count - held.get(domain.values, 0)) > 0
    )


def _groups(requests: Sequence[PlacementRequest]) -> list[list[PlacementRequest]]:
    """Return the groups of pod sets with pods, sorted by flavor, then by first appearance."""
    members: dict[tuple[str, str, str], list[PlacementRequest]] = {}
    for request in requests:
        if request.count > 0:
            alone = request.name if request.group is None else ""
            members.setdefault((request.flavor, request.group or "", alone), []).append(request)
    return sorted(members.values(), key=lambda group: group[0].flavor)


def _place_each(groups: Sequence[list[PlacementRequest]], find: Callable[[PlacementGroup], Answer]) -> PlacementOutcome:
    """Place the groups in order. After a failure, the other groups of its flavor are skipped."""
    outcome = PlacementOutcome()
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
        assert isinstance(group, PlacementGroup)
        outcome.placements[group.workers.name] = answer.workers
        if group.leader is not None and answer.leader is not None:
            outcome.placements[group.leader.name] = answer.leader
    return outcome


def _group(members: list[PlacementRequest]) -> PlacementGroup | BadGroup:
    """Return pod sets as a group: the smaller one is the leader, and the second one of equal pod sets."""
    if len(members) == 1:
        return PlacementGroup(members[0])
    first, second = members[:2]
    workers, leader = (second, first) if first.count < second.count else (first, second)
    if len(members) > 2 or leader.count != 1:
        return BadGroup(members[0].group or "")
    return PlacementGroup(workers, leader)
