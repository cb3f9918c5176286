"""Nodes that fail under placed workloads: which count, what is written down, and when the workload has to go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kyu.api import config_file
from kyu.api.actions import Action, Patch, WakeAt
from kyu.api.config import Configuration
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.kinds.pod import POD
from kyu.plans import node_failures
from tests.memory_view import MemoryView

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = Key("team", "train")
HOSTNAME = "kubernetes.io/hostname"
TAINT = {"key": "maintenance", "value": "now", "effect": "NoSchedule"}


def workload(*nodes: str, tolerations: tuple[Json, ...] = (), unhealthy: tuple[str, ...] = ()) -> Json:
    domains: Json = {"levels": [HOSTNAME], "slices": [{"domainCount": len(nodes), "podCounts": {"universal": 1}}]}
    domains["slices"][0]["valuesPerLevel"] = [{"individual": {"roots": list(nodes)}}]
    assignment = {"name": "main", "count": len(nodes), "flavors": {"cpu": "any"}, "topologyAssignment": domains}
    spec = {"containers": [{"name": "c", "image": "i"}], "tolerations": list(tolerations)}
    conditions = [{"type": type_, "status": "True", "reason": "r"} for type_ in ("QuotaReserved", "Admitted")]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {"podSets": [{"name": "main", "count": len(nodes), "template": {"spec": spec}}]},
        "status": {
            "admission": {"clusterQueue": "q", "podSetAssignments": [assignment]},
            "conditions": conditions,
            **({"unhealthyNodes": [{"name": name} for name in unhealthy]} if unhealthy else {}),
        },
    }


def node(name: str, ready: str = "True", *taints: Json, since: datetime = NOW) -> Json:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": list(taints)},
        "status": {"conditions": [condition] if ready else []},
    }


def pod(name: str, placed: str, *, bound: bool = True, phase: str = "Running") -> Json:
    spec: Json = {"nodeSelector": {HOSTNAME: placed}, "containers": [{"name": "c", "image": "i"}]}
    annotations = {"kueue.x-k8s.io/workload": KEY.name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": KEY.namespace, "annotations": annotations},
        "spec": spec | ({"nodeName": placed} if bound else {}),
        "status": {"phase": phase},
    }


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
    view = MemoryView([workload("a", "b"), node("a"), node("b"), pod("p", "a")])
    assert planned(view) == []


@pytest.mark.parametrize("others", [[], [node("a", "")]], ids=["gone", "without a condition"])
def test_a_node_that_is_gone_has_failed_at_once(others: list[Json]) -> None:
    view = MemoryView([workload("a", "b"), node("b"), pod("p", "a"), *others])
    planned(view)
    assert unhealthy(view) == ["a"]
    assert planned(view) == []


@pytest.mark.parametrize("trouble", [node("a", "False"), node("a", "Unknown"), node("a", "True", TAINT)])
def test_one_in_trouble_has_failed_when_no_pod_runs_there_any_more(trouble: Json) -> None:
    view = MemoryView([workload("a", "b"), trouble, node("b"), pod("p", "a"), pod("q", "b")])
    assert planned(view) == []
    view.put(pod("p", "a", phase="Failed"))
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
    view = MemoryView([workload("a", tolerations=(toleration,)), node("a", "True", TAINT)])
    planned(view)
    assert unhealthy(view) == found


def test_what_a_flavor_tolerates_its_pods_do() -> None:
    flavor: Json = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}}
    flavor["spec"] = {"tolerations": [{"key": "maintenance", "operator": "Exists"}]}
    view = MemoryView([workload("a"), node("a", "True", TAINT), flavor])
    assert planned(view) == []


def test_a_second_one_before_the_first_is_replaced_is_too_many() -> None:
    view = MemoryView([workload("a", "b", unhealthy=("a",)), node("c")])
    planned(view)
    assert evicted(view).endswith("multiple TAS assigned node failures, including: a, b")
    assert unhealthy(view) == []
    assert planned(view) == []


def test_one_that_has_recovered_is_forgotten() -> None:
    view = MemoryView([workload("a", "b", unhealthy=("a",)), node("a"), node("b")])
    planned(view)
    assert unhealthy(view) == []


def test_a_pod_that_waits_for_the_node_has_failed() -> None:
    view = MemoryView([workload("a", "b"), node("b"), pod("p", "a", bound=False, phase="Pending"), pod("q", "b")])
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
    return config_file.load(body).configuration


def test_where_pods_are_not_waited_for_half_a_minute_counts() -> None:
    rules = settings(TASReplaceNodeOnPodTermination=False)
    view = MemoryView([workload("a"), node("a", "False", since=NOW - timedelta(seconds=20)), pod("p", "a")], rules)
    assert planned(view) == [WakeAt(NOW + timedelta(seconds=10))]
    view.put(node("a", "False", since=NOW - timedelta(seconds=30)))
    (patch,) = planned(view)
    assert isinstance(patch, Patch)
    assert unhealthy(view) == ["a"]


def test_without_the_gate_nothing_is_replaced() -> None:
    view = MemoryView([workload("a")], settings(TASFailedNodeReplacement=False))
    assert planned(view) == []
