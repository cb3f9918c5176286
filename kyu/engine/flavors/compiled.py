"""
The flavors that a request shape could get in a ClusterQueue, compiled to charges on quota nodes.

For pod sets that share their flavors, and for each resource group, the eligible flavors are listed in order. Each
flavor has its charges over all resources of the group. Flavors that do not match (taints, selectors, affinity,
topology) keep their reason for messages. A compiled assignment depends on specs only, so it is kept until the
ClusterQueue, one of its flavors or its cohort changes.

Called by: engine/nominate.py, engine/cycle.py, engine/explain.py. Calls: engine/flavors/eligibility.py.
Kueue: pkg/scheduler/flavorassigner/flavorassigner.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import prod
from typing import TypeAlias

from kyu.engine.flavors import eligibility
from kyu.engine.quota.amounts import QuotaNode
from kyu.engine.reasons import FlavorReason, FlavorSkipped, ResourceNotCovered, SliceFlavorMismatch
from kyu.engine.request_shape import PodSetShape, RequestShape
from kyu.engine.state import State
from kyu.engine.tree import Flavor, FlavorGroup, Queue
from kyu.engine.workloads import AssignedPodSet, ReservedWorkload

PODS = "pods"
# The most combinations of flavors that are listed in advance for one request shape.
MOST_WAYS = 64
# The most compiled assignments that are kept.
MOST_KEPT = 8_192
Charge: TypeAlias = tuple[QuotaNode, int]
Pinned: TypeAlias = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class FlavorOption:
    """An eligible flavor of a resource group, with what the pod sets together charge to it."""

    index: int
    """The place of the flavor in the resource group."""
    flavor: str
    charges: tuple[Charge, ...]
    mismatches: tuple[SliceFlavorMismatch, ...] = ()
    """The elastic job runs on other flavors, so that the flavor never fits."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGroup:
    """One resource group, for pod sets that share their flavors."""

    resource: str
    """The resource for which a scan of the group begins."""
    resources: tuple[str, ...]
    """In the order of the charges."""
    flavors: int
    options: tuple[FlavorOption, ...]
    rejected: tuple[tuple[int, FlavorReason], ...]
    """The flavors that are not eligible, by their place in the group."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPodSet:
    """A pod set with its requests for a number of pods."""

    index: int
    shape: PodSetShape
    count: int
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class PodSetsTogether:
    """Pod sets that must get the same flavors; most pod sets stand alone."""

    pod_sets: tuple[CompiledPodSet, ...]
    groups: tuple[CompiledGroup, ...]
    uncovered: ResourceNotCovered | None
    """The ClusterQueue does not cover this resource. The groups before it are scanned first."""
    is_last: bool
    """Kueue leaves out the pod sets after one whose requests are all uncounted."""
    bare: bool
    """Some pod set has no covered request of its own."""


@dataclass(slots=True, eq=False)
class CompiledAssignment:
    """All flavors that a request shape could get in a ClusterQueue, with a number of pods for each pod set."""

    together: tuple[PodSetsTogether, ...]
    ways: tuple[tuple[Charge, ...], ...] | None
    """For each combination of flavors, the charges that it needs at least; None if that depends on the workload."""
    early_stops: tuple[tuple[Charge, ...], ...]
    """Charges of flavors at which a scan may stop before the last flavor, where several scans make the assignment."""
    roots: tuple[QuotaNode, ...] = ()
    """The roots of all quota nodes that may be charged."""
    assigned: dict[tuple[FlavorOption, ...], tuple[tuple[AssignedPodSet, ...], tuple[Charge, ...]]] = field(
        default_factory=dict
    )
    """The pod set assignments that were made so far, by the chosen flavors."""


def changes_of(compiled: CompiledAssignment) -> int:
    """Return a number that grows with every change that the outcome of a compiled assignment depends on."""
    return sum([root.changes for root in compiled.roots])


def find_compiled(
    state: State, queue: Queue, shape: RequestShape, counts: Sequence[int] | None = None, allowed: str = ""
) -> CompiledAssignment:
    """Return the compiled assignment of a request shape, from the cache if it is there."""
    kept = state.compiled_assignments
    key = (queue, shape, allowed, None if counts is None else tuple(counts))
    found = kept.get(key)
    if found is None:
        if len(kept) >= MOST_KEPT:
            kept.clear()
        full = [pod_set.count for pod_set in shape.pod_sets] if counts is None else counts
        found = kept[key] = Compiler(state, queue, shape, full, allowed).compile()
    return found


@dataclass(slots=True)
class Compiler:
    """Compiles one request shape for one ClusterQueue."""

    state: State
    queue: Queue
    shape: RequestShape
    counts: Sequence[int]
    allowed: str = ""
    """The only flavors that a variant of a workload may use, separated by commas."""
    pinned: Pinned | None = None
    """Flavors to stay with, by pod set and resource."""
    replaced: ReservedWorkload | None = None
    """The slice of the same job whose quota the workload takes over."""

    def compile(self) -> CompiledAssignment:
        """Compile the request shape."""
        counts_pods = PODS in self.queue.group_by_resource
        pod_sets: list[CompiledPodSet] = []
        for index, shape in enumerate(self.shape.pod_sets):
            count = self.counts[index]
            requests = shape.requests(count)
            pod_sets.append(CompiledPodSet(index, shape, count, {**requests, PODS: count} if counts_pods else requests))
        together = tuple([self._compile_together([pod_sets[i] for i in indices]) for indices in self.shape.groups])
        return CompiledAssignment(together, self._ways(together), _early_stops(together), _roots(together))

    def _compile_together(self, pod_sets: list[CompiledPodSet]) -> PodSetsTogether:
        requests = _sum_requests(pod_sets)
        groups: list[CompiledGroup] = []
        covered: set[str] = set()
        uncovered: ResourceNotCovered | None = None
        for resource in sorted(requests, key=_place_in_requests):
            if resource in covered:
                continue
            group = self.queue.group_by_resource.get(resource)
            if group is not None:
                compiled = self._compile_group(group, resource, requests, pod_sets)
                covered.update(compiled.resources)
                groups.append(compiled)
            elif requests[resource] != 0 and not self.state.options.ignore_undeclared:
                uncovered = ResourceNotCovered(resource)
                break
        without_flavor = [not any(resource in covered for resource in p.requests) for p in pod_sets]
        is_last = any(bare and p.requests for bare, p in zip(without_flavor, pod_sets, strict=True))
        return PodSetsTogether(tuple(pod_sets), tuple(groups), uncovered, is_last, any(without_flavor))

    def _compile_group(
        self, group: FlavorGroup, resource: str, requests: Mapping[str, int], pod_sets: list[CompiledPodSet]
    ) -> CompiledGroup:
        resources = tuple([name for name in requests if name in group.resources])
        options: list[FlavorOption] = []
        rejected: list[tuple[int, FlavorReason]] = []
        for index, flavor in enumerate(group.flavors):
            reason = self._why_skipped(flavor, resource, pod_sets) or self._why_not(group, flavor, pod_sets)
            if reason is not None:
                rejected.append((index, reason))
            elif self.replaced is None:
                charges = tuple([(flavor.quotas[name], requests[name]) for name in resources])
                options.append(FlavorOption(index, flavor.name, charges))
            else:
                options.append(self._compile_elastic(index, flavor, resources, requests, pod_sets, self.replaced))
        return CompiledGroup(resource, resources, len(group.flavors), tuple(options), tuple(rejected))

    def _why_skipped(self, flavor: Flavor, resource: str, pod_sets: list[CompiledPodSet]) -> FlavorSkipped | None:
        if self.pinned:
            pinned = [self.pinned.get(pod_set.shape.name, {}).get(resource) for pod_set in pod_sets]
            if flavor.name not in pinned:
                return FlavorSkipped(flavor.name, resource)
        if self.allowed and flavor.name not in self.allowed.split(","):
            return FlavorSkipped(flavor.name)
        return None

    def _why_not(self, group: FlavorGroup, flavor: Flavor, pod_sets: list[CompiledPodSet]) -> FlavorReason | None:
        for pod_set in pod_sets:
            problem = eligibility.why_not(self.state, self.queue, group, flavor, pod_set.shape)
            if problem is not None:
                return problem
        return None

    @staticmethod
    def _compile_elastic(
        index: int,
        flavor: Flavor,
        resources: tuple[str, ...],
        requests: Mapping[str, int],
        pod_sets: list[CompiledPodSet],
        replaced: ReservedWorkload,
    ) -> FlavorOption:
        """Charge only what a slice needs beyond the slice that it replaces, on the flavors of that slice."""
        held = {assigned.name: assigned for assigned in replaced.assigned}
        charges: list[Charge] = []
        mismatches: list[SliceFlavorMismatch] = []
        for resource in resources:
            amount = requests[resource]
            slices = [held.get(pod_set.shape.name) for pod_set in pod_sets]
            wrong = [had for s in slices if (had := s.flavors.get(resource, "") if s else "") != flavor.name]
            if wrong:
                mismatches.append(SliceFlavorMismatch(flavor.name, wrong[0]))
            else:
                amount -= sum(s.usage.get(resource, 0) for s in slices if s is not None)
            charges.append((flavor.quotas[resource], amount))
        return FlavorOption(index, flavor.name, tuple(charges), tuple(mismatches))

    def _ways(self, together: Sequence[PodSetsTogether]) -> tuple[tuple[Charge, ...], ...] | None:
        """List the total charges of each combination of flavors that could fit one day."""
        if any(sets.uncovered is not None for sets in together):
            return ()
        options = [group.options for sets in together for group in sets.groups]
        if self.replaced is not None:
            return None
        if prod(map(len, options)) > MOST_WAYS:
            # The charges of the largest pod sets suffice to tell that a workload cannot fit.
            options = [max(options, key=_first_amount)]
        # If only pods are short, Kueue may try a preemption that frees too few pods, again and again.
        counts_pods = not self.queue.policies.preempts
        found: list[tuple[Charge, ...]] = []
        for way in product(*options):
            total: dict[QuotaNode, int] = {}
            for option in way:
                for quota, amount in option.charges:
                    total[quota] = total.get(quota, 0) + amount
            if all(amount <= quota.potential for quota, amount in total.items()):
                found.append(
                    tuple([c for c in total.items() if c[1] > 0 and (counts_pods or c[0].key.resource != PODS)])
                )
        return tuple(found)


def _first_amount(options: Sequence[FlavorOption]) -> int:
    return max([amount for option in options[:1] for _, amount in option.charges[:1]], default=0)


def _roots(together: Sequence[PodSetsTogether]) -> tuple[QuotaNode, ...]:
    options = [option for sets in together for group in sets.groups for option in group.options]
    return tuple({quota.root(): None for option in options for quota, _ in option.charges})


def _early_stops(together: Sequence[PodSetsTogether]) -> tuple[tuple[Charge, ...], ...]:
    groups = [group for sets in together for group in sets.groups]
    if len(groups) < 2:
        return ()
    return tuple([o.charges for group in groups for o in group.options if o.index < group.flavors - 1])


def _sum_requests(pod_sets: Sequence[CompiledPodSet]) -> Mapping[str, int]:
    if len(pod_sets) == 1:
        return pod_sets[0].requests
    total: dict[str, int] = {}
    for pod_set in pod_sets:
        for resource, amount in pod_set.requests.items():
            total[resource] = total.get(resource, 0) + amount
    return total


@cache
def _place_in_requests(resource: str) -> tuple[int, str]:
    """Return the sort key of Kueue's requests: a hash (FNV-1a) of the name. It decides which failure is reported."""
    value = 0xCBF29CE484222325
    for byte in resource.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value, resource
