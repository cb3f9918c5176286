"""The API on one side, pods on the other: a real server in this process, and real or simulated pods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kyu.api.config.config import Configuration
from kyu.api.core import Node, Pod
from kyu.api.meta import Json, Key, Kind
from kyu.controllers.live_view import LiveView
from kyu.controllers.loop import Controller, Loop, Watch
from kyu.kinds.job import JOB
from kyu.kube.apply import Writer
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client
from kyu.plans.pods import binding, operators
from kyu.runtime.agent import Agent, PodRuntime
from kyu.runtime.nodes import heartbeat, node, simulated_nodes
from kyu.runtime.nodes.simulate import RealClock, SimulatedRuntime
from kyu.runtime.processes import Machine, Runtime
from tests.support.servers import CONFIG_MAP, config_map, serving

NODE_NAME = "node-1"
MakeRuntime = Callable[[Agent], PodRuntime]


@dataclass
class Plane:
    """The parts of a control plane that a test needs: a client, and the cache of the agents."""

    client: Client
    cache: Cache
    write: Writer

    @contextlib.asynccontextmanager
    async def agent(self, make_runtime: MakeRuntime) -> AsyncIterator[PodRuntime]:
        agent = Agent(self.client, self.cache, self.write, lambda name: name == NODE_NAME)
        runtime = make_runtime(agent)
        task = asyncio.create_task(agent.run(runtime))
        try:
            yield runtime
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def until(self, condition: Callable[[], object], kind: Kind = Pod.KIND) -> None:
        """Wait for the cache to show something."""
        changed = asyncio.Event()
        self.cache.subscribe(lambda *_: changed.set())
        async with asyncio.timeout(30):
            while not condition():
                changed.clear()
                await changed.wait()

    def pod(self, name: str) -> Json | None:
        return self.cache.find_json(Pod.KIND, Key("default", name))

    def phase(self, name: str) -> str:
        return str((self.pod(name) or {}).get("status", {}).get("phase"))


@contextlib.asynccontextmanager
async def plane(folder: Path, *kinds: Kind) -> AsyncIterator[Plane]:
    async with serving(folder, controllers=True) as (_, client):
        cache = Cache()
        reflectors = [Reflector(client, cache, kind) for kind in (Pod.KIND, *kinds)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(reflector.run()) for reflector in reflectors]
            await cache.synced()
            yield Plane(client, cache, Writer(client, cache, clock))
            for task in tasks:
                task.cancel()


def clock() -> datetime:
    return datetime.now(UTC)


def simulated(agent: Agent) -> PodRuntime:
    return SimulatedRuntime(RealClock(), agent.on_status)


def real(folder: Path) -> MakeRuntime:
    return lambda agent: Runtime(str(folder / "runtime"), Machine(NODE_NAME), agent.on_status)


def pod(name: str, script: str = "true", **annotations: str) -> Json:
    main = {"name": "main", "image": "any", "command": ["sh", "-c", script]}
    meta = {"name": name, "namespace": "default", "annotations": {f"kyu.dev/{k}": v for k, v in annotations.items()}}
    return {"metadata": meta, "spec": {"restartPolicy": "Never", "nodeName": NODE_NAME, "containers": [main]}}


async def test_a_simulated_pod_takes_its_time_and_ends_as_told(tmp_path: Path) -> None:
    async with plane(tmp_path) as on, on.agent(simulated):
        await on.client.create(Pod.KIND, pod("a", **{"run-seconds": "0"}))
        await on.client.create(Pod.KIND, pod("b", **{"run-seconds": "0.01", "exit-code": "3"}))
        await on.until(lambda: on.phase("a") == "Succeeded" and on.phase("b") == "Failed")
        ended = (on.pod("b") or {})["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == 3


async def test_a_real_pod_runs_and_its_deletion_waits_for_its_processes(tmp_path: Path) -> None:
    async with plane(tmp_path) as on, on.agent(real(tmp_path)) as runtime:
        await on.client.create(Pod.KIND, pod("a", "trap 'exit 0' TERM; while :; do sleep 0.01; done"))
        await on.until(lambda: on.phase("a") == "Running")
        (uid,) = runtime.uids()
        await on.client.delete(Pod.KIND, Key("default", "a"))
        await on.until(lambda: on.pod("a") is None)
        status = runtime.find_status(uid)
        assert status is None or status["phase"] in ("Succeeded", "Failed")


async def test_requests_in_odd_forms_do_not_keep_a_status_from_being_written(tmp_path: Path) -> None:
    nothing, twice = pod("nothing"), pod("twice")
    nothing["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "0"}}
    same = {"requests": {"cpu": "1000m", "memory": "1Ki"}, "limits": {"cpu": "1", "memory": "1024"}}
    twice["spec"]["containers"][0]["resources"] = same
    async with plane(tmp_path) as on, on.agent(real(tmp_path)):
        for wanted in (nothing, twice):
            await on.client.create(Pod.KIND, wanted)
        await on.until(lambda: {on.phase("nothing"), on.phase("twice")} <= {"Succeeded", "Failed"})
        qualities = [(on.pod(name) or {})["status"]["qosClass"] for name in ("nothing", "twice")]
        assert qualities == ["BestEffort", "Guaranteed"]


async def test_a_pod_that_waits_for_a_config_map_starts_when_it_is_there(tmp_path: Path) -> None:
    async with plane(tmp_path) as on, on.agent(real(tmp_path)):
        wanted = pod("a")
        wanted["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "later"}}]
        await on.client.create(Pod.KIND, wanted)
        await on.until(lambda: "CreateContainerConfigError" in str(on.pod("a")))
        await on.client.create(CONFIG_MAP, config_map("later"))
        await on.until(lambda: on.phase("a") == "Succeeded")


async def test_a_pod_that_ends_while_nobody_is_there_is_adopted_with_its_end(tmp_path: Path) -> None:
    async with plane(tmp_path) as on:
        go = tmp_path / "go"
        async with on.agent(real(tmp_path)):
            await on.client.create(Pod.KIND, pod("a", f"while ! test -e {go}; do sleep 0.01; done; exit 4"))
            await on.until(lambda: on.phase("a") == "Running")
        go.touch()
        async with on.agent(real(tmp_path)):
            await on.until(lambda: on.phase("a") == "Failed")
        ended = (on.pod("a") or {})["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == 4


async def test_a_refused_pod_fails_with_the_reason_and_an_event(tmp_path: Path) -> None:
    event = Kind("", "v1", "Event", "events")
    async with plane(tmp_path, event) as on, on.agent(real(tmp_path)):
        wanted = pod("a")
        wanted["spec"]["containers"][0].pop("command")
        await on.client.create(Pod.KIND, wanted)
        await on.until(lambda: on.phase("a") == "Failed" and on.cache.list_json(event))
        assert "images are not run here" in (on.pod("a") or {})["status"]["message"]
        assert [e["reason"] for e in on.cache.list_json(event)] == ["Failed"]


def own_key(view: object, obj: Json) -> Iterable[Key]:
    yield Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def job_of(view: object, obj: Json) -> Iterable[Key]:
    owners = obj["metadata"].get("ownerReferences") or ()
    yield from (Key(obj["metadata"]["namespace"], owner["name"]) for owner in owners if owner["kind"] == "Job")


def all_pods(view: object, obj: Json) -> Iterable[Key]:
    yield Key("", "pods")


async def test_a_job_goes_all_the_way_with_real_processes(tmp_path: Path) -> None:
    rows = (
        Controller("job", operators.PLANS[JOB], (Watch(JOB, own_key), Watch(Pod.KIND, job_of))),
        Controller("binding", binding.plan, (Watch(Pod.KIND, all_pods), Watch(Node.KIND, all_pods))),
    )
    async with plane(tmp_path, Node.KIND, JOB) as on, on.agent(real(tmp_path)):
        facts = node.read_facts(str(tmp_path))
        abilities = node.Abilities("", "", "None")
        await heartbeat.register(on.client, [node.make_node(NODE_NAME, facts, abilities, clock())])
        # A node without a condition of its own would be as good: it is Ready once it is registered.
        loop = Loop(LiveView(on.cache, Configuration(), lambda: None), on.write, rows, clock)
        on.cache.subscribe(loop.changed)
        running = asyncio.create_task(loop.run())
        containers = pod("x", f"echo $JOB_COMPLETION_INDEX >> {tmp_path}/ran")["spec"]["containers"]
        template = {"spec": {"restartPolicy": "Never", "containers": containers}}
        spec = {"completions": 5, "parallelism": 2, "completionMode": "Indexed", "template": template}
        await on.client.create(JOB, {"metadata": {"name": "j", "namespace": "default"}, "spec": spec})
        await on.until(lambda: "Complete" in str((job(on) or {}).get("status", {}).get("conditions")))
        running.cancel()
        status = (job(on) or {})["status"]
        assert (status["succeeded"], status["completedIndexes"]) == (5, "0-4")
        assert sorted((tmp_path / "ran").read_text().split()) == ["0", "1", "2", "3", "4"]


def job(on: Plane) -> Json | None:
    return on.cache.find_json(JOB, Key("default", "j"))


async def test_a_job_from_before_a_restart_is_known_by_its_kind(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        template = {"spec": {"restartPolicy": "Never", "containers": pod("x")["spec"]["containers"]}}
        await client.create(JOB, {"metadata": {"name": "j", "namespace": "default"}, "spec": {"template": template}})
        cache = Cache()
        reflector = asyncio.create_task(Reflector(client, cache, JOB).run())
        await cache.synced()
        reflector.cancel()
        (listed,) = cache.list_json(JOB)
        assert (listed["apiVersion"], listed["kind"]) == ("batch/v1", "Job")


async def test_nodes_are_registered_once_and_kept_alive(tmp_path: Path) -> None:
    text = """
apiVersion: v1
kind: Node
metadata: {name: big, annotations: {kyu.dev/count: "2"}}
spec: {taints: [{key: gpu, effect: NoSchedule}]}
status: {capacity: {cpu: 64, memory: 256Gi, nvidia.com/gpu: 8}}
"""
    async with plane(tmp_path, Node.KIND) as on:
        nodes = simulated_nodes.read(text, "nodes.yaml", clock())
        for _ in range(2):
            await heartbeat.register(on.client, nodes)
        stored, _ = await on.client.list(Node.KIND)
        assert [n["metadata"]["name"] for n in stored] == ["big-0", "big-1"]
        assert stored[0]["spec"]["taints"] == [{"key": "gpu", "effect": "NoSchedule"}]
        assert stored[0]["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        for _ in range(2):
            await heartbeat.renew(on.client, NODE_NAME, clock())
        lease = await on.client.get(node.LEASE, Key(node.LEASE_NAMESPACE, NODE_NAME))
        assert lease["spec"]["holderIdentity"] == NODE_NAME
