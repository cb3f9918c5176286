"""
The requests and results of placement, as values.

The engine converts API objects to these values once. Taints, tolerations, selector terms and domains are used as they
are in the API. Amounts are integers per pod in the units of the engine: milli-CPU, or whole units for other resources.
Every part of a request is hashable, because equal requests share their counts.

Called by: all of engine/topology, and the callers of engine/topology/search.py.
Kueue: pkg/cache/scheduler/tas_flavor_snapshot.go (the requests), apis/kueue/v1beta2 (the names).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kyu.api.core import NodeSelectorTerm, PreferredSchedulingTerm, Taint, Toleration
from kyu.api.placement import Domain

# The values of a domain from coarse to fine, or only the hostname if the lowest level is the hostname.
Values: TypeAlias = tuple[str, ...]
# The requests of one pod by resource, without "pods". An explicit zero differs from an absent request.
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
    """The nodes that a pod may use. ``required_terms`` are alternatives; ``None`` means no required affinity."""

    node_selector: tuple[tuple[str, str], ...] = ()
    required_terms: tuple[NodeSelectorTerm, ...] | None = None
    preferred_terms: tuple[PreferredSchedulingTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def merged(self, node_selector: Mapping[str, str], tolerations: tuple[Toleration, ...]) -> PodFilter:
        """Return the filter with the node selector and tolerations that an admission check adds."""
        selector = {**dict(self.node_selector), **node_selector}
        return replace(
            self, node_selector=tuple(sorted(selector.items())), tolerations=(*self.tolerations, *tolerations)
        )


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A Node. No tree contains a node that is not ready or is unschedulable."""

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
        """Whether a leaf is one host. Nodes are then filtered, and such flavors share their usage."""
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
    A pod set with an implied request, because every flavor of its ClusterQueue has a topology, is unconstrained.
    """

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    slice_level: str | None = None
    slice_size: int | None = None
    layers: tuple[SliceLayer, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A pod set to place on its assigned flavor."""

    name: str
    flavor: str
    count: int
    requests: Requests
    topology: TopologyRequest
    pod_filter: PodFilter = PodFilter()
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The topologyAssignment of a pod set, with its domains in the order of the tree."""

    levels: tuple[str, ...]
    domains: tuple[Domain, ...]

    @property
    def count(self) -> int:
        return sum(domain.count for domain in self.domains)


@dataclass(frozen=True, slots=True)
class DomainUsage:
    """The usage of the pods of one pod set in one domain of a flavor."""

    flavor: str
    values: Values
    count: int
    requests: Requests
