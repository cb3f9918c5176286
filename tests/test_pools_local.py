"""Pools on a control plane as a user starts it, with a real nats-server and `kyu pool publish` as the far end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kyu.api import codec
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor
from kyu.api.meta import Json, Key
from kyu.api.pools import MasterQueue
from kyu.kinds.job import JOB
from kyu.kinds.pod import POD
from kyu.kube import errors, kubeconfig
from kyu.kube.blocking import BlockingClient
from tests.local_kyu import LocalKyu, local_kyu
from tests.nats_servers import NatsServer, nats_server

EXAMPLE = Path(__file__).parent.parent / "examples" / "00-masterqueue"
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
    """The manifests of the example, with the address of our server."""
    text = (EXAMPLE / "masterqueue.yaml").read_text().replace("nats://127.0.0.1:4222", url(nats))
    path = kyu.data / "masterqueue.yaml"
    path.write_text(text)
    kyu.kyu("apply", "-f", str(path))


@contextmanager
def pool(kyu: LocalKyu, nats: NatsServer, name: str, *options: str) -> Iterator[None]:
    words = ["pool", "publish", "--nats", url(nats), "--pool", name, "--from", "static", "--period", "0.5"]
    words += ["--resource", "cpu=8", "--resource", "memory=16Gi", "--resource", "pods=20"]
    words += ["--pool-data", str(kyu.data / f"pool-{name}"), *options]
    process = subprocess.Popen([sys.executable, "-m", "kyu", *words], stderr=subprocess.DEVNULL)
    try:
        kyu.wait(f"pool {name} is live", lambda: state_of(kyu, name) == "Live")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def master_queue(kyu: LocalKyu) -> Json:
    return kyu.client.get(MasterQueue.KIND, Key("", "masterqueue"))


def state_of(kyu: LocalKyu, name: str) -> str:
    pools = (master_queue(kyu).get("status") or {}).get("pools") or ()
    return next((one["state"] for one in pools if one["name"] == name), "")


def create_job(kyu: LocalKyu, script: str) -> str:
    job = codec.read((EXAMPLE / "job.yaml").read_text())[0].object
    job["spec"]["backoffLimit"] = 0
    spec = job["spec"]["template"]["spec"]
    spec["containers"][0]["args"] = [script]
    name: str = kyu.client.create(JOB, job)["metadata"]["name"]
    return name


def pod_of(kyu: LocalKyu, job: str) -> Json | None:
    found = [one for one in kyu.client.list(POD, "default") if one["metadata"]["name"].startswith(f"{job}-")]
    return found[0] if found else None


def versions(kyu: LocalKyu) -> dict[str, str]:
    kinds = (ResourceFlavor, ClusterQueue, MasterQueue, LocalQueue)
    return {
        f"{one['kind']}/{one['metadata']['name']}": json.dumps(one.get("spec"))
        + str(one["metadata"].get("generation", one["metadata"]["resourceVersion"]))
        for kind in kinds
        for one in kyu.client.list(kind.KIND)
    }


def test_a_job_runs_on_the_pool_that_it_was_admitted_to(running: LocalKyu, nats: NatsServer) -> None:
    key = running.kyu("pool", "key", "--data", str(running.data)).stdout.strip()
    with pool(running, nats, "podman-firenze", "--label", "site=firenze", "--run", "--allow", key):
        flavor = running.client.get(ResourceFlavor.KIND, Key("", "masterqueue-interlink-podman-firenze"))
        assert flavor["metadata"]["labels"] == {"site": "firenze"}
        group = running.client.get(ClusterQueue.KIND, Key("", "group1"))
        quotas = {one["name"]: one for one in group["spec"]["resourceGroups"][0]["flavors"][0]["resources"]}
        assert quotas["pods"] == {"name": "pods", "nominalQuota": "0", "borrowingLimit": "30"}
        assert quotas["cpu"] == {"name": "cpu", "nominalQuota": "0"}
        job = create_job(running, 'echo "Hello world!"')
        running.wait_for(job, "Succeeded")
        assert "Hello world!" in running.kyu("logs", job).stdout
        pod = pod_of(running, job)
        assert pod is not None
        assert pod["spec"]["nodeName"] == "interlink"
        assert {"key": "pool.vk.io", "value": "podman-firenze", "effect": "NoSchedule"} in pod["spec"]["tolerations"]
        failing = create_job(running, "exit 3")
        running.wait(f"{failing} failed", lambda: (p := pod_of(running, failing)) and p["status"]["phase"] == "Failed")
        assert "podman-firenze" in running.kyu("pool", "list").stdout


def test_with_no_runner_a_pod_waits_and_says_so_and_can_be_deleted(running: LocalKyu, nats: NatsServer) -> None:
    with pool(running, nats, "silent-site"):
        # The other pool has gone quiet by now or is still listed; this job fits the one that speaks or waits for it.
        job = create_job(running, "true")

        def waits() -> bool:
            pod = pod_of(running, job)
            return pod is not None and (pod.get("status") or {}).get("reason") == "NoRunner"

        running.wait("the pod waits", waits)
        running.kyu("delete", "job", job)
        running.wait("the pod is gone", lambda: pod_of(running, job) is None)


def test_nobody_chooses_a_pool_by_hand(running: LocalKyu) -> None:
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
        ({"name": "x"}, "exactly one of natsFlavor and localFlavor"),
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


def test_two_live_pools_and_a_restart_write_nothing(running: LocalKyu, nats: NatsServer) -> None:
    with pool(running, nats, "site-a"), pool(running, nats, "site-b"):
        running.wait("both are in the queue", lambda: "masterqueue-interlink-site-b" in str(versions(running)))
        before = versions(running)
        running.kill()
        running.start()
        again = LocalKyu(running.data)
        try:
            condition = "NatsConnected"
            again.wait("connected", lambda: condition in str(master_queue(again)["status"]["conditions"]))
            again.wait("the log", lambda: "connected=True" in again.log())
            after = versions(again)
            names = [name for name in before if "site-a" in name or "site-b" in name or "Queue" in name]
            assert {name: after.get(name) for name in names} == {name: before[name] for name in names}
        finally:
            again.client.close()


LOCAL = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata:
  name: "local-cpu"
---
apiVersion: vk.io/v1
kind: MasterQueue
metadata:
  name: masterqueue
spec:
  template:
    cohort: masterqueue
  flavors:
    - name: local-cpu
      localFlavor: {}
      nominalQuota:
        pods: 100
      canLendTo:
        - queue: group1
          lendingLimit:
            pods: 30
"""


def test_a_local_flavor_takes_the_place_of_pools_and_deleting_cleans_up(running: LocalKyu) -> None:
    again = LocalKyu(running.data)
    try:
        path = running.data / "local.yaml"
        path.write_text(LOCAL)
        again.kyu("apply", "-f", str(path))

        def flavors() -> list[str]:
            spec = again.client.get(ClusterQueue.KIND, Key("", "group1"))["spec"]
            return [one["name"] for group in spec.get("resourceGroups") or () for one in group["flavors"]]

        again.wait("only the local flavor is left", lambda: flavors() == ["local-cpu"])
        again.kyu("delete", "masterqueue", "masterqueue")
        again.kyu("delete", "resourceflavor", "local-cpu")

        def left() -> list[str]:
            queues = [one["metadata"]["name"] for one in again.client.list(ClusterQueue.KIND)]
            flavors = [one["metadata"]["name"] for one in again.client.list(ResourceFlavor.KIND)]
            return [name for name in queues + flavors if name != "local"]

        again.wait("all is gone", lambda: left() == [])
        nodes = again.kyu("get", "nodes").stdout
        assert "interlink" not in nodes
    finally:
        again.client.close()


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
