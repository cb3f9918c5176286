"""
The request shape of a workload: the parsed pod sets, shared by all workloads with equal requests.

Pod sets that are equal byte for byte are parsed once. Parsed pod sets that differ only in fields without effect on
scheduling (images, container names, limits) share one ``RequestShape``. Shapes compare by identity, so an answer for
one workload holds for all of its shape. A million pending workloads have only a few thousand shapes.

Called by: engine/state.py for each Workload. Calls: engine/requests.py.
Kueue: pkg/workload/workload.go (totalRequests), pkg/workload/schedulinghash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kyu.api.core import PodSpec
from kyu.api.quantity import QuantityValue, multiply, parse
from kyu.api.workloads import PodSet, PodSetTopologyRequest, Workload
from kyu.engine import requests
from kyu.engine.options import Options
from kyu.engine.requests import Limits, Violation
from kyu.engine.topology import types
from kyu.engine.topology.types import PodFilter, TopologyRequest


@dataclass(frozen=True, slots=True, eq=False)
class PodSetShape:
    """One pod set as the engine sees it."""

    name: str
    count: int
    """The number of pods that need quota: the pods of the spec without the reclaimable ones."""
    spec_count: int
    min_count: int | None
    per_pod: Mapping[str, int]
    """The requests of one pod that count against quota."""
    total: Mapping[str, int]
    """The requests of all ``count`` pods that count against quota."""
    raw: types.Requests
    """The requests of one pod that a node must have room for."""
    spec: PodSpec
    pod_filter: PodFilter
    topology: TopologyRequest | None
    """None if the pod set requests no topology; a group name alone is no request."""
    group: str | None

    def requests(self, count: int) -> Mapping[str, int]:
        if count == self.count:
            return self.total
        return {resource: multiply(amount, count) for resource, amount in self.per_pod.items()}


@dataclass(frozen=True, slots=True, eq=False)
class RequestShape:
    """The requests of a workload. There is one object per distinct shape: compare with ``is``."""

    pod_sets: tuple[PodSetShape, ...]
    violations: tuple[Violation, ...]
    """Requests that their own limits or the namespace's LimitRanges forbid."""
    claims: bool
    """Some pod set has resource claims, whose devices no quota counts."""

    groups: tuple[tuple[int, ...], ...]
    """Indices of pod sets that must get the same flavors, in order of appearance; most stand alone."""
    can_shrink: bool = False
    """Some pod set may run with fewer pods than it asks for."""
    wants_topology: bool = False
    """Some pod set asks for a topology."""

    def totals(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for pod_set in self.pod_sets:
            for resource, amount in pod_set.requests(pod_set.count).items():
                total[resource] = total.get(resource, 0) + amount
        return total


@dataclass(slots=True)
class RequestShapes:
    """All request shapes, with the LimitRanges and RuntimeClasses that they depend on."""

    options: Options
    limits_by_namespace: dict[str, dict[str, Limits]] = field(default_factory=dict)
    overhead_by_class: dict[str, Mapping[str, QuantityValue]] = field(default_factory=dict)
    _by_bytes: dict[bytes, RequestShape] = field(default_factory=dict)
    _by_content: dict[bytes, RequestShape] = field(default_factory=dict)

    def forget_parsed(self) -> None:
        """Forget parsed pod sets, after a LimitRange or RuntimeClass has changed. Shapes in use stay valid."""
        self._by_bytes.clear()

    def find(self, workload: Workload) -> RequestShape:
        """Return the request shape of a workload."""
        limits = self.limits_by_namespace.get(workload.metadata.namespace)
        reclaimable = {}
        if workload.status.reclaimable_pods and self.options.reclaimable_pods:
            reclaimable = {pods.name: pods.count for pods in workload.status.reclaimable_pods}
        content = (workload.metadata.namespace if limits else "", workload.spec.pod_sets, reclaimable)
        key = _ENCODER.encode(content)
        shape = self._by_bytes.get(key)
        if shape is None:
            shape = self._parse(workload.spec.pod_sets, reclaimable, limits or {})
            shape = self._by_content.setdefault(_content(shape), shape)
            self._by_bytes[key] = shape
        return shape

    def _parse(
        self, pod_sets: tuple[PodSet, ...], reclaimable: Mapping[str, int], limits: Mapping[str, Limits]
    ) -> RequestShape:
        parsed = []
        pods = []
        claims = False
        for pod_set in pod_sets:
            spec = pod_set.template.spec
            pod = requests.complete(spec, limits, self.overhead_by_class.get(spec.runtime_class_name, {}))
            pods.append(pod)
            claims = claims or bool(spec.resource_claims)
            raw = requests.raw_requests(pod)
            counted = requests.quota_requests(raw, self.options.excluded_prefixes, self.options.transformations)
            per_pod = requests.amounts(counted)
            count = max(0, pod_set.count - reclaimable.get(pod_set.name, 0))
            parsed.append(
                PodSetShape(
                    name=pod_set.name,
                    count=count,
                    spec_count=pod_set.count,
                    min_count=pod_set.min_count,
                    per_pod=per_pod,
                    total={resource: multiply(amount, count) for resource, amount in per_pod.items()},
                    raw=tuple(sorted(requests.amounts(raw).items())),
                    spec=spec,
                    pod_filter=pod_filter(spec),
                    topology=topology_request(pod_set.topology_request),
                    group=pod_set.topology_request.pod_set_group_name if pod_set.topology_request else None,
                )
            )
        can_shrink = any(p.min_count is not None and p.min_count < p.spec_count for p in parsed)
        violations = requests.find_violations(pods, limits)
        wants_topology = any(p.topology is not None for p in parsed)
        return RequestShape(tuple(parsed), violations, claims, pod_set_groups(parsed), can_shrink, wants_topology)


_ENCODER = msgspec.msgpack.Encoder()
_SORTED_ENCODER = msgspec.msgpack.Encoder(order="sorted")


def _content(shape: RequestShape) -> bytes:
    """Encode the fields that distinguish shapes: requests and ports of containers, not names, images or limits."""
    return _SORTED_ENCODER.encode(
        [
            (
                p.name,
                p.count,
                p.min_count,
                p.per_pod,
                p.raw,
                [
                    [(_canonical(c.resources.requests), c.ports) for c in containers]
                    for containers in (p.spec.init_containers, p.spec.containers)
                ],
                _canonical(p.spec.resources.requests),
                _canonical(p.spec.overhead),
                p.spec.node_selector,
                p.spec.affinity,
                p.spec.tolerations,
                p.spec.topology_spread_constraints,
                p.spec.resource_claims,
                p.spec.runtime_class_name,
                p.spec.priority,
                p.topology,
                p.group,
                shape.violations,
            )
            for p in shape.pod_sets
        ]
    )


def _canonical(resources: Mapping[str, QuantityValue]) -> dict[str, str]:
    """Render quantities in canonical form, so that 500m and 0.5 are equal."""
    return {resource: str(parse(value)) for resource, value in resources.items()}


def pod_set_groups(pod_sets: Sequence[PodSetShape]) -> tuple[tuple[int, ...], ...]:
    groups: dict[object, list[int]] = {}
    for index, pod_set in enumerate(pod_sets):
        groups.setdefault(index if pod_set.group is None else pod_set.group, []).append(index)
    return tuple(tuple(indices) for indices in groups.values())


def topology_request(request: PodSetTopologyRequest | None) -> TopologyRequest | None:
    """Convert a topology request to the type of placement; None if no field requests a topology."""
    if request is None:
        return None
    wished = TopologyRequest(
        required=request.required,
        preferred=request.preferred,
        unconstrained=bool(request.unconstrained),
        slice_level=request.pod_set_slice_required_topology,
        slice_size=request.pod_set_slice_size,
        layers=tuple(
            types.SliceLayer(layer.topology, layer.size) for layer in request.podset_slice_required_topology_constraints
        ),
    )
    explicit = wished != TopologyRequest() or request.unconstrained is not None
    return wished if explicit else None


def pod_filter(spec: PodSpec) -> PodFilter:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return PodFilter(
        node_selector=tuple(sorted(spec.node_selector.items())),
        required_terms=None if required is None else required.node_selector_terms,
        preferred_terms=affinity.preferred_during_scheduling_ignored_during_execution if affinity else (),
        tolerations=spec.tolerations,
    )
