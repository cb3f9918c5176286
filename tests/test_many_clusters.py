"""Jobs that other clusters run, end to end: a manager and its workers, each a `kyu up` of its own."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kyu.api.core import SECRET, Pod
from kyu.api.kueue import AdmissionCheck, ClusterQueue, MultiKueueCluster, MultiKueueConfig, Workload
from kyu.api.meta import Json, Key
from kyu.kinds.job import JOB
from tests.local_kyu import LocalKyu, local_kyu

SETTINGS = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job]}
multiKueue: {workerLostTimeout: 10s, gcInterval: 1s}
"""


class Clusters:
    """A manager whose queue `all` sends its jobs to the workers `east` and `west`."""

    def __init__(self, manager: LocalKyu, workers: dict[str, LocalKyu]) -> None:
        self.manager = manager
        self.workers = workers
        for name, worker in workers.items():
            self.register(name, worker)
        config = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
        spec = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": config}
        manager.client.create(AdmissionCheck.KIND, {"metadata": {"name": "away"}, "spec": spec})
        manager.client.create(
            MultiKueueConfig.KIND, {"metadata": {"name": "all"}, "spec": {"clusters": sorted(workers)}}
        )
        manager.make_queue("all", "10", admissionChecksStrategy={"admissionChecks": [{"name": "away"}]})

    def register(self, name: str, worker: LocalKyu) -> None:
        text = (worker.data / "kubeconfig").read_bytes()
        meta = {"name": f"{name}-kubeconfig", "namespace": "kueue-system"}
        self.manager.client.create(SECRET, {"metadata": meta, "data": {"kubeconfig": base64.b64encode(text).decode()}})
        source = {"clusterSource": {"kubeConfig": {"location": f"{name}-kubeconfig", "locationType": "Secret"}}}
        self.manager.client.create(MultiKueueCluster.KIND, {"metadata": {"name": name}, "spec": source})

    def is_active(self, name: str) -> str:
        status = self.manager.client.get(MultiKueueCluster.KIND, Key("", name)).get("status") or {}
        return next((c["status"] for c in status.get("conditions") or () if c["type"] == "Active"), "")

    def cluster_of(self, job: str) -> str:
        status = (self.manager.workload(job) or {}).get("status") or {}
        return str(status.get("clusterName") or "")


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folder = tmp_path_factory.mktemp("clusters")
    settings = folder / "settings.yaml"
    settings.write_text(SETTINGS)
    with ExitStack() as stack:
        manager = stack.enter_context(local_kyu(folder / "manager", "--config", str(settings)))
        workers = {name: stack.enter_context(local_kyu(folder / name)) for name in ("east", "west")}
        workers["east"].make_queue("all", "1")
        workers["west"].make_queue("all", "2")
        yield Clusters(manager, workers)


def conditions(obj: Json) -> dict[str, str]:
    return {c["type"]: c["status"] for c in (obj.get("status") or {}).get("conditions") or ()}


def job_of(manager: LocalKyu) -> Json:
    return manager.client.get(JOB, Key("default", "big"))


def test_a_job_runs_once_in_the_cluster_that_has_room(clusters: Clusters, tmp_path: Path) -> None:
    manager, west = clusters.manager, clusters.workers["west"]
    traces = tmp_path / "traces"
    manager.submit("big", "all", f"echo ran >> {traces}", cpu="2")
    manager.wait_for("big", "Succeeded")
    assert traces.read_text() == "ran\n"
    assert clusters.cluster_of("big") == "west"
    manager.wait("the job says so too", lambda: conditions(job_of(manager)).get("Complete") == "True")
    assert job_of(manager)["status"]["succeeded"] == 1
    assert not manager.client.list(Pod.KIND, "default")
    manager.wait(
        "nothing is left", lambda: not any(one.client.list(Workload.KIND) for one in clusters.workers.values())
    )
    manager.wait("its job is gone", lambda: not west.client.list(JOB, "default"))


def test_a_job_of_a_cluster_that_was_killed_runs_in_another_one(clusters: Clusters, tmp_path: Path) -> None:
    manager, east, west = clusters.manager, clusters.workers["east"], clusters.workers["west"]
    traces, done = tmp_path / "traces", tmp_path / "done"
    wait = f"echo $$ >> {traces}; while ! test -e {done}; do sleep 0.1; done"
    east.client.patch(ClusterQueue.KIND, Key("", "all"), {"spec": {"stopPolicy": "Hold"}})
    manager.submit("moving", "all", wait, cpu="1")
    manager.wait_for("moving", "Running")
    assert clusters.cluster_of("moving") == "west"
    west.kill()
    east.client.patch(ClusterQueue.KIND, Key("", "all"), {"spec": {"stopPolicy": "None"}})
    manager.wait("it runs in the other cluster", lambda: clusters.cluster_of("moving") == "east")
    manager.wait_for("moving", "Running")
    assert clusters.is_active("west") == "False"
    assert east.client.find(JOB, Key("default", "moving"))
    # What is back has nothing to do with it any more.
    west.start()
    west.client = LocalKyu(west.data).client
    manager.wait("it is connected again", lambda: clusters.is_active("west") == "True")
    manager.wait("its copy is gone", lambda: not west.client.list(Workload.KIND))
    manager.wait("its job is gone", lambda: not west.client.list(JOB, "default"))
    assert clusters.cluster_of("moving") == "east"
    done.touch()
    manager.wait_for("moving", "Succeeded")
    assert len(traces.read_text().split()) == 2
