"""The quota of a manager's ClusterQueue, from the queues of its workers."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api.actions import Patch
from kyu.api.config import file
from kyu.api.kueue import ClusterQueue
from kyu.api.meta import Json, Key
from kyu.plans.clusters import worker_quotas
from kyu.plans.clusters.workers import Worker
from tests.support.dispatch_world import START, kueue_object
from tests.support.memory_view import MemoryView

QUEUE = Key("", "all")


def queue(name: str, checks: list[str] | None = None, **flavors: Json) -> Json:
    entries = [
        {"name": flavor, "resources": [{"name": resource, "nominalQuota": amount} for resource, amount in said.items()]}
        for flavor, said in flavors.items()
    ]
    covered = list(next(iter(flavors.values()))) if flavors else []
    groups = [{"coveredResources": covered, "flavors": entries}] if entries else []
    strategy = {"admissionChecks": [{"name": check} for check in checks or ()]}
    return kueue_object("ClusterQueue", name, resourceGroups=groups, admissionChecksStrategy=strategy)


def manager(mode: str | None = "Automated", **flavors: Json) -> MemoryView:
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
                "featureGates": {worker_quotas.GATE: True}}  # fmt: skip
    spec: Json = {"clusters": ["east", "west", "gone"], **({"quotaManagement": mode} if mode else {})}
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "mk"}
    objects = [
        queue("all", ["dispatch"], **(flavors or {"any": {"cpu": "1", "memory": "1Gi"}})),
        kueue_object("LocalQueue", "door", "team", clusterQueue="all"),
        kueue_object("AdmissionCheck", "dispatch", controllerName="kueue.x-k8s.io/multikueue", parameters=parameters),
        kueue_object("MultiKueueConfig", "mk", **spec),
    ]
    return MemoryView(objects, file.load(document).configuration)


def worker(name: str, *queues: Json, **fields: Any) -> Worker:
    """Return a worker in which LocalQueue team/door leads to ClusterQueue ``there``."""
    local = kueue_object("LocalQueue", "door", "team", clusterQueue="there")
    told = {"is_connected": True, "queues": MemoryView([local, *queues]), **fields}
    return Worker(name, since=START, reason="Active", message="", objects=MemoryView([]), **told)


def settle(view: MemoryView, *workers: Worker) -> tuple[dict[tuple[str, str], str], str]:
    """Return the nominal quotas and the condition, after the plan has nothing more to write."""
    known = {one.name: one for one in workers}
    for _ in range(4):
        actions = worker_quotas.plan(lambda: known, view, QUEUE, START)
        if not actions:
            break
        for action in actions:
            assert isinstance(action, Patch)
            view.carry_out(Patch(action.ref, action.patch, action.subresource))
    else:
        raise AssertionError("the plan does not settle")
    found = view.find_json(ClusterQueue.KIND, QUEUE) or {}
    condition = next(iter((found.get("status") or {}).get("conditions") or ()), {})
    quotas = {
        (entry["name"], one["name"]): one["nominalQuota"]
        for group in found["spec"]["resourceGroups"]
        for entry in group["flavors"]
        for one in entry["resources"]
    }
    return quotas, f"{condition.get('status')}/{condition.get('reason')}: {condition.get('message')}"


def test_a_single_flavor_gets_the_sum_of_all_flavors_of_all_workers() -> None:
    view = manager()
    east = worker("east", queue("there", spot={"cpu": "2500m", "memory": "1Gi"}, fixed={"cpu": "1"}))
    west = worker("west", queue("there", other={"cpu": "4"}), queue("unrelated", any={"cpu": "100"}))
    quotas, condition = settle(view, east, west)
    assert quotas == {("any", "cpu"): "7500m", ("any", "memory"): "1Gi"}
    assert condition.startswith("True/QuotaAutomated: ClusterQueue quota is automatically managed")
    # A lost worker takes its quota along, and a resource that no worker has gets none.
    quotas, _ = settle(view, worker("east", is_connected=False), west)
    assert quotas == {("any", "cpu"): "4", ("any", "memory"): "0"}


def test_several_flavors_follow_the_flavors_of_their_names() -> None:
    view = manager(spot={"cpu": "0"}, fixed={"cpu": "0"})
    there = queue("there", spot={"cpu": "2"}, fixed={"cpu": "1"})
    quotas, _ = settle(view, worker("east", there), worker("west", queue("there", spot={"cpu": "5"})))
    assert quotas == {("spot", "cpu"): "7", ("fixed", "cpu"): "1"}


@pytest.mark.parametrize(
    ("mode", "there", "said"),
    [
        (
            None,
            {"any": {"cpu": "5"}},
            "False/NotRequested: MultiKueue manager quota automation has not been requested.",
        ),
        (
            "Automated",
            {"any": {"cpu": "5", "gpu": "1", "tpu": "1"}},
            "False/UnsupportedConfiguration: manager-side coveredResources is missing resources configured on workers: "
            "[gpu tpu]",
        ),
    ],
)
def test_the_condition_says_why_the_quota_stays(mode: str | None, there: Json, said: str) -> None:
    quotas, condition = settle(manager(mode), worker("east", queue("there", **there)))
    assert quotas == {("any", "cpu"): "1", ("any", "memory"): "1Gi"}
    assert condition == said


def test_queues_that_may_not_be_read_are_named() -> None:
    quotas, condition = settle(manager(), worker("east", queues=None))
    assert quotas[("any", "cpu")] == "1"
    assert "cannot be read: east" in condition
    _, condition = settle(manager(a={"cpu": "1"}, b={"cpu": "1"}), worker("east", queue("there", c={"cpu": "1"})))
    assert "no quota for these flavors of workers: cpu of c" in condition
