"""CronJobs and their schedules, Deployments and ReplicaSets in embedded mode, on a clock of our own."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from kyu.api.actions import Event, WakeAt
from kyu.api.core import Pod
from kyu.api.meta import Json, Key
from kyu.kinds.job import JOB
from kyu.plans import pods_cron, pods_schedule, pods_sets
from tests.test_plans_pods import START, World, conditions

# Schedules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("*/15 * * * *", "2026-01-01T00:00:00", "2026-01-01T00:15:00"),
        ("30 9 * * *", "2026-01-01T09:30:00", "2026-01-02T09:30:00"),
        ("0 0 1 * *", "2026-01-15T00:00:00", "2026-02-01T00:00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 12 * * MON-FRI", "2026-01-02T13:00:00", "2026-01-05T12:00:00"),
        ("0 0 13 * FRI", "2026-02-01T00:00:00", "2026-02-06T00:00:00"),
        ("0 0 1 jan,jul *", "2026-01-02T00:00:00", "2026-07-01T00:00:00"),
        ("5/20 8 * * ?", "2026-01-01T08:05:00", "2026-01-01T08:25:00"),
        ("@hourly", "2026-01-01T00:30:00", "2026-01-01T01:00:00"),
        ("@weekly", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
        ("@every 90m", "2026-01-01T00:10:00", "2026-01-01T01:40:00"),
    ],
)
def test_the_next_run_of_a_schedule(text: str, after: str, expected: str) -> None:
    zone = pods_schedule.find_zone("UTC")
    assert zone is not None
    run = pods_schedule.next_run(pods_schedule.parse(text), datetime.fromisoformat(after + "Z"), zone)
    assert run == datetime.fromisoformat(expected + "Z")


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "* * 0 * *", "a * * * *", "*/0 * * * *", "5-1 * * * *"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(pods_schedule.ScheduleError):
        pods_schedule.parse(text)


def test_a_schedule_without_any_run_has_no_next_one() -> None:
    zone = pods_schedule.find_zone("UTC")
    assert zone is not None
    assert pods_schedule.next_run(pods_schedule.parse("0 0 30 2 *"), START, zone) is None


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        # The clocks go forward at 01:00 UTC: 02:30 does not exist on that day.
        ("30 2 * * *", "2026-03-29T00:00:00Z", "2026-03-30T00:30:00Z"),
        ("0 4 * * *", "2026-03-29T00:00:00Z", "2026-03-29T02:00:00Z"),
        # They go back: 02:30 comes twice, the run once.
        ("30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
    ],
)
def test_schedules_follow_the_clock_of_their_zone(text: str, after: str, expected: str) -> None:
    zone = pods_schedule.find_zone("Europe/Berlin")
    assert zone is not None
    run = pods_schedule.next_run(pods_schedule.parse(text), datetime.fromisoformat(after), zone)
    assert run == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("text", "days_ago", "expected"),
    [("*/5 * * * *", 400, "2026-01-01T00:00:00Z"), ("0 0 1 6 *", 400, "2025-06-01T00:00:00Z"), ("@daily", 0.5, None)],
)
def test_the_last_run_is_found_however_long_ago(text: str, days_ago: float, expected: str | None) -> None:
    zone = pods_schedule.find_zone("UTC")
    assert zone is not None
    now = START + timedelta(seconds=30 if days_ago > 1 else 13 * 3600)
    run = pods_schedule.last_run(pods_schedule.parse(text), now - timedelta(days=days_ago), now, zone)
    assert run == (datetime.fromisoformat(expected) if expected else None)


# CronJobs -------------------------------------------------------------------------------------------------------------


def add_cron_job(world: World, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {"spec": {"containers": []}}}}
    body = {"metadata": {"name": "c"}, "spec": {"schedule": "*/10 * * * *", "jobTemplate": template, **spec}}
    return world.add(pods_cron.CRON_JOB, body)


def run_cron(world: World) -> list[str]:
    """The names of the Jobs after the plan was carried out."""
    world.run(pods_cron.plan, "c")
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
    for action in pods_cron.plan(world, Key("team", "c"), world.now):
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
    actions = pods_cron.plan(world, Key("team", "c"), world.now)
    assert [a.reason for a in actions if isinstance(a, Event)] == [reason]


# Sets -----------------------------------------------------------------------------------------------------------------


def add_deployment(world: World, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}
    selector = {"matchLabels": {"app": "web"}}
    body = {"metadata": {"name": "d"}, "spec": {"replicas": 2, "selector": selector, "template": template, **spec}}
    return world.add(pods_sets.DEPLOYMENT, body)


def run_sets(world: World) -> None:
    for _ in range(3):
        world.run(pods_sets.plan_deployment, "d")
        for replica_set in world.list_json(pods_sets.REPLICA_SET):
            world.run(pods_sets.plan_replica_set, replica_set["metadata"]["name"])


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
    world.end(world.pods()[0], exit_code=1)
    run_sets(world)
    names = [pod["metadata"]["name"] for pod in world.pods("Pending")]
    assert len(names) == 2
    assert first not in {pod["metadata"]["name"] for pod in world.pods("Failed")}
    deployment["spec"]["replicas"] = 1
    run_sets(world)
    assert len(world.pods()) == 1


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
    images = {s["spec"]["template"]["spec"]["containers"][0]["image"] for s in world.list_json(pods_sets.REPLICA_SET)}
    assert images == {"two", "three"}


def test_sets_that_are_deleted_make_nothing() -> None:
    world = World()
    deployment = add_deployment(world)
    deployment["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pods_sets.plan_deployment(world, Key("team", "d"), world.now) == []
    assert pods_sets.plan_deployment(world, Key("team", "absent"), world.now) == []
    replica_set = world.add(pods_sets.REPLICA_SET, pods_sets.make_replica_set(deployment))
    replica_set["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pods_sets.plan_replica_set(world, Key("team", replica_set["metadata"]["name"]), world.now) == []


def reasons(deployment: Json) -> dict[str, str]:
    return {c["type"]: c["reason"] for c in deployment["status"]["conditions"]}
