"""
Rules for ClusterQueue, Cohort and LocalQueue: quotas that are consistent, and limits that need a parent.

Kueue: pkg/webhooks/clusterqueue_webhook.go, cohort_webhook.go
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kyu.api import names
from kyu.api.config.features import FeatureGates
from kyu.api.errors import FieldError, broken_rule, duplicate, forbidden, invalid, not_supported
from kyu.api.kueue import ClusterQueue, Cohort, FairSharing, FlavorQuotas, LocalQueue, ResourceGroup, ResourceQuota
from kyu.api.quantity import Quantity, QuantityValue, parse
from kyu.api.rules.metadata import validate_selector

MAX_FLAVORS = 256
MAX_RESOURCES = 256
MAX_PAIRS_PER_GROUP = 512
MAX_CONCURRENT_FLAVORS = 16
_ZERO = Quantity(0)
_SMALLEST_WEIGHT = Quantity(1)
_GROUPS = "spec.resourceGroups"


def validate_cluster_queue(queue: ClusterQueue, old: ClusterQueue | None, gates: FeatureGates) -> Iterator[FieldError]:
    spec = queue.spec
    no_parent = "" if spec.cohort_name else "cohort"
    yield from _validate_groups(spec.resource_groups, no_parent=no_parent, lending_within_nominal=True)
    yield from _validate_totals(spec.resource_groups)
    yield from validate_selector(spec.namespace_selector, "spec.namespaceSelector")
    yield from _validate_policies(queue)
    yield from _validate_weight(spec.fair_sharing)
    yield from _validate_check_flavors(queue, old, gates)
    if old is not None and spec.concurrent_admission_policy != old.spec.concurrent_admission_policy:
        yield broken_rule("spec.concurrentAdmissionPolicy", "field is immutable")
    if gates.enabled("ConcurrentAdmission"):
        yield from _validate_concurrent_admission(queue)


def validate_cohort(cohort: Cohort, old: Cohort | None, gates: FeatureGates) -> Iterator[FieldError]:
    # A cohort may lend more than it owns: it also lends the unused quota of its members.
    no_parent = "" if cohort.spec.parent_name else "parent"
    yield from _validate_groups(cohort.spec.resource_groups, no_parent=no_parent, lending_within_nominal=False)
    yield from _validate_weight(cohort.spec.fair_sharing)


def validate_local_queue(queue: LocalQueue, old: LocalQueue | None, gates: FeatureGates) -> Iterator[FieldError]:
    if old is not None and old.spec.cluster_queue and queue.spec.cluster_queue != old.spec.cluster_queue:
        yield broken_rule("spec.clusterQueue", "field is immutable")
    yield from _validate_weight(queue.spec.fair_sharing)


def _validate_groups(
    groups: Sequence[ResourceGroup], *, no_parent: str, lending_within_nominal: bool
) -> Iterator[FieldError]:
    """Validate the resource groups. ``no_parent`` is the word for the missing parent, or empty if there is one."""
    resources: set[str] = set()
    flavors: set[str] = set()
    for index, group in enumerate(groups):
        path = f"{_GROUPS}[{index}]"
        for position, resource in enumerate(group.covered_resources):
            here = f"{path}.coveredResources[{position}]"
            if reason := names.why_not_qualified_name(resource):
                yield invalid(here, resource, reason)
            if resource in resources:
                yield duplicate(here, resource)
            resources.add(resource)
        for position, flavor in enumerate(group.flavors):
            here = f"{path}.flavors[{position}]"
            if flavor.name in flavors:
                yield duplicate(f"{here}.name", flavor.name)
            flavors.add(flavor.name)
            yield from _validate_resources(flavor, group.covered_resources, here)
            for number, quota in enumerate(flavor.resources):
                yield from _validate_quota(quota, f"{here}.resources[{number}]", no_parent, lending_within_nominal)


def _validate_resources(flavor: FlavorQuotas, covered: Sequence[str], path: str) -> Iterator[FieldError]:
    listed = [quota.name for quota in flavor.resources]
    if len(listed) != len(covered):
        yield invalid(f"{path}.resources", listed, f"must list exactly the covered resources: {', '.join(covered)}")
        return
    for number, (name, wanted) in enumerate(zip(listed, covered, strict=True)):
        if name != wanted:
            detail = f"must have the order of coveredResources, where {wanted} is at this place"
            yield invalid(f"{path}.resources[{number}].name", name, detail)


def _validate_quota(
    quota: ResourceQuota, path: str, no_parent: str, lending_within_nominal: bool
) -> Iterator[FieldError]:
    yield from _not_negative(quota.nominal_quota, f"{path}.nominalQuota")
    for name, limit in (("borrowingLimit", quota.borrowing_limit), ("lendingLimit", quota.lending_limit)):
        if limit is None:
            continue
        yield from _not_negative(limit, f"{path}.{name}")
        if no_parent:
            yield invalid(f"{path}.{name}", limit, f"must not be set when there is no {no_parent}")
    lending = quota.lending_limit
    if lending_within_nominal and lending is not None and parse(lending) > parse(quota.nominal_quota):
        yield invalid(f"{path}.lendingLimit", lending, "must not be greater than nominalQuota")


def _validate_totals(groups: Sequence[ResourceGroup]) -> Iterator[FieldError]:
    flavors = sum(len(group.flavors) for group in groups)
    if flavors > MAX_FLAVORS:
        yield invalid(_GROUPS, flavors, f"must have at most {MAX_FLAVORS} flavors in all groups together")
    resources = sum(len(group.covered_resources) for group in groups)
    if resources > MAX_RESOURCES:
        yield invalid(_GROUPS, resources, f"must cover at most {MAX_RESOURCES} resources in all groups together")
    for index, group in enumerate(groups):
        pairs = sum(len(flavor.resources) for flavor in group.flavors)
        if pairs > MAX_PAIRS_PER_GROUP:
            detail = f"must have at most {MAX_PAIRS_PER_GROUP} pairs of flavor and resource"
            yield invalid(f"{_GROUPS}[{index}]", pairs, detail)


def _validate_policies(queue: ClusterQueue) -> Iterator[FieldError]:
    preemption, fungibility = queue.spec.preemption, queue.spec.flavor_fungibility
    if preemption is not None and preemption.reclaim_within_cohort == "Never":
        borrow = preemption.borrow_within_cohort
        if borrow is not None and borrow.policy not in (None, "Never"):
            detail = "must be Never while reclaimWithinCohort is Never"
            yield invalid("spec.preemption.borrowWithinCohort.policy", borrow.policy, detail)
    both = (fungibility.when_can_borrow, fungibility.when_can_preempt)
    if fungibility.preference is not None and both != ("TryNextFlavor", "TryNextFlavor"):
        detail = "needs whenCanBorrow and whenCanPreempt to be TryNextFlavor"
        yield invalid("spec.flavorFungibility.preference", fungibility.preference, detail)


def _validate_weight(fair_sharing: FairSharing | None) -> Iterator[FieldError]:
    if fair_sharing is None or fair_sharing.weight is None:
        return
    yield from _not_negative(fair_sharing.weight, "spec.fairSharing.weight")
    if _ZERO < parse(fair_sharing.weight) <= _SMALLEST_WEIGHT:
        yield invalid("spec.fairSharing.weight", fair_sharing.weight, "must be 0 or greater than 1n")


def _validate_check_flavors(queue: ClusterQueue, old: ClusterQueue | None, gates: FeatureGates) -> Iterator[FieldError]:
    """Reject checks with flavors that the queue does not have. A stored error may stay while its flavors do not change.
    """
    flavors = _flavor_names(queue)
    tolerated: dict[str, set[str]] = {}
    is_lenient = old is not None and not gates.enabled("RejectUpdatesToCQWithInvalidOnFlavors")
    if old is not None and is_lenient and set(_flavor_names(old)) == set(flavors):
        tolerated = {name: set(on_flavors) for name, on_flavors in _checks(old)}
    for index, (name, on_flavors) in enumerate(_checks(queue)):
        if tolerated.get(name) == set(on_flavors):
            continue
        path = f"spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors"
        for position, flavor in enumerate(on_flavors):
            if flavor not in flavors:
                yield not_supported(f"{path}[{position}]", flavor, flavors)


def _validate_concurrent_admission(queue: ClusterQueue) -> Iterator[FieldError]:
    policy, path = queue.spec.concurrent_admission_policy, "spec.concurrentAdmissionPolicy"
    if policy is None:
        return
    groups = queue.spec.resource_groups
    if len(groups) != 1:
        yield invalid(_GROUPS, len(groups), "must have exactly one group with concurrentAdmissionPolicy")
    elif len(groups[0].flavors) > MAX_CONCURRENT_FLAVORS:
        detail = f"must have at most {MAX_CONCURRENT_FLAVORS} flavors with concurrentAdmissionPolicy"
        yield invalid(f"{_GROUPS}[0].flavors", len(groups[0].flavors), detail)
    if queue.spec.queueing_strategy == "StrictFIFO":
        yield invalid("spec.queueingStrategy", "StrictFIFO", "does not go with concurrentAdmissionPolicy")
    constraints = policy.migration.constraints
    if constraints is None:
        return
    path = f"{path}.migration.constraints"
    last, flavors = constraints.last_acceptable_flavor_name, _flavor_names(queue)
    if policy.migration.mode != "TryPreferredFlavors":
        yield forbidden(path, "needs mode TryPreferredFlavors")
    elif last is not None and last not in flavors:
        yield not_supported(f"{path}.lastAcceptableFlavorName", last, flavors)


def _flavor_names(queue: ClusterQueue) -> list[str]:
    return [flavor.name for group in queue.spec.resource_groups for flavor in group.flavors]


def _checks(queue: ClusterQueue) -> list[tuple[str, tuple[str, ...]]]:
    strategy = queue.spec.admission_checks_strategy
    return [(rule.name, rule.on_flavors) for rule in strategy.admission_checks] if strategy else []


def _not_negative(value: QuantityValue, path: str) -> Iterator[FieldError]:
    if parse(value) < _ZERO:
        yield invalid(path, value, "must be greater than or equal to 0")
