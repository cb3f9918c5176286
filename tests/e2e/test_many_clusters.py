"""Jobs that other clusters run, end to end: a manager and its workers, each a `kyu up` of its own."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from kyu.api.core import SECRET, Namespace, Pod
from kyu.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue, MultiKueueCluster, MultiKueueConfig, Workload
from kyu.api.meta import Json, Key
from kyu.kinds import table
from kyu.kinds.job import JOB
from kyu.kinds.training.runtime import CLUSTER_RUNTIME
from tests.e2e.test_every_kind import SERVING, Lab, everything, training_runtime
from tests.support.local_kyu import LocalKyu, local_kyu

SETTINGS = f"""\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {{frameworks: [{", ".join(table.FRAMEWORKS)}]}}
multiKueue: {{workerLostTimeout: 10s, gcInterval: 1s}}
"""
SENT = [kind.kind.kind for kind in table.KINDS if kind.may_be_dispatched]
STAYING = [kind.kind.kind for kind in table.KINDS if kind.framework and not kind.may_be_dispatched]


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
        self.make_queue("all", "10")

    def make_queue(self, name: str, cpu: str, **spec: object) -> None:
        """On the manager, which sends its jobs away."""
        checks = {"admissionChecks": [{"name": "away"}]}
        self.manager.make_queue(name, cpu, admissionChecksStrategy=checks, **spec)

    def register(self, name: str, worker: LocalKyu) -> None:
        source = {"clusterSource": {"kubeConfig": {"location": f"{name}-kubeconfig", "locationType": "Secret"}}}
        self.manager.client.create(MultiKueueCluster.KIND, {"metadata": {"name": name}, "spec": source})
        # The Secret may come later.
        self.manager.wait("it says what it lacks", lambda: self.is_active(name) == "False")
        text = base64.b64encode((worker.data / "kubeconfig").read_bytes()).decode()
        meta = {"name": f"{name}-kubeconfig", "namespace": "kueue-system"}
        self.manager.client.create(SECRET, {"metadata": meta, "data": {"kubeconfig": text}})
        self.manager.wait("it is reached", lambda: self.is_active(name) == "True")

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


@pytest.fixture(scope="module")
def lab(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A job of every kind, given to the manager; only one worker has the queue of them."""
    lab = Lab(clusters.manager, tmp_path_factory.mktemp("kinds"))
    clusters.workers["east"].make_queue("every", "100", resourceGroups=[everything()])
    clusters.make_queue("every", "100", resourceGroups=[everything()])
    for cluster in (clusters.manager, *clusters.workers.values()):
        cluster.client.create(CLUSTER_RUNTIME, training_runtime())
    for name in (*SENT, *STAYING):
        lab.kyu.client.create(lab.samples[name].served, lab.samples[name].body)
    return lab


def check_of(workload: Json) -> Json:
    listed = (workload.get("status") or {}).get("admissionChecks") or ()
    return next(iter(listed), {"state": "", "message": ""})


def conditions(obj: Json) -> dict[str, str]:
    return {c["type"]: c["status"] for c in (obj.get("status") or {}).get("conditions") or ()}


def job_of(manager: LocalKyu) -> Json:
    return manager.client.get(JOB, Key("default", "big"))


def test_a_job_runs_once_in_the_cluster_that_has_room(clusters: Clusters, tmp_path: Path) -> None:
    manager, west = clusters.manager, clusters.workers["west"]
    traces = tmp_path / "traces"
    manager.submit("big", "all", f"echo ran | tee -a {traces}", cpu="2")
    manager.wait_for("big", "Succeeded")
    assert traces.read_text() == "ran\n"
    assert clusters.cluster_of("big") == "west"
    # The hub has the credentials of the worker, so its administrator reads the output through it.
    assert manager.kyu("logs", "big").stdout == "ran\n"
    metrics = manager.client.raw("/metrics").decode()
    labels = 'cluster="{}",cluster_queue="all",replica_role="standalone"'
    for counted in (("dispatched", "east"), ("dispatched", "west"), ("admitted", "west")):
        assert f"multikueue_workloads_{counted[0]}_total{{{labels.format(counted[1])}}} 1.0" in metrics
    manager.wait("the job says so too", lambda: conditions(job_of(manager)).get("Complete") == "True")
    assert job_of(manager)["status"]["succeeded"] == 1
    assert not [pod for pod in manager.client.list(Pod.KIND, "default") if pod["metadata"]["name"].startswith("big-")]
    manager.wait(
        "nothing is left", lambda: not any(one.client.list(Workload.KIND) for one in clusters.workers.values())
    )
    manager.wait("its job is gone", lambda: not west.client.list(JOB, "default"))


def test_a_job_of_a_cluster_that_was_killed_runs_in_another_one(clusters: Clusters, tmp_path: Path) -> None:
    manager, east, west = clusters.manager, clusters.workers["east"], clusters.workers["west"]
    traces, done = tmp_path / "traces", tmp_path / "done"
    wait = f"echo hello; echo $$ >> {traces}; while ! test -e {done}; do sleep 0.1; done"
    east.client.patch(ClusterQueue.KIND, Key("", "all"), {"spec": {"stopPolicy": "Hold"}})
    manager.submit("moving", "all", wait, cpu="1")
    manager.wait_for("moving", "Running")
    assert clusters.cluster_of("moving") == "west"
    assert manager.kyu("jobs").stdout.rstrip().endswith("in cluster west")
    command = "`kyu logs moving -n default --kubeconfig FILE`"
    assert f"moving: running: in cluster west\n  its pods and their logs are in cluster west: {command}" in (
        manager.kyu("why", "moving").stdout
    )
    assert json.loads(manager.kyu("why", "moving", "-o", "json").stdout)["cluster"] == "west"
    manager.wait("its output, from the other cluster", lambda: manager.kyu("logs", "moving").stdout == "hello\n")
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


def test_a_cluster_without_the_namespace_of_a_job_does_not_keep_it_from_the_others(clusters: Clusters) -> None:
    manager, west = clusters.manager, clusters.workers["west"]
    for cluster in (manager, west):
        cluster.client.create(Namespace.KIND, {"metadata": {"name": "new"}})
        queue = {"metadata": {"name": "new", "namespace": "new"}, "spec": {"clusterQueue": "all"}}
        cluster.client.create(LocalQueue.KIND, queue)
    manager.submit("placed", "new", "true", namespace="new")
    manager.wait_for("placed", "Succeeded")
    assert clusters.cluster_of("placed") == "west"


@pytest.mark.parametrize("name", SENT)
def test_a_job_of_every_kind_that_can_be_sent_runs_in_a_worker(clusters: Clusters, lab: Lab, name: str) -> None:
    sample, manager = lab.samples[name], clusters.manager
    manager.wait(f"all processes of {name} have run", lambda: lab.commands.lines(sample) == sample.runs)
    (workload,) = manager.wait(
        f"{name} is admitted", lambda: lab.all_have(sample, "Admitted") and lab.workloads(sample)
    )
    assert workload["status"]["clusterName"] == "east"
    if name in SERVING:
        manager.wait(f"{name} is ready", lambda: sample.kind.pods_ready(lab.find(sample)))
        manager.client.delete(sample.served, sample.key)
    else:
        manager.wait(f"{name} is finished", lambda: lab.all_have(sample, "Finished"))
        end = manager.wait(f"{name} says so", lambda: sample.kind.finished(lab.find(sample)))
        assert end.success
    east = clusters.workers["east"].client
    manager.wait(
        f"{name} is gone there",
        lambda: not any(o["metadata"]["name"] == sample.key.name for o in east.list(sample.served)),
    )
    assert lab.commands.lines(sample) == sample.runs, "each process once"


@pytest.mark.parametrize("name", STAYING)
def test_a_job_of_another_kind_is_rejected_with_the_reason(clusters: Clusters, lab: Lab, name: str) -> None:
    def rejections() -> list[str]:
        said = [check_of(workload) for workload in lab.workloads(lab.samples[name])]
        return [check["message"] for check in said if check["state"] == "Rejected"]

    for message in clusters.manager.wait(f"{name} is rejected", rejections):
        assert "cannot be sent to another cluster" in message


def test_a_job_whose_cluster_is_taken_away_is_stopped_and_says_what_it_lacks(clusters: Clusters) -> None:
    """The last test: no cluster is left."""
    manager = clusters.manager
    manager.submit("left", "all", "exec sleep 600", cpu="1")
    manager.wait_for("left", "Running")
    for name in clusters.workers:
        manager.client.delete(MultiKueueCluster.KIND, Key("", name))
    manager.wait_for("left", "Reserved", "Queued")
    assert clusters.cluster_of("left") == ""
    check = partial(manager.client.get, AdmissionCheck.KIND, Key("", "away"))
    manager.wait("the check has none", lambda: conditions(check())["Active"] == "False")
