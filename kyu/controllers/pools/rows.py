"""
The rows of MasterQueues, for every mode, also beside Kueue.

Pools announce every few seconds and Workloads change all the time, so most of this file filters changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kyu.api.actions import View
from kyu.api.clusters.capacity import ClusterMetrics
from kyu.api.core import Namespace
from kyu.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue, MultiKueueCluster, ResourceFlavor, Workload
from kyu.api.meta import Json, Key
from kyu.api.pools import MasterQueue, PoolReport, PoolSource
from kyu.controllers.clusters.changes import report_changed as cluster_report_changed
from kyu.controllers.loop import Controller, Watch
from kyu.controllers.table import (
    every,
    is_checked,
    is_created,
    owner_of,
    reservation,
    spec_changed,
    spec_or_activity_changed,
)
from kyu.plans.clusters.supply import SupplyTable
from kyu.plans.pools import master_queue, totals

# A message this many periods after the previous one may find its pool dropped.
LATE = 1.5


def controllers() -> tuple[Controller, ...]:
    return (
        Controller(
            "master-queue",
            partial(master_queue.plan, SupplyTable()),
            (
                Watch(MasterQueue.KIND),
                Watch(MasterQueue.KIND, every(MasterQueue.KIND), promises_changed),
                Watch(PoolReport.KIND, queue_of_pools, report_changed),
                Watch(PoolSource.KIND, queue_of_pools),
                Watch(ResourceFlavor.KIND, master_queues_of_flavor, spec_changed),
                Watch(ClusterQueue.KIND, owner_of(MasterQueue.KIND), spec_or_room_changed),
                Watch(AdmissionCheck.KIND, owner_of(MasterQueue.KIND)),
                Watch(AdmissionCheck.KIND, master_queues_of_clusters, spec_changed),
                Watch(LocalQueue.KIND, owner_of(MasterQueue.KIND), spec_changed),
                Watch(Namespace.KIND, every(MasterQueue.KIND), is_created),
                Watch(Workload.KIND, master_queue_of_workload, quota_returned),
                Watch(ClusterMetrics.KIND, master_queues_of_clusters, cluster_report_changed),
                Watch(MultiKueueCluster.KIND, master_queues_of_clusters, spec_or_activity_changed),
            ),
        ),
        # A Workload that waits for the total has a check, which is answered at once.
        Controller("total-limit", totals.plan, (Watch(Workload.KIND, capped_queue_of_workload, is_checked),)),
    )


# Keys that a change concerns.


def queue_of_pools(view: View, obj: Json) -> Iterable[Key]:
    yield Key("", obj["metadata"]["namespace"])


def master_queues_of_flavor(view: View, obj: Json) -> Iterable[Key]:
    """Yield the owner of the ResourceFlavor, and the MasterQueues that use it as a local flavor."""
    yield from owner_of(MasterQueue.KIND)(view, obj)
    name = obj["metadata"]["name"]
    for one in view.list(MasterQueue):
        if any(group.name == name and group.local_flavor is not None for group in one.spec.flavors):
            yield one.key


def master_queues_of_clusters(view: View, obj: Json) -> Iterable[Key]:
    """Yield the MasterQueues with worker clusters."""
    for one in view.list(MasterQueue):
        if any(group.cluster_flavor is not None for group in one.spec.flavors):
            yield one.key


def master_queue_of_workload(view: View, obj: Json) -> Iterable[Key]:
    """Yield the MasterQueue of the Workload's quota, which may wait for the flavor to be unused."""
    admission = (obj.get("status") or {}).get("admission") or {}
    queue = view.find_json(ClusterQueue.KIND, Key("", admission.get("clusterQueue", "")))
    if queue is not None:
        yield from owner_of(MasterQueue.KIND)(view, queue)


def capped_queue_of_workload(view: View, obj: Json) -> Iterable[Key]:
    """Yield the ClusterQueue of the Workload's quota, if it has a total."""
    admission = (obj.get("status") or {}).get("admission")
    if admission:
        key = Key("", admission["clusterQueue"])
        queue = view.find_json(ClusterQueue.KIND, key)
        if queue is not None and totals.is_capped(queue):
            yield key


# Changes that matter.


def promises_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether a MasterQueue counts other pools or amounts, which concerns others with the same pools."""
    return old is None or new is None or spec_changed(old, new) or promises(old) != promises(new)


def promises(queue: Json) -> object:
    pools = (queue.get("status") or {}).get("pools") or ()
    return [(pool["flavor"], pool["name"], pool["state"], pool.get("effective")) for pool in pools]


def spec_or_room_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether the spec of a ClusterQueue, or the reservation of one with a total, has changed."""
    if old is None or new is None or spec_changed(old, new):
        return True
    return totals.is_capped(new) and reservation(old) != reservation(new)


def quota_returned(old: Json | None, new: Json | None) -> bool:
    """Return whether a Workload has released its quota."""
    return old is not None and holds_quota(old) and (new is None or not holds_quota(new))


def holds_quota(workload: Json) -> bool:
    status = workload.get("status")
    if not status or not status.get("admission"):
        return False
    return not any(c["type"] == "Finished" and c["status"] == "True" for c in status.get("conditions") or ())


def report_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether the report has another content or was late. A timely repetition does not matter."""
    if old is None or new is None or any(old.get(name) != new.get(name) for name in ("quotas", "labels", "taints")):
        return True
    period = old.get("period")
    return period is None or new["at"] - old["at"] > LATE * period or old.get("runs") != new.get("runs")
