"""The reports of clusters: their age, and the part of their capacity that pods of others do not use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from kyu.api.actions import View
from kyu.api.clusters.capacity import REPORTED_AT
from kyu.api.kueue import MultiKueueCluster, Workload
from kyu.api.meta import Json, Key, find_condition, key_of
from kyu.kinds import metadata
from kyu.plans.clusters.supply import Amounts, ClusterSupply
from kyu.plans.status import parse_time
from kyu.plans.workload.usage import usage_by_flavor


def silent_since(view: View, raw: Json) -> datetime | None:
    """Return the time of the last report, or of the loss of the connection to the cluster; None if neither is known."""
    reported = read_time(metadata.annotations_of(raw).get(REPORTED_AT, ""))
    cluster = view.get(MultiKueueCluster, Key("", raw["metadata"]["name"]))
    active = find_condition(cluster.status.conditions, "Active") if cluster is not None else None
    lost = read_time(active.last_transition_time) if active is not None and active.status == "False" else None
    return min((at for at in (reported, lost) if at is not None), default=None)


def read_time(text: str) -> datetime | None:
    """Parse a time that another program wrote."""
    try:
        found = parse_time(text)
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def unused(cluster: str, supply: ClusterSupply, sent: Mapping[tuple[str, str, str], int]) -> Amounts:
    """Return the capacity of a cluster that pods of others do not use. ``sent``: see sent_usage."""
    found: Amounts = {}
    for place, amount in supply.amounts.items():
        foreign = max(0, supply.requested.get(place, 0) - sent.get((cluster, *place), 0))
        found[place] = max(0, amount - foreign)
    return found


def sent_usage(view: View) -> Mapping[tuple[str, str, str], int]:
    """Return the requests of workloads that run in clusters, by cluster, flavor and resource."""
    sums = Counter[tuple[str, str, str]]()
    for raw in view.list_json(Workload.KIND):
        status = raw.get("status") or {}
        if status.get("clusterName") and status.get("admission"):
            workload = view.get(Workload, key_of(raw))
            if workload is not None and not workload.is_true("Finished"):
                for (flavor, resource), amount in usage_by_flavor(workload).items():
                    sums[status["clusterName"], flavor, resource] += amount
    return sums
