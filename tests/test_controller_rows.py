"""What reacts to what: for a change of an object, which rows of the tables look at which keys, and which do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kyu.api.meta import Json, key_of
from kyu.controllers import pool_rows, stand_ins, table
from kyu.controllers.loop import Controller
from tests.memory_view import MemoryView

KUEUE = "kueue.x-k8s.io/v1beta2"
ROWS = (*table.controllers(), *pool_rows.controllers(), *stand_ins.controllers())


def obj(api_version: str, kind: str, name: str, namespace: str = "team", **parts: Any) -> Json:
    meta = {"name": name, "namespace": namespace, **parts.pop("metadata", {})}
    if not namespace:
        del meta["namespace"]
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **parts}


def holding(type_: str, status: str = "True") -> Json:
    return {"conditions": [{"type": type_, "status": status}]}


def workload(name: str = "w", **parts: Any) -> Json:
    return obj(KUEUE, "Workload", name, **{"spec": {"queueName": "door"}, **parts})


def pod(name: str = "p", **parts: Any) -> Json:
    return obj("v1", "Pod", name, **parts)


def node(*, ready: str = "True", **parts: Any) -> Json:
    return obj("v1", "Node", "n", "", status=holding("Ready", ready), **parts)


def job(name: str = "j", **parts: Any) -> Json:
    return obj("batch/v1", "Job", name, **{"spec": {}, **parts})


def woken(
    old: Json | None, new: Json | None, around: Iterable[Json] = (), rows: Iterable[Controller] = ROWS
) -> set[str]:
    """`row: key` for each that the change wakes by a watch."""
    view = MemoryView(around)
    states = [state for state in (old, new) if state is not None]
    kind = states[0]["kind"]
    found = set()
    for row in rows:
        for watch in row.watches:
            if watch.kind.kind == kind and (watch.matters is None or watch.matters(old, new)):
                for state in states:
                    keys = [key_of(state)] if watch.keys is None else watch.keys(view, state)
                    found |= {f"{row.name}: {key}" for key in keys}
    return found


# Queues and flavors


DOOR = obj(KUEUE, "LocalQueue", "door", spec={"clusterQueue": "main"})
FLAVORS = {"resourceGroups": [{"flavors": [{"name": "spot"}]}]}
MAIN = obj(KUEUE, "ClusterQueue", "main", "", spec=FLAVORS)


def test_queues_wake_what_waits_in_them_by_their_spec_and_not_by_their_numbers() -> None:
    around = [DOOR, MAIN, workload(), workload("other", spec={"queueName": "else"})]
    stopped = {**DOOR, "spec": {**DOOR["spec"], "stopPolicy": "Hold"}}
    assert woken(DOOR, stopped, around) == {"workload: team/w"}
    assert woken(DOOR, {**DOOR, "status": {"pendingWorkloads": 3}}, around) == set()
    going = {**DOOR, "metadata": {**DOOR["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert woken(DOOR, going, around) == {"workload: team/w"}
    assert woken(MAIN, {**MAIN, "status": {"pendingWorkloads": 3}}, around) == set()
    assert woken(MAIN, {**MAIN, "status": holding("Active", "False")}, around) == {"workload: team/w"}
    both = {"workload: team/w", "clusterqueues-in-use: main", "resourceflavors-in-use: spot"}
    assert woken(MAIN, {**MAIN, "spec": {**FLAVORS, "stopPolicy": "Hold"}}, around) == both
    assert woken(MAIN, None, around) == both


def test_a_config_of_provisioning_wakes_the_workloads_that_are_checked_and_all_checks() -> None:
    config = obj(KUEUE, "ProvisioningRequestConfig", "c", "")
    checked = workload("checked", status={"admissionChecks": [{"name": "c"}]})
    check = obj(KUEUE, "AdmissionCheck", "c", "")
    assert woken(None, config, [workload(), checked, check]) == {"provisioning: team/checked", "admission-check: c"}


def test_a_priority_class_wakes_the_jobs_that_name_it() -> None:
    named = job("named", metadata={"labels": {"kueue.x-k8s.io/priority-class": "high"}})
    high = obj(KUEUE, "WorkloadPriorityClass", "high", "")
    assert woken(None, high, [named, job()]) == {"job/batch/job: team/named"}


# Workloads


def admission(*pod_sets: Json) -> Json:
    return {"admission": {"clusterQueue": "main", "podSetAssignments": list(pod_sets)}}


PLACED = admission({"name": "main", "topologyAssignment": {"levels": ["l"]}})


def rows_of(found: set[str]) -> set[str]:
    return {one.partition(":")[0] for one in found}


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        ({}, {}, set()),
        ({}, {"admissionChecks": [{"name": "c"}]}, {"provisioning"}),
        ({"admissionChecks": [{"name": "c"}]}, {}, {"provisioning"}),
        ({}, PLACED, {"topology", "node-failure"}),
        (PLACED, {**PLACED, "unhealthyNodes": []}, set()),
        (PLACED, {**PLACED, **holding("Admitted")}, {"topology", "node-failure"}),
        (admission({"name": "main"}), admission(), set()),
    ],
)
def test_a_status_of_a_workload_wakes_only_who_looks_at_that_part(before: Json, after: Json, rows: set[str]) -> None:
    assert rows_of(woken(workload(status=before), workload(status=after))) == {"workload", *rows}


def test_workloads_of_groups_wake_the_group() -> None:
    group = workload(metadata={"annotations": {"kueue.x-k8s.io/is-group-workload": "true"}})
    assert rows_of(woken(group, group)) == {"workload", "pod-group"}
    assert rows_of(woken(group, None)) == {"workload", "pod-group"}


# Jobs that start after others


def test_the_end_of_a_job_wakes_those_that_start_after_it() -> None:
    waiting = job(
        "later", metadata={"annotations": {"kyu.dev/after": "j", "kueue.x-k8s.io/admission-gated-by": "kyu.dev/after"}}
    )
    running, done, failed = job(), job(status=holding("Complete")), job(status=holding("Failed"))
    rows = [row for row in ROWS if row.name == "after"]
    assert woken(running, running, [waiting], rows) == set()
    assert woken(running, done, [waiting], rows) == {"after: team/later"}
    assert woken(running, failed, [waiting], rows) == {"after: team/later"}
    assert woken(done, done, [waiting], rows) == set()
    assert woken(done, None, [waiting], rows) == {"after: team/later"}
    assert woken(None, waiting, [], rows) == {"after: team/later"}


# Nodes and pods


def test_a_node_wakes_whom_its_health_concerns_and_no_heartbeat_does() -> None:
    one_pod = {"domainCount": 1, "podCounts": {"universal": 1}, "valuesPerLevel": [{"universal": "n"}]}
    assignment = {"levels": ["kubernetes.io/hostname"], "slices": [one_pod]}
    placed = {"clusterQueue": "main", "podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]}
    around = [workload(status={"admission": placed}), workload("elsewhere")]
    beating = node()
    beating["status"]["conditions"][0]["lastHeartbeatTime"] = "later"
    assert woken(node(), beating, around) == set()
    rows = {"node-failure: team/w", "binding: pods", "virtual-node: n"}
    assert woken(node(), node(ready="False"), around) == rows
    assert woken(node(), node(spec={"taints": [{"key": "k", "effect": "NoExecute"}]}), around) == rows
    assert woken(node(), None, around) == rows
    labelled = node(metadata={"labels": {"zone": "x"}})
    assert woken(node(), labelled, around) == {"binding: pods", "virtual-node: n"}


def test_pods_wake_their_group_the_binding_and_who_placed_them() -> None:
    ours = {"annotations": {"kueue.x-k8s.io/workload": "w"}}
    gated = pod(metadata=ours, spec={"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]})
    free = pod(metadata=ours, spec={})
    chosen = pod(metadata=ours, spec={"nodeSelector": {"kubernetes.io/hostname": "n"}})
    table_rows = [
        row for row in ROWS if row.name in ("topology", "node-failure", "pod-group", "orphaned-pods", "binding")
    ]
    assert woken(None, gated, rows=table_rows) == {"topology: team/w", "binding: pods"}
    assert woken(None, free, rows=table_rows) == {"binding: pods"}
    assert woken(None, chosen, [node()], table_rows) == {"binding: pods"}
    for trouble in ([], [node(ready="False")], [node(spec={"taints": [{"key": "k", "effect": "NoSchedule"}]})]):
        assert woken(None, chosen, trouble, table_rows) == {"binding: pods", "node-failure: team/w"}
    grouped = pod(
        metadata={"labels": {"kueue.x-k8s.io/pod-group-name": "g"}, "finalizers": ["f"]}, spec={"nodeName": "n"}
    )
    assert woken(None, grouped, rows=table_rows) == {"pod-group: team/g", "orphaned-pods: team/p"}
    bound, over = pod(spec={"nodeName": "n"}), pod(spec={"nodeName": "n"}, status={"phase": "Failed"})
    assert woken(bound, bound, rows=table_rows) == set()
    assert woken(bound, over, rows=table_rows) == {"binding: pods"}
    assert woken(over, over, rows=table_rows) == set()
    assert woken(over, None, rows=table_rows) == set()


# Pools


def test_a_pool_that_says_the_same_on_time_wakes_nobody() -> None:
    said = obj("kyu.dev/v1", "PoolReport", "f.p", "master", quotas={"cpu": "1"}, at=100.0, period=10.0, runs=False)
    assert woken(None, said) == {"master-queue: master"}
    assert woken(said, {**said, "at": 115.0}) == set()
    assert woken(said, {**said, "at": 115.1}) == {"master-queue: master"}
    for change in ({"quotas": {"cpu": "2"}}, {"labels": ["a=b"]}, {"taints": ["t"]}, {"runs": True}):
        assert woken(said, {**said, **change}) == {"master-queue: master"}
    unknown = {key: value for key, value in said.items() if key != "period"}
    assert woken(unknown, said) == {"master-queue: master"}


def test_what_a_master_queue_counts_of_pools_wakes_all_who_may_have_the_same() -> None:
    def master(name: str, **fields: object) -> Json:
        return obj("vk.io/v1", "MasterQueue", name, "", **fields)

    pool = {"flavor": "f", "name": "p", "state": "Live", "effective": {"cpu": "4"}}
    one, other = master("one", status={"pools": [pool]}), master("other")
    both = {"master-queue: one", "master-queue: other"}
    assert woken(one, master("one", status={"pools": [pool], "livePools": 1}), [one, other]) == {"master-queue: one"}
    assert woken(one, master("one", status={"pools": [{**pool, "effective": {"cpu": "5"}}]}), [one, other]) == both
    assert woken(one, master("one", status={"pools": [pool]}, spec={"flavors": []}), [one, other]) == both
    assert woken(one, None, [other]) == both


def test_quota_that_returns_wakes_the_master_of_its_queue() -> None:
    owner = {"apiVersion": "vk.io/v1alpha1", "kind": "MasterQueue", "name": "master", "uid": "u", "controller": True}
    rows = [row for row in ROWS if row.name == "master-queue"]
    api_version = rows[0].watches[0].kind.api_version
    queue = obj(KUEUE, "ClusterQueue", "main", "", metadata={"ownerReferences": [{**owner, "apiVersion": api_version}]})
    held = workload(status={"admission": {"clusterQueue": "main"}})
    over = workload(status={"admission": {"clusterQueue": "main"}, **holding("Finished")})
    assert woken(held, workload(), [queue], rows) == {"master-queue: master"}
    assert woken(held, over, [queue], rows) == {"master-queue: master"}
    assert woken(held, None, [queue], rows) == {"master-queue: master"}
    assert woken(workload(), held, [queue], rows) == set()
    assert woken(over, None, [queue], rows) == set()
    foreign = obj(KUEUE, "ClusterQueue", "main", "", metadata={"ownerReferences": [{**owner, "apiVersion": "x.io/v1"}]})
    assert woken(held, workload(), [foreign], rows) == set()


def test_the_end_of_a_node_wakes_its_pods_and_a_start_all_that_have_one() -> None:
    bound, other = pod(spec={"nodeName": "n"}), pod("other", spec={"nodeName": "m"})
    lost = {"lost-pods: team/p"}
    assert {one for one in woken(node(), None, [bound, other]) if one.startswith("lost")} == lost
    assert {one for one in woken(node(), node(ready="False"), [bound]) if one.startswith("lost")} == set()
    assert {one for one in woken(None, bound) if one.startswith("lost")} == lost
    assert {one for one in woken(pod(), bound) if one.startswith("lost")} == set()
