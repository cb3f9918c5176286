"""The controllers of a cluster together, on a real server: what one of them writes reaches the others."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from kyu.api.kueue import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, Workload, WorkloadPriorityClass
from kyu.api.meta import Json, Key
from kyu.app import clock
from kyu.plans.status import timestamp
from tests.support.manifests import KUEUE, condition, flavor, job, obj, queues, workload
from tests.support.planes import Cluster, cluster, controlled, is_true, settings
from tests.support.servers import JOB


async def test_a_job_waits_for_the_priority_class_of_its_pods(tmp_path: Path) -> None:
    async with cluster(tmp_path) as one, controlled(one.client, settings()):
        urgent = job("urgent", queue="main", cpu="1", namespace="default")
        urgent["spec"]["template"]["spec"]["priorityClassName"] = "high"
        await one.create(urgent, job("plain", queue="main", cpu="1", namespace="default"))
        await one.until_job_starts("plain")
        await one.create(obj("scheduling.k8s.io/v1", "PriorityClass", "high", value=7))
        await one.until_job_starts("urgent")
        (found,) = [each for each in await one.workloads() if each["spec"].get("priorityClassRef")]
        assert (found["spec"]["priority"], found["spec"]["priorityClassRef"]["name"]) == (7, "high")


async def test_admission_goes_on_when_the_admitted_workload_is_ready(tmp_path: Path) -> None:
    waiting = settings(waitForPodsReady={"timeout": "5m", "blockAdmission": True})
    async with cluster(tmp_path) as one, controlled(one.client, waiting):
        await one.create(job("first", queue="main", cpu="1", namespace="default"))
        await one.until_job_starts("first")
        await one.create(job("second", queue="main", cpu="1", namespace="default"))
        blocked = "waiting for all admitted workloads to be in PodsReady condition"
        await one.until_waiting("second", blocked)
        ready = {"status": {"active": 1, "ready": 1}}
        await one.client.patch(JOB, Key("default", "first"), ready, subresource="status")
        await one.until_job_starts("second")


async def test_a_changed_class_reaches_workloads_without_a_job(tmp_path: Path) -> None:
    async with cluster(tmp_path) as one, controlled(one.client, settings()):
        await one.create(obj(KUEUE, "WorkloadPriorityClass", "high", value=7))
        ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
        await one.create(workload("alone", namespace="default", cpu="1", priority=7, priorityClassRef=ref))
        await one.until(Workload, Key("default", "alone"), is_true("Admitted"))
        await one.client.patch(WorkloadPriorityClass.KIND, Key("", "high"), {"value": 9})
        await one.until(Workload, Key("default", "alone"), lambda found: found["spec"]["priority"] == 9)


async def test_the_weighted_share_of_a_cohort_follows_its_usage(tmp_path: Path) -> None:
    sharing = settings(fairSharing={"preemptionStrategies": ["LessThanOrEqualToFinalShare"]})
    async with cluster(tmp_path) as one, controlled(one.client, sharing):
        await one.create(obj(KUEUE, "Cohort", "root"), obj(KUEUE, "Cohort", "team", spec={"parentName": "root"}))
        await one.create(flavor("spot"), *queues("lender", flavor="spot", cohortName="root"))
        await one.create(*queues("borrower", cpu=0, flavor="spot", cohortName="team"))
        await one.create(workload("borrows", queue="borrower", namespace="default", cpu="2"))
        shown = await one.until(Cohort, Key("", "team"), lambda found: weighted_share(found))
        assert weighted_share(shown) == 500
        await one.client.delete(Workload.KIND, Key("default", "borrows"))
        await one.until(Cohort, Key("", "team"), lambda found: weighted_share(found) == 0)


def weighted_share(found: Json) -> int:
    share: int = ((found.get("status") or {}).get("fairSharing") or {}).get("weightedShare", 0)
    return share


async def test_a_local_queue_without_its_cluster_queue_shows_no_usage(tmp_path: Path) -> None:
    async with cluster(tmp_path) as one, controlled(one.client, settings()):
        await one.create(workload("runs", namespace="default", cpu="2"))
        key = Key("default", "main")
        await one.until(LocalQueue, key, lambda found: (found.get("status") or {}).get("admittedWorkloads") == 1)
        await one.client.delete(ClusterQueue.KIND, Key("", "main"))
        await one.client.patch(ClusterQueue.KIND, Key("", "main"), {"metadata": {"finalizers": None}})
        shown = await one.until(LocalQueue, key, lambda found: found["status"]["admittedWorkloads"] == 0)
        assert shown["status"]["reservingWorkloads"] == 0
        assert shown["status"].get("flavorsReservation", []) == shown["status"].get("flavorsUsage", []) == []
        (active,) = shown["status"]["conditions"]
        assert (active["status"], active["reason"]) == ("False", "ClusterQueueDoesNotExist")


async def test_past_usage_survives_a_restart(tmp_path: Path) -> None:
    by_usage = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    rules = settings(admissionFairSharing={"usageHalfLifeTime": "10h", "usageSamplingInterval": "1s"})
    async with cluster(tmp_path) as one:
        await one.create(flavor("spot"))
        await one.create(*queues("shared", cpu=2, flavor="spot", local_queue="greedy", admissionScope=by_usage))
        await one.create(obj(KUEUE, "LocalQueue", "modest", "default", spec={"clusterQueue": "shared"}))
        async with controlled(one.client, rules):
            await one.create(workload("runs", queue="greedy", namespace="default", cpu="2"))
            await one.until(LocalQueue, Key("default", "greedy"), has_past_usage)
        # The next process: the one that used nothing goes first, though it came later.
        await one.create(
            workload("early", queue="greedy", namespace="default", cpu="2"),
            workload("late", queue="modest", namespace="default", cpu="2"),
        )
        async with controlled(one.client, rules):
            await one.client.delete(Workload.KIND, Key("default", "runs"))
            await one.until(Workload, Key("default", "late"), is_true("Admitted"))


def has_past_usage(found: Json) -> bool:
    past = ((found.get("status") or {}).get("fairSharing") or {}).get("admissionFairSharingStatus") or {}
    return bool((past.get("consumedResources") or {}).get("cpu", "0") != "0")


@pytest.mark.parametrize("seconds", [-60, 2])
async def test_a_workload_is_tried_when_its_backoff_is_over(tmp_path: Path, seconds: float) -> None:
    async with cluster(tmp_path) as one, controlled(one.client, settings()):
        await one.create(workload("later", queue="soon", namespace="default", cpu="1"))
        until = {"requeueState": {"count": 1, "requeueAt": timestamp(clock() + timedelta(seconds=seconds))}}
        key = Key("default", "later")
        await one.client.patch(Workload.KIND, key, {"status": until}, subresource="status")
        await one.create(obj(KUEUE, "LocalQueue", "soon", "default", spec={"clusterQueue": "main"}))
        await one.until(Workload, key, is_true("Admitted"))


async def test_a_retry_during_an_eviction_ends_with_it(tmp_path: Path) -> None:
    """A controller may answer for a round that is over; the next round asks it again."""
    async with cluster(tmp_path) as one, controlled(one.client, settings()):
        await one.create(obj(KUEUE, "AdmissionCheck", "budget", spec={"controllerName": "example.com/budget"}))
        active = {"status": {"conditions": [condition("Active")]}}
        await one.client.patch(AdmissionCheck.KIND, Key("", "budget"), active, subresource="status")
        await one.create(flavor("spot"), *queues("checked", flavor="spot", checks=["budget"]))
        await one.create(workload("asks", queue="checked", namespace="default", cpu="1"))
        key = Key("default", "asks")
        await one.until(Workload, key, is_asked)
        await answer(one, key, "Retry")
        await one.until(Workload, key, is_true("Evicted"))
        await answer(one, key, "Retry")
        await one.until(Workload, key, lambda found: is_asked(found) and not is_true("Evicted")(found))
        await answer(one, key, "Ready")
        await one.until(Workload, key, is_true("Admitted"))


async def answer(one: Cluster, key: Key, state: str) -> None:
    check = {"name": "budget", "state": state, "message": "", "lastTransitionTime": timestamp(clock())}
    await one.client.patch(Workload.KIND, key, {"status": {"admissionChecks": [check]}}, subresource="status")


def is_asked(found: Json) -> bool:
    checks = (found.get("status") or {}).get("admissionChecks") or ()
    return is_true("QuotaReserved")(found) and all(check["state"] == "Pending" for check in checks)
