"""Pools on a control plane as a user starts it, with a real nats-server and `kyu pool publish`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kyu.api import codec
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor
from kyu.api.meta import Json, Key
from kyu.api.pools import MasterQueue
from kyu.bus.connector import Connector
from kyu.bus.nats import NatsConnection
from kyu.kinds.job import JOB
from kyu.kube import errors, kubeconfig
from kyu.kube.apply import EVENT
from kyu.kube.blocking import BlockingClient
from tests.support.local_kyu import LONGEST_SECONDS, LocalKyu, local_kyu
from tests.support.local_pools import master_queue, pod_of, publishing, runner_options
from tests.support.nats_servers import NatsServer, nats_server

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "00-masterqueue"
PASSWORD = "not-to-be-seen"


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats"), "--user", "user", "--pass", PASSWORD) as server:
        yield server


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, nats: NatsServer) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu"), "--trust-users") as one:
        make_queues(one, nats)
        yield one


def url(nats: NatsServer) -> str:
    return nats.url.replace("nats://", f"nats://user:{PASSWORD}@")


def make_queues(kyu: LocalKyu, nats: NatsServer) -> None:
    """Create the manifests of the example, with the address of our server."""
    text = (EXAMPLE / "masterqueue.yaml").read_text().replace("nats://127.0.0.1:4222", url(nats))
    path = kyu.data / "masterqueue.yaml"
    path.write_text(text)
    kyu.kyu("apply", "-f", str(path))


def pool(kyu: LocalKyu, nats: NatsServer, name: str, *options: str) -> AbstractContextManager[None]:
    return publishing(kyu, url(nats), name, *options)


def create_job(kyu: LocalKyu, script: str) -> str:
    job = codec.read((EXAMPLE / "job.yaml").read_text())[0].object
    job["spec"]["backoffLimit"] = 0
    spec = job["spec"]["template"]["spec"]
    spec["containers"][0]["args"] = [script]
    name: str = kyu.client.create(JOB, job)["metadata"]["name"]
    return name


def versions(kyu: LocalKyu) -> dict[str, str]:
    """Return the versions of the MasterQueue and all of its objects; any write would raise one of them."""
    kinds = [one.KIND for one in (MasterQueue, ResourceFlavor, ClusterQueue, LocalQueue)]
    found = [(kind.kind, one["metadata"], one["metadata"]) for kind in kinds for one in kyu.client.list(kind)]
    about_queues = (one for one in kyu.client.list(EVENT) if one["involvedObject"]["kind"] != "Node")
    found += [("Event", one["metadata"], one["involvedObject"]) for one in about_queues]
    return {
        f"{kind}/{metadata['name']}": metadata["resourceVersion"]
        for kind, metadata, about in found
        if not is_of_barrier(about)
    }


def is_of_barrier(named: Json) -> bool:
    name: str = named["name"]
    return name.startswith("barrier")


def make_barrier(kyu: LocalKyu, nats: NatsServer) -> None:
    """Create another MasterQueue on another subject: when its pool is live, all earlier messages were heard."""
    flavor = {"natsConnector": url(nats), "natsSubject": "barrier.resources", "pools": ["barrier"]}
    spec = {"flavors": [{"name": "b", "natsFlavor": flavor}]}
    kyu.client.create(MasterQueue.KIND, {"metadata": {"name": "barrier"}, "spec": spec})


def pass_barrier(kyu: LocalKyu, nats: NatsServer) -> None:
    words = ["--pool", "barrier", "--subject", "barrier.resources", "--from", "static", "--once"]
    kyu.kyu("pool", "publish", "--nats", url(nats), "--pool-data", str(kyu.data / "barrier"), *words)

    def is_live() -> bool:
        found = kyu.client.get(MasterQueue.KIND, Key("", "barrier"))
        return bool((found.get("status") or {}).get("livePools"))

    kyu.wait("the barrier is passed", is_live)


async def until_all_spoke(address: str, *pools: str, times: int = 2) -> None:
    """Wait until each pool has announced itself at least twice, so that its period is known."""
    heard: Counter[str] = Counter()
    enough = asyncio.Event()

    def on_message(subject: str, payload: bytes, reply: str) -> None:
        heard[subject.rpartition(".")[2]] += 1
        if all(heard[pool] >= times for pool in pools):
            enough.set()

    connection = NatsConnection(Connector(address), "test")
    connection.listen("interlink.resources.*", on_message)
    task = asyncio.create_task(connection.run())
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            await enough.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_job_that_fails_on_its_pool_has_failed(running: LocalKyu, nats: NatsServer) -> None:
    with pool(running, nats, "podman-firenze", *runner_options(running)):
        job = create_job(running, "exit 3")
        running.wait(f"{job} failed", lambda: (p := pod_of(running, job)) and p["status"]["phase"] == "Failed")
        assert "podman-firenze" in running.kyu("pool", "list").stdout


def test_with_no_runner_a_pod_waits_and_says_so_and_can_be_deleted(running: LocalKyu, nats: NatsServer) -> None:
    with pool(running, nats, "silent-site"):
        # The other pool is silent by now or still listed; this job fits the live one, or waits for it.
        job = create_job(running, "true")

        def waits() -> bool:
            pod = pod_of(running, job)
            return pod is not None and (pod.get("status") or {}).get("reason") == "NoRunner"

        running.wait("the pod waits", waits)
        running.kyu("delete", "job", job)
        running.wait("the pod is gone", lambda: pod_of(running, job) is None)


def test_users_cannot_choose_a_pool_by_hand(running: LocalKyu) -> None:
    by_hand = {"key": "pool.vk.io", "value": "podman-firenze", "effect": "NoSchedule"}
    job = {
        "metadata": {"name": "by-hand", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "gr1"}},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "tolerations": [by_hand],
                    "containers": [{"name": "main", "image": "busybox"}],
                }
            }
        },
    }
    with pytest.raises(errors.ApiError, match="cannot be chosen by hand"):
        running.client.create(JOB, job)


def test_credentials_are_for_administrators_only(running: LocalKyu) -> None:
    master = master_queue(running)
    assert PASSWORD in json.dumps(master["spec"])
    assert PASSWORD not in json.dumps(master["status"])
    assert PASSWORD not in running.log()
    assert PASSWORD not in running.kyu("get", "events", "-A", "-o", "json").stdout
    for role in ("batch-user", "batch-admin", "view"):
        config = running.data / f"{role}.kubeconfig"
        config.write_text(running.kyu("user", "add", f"a-{role}", "--role", role).stdout)
        client = BlockingClient(kubeconfig.load(config))
        with pytest.raises(errors.Forbidden, match="masterqueues"):
            client.list(MasterQueue.KIND)
        client.close()


@pytest.mark.parametrize(
    ("flavor", "said"),
    [
        ({"name": "x"}, "exactly one of natsFlavor, clusterFlavor and localFlavor"),
        ({"name": "x", "natsFlavor": {"natsSubject": "s", "pools": ["a"]}}, "natsConnector or credentialsSecret"),
        ({"name": "x", "natsFlavor": {"natsSubject": "s", "natsConnector": "nats://h"}}, "one of pools and poolRegExp"),
        (
            {"name": "x", "natsFlavor": {"natsSubject": "s.*", "natsConnector": "nats://h", "pools": ["a"]}},
            "natsSubject",
        ),
        (
            {"name": "x", "natsFlavor": {"natsSubject": "s", "natsConnector": "http://h", "pools": ["a"]}},
            "natsConnector",
        ),
    ],
)
def test_a_master_queue_that_cannot_work_is_refused(running: LocalKyu, flavor: Json, said: str) -> None:
    with pytest.raises(errors.ApiError, match=said):
        running.client.create(MasterQueue.KIND, {"metadata": {"name": "bad"}, "spec": {"flavors": [flavor]}})


def test_two_live_pools_and_a_restart_write_nothing(tmp_path: Path, nats: NatsServer) -> None:
    with local_kyu(tmp_path / "data") as kyu:
        make_queues(kyu, nats)
        make_barrier(kyu, nats)
        with pool(kyu, nats, "site-a"), pool(kyu, nats, "site-b"):
            kyu.wait("both are in the queue", lambda: has_flavor(kyu, "group1", "gr1", "masterqueue-interlink-site-b"))
            before = kyu.wait("it settles", lambda: settled(kyu, nats))
            kyu.kill()
            kyu.start()
            again = LocalKyu(kyu.data)
            try:
                again.wait("the log", lambda: "connected=True" in again.log())
                asyncio.run(until_all_spoke(url(nats), "site-a", "site-b"))
                pass_barrier(again, nats)
                assert versions(again) == before
            finally:
                again.client.close()


def has_flavor(kyu: LocalKyu, cluster_queue: str, local_queue: str, flavor: str) -> bool:
    """Return whether the flavor is in the quota and in both statuses, which follow after their pause."""
    queues = (ClusterQueue.KIND, Key("", cluster_queue)), (LocalQueue.KIND, Key("default", local_queue))
    listed = [kyu.client.get(*queue).get("status") or {} for queue in queues]
    shown = all(flavor in json.dumps(status.get("flavorsReservation")) for status in listed)
    return shown and all(is_active(status) for status in listed)


def is_active(status: Json) -> bool:
    return any(one["type"] == "Active" and one["status"] == "True" for one in status.get("conditions") or ())


def settled(kyu: LocalKyu, nats: NatsServer) -> dict[str, str]:
    """Return the versions, if nothing was written for longer than a status may wait while both pools announced."""
    before = versions(kyu)
    asyncio.run(until_all_spoke(url(nats), "site-a", "site-b", times=8))
    return before if versions(kyu) == before else {}


@pytest.mark.parametrize("mode", ["local", "simulate"])
def test_virtual_nodes_without_runners(mode: str, tmp_path: Path, nats: NatsServer) -> None:
    with local_kyu(tmp_path / "data", "--virtual-node", mode) as kyu:
        make_queues(kyu, nats)
        with pool(kyu, nats, "anywhere"):
            job = create_job(kyu, 'echo "here"')
            if mode == "local":
                kyu.wait_for(job, "Succeeded")
                assert "here" in kyu.kyu("logs", job).stdout
            else:
                kyu.wait(f"{job} runs", lambda: (p := pod_of(kyu, job)) and p["status"].get("phase") == "Running")
                pod = pod_of(kyu, job)
                assert pod is not None
                assert pod["status"]["message"] == "simulated: nothing runs on this virtual node"
