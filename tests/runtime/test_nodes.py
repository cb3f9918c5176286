"""Nodes: this machine as the API shows it, simulated ones from a file, and simulated pods on a clock of our own."""

from __future__ import annotations

import heapq
import itertools
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kyu.api.meta import Json
from kyu.runtime import cgroups, user_ids
from kyu.runtime.agent import Fetched
from kyu.runtime.nodes import node, simulated_nodes
from kyu.runtime.nodes.simulate import SimulatedRuntime

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FACTS = node.MachineFacts("box", 8, 16 * 1024**3, 100 * 1024**3, 2, "amd64", "6.1", "Some Linux", "m", "b")


def test_this_machine_is_read_without_fault(tmp_path: Path) -> None:
    facts = node.read_facts(str(tmp_path))
    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.memory_bytes > 2**26
    assert facts.storage_bytes > 0


def test_the_node_says_what_it_has_and_what_it_cannot_do() -> None:
    abilities = node.Abilities("no cgroup v2 file system is mounted", "", isolation_refused="all pods run as one user")
    body = node.make_node("box", FACTS, abilities, NOW)
    assert body["metadata"]["labels"]["kubernetes.io/arch"] == "amd64"
    assert body["status"]["allocatable"] == {
        "cpu": "8",
        "memory": "16777216Ki",
        "ephemeral-storage": "104857600Ki",
        "pods": "1000",
        "nvidia.com/gpu": "2",
    }
    found = {c["type"]: (c["status"], c["message"]) for c in body["status"]["conditions"]}
    assert found["Ready"][0] == "True"
    assert found["kyu.dev/LimitsEnforced"] == (
        "False",
        "no cpu and memory limits: no cgroup v2 file system is mounted",
    )
    assert found["kyu.dev/VolumesMounted"] == ("True", "volumes at their mount paths")
    assert found["kyu.dev/TenantsIsolated"][0] == "False"


def test_a_node_that_refuses_pods_says_why() -> None:
    abilities = node.Abilities("", "", isolation_refused="no user ids", refuses_pods=True)
    found = {c["type"]: c for c in node.conditions(abilities, datetime.now(UTC))}["kyu.dev/TenantsIsolated"]
    assert (found["status"], found["reason"]) == ("False", "PodsRefused")
    assert found["message"] == "pods are refused: no user ids"


# User ids -----------------------------------------------------------------------------------------------------------


def ids(tmp_path: Path, server: str) -> user_ids.UserIds:
    (tmp_path / server).mkdir(exist_ok=True)
    return user_ids.UserIds(str(tmp_path / server), str(tmp_path / "registry.json"))


def test_a_namespace_keeps_its_user(tmp_path: Path) -> None:
    first = ids(tmp_path, "one")
    numbers = [first.user(name) for name in ("a", "b", "a")]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0]]
    assert ids(tmp_path, "one").user("b") == numbers[1]


def test_two_servers_share_no_user(tmp_path: Path) -> None:
    one, two = ids(tmp_path, "one"), ids(tmp_path, "two")
    assert abs(one.first - two.first) >= user_ids.RANGE_SIZE
    # A copy of a server's folder is another server.
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    assert ids(tmp_path, "copy").first not in (one.first, two.first)


def test_the_range_of_a_server_that_is_gone_is_used_last(tmp_path: Path) -> None:
    one = ids(tmp_path, "one")
    shutil.rmtree(tmp_path / "one")
    assert ids(tmp_path, "two").first != one.first
    registry = {"next": user_ids.END, "ranges": {str(user_ids.FIRST): "/gone"}}
    assert user_ids.free_range(registry) == user_ids.FIRST


def test_numbers_that_the_administrator_gave_to_containers_are_left_out(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    table.write_text(f"ana:100000:65536\nbo:{user_ids.FIRST + 5}:10\n")
    assert user_ids.is_delegated(user_ids.FIRST, str(table))
    assert not user_ids.is_delegated(user_ids.FIRST + user_ids.RANGE_SIZE, str(table))


# Limits -------------------------------------------------------------------------------------------------------------


def cgroup_mount(tmp_path: Path, controllers: str) -> str:
    """Make a folder that looks like a mounted cgroup v2 file system, and the mount table that says so."""
    base = tmp_path / "cgroup"
    base.mkdir()
    (base / "cgroup.controllers").write_text(controllers)
    table = tmp_path / "mountinfo"
    table.write_text(f"30 20 0:26 / {base} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")
    return str(table)


def test_limits_are_enforced_where_the_controllers_are_there(tmp_path: Path) -> None:
    root = cgroups.find_root(cgroup_mount(tmp_path, "cpuset cpu io memory pids"))
    assert root == cgroups.Root(str(tmp_path / "cgroup" / "kyu"))
    group = os.path.join(root.path, "uid", "main")
    os.makedirs(group)
    for name in ("cgroup.procs", "cgroup.kill"):
        Path(group, name).touch()
    made = cgroups.make(group, cgroups.limits(250, 1024))
    made.enter(42)
    made.end()
    written = {name: Path(group, name).read_text() for name in os.listdir(group)}
    assert written == {
        "cpu.max": "25000 100000",
        "memory.max": "1024",
        "memory.swap.max": "0",
        "cgroup.procs": "42",
        "cgroup.kill": "1",
    }
    assert Path(root.path, "uid", "cgroup.subtree_control").read_text() == "+cpu +memory"


@pytest.mark.parametrize(("milli_cpu", "weight"), [(0, "1"), (100, "4"), (1000, "39"), (64_000, "2500")])
def test_requests_become_shares_as_the_kubelet_computes_them(milli_cpu: int, weight: str) -> None:
    assert cgroups.weight(milli_cpu) == weight


@pytest.mark.parametrize(("events", "killed"), [("oom 1\noom_kill 1\n", True), ("oom 0\noom_kill 0\n", False)])
def test_a_container_that_was_killed_for_its_memory_is_known(tmp_path: Path, events: str, killed: bool) -> None:
    (tmp_path / "memory.events").write_text(events)
    assert cgroups.was_killed_for_memory(str(tmp_path)) is killed


def test_without_controllers_the_reason_is_given(tmp_path: Path) -> None:
    root = cgroups.find_root(cgroup_mount(tmp_path, "cpu pids"))
    assert root.path == ""
    assert root.reason.endswith("has no memory controller")
    nothing = tmp_path / "nothing"
    nothing.write_text("")
    assert cgroups.find_root(str(nothing)).reason == "no cgroup v2 file system is mounted"


# Simulated nodes ----------------------------------------------------------------------------------------------------

NODES = """
apiVersion: v1
kind: Node
metadata:
  name: gpu
  labels: {rack: "r{index}"}
  annotations: {kyu.dev/count: "3"}
spec:
  taints: [{key: gpu, value: "yes", effect: NoSchedule}]
status:
  capacity: {cpu: 96, memory: 1Ti, nvidia.com/gpu: 8}
---
apiVersion: v1
kind: Node
metadata: {name: small}
status:
  capacity: {cpu: "2", memory: 4Gi, pods: 5}
"""


def test_nodes_are_made_from_a_file() -> None:
    nodes = simulated_nodes.read(NODES, "nodes.yaml", NOW)
    assert [n["metadata"]["name"] for n in nodes] == ["gpu-0", "gpu-1", "gpu-2", "small"]
    second = nodes[1]
    assert second["metadata"]["labels"]["rack"] == "r1"
    assert second["metadata"]["labels"]["kubernetes.io/hostname"] == "gpu-1"
    assert second["spec"]["taints"][0]["key"] == "gpu"
    assert second["status"]["allocatable"] == {"pods": "110", "cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8"}
    assert nodes[3]["status"]["allocatable"]["pods"] == "5"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            NODES.replace("96", "lots"),
            "nodes.yaml: document 1, line 11: status.capacity[cpu]: 'lots' is not a quantity",
        ),
        (NODES.replace("NoSchedule", "Never"), "spec.taints[0].effect: expected one of NoSchedule"),
        (NODES.replace('"3"', '"many"'), "metadata.annotations[kyu.dev/count]"),
        (NODES.replace("name: small", "name: Small!"), "document 2, line 15: metadata.name"),
        (NODES.replace("kind: Node", "kind: Pod"), "kind: expected a v1 Node, got v1 Pod"),
        (
            NODES.replace('status:\n  capacity: {cpu: "2"', 'other:\n  capacity: {cpu: "2"'),
            "status.capacity: must be set",
        ),
        (NODES.replace("name: small", "name: gpu-1"), "there are several nodes named gpu-1"),
        ("a: [", "nodes.yaml: document 1"),
    ],
)
def test_faults_in_the_file_are_named_by_file_and_field(text: str, words: str) -> None:
    with pytest.raises(simulated_nodes.BadNodes) as caught:
        simulated_nodes.read(text, "nodes.yaml", NOW)
    assert words in str(caught.value)


# Simulated pods -----------------------------------------------------------------------------------------------------


def pod(name: str, annotations: dict[str, str] | None = None, **spec: object) -> Json:
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "annotations": annotations or {}}
    return {"metadata": meta, "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "x"}], **spec}}


class VirtualClock:
    """Time stands still until it is set forward; what is due on the way happens in its order."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()

    def now(self) -> float:
        return self._now

    def call_at(self, at: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (at, next(self._sequence), callback))

    def has_timers(self) -> bool:
        return bool(self._timers)

    def advance(self, until: float) -> None:
        while self._timers and self._timers[0][0] <= until:
            self._now, _, callback = heapq.heappop(self._timers)
            callback()
        self._now = until


class Told:
    """The statuses of a simulated runtime, with their times."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOW.timestamp())
        self.lines: list[tuple[float, str, str]] = []
        self.runtime = SimulatedRuntime(self.clock, self._tell)

    def _tell(self, pod: Json, status: Json) -> None:
        self.lines.append((self.clock.now() - NOW.timestamp(), pod["metadata"]["name"], status["phase"]))

    def start(self, pod: Json) -> None:
        self.runtime.start(pod, Fetched())

    def advance(self, seconds: float) -> None:
        self.clock.advance(NOW.timestamp() + seconds)


def test_simulated_pods_end_in_the_order_of_their_times() -> None:
    told = Told()
    told.start(pod("slow", {"kyu.dev/run-seconds": "30"}))
    told.start(pod("fast", {"kyu.dev/run-seconds": "5", "kyu.dev/exit-code": "2"}))
    told.start(pod("usual"))
    told.advance(100)
    assert told.lines == [
        (0, "slow", "Running"),
        (0, "fast", "Running"),
        (0, "usual", "Running"),
        (5, "fast", "Failed"),
        (30, "slow", "Succeeded"),
        (60, "usual", "Succeeded"),
    ]


def test_a_stopped_pod_ends_at_once_and_only_once() -> None:
    told = Told()
    told.start(pod("a", {"kyu.dev/run-seconds": "30"}))
    told.advance(10)
    told.runtime.stop("uid-a", 30)
    told.runtime.stop("uid-a", 0)
    told.advance(60)
    assert told.lines == [(0, "a", "Running"), (10, "a", "Failed")]


def test_a_deadline_ends_a_simulated_pod() -> None:
    told = Told()
    told.start(pod("a", {"kyu.dev/run-seconds": "30"}, activeDeadlineSeconds=7))
    told.advance(60)
    assert told.lines[-1] == (7, "a", "Failed")
    status = told.runtime.find_status("uid-a")
    assert status is not None
    assert status["reason"] == "DeadlineExceeded"


def test_a_pod_that_ran_before_goes_on_from_its_start() -> None:
    told = Told()
    earlier = pod("a", {"kyu.dev/run-seconds": "100"})
    earlier["status"] = {"startTime": "2025-12-31T23:59:00Z"}
    told.start(earlier)
    told.advance(200)
    assert told.lines == [(0, "a", "Running"), (40, "a", "Succeeded")]


@pytest.mark.parametrize(
    "annotations",
    [
        {"kyu.dev/run-seconds": "soon"},
        {"kyu.dev/run-seconds": "-1"},
        {"kyu.dev/run-seconds": "nan"},
        {"kyu.dev/exit-code": "x"},
    ],
)
def test_annotations_that_say_nothing_fail_the_pod(annotations: dict[str, str]) -> None:
    told = Told()
    told.start(pod("a", annotations))
    assert told.lines == [(0, "a", "Failed")]


def test_thousands_of_simulated_pods_leave_nothing_behind() -> None:
    told = Told()
    for number in range(5000):
        told.start(pod(f"p{number}", {"kyu.dev/run-seconds": str(number % 50)}))
    told.advance(50)
    assert len(told.lines) == 10_000
    assert not told.clock.has_timers()
