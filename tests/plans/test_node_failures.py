"""Nodes that fail under placed workloads: which count, what is written down, and when the workload has to go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kyu.api.actions import Action, Patch, WakeAt
from kyu.api.config import file
from kyu.api.config.config import Configuration
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.kinds.pod import POD
from kyu.plans.workload import node_failures
from tests.support import manifests
from tests.support.manifests import node
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = Key("team", "train")
HOSTNAME = "kubernetes.io/hostname"
TAINT = {"key": "maintenance", "value": "now", "effect": "NoSchedule"}


def placed_pod(name: str, placed: str, *, bound: bool = True, phase: str = "Running") -> Json:
    of_workload = {"annotations": {"kueue.x-k8s.io/workload": KEY.name}}
    selector = {HOSTNAME: placed}
    return manifests.pod(name, node=placed if bound else "", phase=phase, metadata=of_workload, nodeSelector=selector)


def placed_workload(*nodes: str, tolerations: tuple[Json, ...] = (), unhealthy: tuple[str, ...] = ()) -> Json:
    domains: Json = {"levels": [HOSTNAME], "slices": [{"domainCount": len(nodes), "podCounts": {"universal": 1}}]}
    domains["slices"][0]["valuesPerLevel"] = [{"individual": {"roots": list(nodes)}}]
    assignment = {"name": "main", "count": len(nodes), "flavors": {"cpu": "any"}, "topologyAssignment": domains}
    status = {
        "admission": {"clusterQueue": "q", "podSetAssignments": [assignment]},
        "conditions": [manifests.condition("QuotaReserved"), manifests.condition("Admitted")],
        **({"unhealthyNodes": [{"name": name} for name in unhealthy]} if unhealthy else {}),
    }
    made = manifests.workload(KEY.name, count=len(nodes), status=status)
    made["spec"]["podSets"][0]["template"]["spec"]["tolerations"] = list(tolerations)
    return made


def planned(view: MemoryView) -> list[Action]:
    actions = node_failures.plan(view, KEY, NOW)
    for action in actions:
        view.carry_out(action)
    return actions


def unhealthy(view: MemoryView) -> list[str]:
    found = view.get(Workload, KEY)
    assert found is not None
    return [one.name for one in found.status.unhealthy_nodes]


def evicted(view: MemoryView) -> str:
    found = view.find_json(Workload.KIND, KEY)
    assert found is not None
    return next((c["message"] for c in found["status"]["conditions"] if c["type"] == "Evicted"), "")


def test_on_healthy_nodes_nothing_happens() -> None:
    view = MemoryView([placed_workload("a", "b"), node("a"), node("b"), placed_pod("p", "a")])
    assert planned(view) == []


@pytest.mark.parametrize("others", [[], [node("a", ready="")]], ids=["gone", "without a condition"])
def test_a_node_that_is_gone_has_failed_at_once(others: list[Json]) -> None:
    view = MemoryView([placed_workload("a", "b"), node("b"), placed_pod("p", "a"), *others])
    planned(view)
    assert unhealthy(view) == ["a"]
    assert planned(view) == []


@pytest.mark.parametrize("trouble", [node("a", ready="False"), node("a", ready="Unknown"), node("a", taints=[TAINT])])
def test_one_in_trouble_has_failed_when_no_pod_runs_there_any_more(trouble: Json) -> None:
    view = MemoryView([placed_workload("a", "b"), trouble, node("b"), placed_pod("p", "a"), placed_pod("q", "b")])
    assert planned(view) == []
    view.put(placed_pod("p", "a", phase="Failed"))
    planned(view)
    assert unhealthy(view) == ["a"]


@pytest.mark.parametrize(
    ("toleration", "found"),
    [
        ({"key": "maintenance", "operator": "Exists"}, []),
        ({"key": "maintenance", "operator": "Exists", "tolerationSeconds": 60}, ["a"]),
        ({"key": "other", "operator": "Exists"}, ["a"]),
    ],
)
def test_a_taint_counts_unless_it_is_tolerated_for_ever(toleration: Json, found: list[str]) -> None:
    view = MemoryView([placed_workload("a", tolerations=(toleration,)), node("a", taints=[TAINT])])
    planned(view)
    assert unhealthy(view) == found


def test_what_a_flavor_tolerates_its_pods_do() -> None:
    flavor: Json = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}}
    flavor["spec"] = {"tolerations": [{"key": "maintenance", "operator": "Exists"}]}
    view = MemoryView([placed_workload("a"), node("a", taints=[TAINT]), flavor])
    assert planned(view) == []


def test_a_second_one_before_the_first_is_replaced_is_too_many() -> None:
    view = MemoryView([placed_workload("a", "b", unhealthy=("a",)), node("c")])
    planned(view)
    assert evicted(view).endswith("multiple TAS assigned node failures, including: a, b")
    assert unhealthy(view) == []
    assert planned(view) == []


def test_one_that_has_recovered_is_forgotten() -> None:
    view = MemoryView([placed_workload("a", "b", unhealthy=("a",)), node("a"), node("b")])
    planned(view)
    assert unhealthy(view) == []


def test_a_pod_that_waits_for_the_node_has_failed() -> None:
    view = MemoryView(
        [placed_workload("a", "b"), node("b"), placed_pod("p", "a", bound=False, phase="Pending"), placed_pod("q", "b")]
    )
    planned(view)
    late = view.find_json(POD, Key("team", "p"))
    assert late is not None
    assert late["status"]["phase"] == "Failed"
    assert late["status"]["conditions"][0]["reason"] == "UnschedulableOnAssignedNode"
    other = view.find_json(POD, Key("team", "q"))
    assert other is not None
    assert other["status"]["phase"] == "Running"


def settings(**gates: bool) -> Configuration:
    body: Json = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "featureGates": gates}
    return file.load(body).configuration


def test_where_pods_are_not_waited_for_half_a_minute_counts() -> None:
    rules = settings(TASReplaceNodeOnPodTermination=False)
    view = MemoryView(
        [placed_workload("a"), node("a", ready="False", since="2026-01-01T11:59:40Z"), placed_pod("p", "a")], rules
    )
    assert planned(view) == [WakeAt(NOW + timedelta(seconds=10))]
    view.put(node("a", ready="False", since="2026-01-01T11:59:30Z"))
    (patch,) = planned(view)
    assert isinstance(patch, Patch)
    assert unhealthy(view) == ["a"]


def test_without_the_gate_nothing_is_replaced() -> None:
    view = MemoryView([placed_workload("a")], settings(TASFailedNodeReplacement=False))
    assert planned(view) == []
