"""A job of every kind, with real processes: held while its queue is closed, then admitted, running and finished."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kyu.api.kueue import ClusterQueue, Workload
from kyu.api.meta import Json, Key, Kind
from kyu.api.workflows import Workflow
from kyu.kinds import crds, table
from kyu.kinds.kind import JobKind
from kyu.kinds.training.runtime import CLUSTER_RUNTIME
from kyu.kube.errors import Forbidden, Invalid
from kyu.server import job_definitions
from tests.support.local_kyu import LocalKyu, local_kyu
from tests.support.servers import DEFINITION, serving
from tests.support.workflows import is_over, states

QUEUE = {"kueue.x-k8s.io/queue-name": "every"}
FOREVER = "exec sleep 600"
SERVING = ("RayCluster", "RayService", "Deployment", "StatefulSet", "LeaderWorkerSet")


@dataclass(frozen=True, slots=True)
class Sample:
    """One job; ``runs`` says how many of its processes leave a line."""

    body: Json
    runs: int

    @property
    def kind(self) -> JobKind:
        found = table.find(self.body)
        assert found is not None
        return found

    @property
    def served(self) -> Kind:
        return next(k for k in self.kind.kinds if k.api_version == self.body["apiVersion"])

    @property
    def key(self) -> Key:
        return Key("default", self.body["metadata"]["name"])


def job(api_version: str, kind: str, spec: Json, *, queue: bool = True) -> Json:
    meta: Json = {"name": f"a-{kind.lower()}", "namespace": "default"}
    if queue:
        meta["labels"] = QUEUE
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


class Commands:
    """Pod templates whose command leaves a line in the file of its job, and then ends or stays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lines(self, sample: Sample) -> int:
        path = self._folder / sample.key.name
        return len(path.read_text().splitlines()) if path.exists() else 0

    def script(self, kind: str, *, stays: bool = False, together: int = 1) -> str:
        """``together``: it ends when so many processes of its job have run, since its end may be the end of all."""
        path = f"{self._folder}/a-{kind.lower()}"
        line = f"echo ran >> {path}; while [ $(wc -l < {path}) -lt {together} ]; do sleep 0.05; done"
        return f"{line}; {FOREVER}" if stays else line

    def container(self, kind: str, *, stays: bool = False, together: int = 1) -> Json:
        script = self.script(kind, stays=stays, together=together)
        return {
            "name": "main",
            "image": "example/any",
            "command": ["sh", "-c", script],
            "resources": {"requests": {"cpu": "10m"}},
        }

    def template(
        self,
        kind: str,
        *,
        stays: bool = False,
        restart: str = "Never",
        labels: Json | None = None,
        together: int = 1,
    ) -> Json:
        containers = [self.container(kind, stays=stays, together=together)]
        spec: Json = {"containers": containers, "terminationGracePeriodSeconds": 0}
        spec |= {"restartPolicy": restart} if restart else {}
        return {"metadata": {"labels": labels or {}}, "spec": spec}


def samples(commands: Commands) -> dict[str, Sample]:
    listed = [
        *batch(commands),
        *training(commands),
        *ray_and_spark(commands),
        *services(commands),
        *wrapped(commands),
    ]
    return {sample.body["kind"]: sample for sample in listed}


def batch(commands: Commands) -> Iterator[Sample]:
    simple = {"backoffLimit": 0, "template": commands.template("Job")}
    yield Sample(job("batch/v1", "Job", {**simple, "parallelism": 2, "completions": 3}), runs=3)
    yield Sample(job("v1", "Pod", commands.template("Pod")["spec"]), runs=1)
    of_cron = {"metadata": {"labels": QUEUE}, "spec": {"template": commands.template("CronJob")}}
    cron = {"schedule": "0 0 29 2 *", "jobTemplate": of_cron}
    yield Sample(job("batch/v1", "CronJob", cron, queue=False), runs=1)
    of_set = {"spec": {"parallelism": 2, "completions": 2, "template": commands.template("JobSet")}}
    groups = [{"name": "workers", "replicas": 2, "template": of_set}]
    yield Sample(job("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": groups}), runs=4)
    mini = {
        "size": 3,
        "jobLabels": QUEUE,
        "containers": [{"image": "flux", "command": commands.script("MiniCluster"), "resources": small()}],
    }
    yield Sample(job("flux-framework.org/v1alpha1", "MiniCluster", mini, queue=False), runs=1)


def small() -> Json:
    return {"requests": {"cpu": "10m"}}


def training(commands: Commands) -> Iterator[Sample]:
    for kind, field, roles in (
        ("PyTorchJob", "pytorchReplicaSpecs", {"Master": 1, "Worker": 2}),
        ("TFJob", "tfReplicaSpecs", {"Chief": 1, "Worker": 1}),
        ("XGBoostJob", "xgbReplicaSpecs", {"Master": 1, "Worker": 1}),
        ("PaddleJob", "paddleReplicaSpecs", {"Worker": 2}),
        ("JAXJob", "jaxReplicaSpecs", {"Worker": 2}),
    ):
        template = commands.template(kind, together=sum(roles.values()))
        replicas = {role: {"replicas": n, "restartPolicy": "Never", "template": template} for role, n in roles.items()}
        yield Sample(job("kubeflow.org/v1", kind, {field: replicas}), runs=sum(roles.values()))
    launcher = {"replicas": 1, "template": commands.template("MPIJob", together=3)}
    worker = {"replicas": 2, "template": commands.template("MPIJob", stays=True)}
    mpi = {"mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker}}
    yield Sample(job("kubeflow.org/v2beta1", "MPIJob", mpi), runs=3)
    trainer = {"numNodes": 2, "command": ["sh", "-c", commands.script("TrainJob")], "resourcesPerNode": small()}
    train = {"runtimeRef": {"name": "plain"}, "trainer": trainer}
    yield Sample(job("trainer.kubeflow.org/v1alpha1", "TrainJob", train), runs=2)


def ray_and_spark(commands: Commands) -> Iterator[Sample]:
    for kind in ("RayJob", "RayCluster", "RayService"):
        stays = commands.template(kind, stays=True, restart="")
        cluster = {
            "headGroupSpec": {"rayStartParams": {}, "template": stays},
            "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "template": stays}],
        }
        if kind == "RayJob":
            submitter = commands.template(kind, together=4)
            spec: Json = {"entrypoint": "true", "shutdownAfterJobFinishes": True, "submitterPodTemplate": submitter}
            yield Sample(job("ray.io/v1", kind, {**spec, "rayClusterSpec": cluster}), runs=4)
        elif kind == "RayCluster":
            yield Sample(job("ray.io/v1", kind, cluster), runs=3)
        else:
            yield Sample(job("ray.io/v1", kind, {"rayClusterConfig": cluster}), runs=3)
    leading = commands.template("SparkApplication", together=2)
    driver = {"cores": 1, "coreRequest": "10m", "memory": "10m", "template": leading}
    staying = commands.template("SparkApplication", stays=True)
    executor = {"instances": 1, "cores": 1, "coreRequest": "10m", "memory": "10m", "template": staying}
    spark = {"type": "Scala", "mode": "cluster", "mainApplicationFile": "x", "driver": driver, "executor": executor}
    yield Sample(job("sparkoperator.k8s.io/v1beta2", "SparkApplication", spark), runs=2)


def services(commands: Commands) -> Iterator[Sample]:
    for kind in ("Deployment", "StatefulSet"):
        template = commands.template(kind, stays=True, restart="Always", labels={"app": kind})
        spec: Json = {"replicas": 2, "selector": {"matchLabels": {"app": kind}}, "template": template}
        spec |= {"serviceName": "any"} if kind == "StatefulSet" else {}
        yield Sample(job("apps/v1", kind, spec), runs=2)
    worker = commands.template("LeaderWorkerSet", stays=True, restart="Always")
    pair = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": worker}}
    yield Sample(job("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", pair), runs=4)


def wrapped(commands: Commands) -> Iterator[Sample]:
    inner = job("batch/v1", "Job", {"parallelism": 2, "template": commands.template("AppWrapper")}, queue=False)
    inner["metadata"]["name"] = "wrapped"
    wrapper = {"components": [{"template": inner}]}
    yield Sample(job("workload.codeflare.dev/v1beta2", "AppWrapper", wrapper), runs=2)


KINDS = [kind.kind.kind for kind in table.KINDS]


class Lab:
    """All jobs, submitted at once to a closed queue; ``waiting`` are the Workloads and objects as they were then."""

    def __init__(self, kyu: LocalKyu, folder: Path) -> None:
        self.kyu = kyu
        self.commands = Commands(folder)
        self.samples = samples(self.commands)
        self.waiting: dict[str, tuple[Json, list[Json]]] = {}

    def submit_all(self) -> None:
        kyu = self.kyu
        kyu.make_queue("every", "100", stopPolicy="Hold", resourceGroups=[everything()])
        kyu.client.create(CLUSTER_RUNTIME, training_runtime())
        for sample in self.samples.values():
            kyu.client.create(sample.served, sample.body)
        # As if it had been there for long: the last of the times that it missed is made up for.
        long_ago = {"status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}}
        cron = self.samples["CronJob"]
        kyu.client.patch(cron.served, cron.key, long_ago, subresource="status")
        for name, sample in self.samples.items():
            workloads = kyu.wait(f"a Workload for {name}", partial(self.workloads, sample))
            self.waiting[name] = (self.find(sample), workloads)
        assert not any(self.commands.lines(sample) for sample in self.samples.values()), "nothing has run"
        kyu.client.patch(ClusterQueue.KIND, Key("", "every"), {"spec": {"stopPolicy": "None"}})

    def workloads(self, sample: Sample) -> list[Json]:
        """Named after what they are for: the job, its Jobs, its pods or its groups of pods."""
        listed = self.kyu.client.list(Workload.KIND, "default")
        return [w for w in listed if f"-{sample.key.name}-" in w["metadata"]["name"]]

    def find(self, sample: Sample) -> Json:
        found = self.kyu.client.get(sample.served, sample.key)
        return {**found, "apiVersion": sample.served.api_version, "kind": sample.served.kind}

    def all_have(self, sample: Sample, condition: str) -> bool:
        found = self.workloads(sample)
        return bool(found) and all(has(w, condition) for w in found)


def has(obj: Json, type_: str) -> bool:
    listed = (obj.get("status") or {}).get("conditions") or ()
    return any(c["type"] == type_ and c["status"] == "True" for c in listed)


def everything() -> Json:
    resources = [{"name": "cpu", "nominalQuota": "100"}, {"name": "memory", "nominalQuota": "100Gi"}]
    return {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "every", "resources": resources}]}


def training_runtime() -> Json:
    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "example/any"}]}}},
        },
    }
    return {"metadata": {"name": "plain"}, "spec": {"template": {"spec": {"replicatedJobs": [node]}}}}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("every-kind")
    with local_kyu(folder / "data", "--bare") as kyu:
        lab = Lab(kyu, folder)
        lab.submit_all()
        yield lab


def test_there_is_a_sample_of_every_kind(tmp_path: Path) -> None:
    assert set(samples(Commands(tmp_path))) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_it_waits_while_its_queue_is_closed(lab: Lab, name: str) -> None:
    obj, workloads = lab.waiting[name]
    kind = lab.samples[name].kind
    assert kind.queued_as != "itself" or kind.is_suspended(obj)
    assert not any(has(workload, "QuotaReserved") for workload in workloads)


@pytest.mark.parametrize("name", KINDS)
def test_it_is_admitted_and_runs(lab: Lab, name: str) -> None:
    sample = lab.samples[name]
    lab.kyu.wait(f"{name} is admitted", lambda: lab.all_have(sample, "Admitted"))
    lab.kyu.wait(f"all processes of {name} have run", lambda: lab.commands.lines(sample) >= sample.runs)


@pytest.mark.parametrize("name", [name for name in KINDS if name not in SERVING])
def test_it_finishes(lab: Lab, name: str) -> None:
    sample = lab.samples[name]
    lab.kyu.wait(f"{name} is finished", lambda: lab.all_have(sample, "Finished"))
    # A CronJob itself goes on; the Job that it made is what finishes.
    if name != "CronJob":
        end = lab.kyu.wait(f"{name} says so", lambda: sample.kind.finished(lab.find(sample)))
        assert end.success
    assert lab.commands.lines(sample) == sample.runs, "each process once"


@pytest.mark.parametrize("name", SERVING)
def test_it_serves_until_it_is_deleted(lab: Lab, name: str) -> None:
    sample = lab.samples[name]
    lab.kyu.wait(f"{name} is ready", lambda: sample.kind.pods_ready(lab.find(sample)))
    assert sample.kind.finished(lab.find(sample)) is None
    lab.kyu.client.delete(sample.served, sample.key)
    lab.kyu.wait(f"{name} is gone, with its Workloads", lambda: not lab.workloads(sample))


def test_what_only_an_operator_can_do_is_refused(lab: Lab) -> None:
    elastic = copy.deepcopy(lab.samples["PyTorchJob"])
    elastic.body["metadata"]["name"] = "elastic"
    elastic.body["spec"]["elasticPolicy"] = {"minReplicas": 1}
    with pytest.raises(Invalid, match=r"spec\.elasticPolicy"):
        lab.kyu.client.create(elastic.served, elastic.body)


@pytest.mark.parametrize("name", ["Job", "PyTorchJob"])
def test_a_job_is_refused_as_by_the_webhooks_of_kueue(lab: Lab, name: str) -> None:
    sample = lab.samples[name]
    metadata = {**sample.body["metadata"], "name": "wrong", "labels": {"kueue.x-k8s.io/queue-name": "no queue"}}
    refusal = rf'^admission webhook "v{name.lower()}\.kb\.io" denied the request: metadata\.labels'
    with pytest.raises(Forbidden, match=refusal):
        lab.kyu.client.create(sample.served, {**sample.body, "metadata": metadata})


def test_a_queue_is_refused_as_by_the_webhooks_of_kueue(lab: Lab) -> None:
    cpu = {"name": "cpu", "nominalQuota": 1, "lendingLimit": 2}
    flavor = {"name": "a", "resources": [cpu]}
    spec = {"cohortName": "lab", "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}
    body = {"apiVersion": ClusterQueue.KIND.api_version, "kind": "ClusterQueue", "metadata": {"name": "wrong"}}
    refusal = r'^admission webhook "vclusterqueue\.kb\.io" denied the request: spec\.resourceGroups\[0\]'
    with pytest.raises(Forbidden, match=refusal):
        lab.kyu.client.create(ClusterQueue.KIND, {**body, "spec": spec})


def as_step(sample: Sample) -> Json:
    """Return a step of a Workflow, whose queue it gets."""
    body = {name: value for name, value in sample.body.items() if name != "metadata"}
    spec = {name: value for name, value in body["spec"].items() if name != "jobLabels"}
    template = {**body, "apiVersion": sample.kind.kind.api_version, "spec": spec}
    return {"name": sample.kind.kind.kind.lower(), "template": template}


def test_every_kind_that_ends_is_a_step_of_a_workflow(lab: Lab, tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    found = samples(commands)
    listed = [found[kind.kind.kind] for kind in table.STEP_KINDS]
    body = {"metadata": {"name": "all", "namespace": "default"}}
    spec = {"queue": "every", "steps": [as_step(sample) for sample in listed]}
    lab.kyu.client.create(Workflow.KIND, {**body, "spec": spec})
    lab.kyu.wait("the Workflow is over", partial(is_over, lab.kyu, "all"))
    assert set(states(lab.kyu, "all").items()) == {(step["name"], "Succeeded") for step in spec["steps"]}
    assert {sample.body["kind"]: commands.lines(sample) for sample in listed} == {
        sample.body["kind"]: sample.runs for sample in listed
    }


def test_the_quota_is_free_again(lab: Lab) -> None:
    lab.kyu.wait("nothing is used", lambda: lab.kyu.used("every") == "0")


# Definitions that users bring


def users_definition() -> Json:
    """Another JobSet than ours: a column more, a short name, and no scale."""
    definition = next(d for d in crds.definitions() if d["spec"]["names"]["kind"] == "JobSet")
    definition["spec"]["names"]["shortNames"] = ["js"]
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = [
        {"name": "Theirs", "type": "string", "jsonPath": ".spec.theirs"}
    ]
    return definition


def short_names(definition: Json) -> list[str]:
    names: list[str] = definition["spec"]["names"].get("shortNames") or []
    return names


async def test_a_users_definition_takes_the_place_of_ours_and_stays(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await job_definitions.ensure(api)
        name = Key("", "jobsets.jobset.x-k8s.io")
        assert job_definitions.BUILT_IN in (await client.get(DEFINITION, name))["metadata"]["annotations"]
        # As `kubectl apply --server-side` does it: no conflict with us.
        await client.apply(DEFINITION, users_definition(), manager="kubectl")
        await job_definitions.ensure(api)
        theirs = await client.get(DEFINITION, name)
        assert short_names(theirs) == ["js"]
        assert job_definitions.BUILT_IN not in theirs["metadata"].get("annotations", {})
        assert [c["name"] for c in theirs["spec"]["versions"][0]["additionalPrinterColumns"]] == ["Theirs"]


async def test_an_edited_definition_stays_as_it_was_edited(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await job_definitions.ensure(api)
        name = Key("", "jobsets.jobset.x-k8s.io")
        await client.patch(DEFINITION, name, {"spec": {"names": {"shortNames": ["js"]}}})
        await job_definitions.ensure(api)
        assert short_names(await client.get(DEFINITION, name)) == ["js"]
