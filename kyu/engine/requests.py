"""
The requests of one pod of a template, for nodes and for quota.

A template is completed as admission completes a pod: overhead of the RuntimeClass, defaults of LimitRanges, requests
from limits. Kubernetes' rule for init containers and sidecars gives the *raw* requests, which topologies use. Quota
uses the requests after excluded prefixes and transformations. All numbers are exact: nano-units in integers, and
fractions for factors.

Called by: engine/request_shape.py (once per distinct template), engine/cluster.py, engine/state.py,
plans/quota/coverage.py, pools/offers.py. Calls: api/quantity.py. Kueue: pkg/workload/resources.go, pkg/util/limitrange.
Kubernetes: component-helpers resource.PodRequests
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Literal, TypeAlias

from kyu.api import quantity
from kyu.api.core import Container, LimitRange, LimitRangeItem, PodSpec, ResourceRequirements
from kyu.api.quantity import Quantity, QuantityValue

# Nano-units by resource.
Nanos: TypeAlias = dict[str, int]


@dataclass(frozen=True, slots=True)
class Transformation:
    """A rule that replaces or supplements one requested resource by others before quota is counted."""

    strategy: Literal["Retain", "Replace"] = "Retain"
    multiply_by: str = ""
    outputs: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(slots=True)
class Limits:
    """The LimitRanges of a namespace, folded to one rule per type (Container, PodParts)."""

    max: Nanos = field(default_factory=dict)
    min: Nanos = field(default_factory=dict)
    default: Nanos = field(default_factory=dict)
    default_request: Nanos = field(default_factory=dict)

    def fold(self, item: LimitRangeItem) -> None:
        """Add a LimitRange item: keep the smallest maximum, the largest minimum and the first default."""
        for resource, value in nanos(item.max).items():
            self.max[resource] = min(value, self.max.get(resource, value))
        for resource, value in nanos(item.min).items():
            self.min[resource] = max(value, self.min.get(resource, value))
        for resource, value in nanos(item.default).items():
            self.default.setdefault(resource, value)
        for resource, value in nanos(item.default_request).items():
            self.default_request.setdefault(resource, value)


def fold_limit_ranges(limit_ranges: Iterable[LimitRange]) -> dict[str, Limits]:
    folded: dict[str, Limits] = {}
    for limit_range in limit_ranges:
        for item in limit_range.spec.limits:
            folded.setdefault(item.type, Limits()).fold(item)
    return folded


@dataclass(frozen=True, slots=True)
class Part:
    """The completed requests and limits of a container, or of the pod as a whole."""

    requests: Nanos
    limits: Nanos
    sidecar: bool = False


@dataclass(frozen=True, slots=True)
class PodParts:
    """A completed pod, with the requests and limits of each of its parts."""

    containers: tuple[Part, ...]
    init_containers: tuple[Part, ...]
    whole: Part | None
    overhead: Nanos


def nanos(resources: Mapping[str, QuantityValue]) -> Nanos:
    return {resource: quantity.parse(value).nanos for resource, value in resources.items()}


def complete(spec: PodSpec, limits: Mapping[str, Limits], overhead: Mapping[str, QuantityValue]) -> PodParts:
    """Complete a pod as admission would. Its own overhead takes precedence over that of its RuntimeClass."""
    for_container = limits.get("Container", Limits())
    whole = None
    if spec.resources.requests or spec.resources.limits:
        whole = complete_part(spec.resources, limits.get("Pod", Limits()))
    return PodParts(
        containers=tuple(complete_container(c, for_container) for c in spec.containers),
        init_containers=tuple(complete_container(c, for_container) for c in spec.init_containers),
        whole=whole,
        overhead=nanos(spec.overhead or overhead),
    )


def complete_container(container: Container, limits: Limits) -> Part:
    part = complete_part(container.resources, limits)
    return Part(part.requests, part.limits, sidecar=container.restart_policy == "Always")


def complete_part(resources: ResourceRequirements, defaults: Limits) -> Part:
    limits = {**defaults.default, **nanos(resources.limits)}
    requests = {**limits, **defaults.default_request, **nanos(resources.requests)}
    return Part(requests, limits)


def raw_requests(pod: PodParts) -> Nanos:
    """Return the larger of the running containers' sum and the start-up peak, plus overhead, as Kubernetes does."""
    base = _sum(part.requests for part in pod.containers)
    sidecars: Nanos = {}
    peak: Nanos = {}
    for part in pod.init_containers:
        if part.sidecar:
            sidecars = _sum((sidecars, part.requests))
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, _sum((sidecars, part.requests)))
    total = _sum((base, sidecars))
    _raise_to(total, peak)
    if pod.whole is not None:
        # Kubernetes rejects a pod that requests less than its containers, so the larger amount counts.
        _raise_to(total, {r: v for r, v in pod.whole.requests.items() if _counts_for_whole_pods(r)})
    return _sum((total, pod.overhead))


def _sum(parts: Iterable[Nanos]) -> Nanos:
    total: Nanos = {}
    for part in parts:
        for resource, value in part.items():
            total[resource] = total.get(resource, 0) + value
    return total


def _raise_to(total: Nanos, floor: Nanos) -> None:
    for resource, value in floor.items():
        total[resource] = max(total.get(resource, value), value)


def _counts_for_whole_pods(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def quota_requests(
    raw: Nanos, excluded_prefixes: tuple[str, ...], transformations: Mapping[str, Transformation]
) -> Nanos:
    """Return the requests that count against quota, after excluded prefixes and transformations."""
    requests = {r: v for r, v in raw.items() if not r.startswith(excluded_prefixes)} if excluded_prefixes else dict(raw)
    if not any(resource in transformations for resource in requests):
        return requests
    retained: Nanos = {}
    generated: dict[str, Fraction] = {}
    for resource, value in requests.items():
        rule = transformations.get(resource)
        if rule is None or rule.strategy == "Retain":
            retained[resource] = value
        if rule is None:
            continue
        times = Fraction(requests.get(rule.multiply_by, quantity.NANO), quantity.NANO)
        for output, factor in rule.outputs.items():
            more = Fraction(value * factor.nanos, quantity.NANO) * times
            generated[output] = generated.get(output, Fraction(0)) + more
    # A negative output is an allowance against other outputs, never against a direct request.
    return _sum((retained, {output: max(0, ceil(total)) for output, total in generated.items()}))


def amounts(requests: Nanos) -> dict[str, int]:
    """Convert requests to the engine's integers. Negative requests become 0."""
    return {r: max(0, quantity.exact_amount(r, Quantity(v))) for r, v in requests.items()}


@dataclass(frozen=True, slots=True)
class Violation:
    """Requests that admission would reject: above their limits, or outside the namespace's LimitRanges."""

    field: str
    """The field path of the requests in the Workload."""
    resources: tuple[str, ...]
    rule: Literal["limit", "max", "min"]


def find_violations(pods: Sequence[PodParts], limits: Mapping[str, Limits]) -> tuple[Violation, ...]:
    """Return requests above their limits. Without any, return requests outside the LimitRanges."""
    named = [(f"spec.podSets[{index}].template.spec", pod) for index, pod in enumerate(pods)]
    found = [violation for path, pod in named for violation in _above_limits(path, pod)]
    if not found and limits:
        found = [violation for path, pod in named for violation in _out_of_range(path, pod, limits)]
    return tuple(found)


def _above_limits(path: str, pod: PodParts) -> Iterator[Violation]:
    whole = [(f"{path}.resources", pod.whole)] if pod.whole else []
    for field_path, part in [*_containers(path, pod), *whole]:
        if above := _greater(part.requests, part.limits):
            yield Violation(field_path, above, "limit")


def _out_of_range(path: str, pod: PodParts, limits: Mapping[str, Limits]) -> Iterator[Violation]:
    if (rule := limits.get("Container")) is not None:
        for field_path, part in _containers(path, pod):
            named = [*part.requests, *part.limits]
            high = {r: max(part.requests.get(r, 0), part.limits.get(r, 0)) for r in named}
            low = {r: min(part.requests.get(r, high[r]), part.limits.get(r, high[r])) for r in named}
            yield from _outside(field_path, low, high, rule)
    if (rule := limits.get("Pod")) is not None:
        total = raw_requests(pod)
        yield from _outside(path, total, total, rule)


def _containers(path: str, pod: PodParts) -> Iterator[tuple[str, Part]]:
    for field_name, parts in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for index, part in enumerate(parts):
            yield f"{path}.{field_name}[{index}]", part


def _outside(path: str, low: Nanos, high: Nanos, rule: Limits) -> Iterator[Violation]:
    if above := _greater(high, rule.max):
        yield Violation(path, above, "max")
    if below := _greater(rule.min, low):
        yield Violation(path, below, "min")


def _greater(requests: Nanos, bounds: Nanos) -> tuple[str, ...]:
    """Return the resources whose request exceeds its bound, in the engine's integers."""
    shared = {r: bounds[r] for r in requests if r in bounds}
    most, asked = amounts(shared), amounts({r: requests[r] for r in shared})
    return tuple(sorted(r for r in shared if asked[r] > most[r]))
