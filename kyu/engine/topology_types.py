"""
What placement is asked and what it answers: values, no behaviour.

The engine turns objects of the API to these once; of the API only small parts that are values themselves (taints,
tolerations, selector terms, domains) are taken as they are. Amounts are integers in the units of the engine (milli-CPU,
else whole units) and per pod. Everything that is part of a request is hashable, because equal requests share their
counts.

Used by: every ``topology_*.py``, and whoever calls ``topology.py``.
Kueue: pkg/cache/scheduler/tas_flavor_snapshot.go (the requests), apis/kueue/v1beta2 (the words).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kyu.api.core import NodeSelectorTerm, PreferredSchedulingTerm, Taint, Toleration
from kyu.api.placement import Domain

# The values of a domain, coarse to fine; only the hostname where the lowest level is the hostname.
Values: TypeAlias = tuple[str, ...]
# What one pod asks for, by resource, without the "pods" that it also takes. An explicit zero is not nothing.
Requests: TypeAlias = tuple[tuple[str, int], ...]

HOSTNAME = "kubernetes.io/hostname"
PODS = "pods"


@dataclass(frozen=True, slots=True)
class Gates:
    """The feature gates that change placement, with Kueue's defaults."""

    mixed_profile: bool = True  # TASProfileMixed
    overlapping_flavors: bool = True  # TASHandleOverlappingFlavors
    balanced_placement: bool = False  # TASBalancedPlacement
    preferred_affinity: bool = False  # TASRespectNodeAffinityPreferred


@dataclass(frozen=True, slots=True)
class PodFilter:
    """Which nodes a pod may go to. ``required_terms`` are alternatives; ``None`` means no required affinity."""

    node_selector: tuple[tuple[str, str], ...] = ()
    required_terms: tuple[NodeSelectorTerm, ...] | None = None
    preferred_terms: tuple[PreferredSchedulingTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def merged(self, node_selector: Mapping[str, str], tolerations: tuple[Toleration, ...]) -> PodFilter:
        """With what an admission check adds for the pods."""
        selector = {**dict(self.node_selector), **node_selector}
        return replace(
            self, node_selector=tuple(sorted(selector.items())), tolerations=(*self.tolerations, *tolerations)
        )


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A Node. One that is not ready or is unschedulable is in no tree."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class FlavorInfo:
    """A ResourceFlavor with a topology, and the levels of that topology from coarse to fine."""

    name: str
    topology: str
    levels: tuple[str, ...]
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()

    @property
    def by_host(self) -> bool:
        """Whether a leaf is one host: then nodes are filtered, and usage is shared with the other such flavors."""
        return self.levels[-1] == HOSTNAME


@dataclass(frozen=True, slots=True)
class SliceLayer:
    level: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """
    The topologyRequest of a pod set, field by field.

    ``layers`` are the podsetSliceRequiredTopologyConstraints, outermost first; they exclude the two slice fields.
    A pod set that uses topology only because every flavor of its queue has one asks ``unconstrained=True``.
    """

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    slice_level: str | None = None
    slice_size: int | None = None
    layers: tuple[SliceLayer, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSetRequest:
    """One pod set to place, on the flavor that quota chose for it."""

    name: str
    flavor: str
    count: int
    requests: Requests
    topology: TopologyRequest
    pod_filter: PodFilter = PodFilter()
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the pods of one pod set go: the topologyAssignment, domains in the order of the tree."""

    levels: tuple[str, ...]
    domains: tuple[Domain, ...]

    @property
    def count(self) -> int:
        return sum(domain.count for domain in self.domains)


@dataclass(frozen=True, slots=True)
class DomainUsage:
    """What some pods of one pod set take from one domain of one flavor."""

    flavor: str
    values: Values
    count: int
    requests: Requests
