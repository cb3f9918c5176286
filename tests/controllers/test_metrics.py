"""Kueue's metrics: their names and labels, and the values that changes of objects give them."""

from __future__ import annotations

import copy
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from kyu.api import codec
from kyu.api.config.config import Configuration
from kyu.api.meta import Json, Key, key_of
from kyu.controllers.clusters.metrics import DispatchMetrics
from kyu.controllers.metrics import families
from kyu.controllers.metrics.kueue import KueueMetrics
from kyu.controllers.metrics.labels import UNTRACKED
from kyu.engine.decisions import Cycle, Preempt, Wait
from kyu.engine.options import from_configuration
from kyu.engine.reasons import Skipped
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from kyu.kinds import metadata
from kyu.plans.status import timestamp
from kyu.plans.workload import admission
from tests.support.manifests import KUEUE, condition, flavor, job, obj, owner, pod, queues, workload
from tests.support.memory_view import MemoryView
from tests.support.planes import settings

NOW = datetime(2026, 1, 1, 9, tzinfo=UTC)
# The families that Kueue 0.19.2 registers, with their labels besides replica_role.
QUEUE, LOCAL, COHORT = "cluster_queue", "name namespace", "cohort"
KUEUE_FAMILIES = {
    "kueue_admission_attempts_total": "result",
    "kueue_admission_attempt_duration_seconds": "result",
    "kueue_admission_cycle_preemption_skips": QUEUE,
    "kueue_pending_workloads": f"{QUEUE} status",
    "kueue_finished_workloads": QUEUE,
    "kueue_quota_reserved_workloads_total": f"{QUEUE} priority_class",
    "kueue_finished_workloads_total": f"{QUEUE} priority_class",
    "kueue_quota_reserved_wait_time_seconds": f"{QUEUE} priority_class",
    "kueue_pods_ready_to_evicted_time_seconds": f"{QUEUE} reason underlying_cause",
    "kueue_admitted_workloads_total": f"{QUEUE} priority_class",
    "kueue_admission_wait_time_seconds": f"{QUEUE} priority_class",
    "kueue_admission_checks_wait_time_seconds": f"{QUEUE} priority_class",
    "kueue_ready_wait_time_seconds": f"{QUEUE} priority_class",
    "kueue_admitted_until_ready_wait_time_seconds": f"{QUEUE} priority_class",
    "kueue_evicted_workloads_total": f"{QUEUE} reason underlying_cause priority_class",
    "kueue_evicted_workloads_once_total": f"{QUEUE} reason underlying_cause priority_class",
    "kueue_replaced_workload_slices_total": QUEUE,
    "kueue_preempted_workloads_total": "preempting_cluster_queue reason",
    "kueue_workload_eviction_latency_seconds": f"{QUEUE} reason",
    "kueue_reserving_active_workloads": QUEUE,
    "kueue_admitted_active_workloads": QUEUE,
    "kueue_cluster_queue_status": f"{QUEUE} status",
    "kueue_cluster_queue_resource_reservation": f"cohort {QUEUE} flavor resource",
    "kueue_cluster_queue_resource_pending": f"{QUEUE} resource",
    "kueue_cluster_queue_resource_usage": f"cohort {QUEUE} flavor resource",
    "kueue_cluster_queue_nominal_quota": f"cohort {QUEUE} flavor resource",
    "kueue_cluster_queue_borrowing_limit": f"cohort {QUEUE} flavor resource",
    "kueue_cluster_queue_lending_limit": f"cohort {QUEUE} flavor resource",
    "kueue_cluster_queue_weighted_share": f"{QUEUE} cohort",
    "kueue_cluster_queue_info": f"{QUEUE} parent_cohort root_cohort",
    "kueue_cohort_info": "cohort parent_cohort root_cohort",
    "kueue_cohort_weighted_share": COHORT,
    "kueue_cohort_subtree_quota": "cohort flavor resource",
    "kueue_cohort_subtree_admitted_workloads_total": "cohort priority_class",
    "kueue_cohort_subtree_resource_reservations": "cohort flavor resource",
    "kueue_cohort_subtree_admitted_active_workloads": COHORT,
    "kueue_pod_scheduling_gate_removal_seconds": f"name {QUEUE} is_group",
    "kueue_unadmitted_workloads": f"{QUEUE} reason underlying_cause",
    "kueue_workload_creation_latency_seconds": "job_kind",
    "kueue_local_queue_pending_workloads": f"{LOCAL} status",
    "kueue_local_queue_finished_workloads": LOCAL,
    "kueue_local_queue_quota_reserved_workloads_total": f"{LOCAL} priority_class",
    "kueue_local_queue_finished_workloads_total": f"{LOCAL} priority_class",
    "kueue_local_queue_quota_reserved_wait_time_seconds": f"{LOCAL} priority_class",
    "kueue_local_queue_admitted_workloads_total": f"{LOCAL} priority_class",
    "kueue_local_queue_admission_wait_time_seconds": f"{LOCAL} priority_class",
    "kueue_local_queue_admission_checks_wait_time_seconds": f"{LOCAL} priority_class",
    "kueue_local_queue_ready_wait_time_seconds": f"{LOCAL} priority_class",
    "kueue_local_queue_admitted_until_ready_wait_time_seconds": f"{LOCAL} priority_class",
    "kueue_local_queue_evicted_workloads_total": f"{LOCAL} reason underlying_cause priority_class",
    "kueue_local_queue_reserving_active_workloads": LOCAL,
    "kueue_local_queue_admitted_active_workloads": LOCAL,
    "kueue_local_queue_status": f"{LOCAL} active",
    "kueue_local_queue_resource_reservation": f"{LOCAL} flavor resource",
    "kueue_local_queue_resource_usage": f"{LOCAL} flavor resource",
    "kueue_local_queue_admission_fair_sharing_usage": f"{LOCAL} {QUEUE}",
    "kueue_local_queue_unadmitted_workloads": f"{LOCAL} {QUEUE} reason underlying_cause",
}
FAIR = {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}
BUILD_LABELS = "git_version git_commit build_date go_version compiler platform"
MULTIKUEUE = {"multikueue_workloads_dispatched_total", "multikueue_workloads_admitted_total"}


class World:
    """Objects in a view and in the engine, and metrics that see their changes."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self.now = NOW
        self.registry = CollectorRegistry()
        self.view = MemoryView(configuration=configuration or settings())
        self.state = State(from_configuration(self.view.configuration))
        self.metrics = KueueMetrics(self.registry, lambda: self.state, self.view)
        self.put(obj("v1", "Namespace", "default"), flavor("spot"))

    def put(self, *objects: Json) -> None:
        for new in objects:
            typed = codec.decode(new)
            old = self.view.find_json(typed.KIND, key_of(new))
            new["metadata"].setdefault("creationTimestamp", timestamp(self.now))
            self.view.put(copy.deepcopy(new))
            if typed.KIND.kind != "Job":
                self.state.put(codec.decode(new))
                self.metrics.note(type(typed), old, new, self.now)

    def change(self, old: Json, **status: Any) -> Json:
        new = copy.deepcopy(old)
        new["status"] = {**new.get("status", {}), **status}
        self.put(new)
        return new

    def delete(self, old: Json) -> None:
        typed = codec.decode(old)
        found = self.view.objects.pop((typed.KIND.group, typed.KIND.kind, key_of(old)))
        self.state.delete(typed.KIND, key_of(old))
        self.metrics.note(type(typed), found, None, self.now)

    def admit(self) -> None:
        """Run a cycle, and write its admissions."""
        for decision in schedule(self.state, self.now).admitted():
            for action in admission.plan_admit(self.view, decision, self.now) or ():
                before = copy.deepcopy(self.view.objects)
                self.view.carry_out(action)
                for place, found in self.view.objects.items():
                    if found != before.get(place):
                        typed = codec.decode(found)
                        self.state.put(typed)
                        self.metrics.note(type(typed), before.get(place), found, self.now)

    def value(self, name: str, /, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"replica_role": "standalone", **labels})

    def names(self) -> set[str]:
        """Return the names of all samples."""
        return {sample.name for family in self.registry.collect() for sample in family.samples}


def test_the_families_and_labels_are_those_of_kueue() -> None:
    registry = CollectorRegistry()
    DispatchMetrics(registry, "standalone")
    known = {family.name: " ".join(family.labels) for family in families.ALL}
    assert known == {**KUEUE_FAMILIES, "kueue_build_info": BUILD_LABELS}
    assert {f"{family.name}_total" for family in registry.collect()} == MULTIKUEUE


def test_all_families_are_collected() -> None:
    exported = {f"{f.name}_total" if f.type == "counter" else f.name for f in World().registry.collect()}
    assert exported == {*KUEUE_FAMILIES, "kueue_build_info"}


def test_a_workload_is_counted_in_both_queues_and_in_all_cohorts() -> None:
    world = World(settings(featureGates={"UnadmittedWorkloadsObservability": True}))
    world.put(obj(KUEUE, "Cohort", "team", spec={"parentName": "org"}))
    world.put(*queues("main", flavor="spot", local_queue="ours", cohortName="team"))
    local = {"name": "ours", "namespace": "default"}
    high = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    world.put(workload("w", queue="ours", namespace="default", cpu="1", priorityClassRef=high))
    why = {"reason": "NoReservation", "underlying_cause": "PendingEvaluation"}
    assert world.value("kueue_unadmitted_workloads", cluster_queue="main", **why) == 1
    assert world.value("kueue_local_queue_unadmitted_workloads", cluster_queue="main", **local, **why) == 1
    assert world.value("kueue_local_queue_pending_workloads", status="active", **local) == 1
    world.now += timedelta(seconds=7)
    world.admit()
    for step in ("quota_reserved", "admitted"):
        counted = f"{step}_workloads_total"
        assert world.value(f"kueue_{counted}", cluster_queue="main", priority_class="high") == 1
        assert world.value(f"kueue_local_queue_{counted}", priority_class="high", **local) == 1
    for wait in ("quota_reserved", "admission"):
        waited = f"{wait}_wait_time_seconds_sum"
        assert world.value(f"kueue_{waited}", cluster_queue="main", priority_class="high") == 7
        assert world.value(f"kueue_local_queue_{waited}", priority_class="high", **local) == 7
    for cohort in ("team", "org"):
        counted = "kueue_cohort_subtree_admitted_workloads_total"
        assert world.value(counted, cohort=cohort, priority_class="high") == 1
        assert world.value("kueue_cohort_subtree_admitted_active_workloads", cohort=cohort) == 1
        quota = {"cohort": cohort, "flavor": "spot", "resource": "cpu"}
        assert world.value("kueue_cohort_subtree_quota", **quota) == 4
        assert world.value("kueue_cohort_subtree_resource_reservations", **quota) == 1
    assert world.value("kueue_admitted_active_workloads", cluster_queue="main") == 1
    assert world.value("kueue_local_queue_resource_usage", flavor="spot", resource="cpu", **local) == 1
    assert world.value("kueue_unadmitted_workloads", cluster_queue="main", **why) is None
    info = {"parent_cohort": "team", "root_cohort": "org"}
    assert world.value("kueue_cluster_queue_info", cluster_queue="main", **info) == 1
    assert world.value("kueue_cohort_info", cohort="org", parent_cohort="", root_cohort="org") == 1


def reserved(world: World, **status: Any) -> Json:
    """Return a Workload with quota of the ClusterQueue ``main``."""
    usage = {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1"}, "count": 1}
    body = workload("w", namespace="default", cpu="1")
    body["status"] = {
        "admission": {"clusterQueue": "main", "podSetAssignments": [usage]},
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
        **status,
    }
    world.put(*queues("main", flavor="spot"), body)
    return body


def test_an_eviction_has_the_cause_of_its_scheduling_stats() -> None:
    world = World()
    ready = [*reserved(world)["status"]["conditions"], condition("PodsReady", reason="Started")]
    body = world.change(reserved(world), conditions=ready)
    world.now += timedelta(seconds=30)
    evicted = condition("Evicted", reason="PodsReadyTimeout", since=timestamp(world.now))
    labels = {"reason": "PodsReadyTimeout", "underlying_cause": "WaitForRecovery"}
    for count in (1, 2):
        stats = {"evictions": [{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForRecovery", "count": count}]}
        world.change(body, conditions=[*ready, evicted], schedulingStats=stats)
        assert world.value("kueue_evicted_workloads_total", cluster_queue="main", priority_class="", **labels) == count
        once = world.value("kueue_evicted_workloads_once_total", cluster_queue="main", priority_class="", **labels)
        assert once == 1
    assert world.value("kueue_pods_ready_to_evicted_time_seconds_sum", cluster_queue="main", **labels) == 60
    world.now += timedelta(seconds=5)
    gone = [condition("QuotaReserved", "False", "Pending"), evicted]
    world.put({**body, "status": {"conditions": gone}})
    latency = "kueue_workload_eviction_latency_seconds_sum"
    assert world.value(latency, cluster_queue="main", reason="PodsReadyTimeout") == 5


def test_the_times_until_ready_and_the_end_are_noted_once() -> None:
    world = World()
    body = reserved(world)
    first = body["status"]["conditions"]
    world.now += timedelta(seconds=12)
    started = condition("PodsReady", reason="Started", since=timestamp(world.now))
    world.change(body, conditions=[*first, started])
    queue = {"cluster_queue": "main", "priority_class": ""}
    assert world.value("kueue_ready_wait_time_seconds_sum", **queue) == 12
    assert world.value("kueue_admitted_until_ready_wait_time_seconds_sum", **queue) == 12
    world.change(body, conditions=[*first, condition("PodsReady", "False")])
    world.change(body, conditions=[*first, condition("PodsReady", reason="Recovered")])
    assert world.value("kueue_ready_wait_time_seconds_count", **queue) == 1
    done = world.change(body, conditions=[*first, condition("Finished", reason="WorkloadSliceReplaced")])
    assert world.value("kueue_finished_workloads_total", **queue) == 1
    assert world.value("kueue_finished_workloads", cluster_queue="main") == 1
    assert world.value("kueue_local_queue_finished_workloads", name="main", namespace="default") == 1
    assert world.value("kueue_replaced_workload_slices_total", cluster_queue="main") == 1
    world.delete(done)
    assert world.value("kueue_finished_workloads", cluster_queue="main") == 0


def test_the_wait_for_checks_starts_with_the_reservation() -> None:
    world = World()
    body = reserved(world, conditions=[condition("QuotaReserved")])
    later = timestamp(NOW + timedelta(seconds=9))
    world.change(body, conditions=[condition("QuotaReserved"), condition("Admitted", since=later)])
    assert world.value("kueue_admission_checks_wait_time_seconds_sum", cluster_queue="main", priority_class="") == 9


def test_the_creation_of_a_workload_is_compared_with_that_of_its_job() -> None:
    world = World()
    world.put(job("j", queue="main", namespace="default", metadata={"generation": 1}))
    world.now += timedelta(seconds=2)
    world.put(workload("w", namespace="default", metadata={"ownerReferences": [owner("Job", "j")]}))
    assert world.value("kueue_workload_creation_latency_seconds_sum", job_kind="Job") == 2
    world.put(job("changed", queue="main", namespace="default", metadata={"generation": 2}))
    world.put(workload("x", namespace="default", metadata={"ownerReferences": [owner("Job", "changed")]}))
    assert world.value("kueue_workload_creation_latency_seconds_count", job_kind="Job") == 1


def test_the_removal_of_a_gate_is_compared_with_the_admission() -> None:
    world = World()
    body = reserved(world)
    body["metadata"]["ownerReferences"] = [owner("Pod", "p", api_version="v1")]
    world.put(body)
    world.put(pod("p", namespace="default", gates=[metadata.ADMISSION_GATE, "example.com/other"]))
    world.now += timedelta(seconds=3)
    world.put(pod("p", namespace="default"))
    labels = {"name": metadata.ADMISSION_GATE, "cluster_queue": "main", "is_group": "false"}
    assert world.value("kueue_pod_scheduling_gate_removal_seconds_sum", **labels) == 3


def test_series_end_with_their_queue() -> None:
    world = World()
    made = [obj(KUEUE, "Cohort", "team"), *queues("main", flavor="spot", cohortName="team")]
    world.put(*made, workload("w", namespace="default", cpu="1"))
    world.admit()
    decided = Cycle([
        Preempt(key_of(made[1]), key_of(made[1]), "InClusterQueue", "uid", "main", "/main", "/main"),
        Wait(key_of(made[1]), "main", Skipped("overlap"), inadmissible=False),
    ])  # fmt: skip
    world.metrics.note_cycle(decided, 0.1)
    assert world.value("kueue_admission_cycle_preemption_skips", cluster_queue="main") == 1
    preempted = {"preempting_cluster_queue": "main", "reason": "InClusterQueue"}
    assert world.value("kueue_preempted_workloads_total", **preempted) == 1
    for body in reversed(made):
        world.delete(body)
    left = {label for family in world.registry.collect() for s in family.samples for label in s.labels.values()}
    assert left.isdisjoint({"main", "team"})


def test_a_cycle_without_a_head_is_no_attempt() -> None:
    world = World()
    world.put(*queues("main", flavor="spot"), workload("w", namespace="default", cpu="1"))
    world.admit()
    world.metrics.note_cycle(Cycle(), 0.1)
    counted = {"result": "inadmissible"}
    assert world.value("kueue_admission_attempts_total", **counted) is None
    world.metrics.note_cycle(Cycle([Wait(Key("default", "w"), "main", Skipped("overlap"), inadmissible=False)]), 0.1)
    assert world.value("kueue_admission_attempts_total", **counted) == 1


def test_a_deleted_local_queue_keeps_the_series_of_others() -> None:
    world = World()
    world.put(*queues("main", flavor="spot"))
    other = obj(KUEUE, "LocalQueue", "other", "default", spec={"clusterQueue": "main"})
    world.put(other, workload("w", namespace="default", cpu="1"))
    world.put(workload("x", queue="other", namespace="default", cpu="1"))
    world.admit()
    world.delete(other)
    world.put(other)
    counted = "kueue_local_queue_admitted_workloads_total"
    assert world.value(counted, name="main", namespace="default", priority_class="") == 1
    assert world.value(counted, name="other", namespace="default", priority_class="") is None


def test_inadmissible_workloads_are_counted_by_local_queue() -> None:
    world = World()
    world.put(*queues("main", flavor="spot", local_queue="big"))
    world.put(obj(KUEUE, "LocalQueue", "small", "default", spec={"clusterQueue": "main"}))
    world.put(workload("large", queue="big", namespace="default", cpu="9"))
    world.admit()
    world.put(workload("new", queue="small", namespace="default", cpu="1"))
    for queue, status, count in (
        ("big", "active", 0),
        ("big", "inadmissible", 1),
        ("small", "active", 1),
        ("small", "inadmissible", 0),
    ):
        labels = {"name": queue, "namespace": "default", "status": status}
        assert world.value("kueue_local_queue_pending_workloads", **labels) == count, labels
    assert world.value("kueue_pending_workloads", cluster_queue="main", status="inadmissible") == 1


def test_workloads_of_a_stopped_queue_are_inadmissible() -> None:
    world = World()
    world.put(*queues("main", flavor="spot", stopPolicy="Hold"), workload("w", namespace="default", cpu="1"))
    assert world.value("kueue_pending_workloads", cluster_queue="main", status="active") == 0
    assert world.value("kueue_pending_workloads", cluster_queue="main", status="inadmissible") == 1
    local = {"name": "main", "namespace": "default", "status": "inadmissible"}
    assert world.value("kueue_local_queue_pending_workloads", **local) == 1


def test_resources_are_shown_if_the_settings_say_so() -> None:
    quota = {"name": "cpu", "nominalQuota": "1500m", "borrowingLimit": "250m"}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [quota]}]}]
    plain = World()
    plain.put(*queues("main", cohortName="team", resourceGroups=groups))
    resources = {name for name in KUEUE_FAMILIES if name.startswith("kueue_cluster_queue_")}
    assert plain.names() & resources == {"kueue_cluster_queue_status", "kueue_cluster_queue_info"}
    world = World(settings(metrics={"enableClusterQueueResources": True}))
    world.put(*queues("main", cohortName="team", resourceGroups=groups))
    world.put(workload("w", namespace="default", cpu="500m"))
    world.admit()
    world.put(workload("waits", namespace="default", cpu="1250m", count=2))
    labels = {"cohort": "team", "cluster_queue": "main", "flavor": "spot", "resource": "cpu"}
    assert world.value("kueue_cluster_queue_nominal_quota", **labels) == 1.5
    assert world.value("kueue_cluster_queue_borrowing_limit", **labels) == 0.25
    assert world.value("kueue_cluster_queue_lending_limit", **labels) == math.inf
    assert world.value("kueue_cluster_queue_resource_reservation", **labels) == 0.5
    assert world.value("kueue_cluster_queue_resource_usage", **labels) == 0.5
    assert world.value("kueue_cluster_queue_resource_pending", cluster_queue="main", resource="cpu") == 2.5


def test_shares_are_exact_and_not_a_number_at_weight_zero() -> None:
    world = World(settings(fairSharing=FAIR, metrics={"enableClusterQueueResources": True}))
    world.put(obj(KUEUE, "Cohort", "root"), obj(KUEUE, "Cohort", "team", spec={"parentName": "root"}))
    world.put(*queues("lender", cpu=6, flavor="spot", cohortName="root"))
    for name, weight in (("one", "1"), ("none", "0")):
        sharing = {"weight": weight}
        world.put(*queues(name, cpu=0, flavor="spot", cohortName="team", fairSharing=sharing))
        world.put(workload(name, queue=name, namespace="default", cpu="1"))
    world.admit()
    shown = world.value("kueue_cluster_queue_weighted_share", cluster_queue="one", cohort="team")
    assert shown == 1000 / 6
    assert math.isnan(world.value("kueue_cluster_queue_weighted_share", cluster_queue="none", cohort="team") or 0.0)
    assert world.value("kueue_cohort_weighted_share", cohort="team") == 2000 / 6


def test_the_settings_choose_the_local_queues() -> None:
    shown = settings(metrics={"localQueueMetrics": {"enable": True, "localQueueSelector": {"matchLabels": {"a": "b"}}}})
    none = settings(metrics={"localQueueMetrics": {"enable": False}})
    for configuration, expected in ((shown, {"yes"}), (none, set()), (settings(), {"yes", "no"})):
        world = World(configuration)
        world.put(*queues("main", flavor="spot", local_queue="no"))
        marked = obj(KUEUE, "LocalQueue", "yes", "default", metadata={"labels": {"a": "b"}})
        world.put({**marked, "spec": {"clusterQueue": "main"}})
        world.put(workload("w", queue="yes", namespace="default", cpu="1"))
        world.put(workload("x", queue="no", namespace="default", cpu="1"))
        world.admit()
        samples = [sample for family in world.registry.collect() for sample in family.samples]
        found = {s.labels["name"] for s in samples if s.name.startswith("kueue_local_queue_")}
        assert found == expected


def test_past_usage_is_shown_with_admission_fair_sharing() -> None:
    world = World(settings(admissionFairSharing={"usageHalfLifeTime": "10h", "usageSamplingInterval": "1s"}))
    world.put(*queues("main", flavor="spot"))
    labels = {"name": "main", "namespace": "default", "cluster_queue": "main"}
    assert world.value("kueue_local_queue_admission_fair_sharing_usage", **labels) == 0


def test_the_status_of_a_local_queue_is_that_of_its_condition() -> None:
    world = World()
    _, local = queues("main", flavor="spot")
    world.put({**local, "status": {"conditions": [condition("Active", "False", "ClusterQueueDoesNotExist")]}})
    labels = {"name": "main", "namespace": "default"}
    found = [world.value("kueue_local_queue_status", active=each, **labels) for each in ("True", "False", "Unknown")]
    assert found == [0, 1, 0]


def test_labels_of_objects_extend_the_metrics() -> None:
    custom = [
        {"name": "team"},
        {"name": "cost", "sourceAnnotationKey": "example.com/cost", "sourceKind": "LocalQueue"},
        {"name": "size", "sourceLabelKey": "size", "sourceKind": "Workload", "trackedValues": ["big"]},
    ]
    world = World(settings(metrics={"customLabels": custom}, featureGates={"CustomMetricLabels": True}))
    queue, local = queues("main", flavor="spot")
    queue["metadata"]["labels"] = {"team": "red"}
    local["metadata"]["annotations"] = {"example.com/cost": "7"}
    world.put(queue, local)
    for name, size in (("w", "big"), ("x", "odd")):
        world.put(workload(name, namespace="default", cpu="1", metadata={"labels": {"size": size}}))
    world.admit()
    shown = {"cluster_queue": "main", "custom_team": "red"}
    assert world.value("kueue_admitted_workloads_total", priority_class="", **shown) == 2
    for size in ("big", UNTRACKED):
        assert world.value("kueue_admitted_active_workloads", custom_size=size, **shown) == 1
    counted = "kueue_local_queue_admitted_workloads_total"
    assert world.value(counted, name="main", namespace="default", priority_class="", custom_cost="7") == 2
