"""A queued pod is bound with the quota of its Workload, and not beyond it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kyu.api.actions import Bind, Patch, WakeAt
from kyu.api.config.config import Configuration, Integrations
from kyu.api.meta import Json, Key
from kyu.kinds import table
from kyu.plans.pods import binding
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)
SETTINGS = Configuration(integrations=Integrations(frameworks=table.FRAMEWORKS))
NODES: list[Json] = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"tier": name}},
        "status": {"allocatable": {"cpu": "64", "pods": "100"}},
    }
    for name in ("spot", "steady")
]
FLAVOR: Json = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "spot"},
    "spec": {"nodeLabels": {"tier": "spot"}},
}


def containers(cpu: str) -> list[Json]:
    return [{"name": "main", "image": "a", "resources": {"requests": {"cpu": cpu}}}]


def job(**meta: object) -> Json:
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    body = {"name": "j", "namespace": "team", "uid": "u-j", "labels": labels, **meta}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": body, "spec": {"template": {}}}


def workload(count: int = 2, cpu: str = "1", **changes: object) -> Json:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}
    assignment = {"name": "main", "count": count, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}}
    status: Json = {
        "admission": {"clusterQueue": "c", "podSetAssignments": [assignment]},
        "conditions": [{"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        **changes,
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team", "ownerReferences": [owner]},
        "spec": {"podSets": [{"name": "main", "count": count, "template": {"spec": {"containers": containers(cpu)}}}]},
        "status": status,
    }


def pod(name: str, cpu: str = "1", *, on: str = "", phase: str = "Pending", tier: str = "spot", **meta: object) -> Json:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}
    body = {"name": name, "namespace": "team", "uid": f"u-{name}", "ownerReferences": [owner], **meta}
    spec = {"containers": containers(cpu), "nodeSelector": {"tier": tier}, **({"nodeName": on} if on else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": body, "spec": spec, "status": {"phase": phase}}


def place(*objects: Json) -> tuple[set[str], dict[str, str]]:
    """Return the pods that get a node, and what the others are told."""
    actions = binding.plan(MemoryView([*NODES, FLAVOR, *objects], SETTINGS), Key("", "pods"), NOW)
    bound = {action.ref.key.name for action in actions if isinstance(action, Bind)}
    told = {
        action.ref.key.name: action.patch["status"]["conditions"][-1]["message"]
        for action in actions
        if isinstance(action, Patch)
    }
    assert not told or any(isinstance(action, WakeAt) for action in actions)
    return bound, told


def test_as_many_pods_are_bound_as_were_admitted() -> None:
    bound, told = place(job(), workload(), pod("a"), pod("b"), pod("c"))
    assert bound == {"a", "b"}
    assert told == {"c": "not covered by quota: Workload w: no cpu is left of what was admitted"}


@pytest.mark.parametrize(
    "other",
    [
        pod("x", on="spot", phase="Running"),
        pod("x", on="spot", phase="Running", deletionTimestamp="9999-01-01T00:00:00Z"),
        pod("x", "6", on="spot", phase="Running"),
    ],
)
def test_a_bound_pod_takes_its_room_until_it_is_gone(other: Json) -> None:
    bound, told = place(job(), workload(count=1), pod("a"), other)
    assert (bound, list(told)) == (set(), ["a"])


@pytest.mark.parametrize("other", [pod("x", on="spot", phase="Succeeded"), pod("x", on="spot", phase="Failed")])
def test_a_pod_that_is_over_takes_none(other: Json) -> None:
    assert place(job(), workload(count=1), pod("a"), other) == ({"a"}, {})


def test_a_pod_that_was_given_back_is_not_bound_again() -> None:
    reclaimed = workload(reclaimablePods=[{"name": "main", "count": 1}])
    assert place(job(), reclaimed, pod("a"), pod("b"))[0] == {"a"}


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        (pod("a", "6"), "no cpu is left"),
        (pod("a", tier="steady"), "it does not select nodes with tier=spot"),
        (pod("a", "6", labels={"kueue.x-k8s.io/podset": "other"}), "no cpu is left"),
    ],
)
def test_larger_pods_and_other_flavors_are_refused(forged: Json, why: str) -> None:
    bound, told = place(job(), workload(), forged)
    assert not bound
    assert why in told["a"]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([], "it waits for its Workload"),
        ([workload(conditions=[])], "Workload w has no quota"),
        (
            [
                workload(
                    conditions=[
                        {"type": type_, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                        for type_ in ("QuotaReserved", "Evicted")
                    ]
                )
            ],
            "Workload w has no quota",
        ),
    ],
)
def test_a_queued_pod_without_quota_waits(found: list[Json], why: str) -> None:
    assert place(job(), *found, pod("a")) == (set(), {"a": f"not covered by quota: {why}"})


def test_a_pod_outside_the_queues_is_bound() -> None:
    assert place(job(labels={}), pod("a")) == ({"a"}, {})


def test_the_pods_of_all_children_count_together() -> None:
    """A JobSet was admitted with two pods; the Jobs that it made want one each, and a third Job claims it as owner."""
    job_set = {**job(uid="u-j"), "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {}}
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "j", "uid": "u-j", "controller": True}
    charged = workload()
    charged["metadata"]["ownerReferences"] = [owner]
    objects = []
    for name in ("one", "two", "three"):
        objects.append(job(name=name, uid=f"u-{name}", labels={}, ownerReferences=[owner]))
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"u-{name}", "controller": True}
        created = f"2026-01-01T00:00:0{len(objects)}Z"
        objects.append(pod(f"{name}-0", ownerReferences=[reference], creationTimestamp=created))
    bound, told = place(job_set, charged, *objects)
    assert bound == {"one-0", "two-0"}
    assert list(told) == ["three-0"]


def test_an_orphaned_child_makes_no_pods_beyond_the_workload_that_is_left() -> None:
    """The queued job was deleted without its child, an unqueued Job that goes on to make pods."""
    child = job(labels={})
    marked = {"kueue.x-k8s.io/workload": "w"}
    left = workload(count=1)
    left["metadata"]["ownerReferences"] = []
    assert place(child, left, pod("a", annotations=marked))[0] == {"a"}
    running = pod("x", on="spot", phase="Running", annotations=marked)
    assert place(child, left, running, pod("a", annotations=marked))[0] == set()
    bound, told = place(child, pod("a", annotations=marked))
    assert not bound
    assert told == {"a": "not covered by quota: it was admitted with Workload w, which is gone"}
