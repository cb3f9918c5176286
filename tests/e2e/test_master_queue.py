"""The published walk-through of MasterQueue, its manifests as they stand there but for the address of NATS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api import codec
from kyu.api.kueue import ClusterQueue, ResourceFlavor
from kyu.api.meta import Json, Key
from kyu.kinds.job import JOB
from tests.support.local_kyu import LocalKyu, local_kyu
from tests.support.local_pools import pod_of, publishing, runner_options
from tests.support.nats_servers import NatsServer, nats_server

MANIFESTS = Path(__file__).parent.parent / "walkthroughs"
ADDRESS = "nats://user:password@nats.nats:4222"


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats"), "--user", "user", "--pass", "password") as server:
        yield server


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu"), "--trust-users") as one:
        yield one


def url(nats: NatsServer) -> str:
    return nats.url.replace("nats://", "nats://user:password@")


def apply(kyu: LocalKyu, name: str, nats: NatsServer) -> None:
    text = (MANIFESTS / f"masterqueue-{name}.yaml").read_text()
    path = kyu.data / f"{name}.yaml"
    path.write_text(text.replace(ADDRESS, url(nats)))
    kyu.kyu("apply", "-f", str(path))


def create_job(kyu: LocalKyu) -> str:
    manifest = codec.read((MANIFESTS / "masterqueue-job.yaml").read_text())[0].object
    name: str = kyu.client.create(JOB, manifest)["metadata"]["name"]
    return name


def until_it_says_hello(kyu: LocalKyu, job: str) -> None:
    """It says so at its start and then sleeps, which nobody has to wait for."""
    kyu.wait(f"{job} says hello", lambda: "Hello world!" in kyu.kyu("logs", job, check=False).stdout)


def quotas(kyu: LocalKyu, queue: str) -> dict[str, dict[str, Json]]:
    """By flavor and resource."""
    spec = kyu.client.get(ClusterQueue.KIND, Key("", queue))["spec"]
    assert spec["cohortName"] == "masterqueue"
    return {
        one["name"]: {quota.pop("name"): quota for quota in one["resources"]}
        for group in spec.get("resourceGroups") or ()
        for one in group["flavors"]
    }


def test_a_pool_becomes_quota_and_the_job_runs_there(kyu: LocalKyu, nats: NatsServer) -> None:
    apply(kyu, "pools", nats)
    apply(kyu, "local-queue", nats)
    with publishing(kyu, url(nats), "podman-firenze", "--label", "site=firenze", *runner_options(kyu)):
        flavor = kyu.client.get(ResourceFlavor.KIND, Key("", "masterqueue-interlink-podman-firenze"))
        assert flavor["metadata"]["labels"] == {"site": "firenze"}
        assert flavor["spec"]["nodeLabels"] == {"kubernetes.io/hostname": "interlink"}
        (own,) = quotas(kyu, "masterqueue").values()
        assert {name: quota["nominalQuota"] for name, quota in own.items()} == {
            "cpu": "8",
            "memory": "16Gi",
            "pods": "20",
            "nvidia.com/gpu": "0",
        }
        (lent,) = quotas(kyu, "group1").values()
        assert lent.pop("pods") == {"nominalQuota": "0", "borrowingLimit": "30"}
        assert list(lent.values()) == [{"nominalQuota": "0"}] * 3

        job = create_job(kyu)
        assert job.startswith("sample-job-1")
        until_it_says_hello(kyu, job)
        pod = pod_of(kyu, job)
        assert pod is not None
        assert pod["spec"]["nodeName"] == "interlink"
        assert {"key": "pool.vk.io", "value": "podman-firenze", "effect": "NoSchedule"} in pod["spec"]["tolerations"]
        admission = (kyu.workload(job) or {})["status"]["admission"]
        assert admission["clusterQueue"] == "group1"
        kyu.kyu("delete", "job", job)
        kyu.wait("the pod is gone", lambda: pod_of(kyu, job) is None)


def test_a_local_flavor_takes_the_place_of_the_pools_and_the_job_runs_here(kyu: LocalKyu, nats: NatsServer) -> None:
    apply(kyu, "local", nats)
    apply(kyu, "local-queue", nats)
    kyu.wait("only the local flavor is left", lambda: list(quotas(kyu, "group1")) == ["local-cpu"])
    assert quotas(kyu, "masterqueue")["local-cpu"] == {
        "cpu": {"nominalQuota": "1M"},
        "memory": {"nominalQuota": "1Ei"},
        "pods": {"nominalQuota": "100"},
        "nvidia.com/gpu": {"nominalQuota": "10k"},
    }
    job = create_job(kyu)
    until_it_says_hello(kyu, job)
    assert (pod_of(kyu, job) or {})["spec"]["nodeName"] != "interlink"
    kyu.kyu("delete", "job", job)
    kyu.kyu("delete", "masterqueue", "masterqueue")

    def left() -> list[str]:
        found = [*kyu.client.list(ClusterQueue.KIND), *kyu.client.list(ResourceFlavor.KIND)]
        return [one["metadata"]["name"] for one in found if one["metadata"]["name"] != "local"]

    kyu.wait("only what the administrator made is left", lambda: left() == ["local-cpu"])
    kyu.wait("its node is gone", lambda: "interlink" not in kyu.kyu("get", "nodes").stdout)
