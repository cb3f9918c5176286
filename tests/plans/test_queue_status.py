"""Queues as their users see them: whether they are open, their numbers, and when they may go."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pytest

from kyu.api.kueue import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from kyu.api.meta import Json, Key, Object
from kyu.plans.queues import status as queue_status
from kyu.plans.queues.status import Numbers
from tests.support.manifests import of_type
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kueue.x-k8s.io/resource-in-use", "x.io/mine"]}
NUMBERS = Numbers(3, 2, 1, {("spot", "cpu"): 5000}, {("spot", "cpu"): 1500}, weighted_share=7)
QUOTA = [
    {"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [{"name": "cpu", "nominalQuota": 4}]}]}
]


def after(type_: type[Object], key: Key, *objects: Json, numbers: Numbers = NUMBERS) -> Json:
    """The object when its plan has nothing more to write; empty if it is gone."""
    plans = {
        ClusterQueue: partial(queue_status.plan_cluster_queue, lambda _: numbers),
        LocalQueue: partial(queue_status.plan_local_queue, lambda _: numbers),
        Cohort: partial(queue_status.plan_cohort, lambda _: numbers),
    }
    view = MemoryView(objects)
    for _ in range(3):
        for action in plans[type_](view, key, NOW):
            view.carry_out(action)
    assert plans[type_](view, key, NOW) == []
    return view.find_json(type_.KIND, key) or {}


def is_active(queue: Json) -> str:
    (condition,) = queue["status"]["conditions"]
    return f"{condition['status']}/{condition['reason']}"


MAIN = of_type(ClusterQueue, "main", spec={"cohortName": "all", "resourceGroups": QUOTA})
OPEN = {**MAIN, "status": {"conditions": [{"type": "Active", "status": "True"}]}}
SPOT = of_type(ResourceFlavor, "spot")


@pytest.mark.parametrize(
    ("stop", "main", "expected", "counts"),
    [
        ("None", [OPEN], "True/Ready", (3, 2)),
        ("Hold", [OPEN], "False/Stopped", (0, 2)),
        ("None", [], "False/ClusterQueueDoesNotExist", (3, 0)),
        ("None", [MAIN], "False/ClusterQueueIsInactive", (3, 2)),
    ],
)
def test_a_local_queue_says_whether_jobs_can_be_submitted(
    stop: str, main: list[Json], expected: str, counts: tuple[int, int]
) -> None:
    door = of_type(LocalQueue, "door", "team", spec={"clusterQueue": "main", "stopPolicy": stop})
    shown = after(LocalQueue, Key("team", "door"), door, *main)
    assert is_active(shown) == expected
    assert (shown["status"]["pendingWorkloads"], shown["status"]["reservingWorkloads"]) == counts
    held = [{"name": "spot", "resources": [{"name": "cpu", "total": "5"}]}] if main else []
    assert shown["status"]["flavorsReservation"] == held


@pytest.mark.parametrize(("cohort", "borrowed"), [("all", "1"), ("", "0")])
def test_a_cluster_queue_shows_what_it_holds_uses_and_borrows(cohort: str, borrowed: str) -> None:
    main = {**MAIN, "spec": {**MAIN["spec"], "cohortName": cohort}}
    status = after(ClusterQueue, Key("", "main"), main, SPOT)["status"]
    (held,) = status["flavorsReservation"][0]["resources"]
    (used,) = status["flavorsUsage"][0]["resources"]
    assert held == {"name": "cpu", "total": "5", "borrowed": borrowed}
    assert used == {"name": "cpu", "total": "1500m", "borrowed": "0"}
    assert (status["admittedWorkloads"], status["fairSharing"]) == (1, {"weightedShare": 7})
    without = after(ClusterQueue, Key("", "main"), {**main, "status": status}, SPOT, numbers=Numbers())
    assert "fairSharing" not in without["status"]


def test_a_cluster_queue_without_its_flavor_is_inactive() -> None:
    assert is_active(after(ClusterQueue, Key("", "main"), MAIN)) == "False/FlavorNotFound"
    assert is_active(after(ClusterQueue, Key("", "main"), MAIN, SPOT)) == "True/Ready"


def test_a_cluster_queue_goes_when_nothing_holds_its_quota_any_more() -> None:
    going = {**MAIN, "metadata": {**MAIN["metadata"], **GOING}}
    for numbers, finalizers in ((NUMBERS, GOING["finalizers"]), (Numbers(), ["x.io/mine"])):
        shown = after(ClusterQueue, Key("", "main"), going, SPOT, numbers=numbers)
        assert shown["metadata"]["finalizers"] == finalizers


def test_a_cohort_shows_its_share() -> None:
    assert after(Cohort, Key("", "all"), of_type(Cohort, "all"))["status"] == {"fairSharing": {"weightedShare": 7}}


def test_a_cluster_queue_names_all_of_its_problems_as_kueue_does() -> None:
    strategy = {"admissionChecks": [{"name": "budget"}, {"name": "idle"}]}
    spec = {**MAIN["spec"], "stopPolicy": "Hold", "admissionChecksStrategy": strategy}
    stopped = of_type(ClusterQueue, "main", spec=spec)
    idle = of_type(AdmissionCheck, "idle", spec={"controllerName": "example.com/x"})
    shown = after(ClusterQueue, Key("", "main"), stopped, idle)
    assert is_active(shown) == "False/Stopped"
    assert shown["status"]["conditions"][0]["message"] == (
        "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): spot, "
        "references missing AdmissionCheck(s): budget, references inactive AdmissionCheck(s): idle."
    )
