"""The row of CapacityQuotas, and the changes that wake it: most reports repeat the last one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kyu.api.actions import View
from kyu.api.clusters.capacity import CapacityQuota, ClusterMetrics
from kyu.api.kueue import ClusterQueue, MultiKueueCluster, ResourceFlavor
from kyu.api.meta import Json, Key
from kyu.controllers.clusters.changes import report_changed
from kyu.controllers.loop import Controller, Watch
from kyu.controllers.table import every, reservation, spec_changed, spec_or_activity_changed
from kyu.plans.clusters import quota
from kyu.plans.clusters.supply import SupplyTable


def controllers() -> tuple[Controller, ...]:
    return (
        Controller(
            "capacity-quota",
            partial(quota.plan, SupplyTable()),
            (
                Watch(CapacityQuota.KIND),
                Watch(CapacityQuota.KIND, every(CapacityQuota.KIND), spec_changed),
                Watch(ClusterMetrics.KIND, every(CapacityQuota.KIND), report_changed),
                Watch(ClusterQueue.KIND, followers_of_queue, quota_or_reservation_changed),
                Watch(ResourceFlavor.KIND, every(CapacityQuota.KIND), spec_changed),
                Watch(MultiKueueCluster.KIND, every(CapacityQuota.KIND), spec_or_activity_changed),
            ),
        ),
    )


def followers_of_queue(view: View, obj: Json) -> Iterable[Key]:
    """Yield the CapacityQuotas of the ClusterQueue."""
    for one in view.list(CapacityQuota):
        if one.spec.cluster_queue == obj["metadata"]["name"]:
            yield one.key


def quota_or_reservation_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether the spec or the reservation of a ClusterQueue has changed."""
    return old is None or new is None or spec_changed(old, new) or reservation(old) != reservation(new)
