"""Jobs that other clusters run: who gets a copy, who runs it, and what becomes of it when something breaks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kyu.api.kueue import MultiKueueCluster, Workload
from kyu.api.meta import Json, Key, key_of
from kyu.kinds import conditions, metadata
from kyu.kinds.job import JOB
from kyu.plans.clusters import checks
from kyu.plans.status import StatusEdit
from tests.support.dispatch_world import (
    JOB_KEY,
    LOST_AFTER,
    RUNNING,
    START,
    SUSPENDED,
    World,
    kueue_object,
    one_by_one,
    settings,
)
from tests.support.memory_view import MemoryView, merged


@pytest.fixture
def world() -> World:
    world = World()
    world.submit()
    return world


def running(world: World, name: str = "west") -> World:
    world.reserve("manager", name)
    assert world.cluster_name == name
    return world


def test_a_job_without_quota_is_sent_nowhere(world: World) -> None:
    assert world.copies() == []


def test_with_quota_every_cluster_gets_a_copy_and_none_the_job(world: World) -> None:
    world.reserve("manager")
    assert world.copies() == ["east", "west"]
    assert world.jobs() == []
    status = (world.manager.workload() or {})["status"]
    assert status["nominatedClusterNames"] == ["east", "west"]
    assert "clusterName" not in status


def test_a_copy_is_the_workload_with_the_origin_of_the_manager(world: World) -> None:
    world.reserve("manager")
    here, there = world.manager.workload(), world.clusters["east"].workload()
    assert here is not None
    assert there is not None
    assert there["spec"] == here["spec"]
    assert there["metadata"]["name"] == here["metadata"]["name"]
    assert metadata.labels_of(there) == {metadata.MULTI_KUEUE_ORIGIN: "multikueue"}
    assert "finalizers" not in there["metadata"]


def test_the_first_cluster_that_admits_gets_the_job_and_the_others_lose_their_copies(world: World) -> None:
    running(world)
    assert world.copies() == ["west"]
    assert world.jobs() == ["west"]
    assert world.check["state"] == "Ready"
    assert "west" in world.check["message"]
    assert world.manager.holds("Admitted")
    assert "nominatedClusterNames" not in (world.manager.workload() or {})["status"]


def test_the_job_there_is_made_for_the_workload_there_and_run_by_its_own_controller(world: World) -> None:
    running(world)
    job = world.clusters["west"].job()
    assert job is not None
    assert "managedBy" not in job["spec"]
    workload = (world.clusters["west"].workload() or {})["metadata"]
    assert metadata.labels_of(job)[metadata.MULTI_KUEUE_ORIGIN] == "multikueue"
    assert metadata.labels_of(job)[metadata.PREBUILT_WORKLOAD] == workload["name"]
    assert [owner["uid"] for owner in workload["ownerReferences"]] == [job["metadata"]["uid"]]


def test_the_job_here_shows_how_the_one_there_does(world: World) -> None:
    running(world)
    assert (world.manager.job() or {})["status"] == RUNNING


def test_the_end_there_is_the_end_here_and_nothing_stays_there(world: World) -> None:
    running(world).clusters["west"].end_job()
    world.settle()
    assert world.manager.holds("Finished")
    assert conditions.is_true(world.manager.job() or {}, "Complete")
    assert world.copies() == world.jobs() == []


def end_before_it_is_written_down(world: World) -> None:
    """In west, whose copy got its job and ended while the manager did not look."""
    world.reserve("manager")
    west = world.clusters["west"]
    west.reserve(world.now)
    one_by_one(west, world.now)
    for action in world.plan():
        world.carry_out(action)
    for _ in range(3):
        one_by_one(west, world.now)
        west.run_pods()
        west.end_job()
    assert west.holds("Finished")
    assert world.cluster_name == ""


@pytest.mark.parametrize("is_nominated", [True, False])
def test_a_job_that_ends_before_its_cluster_was_written_down_says_where_it_ran(
    world: World, is_nominated: bool
) -> None:
    end_before_it_is_written_down(world)
    if not is_nominated:
        found = world.manager.workload()
        assert found is not None
        world.manager.edit(Workload.KIND, found, nominatedClusterNames=["east"])
    world.settle()
    assert world.manager.holds("Finished")
    assert world.cluster_name == "west"
    assert "nominatedClusterNames" not in (world.manager.workload() or {})["status"]
    assert world.copies() == world.jobs() == []


def test_the_end_of_an_earlier_workload_by_the_same_name_is_not_that_of_this_one(world: World) -> None:
    end_before_it_is_written_down(world)
    found = world.manager.workload()
    assert found is not None
    world.manager.put(merged(found, {"metadata": {"uid": "later"}}))
    world.settle()
    assert not world.manager.holds("Finished")
    assert world.copies() == ["east", "west"]


def test_a_workload_that_is_deleted_here_is_deleted_there(world: World) -> None:
    running(world)
    del world.manager.objects["batch", "Job", JOB_KEY]
    world.settle()
    assert world.manager.workload() is None
    assert world.copies() == world.jobs() == []


def test_evicted_there_it_queues_here_again_and_may_go_elsewhere(world: World) -> None:
    running(world).clusters["west"].evict(world.now)
    world.settle()
    assert not world.manager.holds("QuotaReserved")
    assert world.copies() == []
    world.reserve("manager", "east")
    assert world.cluster_name == "east"
    assert world.jobs() == ["east"]


def test_evicted_here_it_is_stopped_there_before_its_quota_is_given_back(world: World) -> None:
    running(world).manager.evict(world.now)
    world.one_round()
    assert world.manager.holds("QuotaReserved")
    assert world.clusters["west"].holds("DeactivationTarget")
    world.settle()
    assert not world.manager.holds("QuotaReserved")
    assert world.copies() == world.jobs() == []


def test_a_cluster_out_of_reach_keeps_its_job_for_a_while(world: World) -> None:
    running(world).lose("west")
    world.wait(LOST_AFTER - timedelta(seconds=1))
    assert world.cluster_name == "west"
    assert START + LOST_AFTER in world.wakes
    world.find("west")
    assert world.check["state"] == "Ready"
    assert world.jobs() == ["west"]


def test_a_cluster_that_found_room_while_it_was_out_of_reach_is_nominated_again_and_gets_the_job(world: World) -> None:
    world.reserve("manager")
    world.lose("west")
    assert (world.manager.workload() or {})["status"]["nominatedClusterNames"] == ["east"]
    world.reserve("west")
    world.find("west")
    assert world.cluster_name == "west"
    assert world.copies() == world.jobs() == ["west"]


def test_after_that_time_another_cluster_may_have_it_and_what_comes_back_is_removed(world: World) -> None:
    running(world).lose("west")
    world.wait(LOST_AFTER)
    assert not world.manager.holds("QuotaReserved")
    world.reserve("manager", "east")
    assert world.cluster_name == "east"
    world.find("west")
    assert world.copies() == world.jobs() == ["east"]


def test_evicted_here_while_its_cluster_is_out_of_reach_it_keeps_its_quota_until_that_counts_as_lost(
    world: World,
) -> None:
    running(world).lose("west")
    world.manager.evict(world.now)
    world.settle()
    assert world.manager.holds("QuotaReserved")
    world.wait(LOST_AFTER)
    assert not world.manager.holds("QuotaReserved")


def test_a_cluster_that_is_no_longer_registered_is_not_waited_for(world: World) -> None:
    running(world)
    del world.clusters["west"]
    world.settle()
    assert not world.manager.holds("QuotaReserved")


def test_a_job_that_somebody_deleted_there_is_queued_again(world: World) -> None:
    running(world)
    del world.clusters["west"].objects["batch", "Job", JOB_KEY]
    world.settle()
    assert not world.manager.holds("QuotaReserved")


def fall_out_of_step(world: World, name: str = "west") -> None:
    """Somebody edits the job there: its cluster stops it, and is done with its copy."""
    there = world.clusters[name]
    copy = there.workload()
    assert copy is not None
    edit = StatusEdit(copy, world.now)
    edit.set_condition("Finished", "True", "OutOfSync", "")
    there.edit(Workload.KIND, copy, **edit.status)
    world.settle()


def test_a_job_that_was_edited_there_is_queued_again(world: World) -> None:
    fall_out_of_step(running(world))
    assert not world.manager.holds("QuotaReserved")
    assert world.copies() == world.jobs() == []
    assert (world.manager.job() or {})["status"] == SUSPENDED


def test_a_job_that_is_another_one_there_from_its_start_is_queued_again(world: World) -> None:
    world.reserve("manager")
    world.clusters["west"].reserve(world.now)
    world.one_round()
    assert world.jobs() == ["west"]
    assert world.check["state"] == "Pending"
    fall_out_of_step(world)
    assert not world.manager.holds("QuotaReserved")
    assert world.copies() == world.jobs() == []


def test_a_new_priority_goes_to_the_copies(world: World) -> None:
    world.reserve("manager")
    found = world.manager.workload()
    assert found is not None
    world.manager.put({**found, "spec": {**found["spec"], "priority": 7}})
    for action in world.plan():
        world.carry_out(action)
    assert [(cluster.workload() or {})["spec"]["priority"] for cluster in world.clusters.values()] == [7, 7]


def test_what_somebody_else_has_there_by_the_same_name_is_left_alone(world: World) -> None:
    other = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "team"}, "spec": {}}
    world.clusters["west"].put({**other, "spec": {"suspend": True, "template": {}}})
    world.reserve("manager")
    assert world.copies() == ["east"]
    assert (world.clusters["west"].job() or {})["metadata"]["name"] == "train"


def test_a_job_that_was_deleted_is_not_taken_for_the_next_of_its_name(world: World) -> None:
    running(world).lose("west")
    here, west = world.manager, world.clusters["west"]
    here.objects = {key: obj for key, obj in here.objects.items() if key[1] not in ("Job", "Workload")}
    world.submit()
    world.reserve("manager")
    west.end_job()
    old = west.job()
    assert old is not None
    # It is back, and its Job is slow to go.
    west.put(
        merged(old, {"metadata": {"finalizers": ["example.com/slow"], "deletionTimestamp": "2026-01-01T10:00:00Z"}})
    )
    world.find("west")
    assert world.copies() == ["east"]
    del west.objects["batch", "Job", JOB_KEY]
    world.settle()
    world.reserve("west")
    assert world.cluster_name == "west"
    assert (world.manager.job() or {})["status"] == RUNNING


def test_where_no_cluster_can_be_asked_the_check_says_why(world: World) -> None:
    world.lose("west")
    world.kinds = frozenset({Workload.KIND})
    world.reserve("manager")
    assert world.check["state"] == "Pending"
    assert world.check["message"] == "east: it has no jobs; west: not connected (no answer)"


def test_a_cluster_that_refuses_a_copy_says_why_and_is_left_out(world: World) -> None:
    world.reserve("manager")
    key = key_of(world.manager.workload() or {})
    world.refusals[key] = "no such namespace"
    world.settle()
    assert world.copies() == []
    assert world.check["message"] == "east: no such namespace; west: no such namespace"
    world.refusals.clear()
    world.settle()
    assert world.copies() == ["east", "west"]
    assert world.check["message"] == "Waits for room in one of: east, west"


def test_a_cluster_that_comes_later_is_asked_too(world: World) -> None:
    world.lose("west")
    world.reserve("manager")
    assert world.copies() == ["east"]
    world.find("west")
    assert world.copies() == ["east", "west"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"managedBy": None}, "spec.managedBy of its Job must be kueue.x-k8s.io/multikueue"),
        ({"metadata": {"annotations": {metadata.ELASTIC_JOB: "true"}}}, "An elastic job"),
    ],
)
def test_a_job_that_cannot_be_sent_is_rejected_with_the_reason(changes: dict[str, Any], words: str) -> None:
    world = World()
    world.submit(**changes)
    world.reserve("manager")
    assert world.check["state"] == "Rejected"
    assert words in world.check["message"]
    assert world.copies() == []


def test_a_workload_of_a_kind_that_stays_here_is_rejected() -> None:
    world = World()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    world.manager.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}, "spec": {}})
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": []}}}
    workload = kueue_object("Workload", "w", "team", queueName="all", podSets=[pods])
    world.manager.put(merged(workload, {"metadata": {"ownerReferences": [owner]}}))
    world.settle()
    assert world.check["state"] == "Rejected"
    assert "A Pod cannot be sent" in world.check["message"]


# Which clusters are asked.


def test_the_incremental_dispatcher_asks_more_clusters_in_each_round() -> None:
    names = ("d", "c", "b", "a")
    steps = {"dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-incremental"}
    world = World(names, settings(**steps, incrementalDispatcherConfig={"stepSize": 2}))
    world.submit()
    world.reserve("manager")
    assert world.copies() == ["d", "c"]
    assert START + timedelta(minutes=5) in world.wakes
    world.wait(timedelta(minutes=5))
    assert world.copies() == ["d", "c", "b", "a"]


def test_with_a_dispatcher_of_somebody_else_its_nominations_hold() -> None:
    world = World(configuration=settings(dispatcherName="example.com/mine"))
    world.submit()
    world.reserve("manager")
    assert world.copies() == []
    found = world.manager.workload()
    assert found is not None
    world.manager.edit(Workload.KIND, found, nominatedClusterNames=["west"])
    world.settle()
    assert world.copies() == ["west"]


# Clusters and checks.


def check_condition(*clusters: Json, config: Json | None = None) -> Json:
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    check = kueue_object("AdmissionCheck", "away", controllerName="kueue.x-k8s.io/multikueue", parameters=parameters)
    view = MemoryView([check, *([config] if config else []), *clusters])
    for action in checks.plan_check(view, Key("", "away"), START):
        view.carry_out(action)
    (found,) = view.objects["kueue.x-k8s.io", "AdmissionCheck", Key("", "away")]["status"]["conditions"]
    return dict(found)


def cluster(name: str, active: str) -> Json:
    condition = {"type": "Active", "status": active, "reason": "x", "message": ""}
    return {**kueue_object("MultiKueueCluster", name, clusterSource={}), "status": {"conditions": [condition]}}


BOTH = kueue_object("MultiKueueConfig", "all", clusters=["east", "west"])


@pytest.mark.parametrize(
    ("clusters", "config", "status", "reason", "words"),
    [
        ([cluster("east", "True"), cluster("west", "True")], BOTH, "True", "Active", ""),
        ([cluster("east", "True"), cluster("west", "False")], BOTH, "True", "SomeActiveClusters", "Inactive: west"),
        ([cluster("east", "False")], BOTH, "False", "NoUsableClusters", "Missing: west; Inactive: east"),
        ([], None, "False", "BadConfig", "not there"),
    ],
)
def test_a_check_is_active_while_it_has_a_cluster(
    clusters: list[Json], config: Json | None, status: str, reason: str, words: str
) -> None:
    found = check_condition(*clusters, config=config)
    assert (found["status"], found["reason"]) == (status, reason)
    assert words in found["message"]


def test_a_cluster_tells_whether_it_is_reached(world: World) -> None:
    world.manager.put(kueue_object("MultiKueueCluster", "west"))
    for lost, wanted in ((False, ("True", "Active")), (True, ("False", "ClientConnectionFailed"))):
        world.lost = {"west": START} if lost else {}
        for action in checks.plan_cluster(world.workers, world.manager, Key("", "west"), world.now):
            world.carry_out(action)
        found = world.manager.find_json(MultiKueueCluster.KIND, Key("", "west"))
        assert found is not None
        (condition,) = found["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == wanted


def test_a_job_there_whose_workload_is_gone_on_both_sides_is_garbage(world: World) -> None:
    running(world)
    west = world.clusters["west"]
    for view in (world.manager, west):
        view.objects = {key: obj for key, obj in view.objects.items() if key[1] != "Workload"}
    del world.manager.objects["batch", "Job", JOB_KEY]
    for action in checks.plan_garbage(world.workers, world.manager, Key("", "west"), world.now):
        world.carry_out(action)
    assert west.find_json(JOB, JOB_KEY) is None
