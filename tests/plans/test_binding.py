"""Which node a pod gets, and what it is told when it gets none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kyu.api import codec
from kyu.api.actions import Action, Bind, Event, Patch, WakeAt
from kyu.api.config.config import Configuration
from kyu.api.core import Node, Pod
from kyu.api.meta import Json, Key, Kind
from kyu.plans.pods import binding
from tests.support import manifests

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOME_KEY = Key("", "pods")


class View:
    """Nodes and pods, in the order in which they were given. No pod is queued, so there are no Workloads."""

    configuration = Configuration()

    def __init__(self, *objects: Node | Pod) -> None:
        self._objects = objects

    def get(self, type_: Any, key: Key) -> Any:
        return next((o for o in self.list(type_) if o.key == key), None)

    def list(self, type_: Any, namespace: str | None = None) -> Any:
        return [o for o in self._objects if isinstance(o, type_)]

    def find_json(self, kind: Kind, key: Key) -> Json | None:
        found = self.get(Pod, key) if kind == Pod.KIND else None
        return None if found is None else {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(found)}

    def list_json(self, kind: Kind, namespace: str | None = None) -> Sequence[Json]:
        raise NotImplementedError

    def owned_by(self, kind: Kind, uid: str) -> Sequence[Json]:
        return ()


def node(name: str, cpu: str = "4", labels: Json | None = None, ready: str = "True", **spec: Any) -> Node:
    labels = {"kubernetes.io/hostname": name, **(labels or {})}
    raw = manifests.node(name, cpu=cpu, ready=ready, labels=labels, allocatable={"nvidia.com/gpu": "1"}, **spec)
    return codec.decode_as(Node, raw)


def pod(name: str, cpu: str = "1", on: str = "", phase: str = "Pending", **more: Any) -> Pod:
    meta = {"labels": more.pop("labels", {}), "creationTimestamp": more.pop("created", manifests.TIME)}
    requests = more.pop("requests", {})
    raw = manifests.pod(name, cpu=cpu, node=on, phase=phase, metadata=meta, **more)
    raw["spec"]["containers"][0]["resources"]["requests"] |= requests
    return codec.decode_as(Pod, raw)


def bound(actions: list[Action]) -> dict[str, str]:
    """The node of each pod that got one."""
    return {a.ref.key.name: a.node for a in actions if isinstance(a, Bind)}


def refused(actions: list[Action]) -> dict[str, str]:
    """What each pod that got no node is told."""
    patches = [a for a in actions if isinstance(a, Patch) and a.subresource == "status"]
    return {a.ref.key.name: a.patch["status"]["conditions"][-1]["message"] for a in patches}


def plan(*objects: Node | Pod) -> list[Action]:
    return binding.plan(View(*objects), SOME_KEY, NOW)


def test_capacity_is_what_bound_pods_leave() -> None:
    actions = plan(node("a", cpu="2"), pod("old", cpu="1500m", on="a"), pod("new", cpu="1"))
    assert refused(actions) == {"new": "0/1 nodes are available: 1 Insufficient cpu."}
    actions = plan(node("a", cpu="2"), pod("old", cpu="1500m", on="a", phase="Succeeded"), pod("new", cpu="1"))
    assert bound(actions) == {"new": "a"}
    assert [a.reason for a in actions if isinstance(a, Event)] == ["Scheduled"]


def test_one_pass_places_many_without_giving_room_twice() -> None:
    pods = [pod(f"p{i}", cpu="1") for i in range(5)]
    actions = plan(node("a", cpu="2"), node("b", cpu="2"), *pods)
    assert sorted(bound(actions).values()) == ["a", "a", "b", "b"]
    assert refused(actions) == {"p4": "0/2 nodes are available: 2 Insufficient cpu."}


def test_thousands_of_pods_are_placed_in_several_plans() -> None:
    pods = [pod(f"p{number:03}", cpu="1m") for number in range(binding.PODS_PER_PLAN + 2)]
    nodes = [node("a"), node("b"), node("c")]
    first = plan(*nodes, *pods)
    assert len(bound(first)) == binding.PODS_PER_PLAN
    assert first[-1] == WakeAt(NOW)
    left = [one for one in pods if one.metadata.name not in bound(first)]
    second = plan(*nodes, *left)
    assert (len(bound(second)), WakeAt(NOW) in second) == (2, False)


def test_priority_comes_before_age() -> None:
    late = pod("late", cpu="1", priority=10, created="2026-01-02T00:00:00Z")
    assert bound(plan(node("a", cpu="1"), pod("early", cpu="1"), late)) == {"late": "a"}


def test_the_emptiest_node_comes_first() -> None:
    assert bound(plan(node("used"), node("vacant"), pod("old", on="used"), pod("new"))) == {"new": "vacant"}


TAINT = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def in_zone(*values: str) -> Json:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "nodes", "words"),
    [
        ({"nodeSelector": {"zone": "x"}}, [node("a", labels={"zone": "y"})], "didn't match Pod's node affinity"),
        ({}, [node("a", taints=TAINT)], 'untolerated taint "gpu=yes:NoSchedule"'),
        ({}, [node("a", unschedulable=True)], "1 node(s) were unschedulable"),
        ({}, [node("a", ready="False")], "1 node(s) were not ready"),
        ({"requests": {"nvidia.com/gpu": "2"}}, [node("a"), node("b")], "2 Insufficient nvidia.com/gpu"),
        ({"requests": {"example.com/x": "1"}}, [node("a")], "Insufficient example.com/x"),
        ({}, [], "no nodes available to schedule pods"),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [in_zone("x")]}}}},
            [node("a", labels={"zone": "y"})],
            "didn't match Pod's node affinity",
        ),
    ],
)
def test_a_pod_that_fits_nowhere_is_told_why(spec: Json, nodes: list[Node], words: str) -> None:
    assert words in refused(plan(*nodes, pod("p", **spec)))["p"]


def test_the_same_refusal_is_not_repeated() -> None:
    waiting = pod("p", cpu="99")
    patch = next(a for a in plan(node("a"), waiting) if isinstance(a, Patch))
    told = msgspec.convert({**msgspec.to_builtins(waiting), "status": patch.patch["status"]}, Pod)
    assert plan(node("a"), told) == []


def test_tolerations_and_preferences_lead_the_pod() -> None:
    nodes = [node("a"), node("b", labels={"zone": "x"}), node("c", taints=TAINT)]
    assert bound(plan(nodes[2], pod("p", tolerations=[{"key": "gpu", "operator": "Exists"}]))) == {"p": "c"}
    preferred = [{"weight": 5, "preference": in_zone("x")}]
    assert bound(plan(*nodes, pod("p", affinity={"nodeAffinity": {PREFERRED: preferred}}))) == {"p": "b"}
    soft = [{"key": "slow", "effect": "PreferNoSchedule"}]
    assert bound(plan(node("a", taints=soft), node("b"), pod("p"))) == {"p": "b"}


def test_gated_deleted_and_foreign_pods_are_left_alone() -> None:
    gated = pod("gated", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    foreign = pod("foreign", schedulerName="other")
    assert plan(node("a"), gated, foreign) == []


def near(key: str, **labels: str) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def test_pods_keep_away_from_each_other_in_both_directions() -> None:
    away = {"podAntiAffinity": {REQUIRED: [near("kubernetes.io/hostname", app="db")]}}
    one = pod("one", labels={"app": "db"}, affinity=away, on="a")
    two = pod("two", labels={"app": "db"}, affinity=away)
    three = pod("three", labels={"app": "db"})
    actions = plan(node("a"), node("b"), one, two)
    assert bound(actions) == {"two": "b"}
    assert bound(plan(node("a"), node("b"), one, three)) == {"three": "b"}
    assert "anti-affinity" in refused(plan(node("a"), one, three))["three"]


def test_pods_that_want_company_follow_the_first_which_may_go_anywhere() -> None:
    together = {"podAffinity": {REQUIRED: [near("zone", app="web")]}}
    nodes = [node("a", cpu="1", labels={"zone": "x"}), node("b", labels={"zone": "y"}), node("c", labels={"zone": "x"})]
    first = pod("first", labels={"app": "web"}, affinity=together, nodeSelector={"kubernetes.io/hostname": "a"})
    second = pod("second", labels={"app": "web"}, affinity=together)
    assert bound(plan(*nodes, first, second)) == {"first": "a", "second": "c"}


def test_an_even_spread_over_zones() -> None:
    spread = {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]
    }
    nodes = [node("a", cpu="64", labels={"zone": "x"}), node("b", labels={"zone": "y"})]
    pods = [pod(f"p{i}", labels={"app": "web"}, **spread) for i in range(4)]
    assert sorted(bound(plan(*nodes, *pods)).values()) == ["a", "a", "b", "b"]


def test_company_that_nobody_gives_keeps_a_pod_waiting() -> None:
    """Unless it means pods like itself, the first may not go anywhere."""
    alone = pod("p", labels={"app": "web"}, affinity={"podAffinity": {REQUIRED: [near("zone", app="db")]}})
    assert "pod affinity" in refused(plan(node("a", labels={"zone": "x"}), alone))["p"]


def test_terms_speak_of_pods_of_the_same_namespace_unless_they_say_so() -> None:
    db = pod("db", labels={"app": "db"}, on="a")
    other = msgspec.structs.replace(db, metadata=msgspec.structs.replace(db.metadata, namespace="elsewhere"))
    for namespaces, expected in ((None, {"p": "a"}), (["elsewhere"], {})):
        term = {**near("kubernetes.io/hostname", app="db"), **({"namespaces": namespaces} if namespaces else {})}
        wanting = pod("p", affinity={"podAntiAffinity": {REQUIRED: [term]}})
        assert bound(plan(node("a"), other, wanting)) == expected


def test_preferred_company_leads_and_unwanted_company_repels() -> None:
    nodes = [node("a"), node("b", cpu="64")]
    db = pod("db", labels={"app": "db"}, on="a")
    liked = {"weight": 10, "podAffinityTerm": near("kubernetes.io/hostname", app="db")}
    assert bound(plan(*nodes, db, pod("p"))) == {"p": "b"}
    assert bound(plan(*nodes, db, pod("p", affinity={"podAffinity": {PREFERRED: [liked]}}))) == {"p": "a"}
    db_on_b = pod("db", labels={"app": "db"}, on="b")
    assert bound(plan(*nodes, db_on_b, pod("p", affinity={"podAntiAffinity": {PREFERRED: [liked]}}))) == {"p": "a"}


def test_a_spread_that_is_wished_for_gives_way_and_one_that_is_required_does_not() -> None:
    def spread(when: str) -> list[Json]:
        labels = {"matchLabels": {"app": "web"}}
        return [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when, "labelSelector": labels}]

    crowded = [node("a", cpu="64", labels={"zone": "x"}), node("b", cpu="1", labels={"zone": "y"})]
    first = pod("first", labels={"app": "web"}, on="a")
    for when in ("DoNotSchedule", "ScheduleAnyway"):
        new = pod("new", labels={"app": "web"}, topologySpreadConstraints=spread(when))
        assert bound(plan(*crowded, first, new)) == {"new": "b"}
        expected = {} if when == "DoNotSchedule" else {"new": "a"}
        assert bound(plan(*crowded, first, pod("full", on="b"), new)) == expected
    nowhere = pod("new", labels={"app": "web"}, topologySpreadConstraints=spread("DoNotSchedule"))
    assert "missing required label" in refused(plan(node("c"), nowhere))["new"]


def test_init_containers_count_with_their_peak() -> None:
    init = [{"name": "i", "resources": {"requests": {"cpu": "3"}}}]
    assert "Insufficient cpu" in refused(plan(node("a", cpu="2"), pod("p", initContainers=init)))["p"]
