"""
Placement: nominate a worker cluster in which a whole Workload fits, for both ways of dispatching.

All pods of a Workload must find room on the nodes that the cluster reports, with the node labels and tolerations of
their flavors. Workloads are placed one after another by one plan, so that two of them never count on the same room. A
Workload that was placed since the last report takes its room in advance.

A MultiKueue check is placed by this plan if ``multiKueue.dispatcherName`` is DISPATCHER; the check of KubeStellar is
always.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from kyu.api import codec, quantity
from kyu.api.actions import Action, View, WakeAt
from kyu.api.clusters import kubestellar
from kyu.api.clusters.capacity import COST, ClusterMetrics, NodeMetrics
from kyu.api.core import Pod
from kyu.api.kueue import (
    MULTIKUEUE_CONTROLLER,
    AdmissionCheck,
    AdmissionCheckState,
    MultiKueueCluster,
    Workload,
)
from kyu.api.meta import Json, Key, is_true, key_of
from kyu.engine.topology.types import NodeInfo
from kyu.kinds import metadata, table, templates
from kyu.plans.clusters.dispatch import clusters_of, keep_fixed
from kyu.plans.clusters.reports import read_time, silent_since
from kyu.plans.job import injection
from kyu.plans.pods.affinity import Neighbours
from kyu.plans.pods.binding import NodeRoom, NodesAndPods
from kyu.plans.provisioning.capacity import place_all
from kyu.plans.quota.coverage import PODS
from kyu.plans.status import StatusEdit, parse_time
from kyu.plans.workload import checks

DISPATCHER = "kyu.dev/placement"
# An annotation of the AdmissionCheck: the preferred cluster among those with room.
POLICY = "kyu.dev/placement"
Policy: TypeAlias = Literal["Spread", "Pack", "Cheapest"]
# A report that is older does not tell whether there is room.
STALE = timedelta(seconds=30)
# Pods that a cluster was sent this long before its report may be missing in it.
START = timedelta(seconds=10)
# A Workload that finds no room for this long gives its quota back.
PATIENCE = timedelta(seconds=60)
RETRY_SECONDS = 60


@dataclass(slots=True)
class ClusterRoom:
    """A cluster with a recent report, and what is left of its nodes."""

    name: str
    cost: float
    reported: datetime | None
    nodes: NodesAndPods

    def fullness(self) -> float:
        """Return the mean share of cpu and memory in use: 0 is empty, 1 is full."""
        shares = []
        for resource in ("cpu", "memory"):
            total = sum(room.info.allocatable.get(resource, 0) for room in self.nodes.rooms.values())
            free = sum(room.free.get(resource, 0) for room in self.nodes.rooms.values())
            shares += [1 - free / total] if total else []
        return sum(shares) / len(shares) if shares else 1.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A Workload that needs a cluster, and the clusters that it may use, with the reasons against the others."""

    workload: Workload
    raw: Json
    state: AdmissionCheckState
    check: AdmissionCheck
    reasons: Mapping[str, str]


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    """Nominate a cluster for each Workload that has quota and no cluster yet."""
    waiting = sorted(find_waiting(view), key=lambda one: order(one.workload))
    if not waiting:
        return []
    rooms, silent = survey(view, now)
    for workload, cluster in placed(view):
        room = rooms.get(cluster)
        if room is not None and not is_reported(workload, room):
            place_all(pods_of(view, workload), room.nodes)
    actions: list[Action] = []
    for one in waiting:
        actions += place(view, one, rooms, silent, now)
    return actions


def find_waiting(view: View) -> Iterator[Waiting]:
    for raw in view.list_json(Workload.KIND):
        status = raw.get("status") or {}
        if not status.get("admissionChecks") or status.get("clusterName") or status.get("nominatedClusterNames"):
            continue
        workload = view.get(Workload, key_of(raw))
        if workload is None or metadata.is_deleted(raw) or not is_held(workload):
            continue
        found = placing_check(view, workload)
        if found is not None and found[0].state == "Pending" and others_are_ready(workload, found[0]):
            yield Waiting(workload, raw, *found, candidates(view, workload, found[1]))


def is_held(workload: Workload) -> bool:
    """Return whether the Workload has quota, and keeps it."""
    return workload.is_true("QuotaReserved") and not workload.is_true("Evicted") and not workload.is_true("Finished")


def placing_check(view: View, workload: Workload) -> tuple[AdmissionCheckState, AdmissionCheck] | None:
    """Return the check of the Workload that this plan serves."""
    is_dispatcher = view.configuration.multi_kueue.dispatcher_name == DISPATCHER
    for state in workload.status.admission_checks:
        check = view.get(AdmissionCheck, Key("", state.name))
        if check is None:
            continue
        if check.spec.controller_name == kubestellar.CONTROLLER:
            return state, check
        if check.spec.controller_name == MULTIKUEUE_CONTROLLER and is_dispatcher:
            return state, check
    return None


def others_are_ready(workload: Workload, mine: AdmissionCheckState) -> bool:
    return all(one.state == "Ready" for one in workload.status.admission_checks if one.name != mine.name)


def candidates(view: View, workload: Workload, check: AdmissionCheck) -> dict[str, str]:
    """Return the clusters that the Workload may use, each with an empty text, or with the reason why not."""
    wanted = wanted_cluster(view, workload)
    if check.spec.controller_name == MULTIKUEUE_CONTROLLER:
        names = {name: why_unconnected(view, name) for name in clusters_of(view, check.metadata.name)}
    else:
        names = {raw["metadata"]["name"]: "" for raw in view.list_json(ClusterMetrics.KIND)}
    fixed = keep_fixed(view, workload, tuple(names))
    names = {name: reason if name in fixed else "its flavor is of another cluster" for name, reason in names.items()}
    if not wanted:
        return names
    kept = {wanted: names.get(wanted, "there is no such cluster")}
    return {**kept, **{name: f"the job asks for {wanted}" for name in names if name != wanted}}


def why_unconnected(view: View, name: str) -> str:
    cluster = view.get(MultiKueueCluster, Key("", name))
    connected = cluster is not None and is_true(cluster.status.conditions, "Active")
    return "" if connected else "not connected"


def wanted_cluster(view: View, workload: Workload) -> str:
    """Return the cluster that the user of the job asked for."""
    for owner in workload.metadata.owner_references:
        kind = table.find({"apiVersion": owner.api_version, "kind": owner.kind})
        if owner.controller and kind is not None:
            job = view.find_json(kind.kind, Key(workload.metadata.namespace, owner.name))
            return metadata.annotations_of(job).get(kubestellar.WANTED_CLUSTER, "") if job is not None else ""
    return ""


def order(workload: Workload) -> tuple[int, str, Key]:
    """Return the sort key: higher priority first, then the older reservation."""
    reserved = workload.condition("QuotaReserved")
    return -(workload.spec.priority or 0), reserved.last_transition_time if reserved else "", workload.key


# The room of clusters.


def survey(view: View, now: datetime) -> tuple[dict[str, ClusterRoom], dict[str, str]]:
    """Return the clusters with a recent report, and why others have none."""
    rooms: dict[str, ClusterRoom] = {}
    silent: dict[str, str] = {}
    for raw in view.list_json(ClusterMetrics.KIND):
        metrics, since = view.get(ClusterMetrics, key_of(raw)), silent_since(view, raw)
        if metrics is None or metadata.is_deleted(raw):
            continue
        name = metrics.metadata.name
        if since is not None and now >= since + STALE:
            silent[name] = f"no report since {since:%Y-%m-%dT%H:%M:%SZ}"
        else:
            rooms[name] = ClusterRoom(name, cost_of(metrics), since, nodes_of(metrics))
    return rooms, silent


def cost_of(metrics: ClusterMetrics) -> float:
    try:
        return float(metrics.metadata.annotations.get(COST, "0"))
    except ValueError:
        return float("inf")


def nodes_of(metrics: ClusterMetrics) -> NodesAndPods:
    rooms = {}
    for node in metrics.status.nodes:
        has = amounts(node.allocatable_resources)
        # Without a number of pods there is no limit of it.
        has.setdefault(PODS, quantity.UNLIMITED)
        free = dict(has)
        for name, amount in amounts(node.allocated_resource_requests).items():
            free[name] = quantity.subtract(free.get(name, 0), amount)
        rooms[node.name] = NodeRoom(node_info(node, has), free)
    return NodesAndPods(rooms, Neighbours({name: room.info for name, room in rooms.items()}))


def node_info(node: NodeMetrics, has: Mapping[str, int]) -> NodeInfo:
    return NodeInfo(node.name, node.labels, has, node.taints, unschedulable=node.unschedulable)


def amounts(resources: Mapping[str, quantity.QuantityValue]) -> dict[str, int]:
    return {name: quantity.amount(name, value) for name, value in resources.items()}


def placed(view: View) -> Iterator[tuple[Workload, str]]:
    """Yield the unfinished Workloads that have a cluster, with its name."""
    for raw in view.list_json(Workload.KIND):
        status = raw.get("status") or {}
        nominated: list[str] = status.get("nominatedClusterNames") or []
        cluster = status.get("clusterName") or (nominated[0] if len(nominated) == 1 else "")
        workload = view.get(Workload, key_of(raw)) if cluster else None
        if workload is not None and workload.status.admission is not None and not workload.is_true("Finished"):
            yield workload, cluster


def is_reported(workload: Workload, room: ClusterRoom) -> bool:
    """Return whether the last report of the cluster shows the pods of a Workload that was placed there."""
    assigned = workload.condition("ClusterAssigned") or workload.condition("Admitted")
    if assigned is None or assigned.status != "True" or room.reported is None:
        return workload.is_true("PodsReady") or (assigned is not None and assigned.status == "True")
    since = parse_time(assigned.last_transition_time)
    return since is not None and since + START <= room.reported


def pods_of(view: View, workload: Workload) -> list[Pod]:
    """Return all pods of a Workload, with what its flavors add to them."""
    raw = view.find_json(Workload.KIND, workload.key) or {}
    originals = {one.name: one for one in injection.originals(raw)}
    pods: list[Pod] = []
    for info in injection.pod_set_infos(view, workload, workload.spec.queue_name or ""):
        original = originals.get(info.name)
        template = templates.merged(original.template, info) if original is not None else None
        if isinstance(template, dict):
            pod = codec.decode_as(Pod, {"metadata": {}, "spec": template.get("spec") or {}})
            pods += [pod] * info.count
    return pods


# The choice.


def place(
    view: View, one: Waiting, rooms: Mapping[str, ClusterRoom], silent: Mapping[str, str], now: datetime
) -> list[Action]:
    """Nominate the best cluster that takes all pods, or say why none does."""
    reasons: dict[str, str] = {}
    pods = pods_of(view, one.workload)
    best: ClusterRoom | None = None
    policy = one.check.metadata.annotations.get(POLICY, "Spread")
    fitting = [rooms[name] for name, reason in one.reasons.items() if not reason and name in rooms]
    for room in sorted(fitting, key=lambda room: rank(room, policy)):
        if not (why := place_all(pods, room.nodes)):
            best = room
            break
        reasons[room.name] = why
    edit = StatusEdit(one.raw, now)
    if best is not None:
        edit.status["nominatedClusterNames"] = [best.name]
        checks.set_state(edit, one.state, "Pending", f"Goes to cluster {best.name}")
    else:
        others = {name: reason or silent.get(name, "it reports no capacity") for name, reason in one.reasons.items()}
        words = "; ".join(f"{name}: {reasons.get(name) or why}" for name, why in sorted(others.items()))
        return [*wait_or_retry(edit, one, f"No cluster has room: {words or 'none reports its capacity'}", now)]
    patch = edit.patch(Workload.KIND)
    return [patch] if patch else []


def rank(room: ClusterRoom, policy: str) -> tuple[float, float, str]:
    match policy:
        case "Pack":
            return -room.fullness(), 0.0, room.name
        case "Cheapest":
            return room.cost, room.fullness(), room.name
        case _:
            return room.fullness(), 0.0, room.name


def wait_or_retry(edit: StatusEdit, one: Waiting, message: str, now: datetime) -> Iterator[Action]:
    """Keep the quota for a while, then give it back: another Workload may fit."""
    reserved = one.workload.condition("QuotaReserved")
    since = read_time(reserved.last_transition_time) if reserved is not None else None
    gives_up_at = (since or now) + PATIENCE
    if now < gives_up_at:
        checks.set_state(edit, one.state, "Pending", message)
    else:
        checks.set_state(edit, one.state, "Retry", message, requeue_after_seconds=RETRY_SECONDS)
    if (patch := edit.patch(Workload.KIND)) is not None:
        yield patch
    if now < gives_up_at:
        yield WakeAt(gives_up_at)
