"""
The changes that could admit a pending workload, as values, and the objects that they lead to.

A change names one thing to do: fewer pods, a smaller request, another flavor, queue or priority, or more quota.

Called by: engine/what_if/counterfactuals.py (searches them), engine/what_if/words.py (renders them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from msgspec.structs import replace

from kyu.api import quantity
from kyu.api.core import Container, PodSpec, Toleration
from kyu.api.meta import Key
from kyu.api.queues import ClusterQueue, LocalQueue, ResourceFlavorSpec, ResourceQuota
from kyu.api.workloads import PodSet, Workload
from kyu.engine.quota.amounts import FlavorResource

QuotaField = Literal["nominalQuota", "borrowingLimit"]


@dataclass(frozen=True, slots=True)
class FewerPods:
    pod_set: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class SmallerRequest:
    """Each pod of a pod set requests less of a resource."""

    pod_set: str
    resource: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class OtherFlavor:
    """The pods tolerate and select the nodes of a flavor that they exclude now."""

    flavor: str
    tolerations: tuple[str, ...]
    """The taints to tolerate, as ``key=value:effect``."""
    selectors: tuple[str, ...]
    """The labels to select, as ``key=value``."""


@dataclass(frozen=True, slots=True)
class OtherQueue:
    local_queue: str
    cluster_queue: str


@dataclass(frozen=True, slots=True)
class HigherPriority:
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class QuotaRaise:
    key: FlavorResource
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class MoreQuota:
    """A ClusterQueue gets more quota, or may borrow more."""

    cluster_queue: str
    field: QuotaField
    raises: tuple[QuotaRaise, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """A stopped queue admits workloads again."""

    kind: Literal["LocalQueue", "ClusterQueue"]
    name: str


@dataclass(frozen=True, slots=True)
class Later:
    """The workload waits until others have ended, by their declared maximum execution times."""

    at: float
    """Seconds since 1970."""
    ended: int
    """The number of workloads that end until then."""


Change: TypeAlias = FewerPods | SmallerRequest | OtherFlavor | OtherQueue | HigherPriority | MoreQuota | Resume | Later


# The objects after a change


def with_pod_set(workload: Workload, name: str, edit: Callable[[PodSet], PodSet]) -> Workload:
    """Return a workload with one pod set edited."""
    pod_sets = tuple(edit(p) if p.name == name else p for p in workload.spec.pod_sets)
    return replace(workload, spec=replace(workload.spec, pod_sets=pod_sets))


def with_pod_spec(workload: Workload, name: str, edit: Callable[[PodSpec], PodSpec]) -> Workload:
    """Return a workload with the pod template of one pod set edited."""
    return with_pod_set(workload, name, lambda p: replace(p, template=replace(p.template, spec=edit(p.template.spec))))


def with_count(workload: Workload, name: str, count: int) -> Workload:
    """Return a workload with another number of pods."""

    def edit(pod_set: PodSet) -> PodSet:
        least = pod_set.min_count
        return replace(pod_set, count=count, min_count=None if least is None else min(least, count))

    return with_pod_set(workload, name, edit)


def main_container(spec: PodSpec, resource: str) -> tuple[int, int] | None:
    """Return the index of the container that requests most of a resource, and its amount; None if none does."""
    amounts = [(amount_of(container, resource), -index) for index, container in enumerate(spec.containers)]
    most, index = max(amounts, default=(0, 0))
    return (-index, most) if most > 0 else None


def amount_of(container: Container, resource: str) -> int:
    resources = container.resources
    value = resources.requests.get(resource, resources.limits.get(resource))
    return 0 if value is None else quantity.amount(resource, value)


def with_request(workload: Workload, name: str, resource: str, less: int) -> Workload:
    """Return a workload in which the largest container of each pod requests so much less of a resource."""

    def edit(spec: PodSpec) -> PodSpec:
        found = main_container(spec, resource)
        if found is None:
            return spec
        index, amount = found
        container = spec.containers[index]
        requests = {**container.resources.requests, resource: quantity.render(resource, amount - less)}
        limits = {k: v for k, v in container.resources.limits.items() if k != resource}
        changed = replace(container, resources=replace(container.resources, requests=requests, limits=limits))
        return replace(spec, containers=(*spec.containers[:index], changed, *spec.containers[index + 1 :]))

    return with_pod_spec(workload, name, edit)


def with_flavor(workload: Workload, flavor: str, spec: ResourceFlavorSpec) -> tuple[Workload, OtherFlavor]:
    """Return a workload whose pods may run on the nodes of a flavor, and the change that this takes."""
    taints = [t for t in spec.node_taints if t.effect != "PreferNoSchedule"]
    taints = [t for t in taints if not any(toleration.tolerates(t) for toleration in spec.tolerations)]
    added: dict[str, None] = {}
    selected: dict[str, None] = {}

    def edit(pod: PodSpec) -> PodSpec:
        missing = [t for t in taints if not any(toleration.tolerates(t) for toleration in pod.tolerations)]
        added.update(dict.fromkeys(f"{t.key}={t.value}:{t.effect}" for t in missing))
        tolerations = tuple(Toleration(key=t.key, operator="Equal", value=t.value, effect=t.effect) for t in missing)
        wrong = {k: v for k, v in spec.node_labels.items() if pod.node_selector.get(k, v) != v}
        selected.update(dict.fromkeys(f"{k}={v}" for k, v in wrong.items()))
        return replace(pod, tolerations=(*pod.tolerations, *tolerations), node_selector={**pod.node_selector, **wrong})

    for pod_set in workload.spec.pod_sets:
        workload = with_pod_spec(workload, pod_set.name, edit)
    return workload, OtherFlavor(flavor, tuple(added), tuple(selected))


def with_queue(workload: Workload, queue: Key) -> Workload:
    """Return a workload in another LocalQueue of its namespace."""
    return replace(workload, spec=replace(workload.spec, queue_name=queue.name))


def with_priority(workload: Workload, priority: int) -> Workload:
    return replace(workload, spec=replace(workload.spec, priority=priority))


def with_quota(queue: ClusterQueue, field: QuotaField, raised: Mapping[FlavorResource, int]) -> ClusterQueue:
    """Return a ClusterQueue with other amounts of quota."""

    def edit(flavor: str, quota: ResourceQuota) -> ResourceQuota:
        amount = raised.get(FlavorResource(flavor, quota.name))
        if amount is None:
            return quota
        text = quantity.render(quota.name, amount)
        return replace(quota, nominal_quota=text) if field == "nominalQuota" else replace(quota, borrowing_limit=text)

    groups = tuple(
        replace(
            group,
            flavors=tuple(
                replace(f, resources=tuple(edit(f.name, quota) for quota in f.resources)) for f in group.flavors
            ),
        )
        for group in queue.spec.resource_groups
    )
    return replace(queue, spec=replace(queue.spec, resource_groups=groups))


def resumed(queue: ClusterQueue | LocalQueue) -> ClusterQueue | LocalQueue:
    """Return a queue that is not stopped."""
    if isinstance(queue, ClusterQueue):
        return replace(queue, spec=replace(queue.spec, stop_policy="None"))
    return replace(queue, spec=replace(queue.spec, stop_policy="None"))
