"""The tables of controllers: the rows and keys that a change of an object wakes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kyu.api.meta import Json, key_of
from kyu.controllers import table
from kyu.controllers.embedded import rows as embedded_rows
from kyu.controllers.loop import Controller
from kyu.controllers.pools import rows as pool_rows
from tests.support.manifests import KUEUE, job, node, obj, owner, pod, workload
from tests.support.memory_view import MemoryView

ROWS = (*table.controllers(), *pool_rows.controllers(), *embedded_rows.controllers())


def holding(type_: str, status: str = "True") -> Json:
    return {"conditions": [{"type": type_, "status": status}]}


def woken(
    old: Json | None, new: Json | None, around: Iterable[Json] = (), rows: Iterable[Controller] = ROWS
) -> set[str]:
    """Return `row: key` for each row that a watch wakes."""
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


DOOR = obj(KUEUE, "LocalQueue", "door", "team", spec={"clusterQueue": "main"})
FLAVORS = {"resourceGroups": [{"flavors": [{"name": "spot"}]}]}
MAIN = obj(KUEUE, "ClusterQueue", "main", spec=FLAVORS)


def test_queues_wake_what_waits_in_them_by_their_spec_and_not_by_their_numbers() -> None:
    around = [DOOR, MAIN, workload(queue="door"), workload("other", queue="else")]
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
    config = obj(KUEUE, "ProvisioningRequestConfig", "c")
    checked = workload("checked", status={"admissionChecks": [{"name": "c"}]})
    check = obj(KUEUE, "AdmissionCheck", "c")
    assert woken(None, config, [workload(), checked, check]) == {"provisioning: team/checked", "admission-check: c"}


def test_a_check_with_another_configuration_wakes_its_workloads() -> None:
    checked = workload("checked", status={"admissionChecks": [{"name": "c"}]})
    around = [workload(), checked, workload("other", status={"admissionChecks": [{"name": "d"}]})]
    before, after = (obj(KUEUE, "AdmissionCheck", "c", spec={"parameters": {"name": name}}) for name in ("one", "two"))
    assert "provisioning: team/checked" in woken(before, after, around)
    assert not any("other" in one or "team/w" in one for one in woken(before, after, around))


def test_a_priority_class_wakes_the_jobs_that_may_wait_for_it() -> None:
    queued = job("queued", metadata={"uid": "u"})
    around = [job(), queued, workload(metadata={"ownerReferences": [owner("Job", "queued", uid="u")]})]
    high = obj(KUEUE, "WorkloadPriorityClass", "high", value=1)
    higher = {**high, "value": 2}
    assert woken(None, high, around) == {"job/batch/job: team/j", "workload-priority-class: high"}
    assert woken(high, higher, around) == {"workload-priority-class: high"}
    of_pods = obj("scheduling.k8s.io/v1", "PriorityClass", "high", value=1)
    assert woken(None, of_pods, around) == {"job/batch/job: team/j"}
    assert woken(of_pods, {**of_pods, "description": "x"}, around) == set()


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
def test_a_status_of_a_workload_wakes_only_the_rows_that_read_it(before: Json, after: Json, rows: set[str]) -> None:
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
    rows = [row for row in ROWS if row.name == "job-dependencies"]
    assert woken(running, running, [waiting], rows) == set()
    assert woken(running, done, [waiting], rows) == {"job-dependencies: team/later"}
    assert woken(running, failed, [waiting], rows) == {"job-dependencies: team/later"}
    assert woken(done, done, [waiting], rows) == set()
    assert woken(done, None, [waiting], rows) == {"job-dependencies: team/later"}
    assert woken(None, waiting, [], rows) == {"job-dependencies: team/later"}


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
    assert woken(node(), node(taints=[{"key": "k", "effect": "NoExecute"}]), around) == rows
    assert woken(node(), None, around) == rows
    labelled = node(labels={"zone": "x"})
    assert woken(node(), labelled, around) == {"binding: pods", "virtual-node: n"}


def test_pods_wake_their_group_the_binding_and_their_placement() -> None:
    ours = {"annotations": {"kueue.x-k8s.io/workload": "w"}}
    gated = pod(metadata=ours, gates=["kueue.x-k8s.io/topology"])
    free = pod(metadata=ours)
    chosen = pod(metadata=ours, nodeSelector={"kubernetes.io/hostname": "n"})
    table_rows = [
        row for row in ROWS if row.name in ("topology", "node-failure", "pod-group", "orphaned-pods", "binding")
    ]
    assert woken(None, gated, rows=table_rows) == {"topology: team/w", "binding: pods"}
    assert woken(None, free, rows=table_rows) == {"binding: pods"}
    assert woken(None, chosen, [node()], table_rows) == {"binding: pods"}
    by_name = pod(metadata=ours, node="n")
    for trouble in ([], [node(ready="False")], [node(taints=[{"key": "k", "effect": "NoSchedule"}])]):
        assert woken(None, chosen, trouble, table_rows) == {"binding: pods", "node-failure: team/w"}
        assert woken(None, by_name, trouble, table_rows) == {"node-failure: team/w"}
    grouped = pod(metadata={"labels": {"kueue.x-k8s.io/pod-group-name": "g"}, "finalizers": ["f"]}, node="n")
    assert woken(None, grouped, rows=table_rows) == {"pod-group: team/g", "orphaned-pods: team/p"}
    bound, over = pod(node="n"), pod(node="n", phase="Failed")
    assert woken(bound, bound, rows=table_rows) == set()
    assert woken(bound, over, rows=table_rows) == {"binding: pods"}
    assert woken(over, over, rows=table_rows) == set()
    assert woken(over, None, rows=table_rows) == set()


# Pools


def test_a_timely_unchanged_announcement_wakes_no_row() -> None:
    said = obj("kyu.dev/v1", "PoolReport", "f.p", "master", quotas={"cpu": "1"}, at=100.0, period=10.0, runs=False)
    assert woken(None, said) == {"master-queue: master"}
    assert woken(said, {**said, "at": 115.0}) == set()
    assert woken(said, {**said, "at": 115.1}) == {"master-queue: master"}
    for change in ({"quotas": {"cpu": "2"}}, {"labels": ["a=b"]}, {"taints": ["t"]}, {"runs": True}):
        assert woken(said, {**said, **change}) == {"master-queue: master"}
    unknown = {key: value for key, value in said.items() if key != "period"}
    assert woken(unknown, said) == {"master-queue: master"}


def test_the_counted_pools_of_a_master_queue_wake_all_others() -> None:
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
    queue = obj(KUEUE, "ClusterQueue", "main", metadata={"ownerReferences": [{**owner, "apiVersion": api_version}]})
    held = workload(status={"admission": {"clusterQueue": "main"}})
    over = workload(status={"admission": {"clusterQueue": "main"}, **holding("Finished")})
    assert woken(held, workload(), [queue], rows) == {"master-queue: master"}
    assert woken(held, over, [queue], rows) == {"master-queue: master"}
    assert woken(held, None, [queue], rows) == {"master-queue: master"}
    assert woken(workload(), held, [queue], rows) == set()
    assert woken(over, None, [queue], rows) == set()
    foreign = obj(KUEUE, "ClusterQueue", "main", metadata={"ownerReferences": [{**owner, "apiVersion": "x.io/v1"}]})
    assert woken(held, workload(), [foreign], rows) == set()


def test_the_end_of_a_node_wakes_its_pods_and_a_start_all_that_have_one() -> None:
    bound, other = pod(node="n"), pod("other", node="m")
    lost = {"lost-pods: team/p"}
    assert {one for one in woken(node(), None, [bound, other]) if one.startswith("lost")} == lost
    assert {one for one in woken(node(), node(ready="False"), [bound]) if one.startswith("lost")} == set()
    assert {one for one in woken(None, bound) if one.startswith("lost")} == lost
    assert {one for one in woken(pod(), bound) if one.startswith("lost")} == set()


def test_a_workload_without_an_owner_wakes_the_jobs_that_name_it() -> None:
    named = job("late")
    named["metadata"]["labels"] = {"kueue.x-k8s.io/prebuilt-workload-name": "w"}
    around = [named, job("other")]
    free = workload()
    free["metadata"].pop("ownerReferences", None)
    assert "job/batch/job: team/late" in woken(None, free, around)
    assert "job/batch/job: team/other" not in woken(None, free, around)
    owned = {**free, "metadata": {**free["metadata"], "ownerReferences": [{"uid": "u"}]}}
    assert "job/batch/job: team/late" not in woken(None, owned, around)
