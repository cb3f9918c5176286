"""CronJobs, Deployments and ReplicaSets in embedded mode, on a clock of our own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kyu.api.actions import Event, WakeAt
from kyu.api.core import Pod
from kyu.api.meta import Json, Key, key_of
from kyu.kinds.job import JOB
from kyu.plans.pods import cron_jobs, replica_sets
from kyu.plans.status import timestamp
from tests.plans.test_pods import START, World, conditions

# CronJobs -------------------------------------------------------------------------------------------------------------


def add_cron_job(world: World, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {"spec": {"containers": []}}}}
    body = {"metadata": {"name": "c"}, "spec": {"schedule": "*/10 * * * *", "jobTemplate": template, **spec}}
    return world.add(cron_jobs.CRON_JOB, body)


def run_cron(world: World) -> list[str]:
    """The names of the Jobs after the plan was carried out."""
    world.run(cron_jobs.plan, "c")
    return [job["metadata"]["name"] for job in world.list_json(JOB)]


def finish(job: Json, type_: str = "Complete", at: str = "2026-01-01T00:10:30Z") -> None:
    job["status"] = {"conditions": [{"type": type_, "status": "True"}], "startTime": at, "completionTime": at}


def test_a_cron_job_makes_a_job_at_each_time() -> None:
    world = World()
    cron_job = add_cron_job(world)
    assert run_cron(world) == []
    assert world.wake_at == START + timedelta(minutes=10)
    world.pass_time(601)
    (name,) = run_cron(world)
    assert name == f"c-{int((START + timedelta(minutes=10)).timestamp()) // 60}"
    job = world.list_json(JOB)[0]
    assert job["metadata"]["labels"] == {"a": "b"}
    assert job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    assert cron_job["status"]["lastScheduleTime"] == "2026-01-01T00:10:00Z"
    assert [a["name"] for a in cron_job["status"]["active"]] == [name]
    assert world.wake_at == START + timedelta(minutes=20)
    finish(job)
    run_cron(world)
    assert "active" not in cron_job["status"]
    assert cron_job["status"]["lastSuccessfulTime"] == "2026-01-01T00:10:30Z"


@pytest.mark.parametrize(("policy", "jobs"), [("Allow", 2), ("Forbid", 1), ("Replace", 1)])
def test_concurrency_policies(policy: str, jobs: int) -> None:
    world = World()
    add_cron_job(world, concurrencyPolicy=policy)
    world.pass_time(600)
    (first,) = run_cron(world)
    world.pass_time(600)
    # Forbid tells each time that it holds the run back, so it is asked once only.
    for action in cron_jobs.plan(world, Key("team", "c"), world.now):
        if not isinstance(action, WakeAt):
            world.apply(action)
    names = [job["metadata"]["name"] for job in world.list_json(JOB)]
    assert len(names) == jobs
    assert (first in names) == (policy != "Replace")


def test_only_the_latest_missed_run_is_made_up_for_and_only_before_its_deadline() -> None:
    world = World()
    add_cron_job(world)
    world.pass_time(3600 + 60)
    assert run_cron(world) == [f"c-{int((START + timedelta(minutes=60)).timestamp()) // 60}"]
    late = World()
    add_cron_job(late, startingDeadlineSeconds=30)
    late.pass_time(3600 + 60)
    assert run_cron(late) == []


def test_a_step_on_days_of_the_month_runs_beside_the_day_of_the_week() -> None:
    """The first of January 2026 is a Thursday: `*/2` runs on odd days, `1` on Mondays."""
    world = World()
    add_cron_job(world, schedule="0 0 */2 * 1", successfulJobsHistoryLimit=20)
    world.pass_time(1)
    days = []
    while len(days) < 5:
        run_cron(world)
        assert world.wake_at is not None
        world.pass_time((world.wake_at - world.now).total_seconds())
        days.append(world.now.day)
    assert days == [3, 5, 7, 9, 11]
    monday = START.replace(day=12) - world.now
    assert monday == timedelta(days=1)
    run_cron(world)
    assert world.wake_at == START.replace(day=12)


def test_a_zone_in_the_schedule_goes_before_the_time_zone() -> None:
    """Only a CronJob of an old Kubernetes has one; it is accepted as long as it does not change."""
    world = World()
    add_cron_job(world, schedule="TZ=Asia/Tokyo 0 0 * * *", timeZone="Europe/Berlin")
    run_cron(world)
    assert world.wake_at == START + timedelta(hours=15)


def test_a_suspended_cron_job_waits() -> None:
    world = World()
    add_cron_job(world, suspend=True)
    world.pass_time(3600)
    assert run_cron(world) == []
    assert world.wake_at is None


def test_old_jobs_go_beyond_the_history_limits() -> None:
    world = World()
    add_cron_job(world, successfulJobsHistoryLimit=2, failedJobsHistoryLimit=0)
    for minute in range(1, 5):
        world.pass_time(600)
        run_cron(world)
        newest = max(world.list_json(JOB), key=lambda job: str(job["metadata"]["name"]))
        finish(newest, "Failed" if minute == 4 else "Complete", f"2026-01-01T00:{minute}0:30Z")
    names = run_cron(world)
    assert names == [f"c-{int((START + timedelta(minutes=m)).timestamp()) // 60}" for m in (20, 30)]


@pytest.mark.parametrize(
    ("spec", "reason"), [({"timeZone": "Nowhere/No"}, "UnknownTimeZone"), ({"schedule": "x"}, "UnparseableSchedule")]
)
def test_a_faulty_cron_job_is_told_so(spec: Json, reason: str) -> None:
    world = World()
    add_cron_job(world, **spec)
    actions = cron_jobs.plan(world, Key("team", "c"), world.now)
    assert [a.reason for a in actions if isinstance(a, Event)] == [reason]


# Sets -----------------------------------------------------------------------------------------------------------------


def add_deployment(world: World, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}
    selector = {"matchLabels": {"app": "web"}}
    body = {"metadata": {"name": "d"}, "spec": {"replicas": 2, "selector": selector, "template": template, **spec}}
    return world.add(replica_sets.DEPLOYMENT, body)


def run_sets(world: World) -> None:
    for _ in range(3):
        world.run(replica_sets.plan_deployment, "d")
        for replica_set in world.list_json(replica_sets.REPLICA_SET):
            world.run(replica_sets.plan_replica_set, replica_set["metadata"]["name"])


def test_a_deployment_has_its_pods_and_says_when_they_are_available() -> None:
    world = World()
    deployment = add_deployment(world)
    run_sets(world)
    assert len(world.pods()) == 2
    assert conditions(deployment["status"]) == {"Available": "False", "Progressing": "True"}
    world.start_pods()
    run_sets(world)
    assert conditions(deployment["status"])["Available"] == "True"
    assert deployment["status"]["readyReplicas"] == deployment["status"]["updatedReplicas"] == 2


def test_a_replica_set_replaces_ended_pods_and_shrinks() -> None:
    world = World()
    deployment = add_deployment(world)
    run_sets(world)
    first = world.pods()[0]["metadata"]["name"]
    world.now += timedelta(minutes=1)
    world.end(world.pods()[0], exit_code=1)
    run_sets(world)
    names = [pod["metadata"]["name"] for pod in world.pods("Pending")]
    assert len(names) == 2
    assert first not in {pod["metadata"]["name"] for pod in world.pods("Failed")}
    deployment["spec"]["replicas"] = 1
    run_sets(world)
    assert len(world.pods()) == 1


def test_a_pod_that_ends_at_once_is_replaced_after_a_pause() -> None:
    world = World()
    add_deployment(world, replicas=1)
    run_sets(world)
    pod = world.pods()[0]
    pod["metadata"]["creationTimestamp"] = timestamp(world.now)
    world.end(pod, exit_code=127)
    run_sets(world)
    assert [one["metadata"]["name"] for one in world.pods()] == [pod["metadata"]["name"]]
    (replica_set,) = world.list_json(replica_sets.REPLICA_SET)
    planned = replica_sets.plan_replica_set(world, key_of(replica_set), world.now)
    later = world.now + timedelta(seconds=replica_sets.SHORTEST_LIFE_SECONDS)
    assert [action.at for action in planned if isinstance(action, WakeAt)] == [later]
    world.now = later
    run_sets(world)
    assert len(world.pods("Pending")) == len(world.pods()) == 1


def test_a_new_template_takes_over_when_it_is_available() -> None:
    world = World()
    deployment = add_deployment(world)
    run_sets(world)
    world.start_pods()
    run_sets(world)
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "new"
    run_sets(world)
    assert len(world.pods()) == 4
    for pod in world.pods("Pending"):
        assert pod["spec"]["containers"][0]["image"] == "new"
    world.start_pods()
    run_sets(world)
    old = [pod for pod in world.pods() if "image" not in pod["spec"]["containers"][0]]
    assert all(pod["metadata"]["deletionTimestamp"] for pod in old)


def test_the_old_template_stays_until_the_new_one_is_available() -> None:
    world = World()
    deployment = add_deployment(world)
    run_sets(world)
    world.start_pods()
    run_sets(world)
    assert reasons(deployment)["Progressing"] == "NewReplicaSetAvailable"
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "new"
    run_sets(world)
    assert reasons(deployment)["Progressing"] == "ReplicaSetUpdated"
    assert [pod["metadata"].get("deletionTimestamp") for pod in world.pods("Running")] == [None, None]


def test_recreate_ends_the_old_pods_before_it_makes_new_ones() -> None:
    world = World()
    deployment = add_deployment(world, strategy={"type": "Recreate"})
    run_sets(world)
    world.start_pods()
    run_sets(world)
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "new"
    run_sets(world)
    # They take their time to end.
    assert {bool(pod["metadata"].get("deletionTimestamp")) for pod in world.pods()} == {True}
    for pod in world.pods():
        del world.objects[Pod.KIND.kind, Key("team", pod["metadata"]["name"])]
    run_sets(world)
    assert [pod["spec"]["containers"][0].get("image") for pod in world.pods()] == ["new", "new"]


def test_of_old_versions_only_empty_ones_beyond_the_limit_go() -> None:
    world = World()
    deployment = add_deployment(world, revisionHistoryLimit=1)
    for image in ("one", "two", "three"):
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image
        run_sets(world)
        world.start_pods()
        run_sets(world)
        for pod in world.pods():
            if pod["metadata"].get("deletionTimestamp"):
                del world.objects[Pod.KIND.kind, Key("team", pod["metadata"]["name"])]
        world.pass_time(1)
    run_sets(world)
    sets = world.list_json(replica_sets.REPLICA_SET)
    images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in sets}
    assert images == {"two", "three"}


def test_sets_that_are_deleted_make_nothing() -> None:
    world = World()
    deployment = add_deployment(world)
    deployment["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert replica_sets.plan_deployment(world, Key("team", "d"), world.now) == []
    assert replica_sets.plan_deployment(world, Key("team", "absent"), world.now) == []
    replica_set = world.add(replica_sets.REPLICA_SET, replica_sets.make_replica_set(deployment))
    replica_set["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert replica_sets.plan_replica_set(world, Key("team", replica_set["metadata"]["name"]), world.now) == []


def reasons(deployment: Json) -> dict[str, str]:
    return {c["type"]: c["reason"] for c in deployment["status"]["conditions"]}
