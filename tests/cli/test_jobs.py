"""What `kyu jobs`, `why` and `logs` tell of jobs that no queue knows, and of many pods at once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kyu.api.kueue import ClusterQueue, ResourceFlavor
from kyu.api.meta import Json, Key
from kyu.cli.batch import jobs, jobs_pods, logs, lookup
from kyu.cli.connection import ServerConnection
from kyu.kinds.job import JOB
from tests.support.local_kyu import LocalKyu, local_kyu

IN_USE = "kueue.x-k8s.io/resource-in-use"


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu") / "data") as running:
        yield running


def job(*, queue: str = "", suspend: bool = False, ended: str = "", ready: int = 0) -> Json:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    status: Json = {"ready": ready, "conditions": [{"type": ended, "status": "True"}] if ended else []}
    return {"metadata": {"name": "j", "labels": labels}, "spec": {"suspend": suspend}, "status": status}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (job(), "Starting"),
        (job(ready=1), "Running"),
        (job(suspend=True), "Suspended"),
        (job(ended="Complete"), "Succeeded"),
        (job(ended="Failed", ready=1), "Failed"),
    ],
)
def test_a_job_without_a_workload_says_how_it_is_and_what_it_lacks(given: Json, word: str) -> None:
    state = jobs.state_of_job(given)
    assert (state.word, state.why) == (word, "not queued: it has no label kueue.x-k8s.io/queue-name")


def test_a_job_with_a_queue_and_no_workload_asks_for_the_controllers() -> None:
    assert "are the controllers running?" in jobs.state_of_job(job(queue="q", suspend=True)).why


def test_a_job_without_the_label_is_listed_and_told_what_it_lacks(kyu: LocalKyu) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "command": ["sleep", "600"]}]}
    kyu.client.create(JOB, {"metadata": {"name": "free", "namespace": "default"}, "spec": {"template": {"spec": pod}}})
    kyu.submit("queued", "local", "sleep 600")
    kyu.wait_for("queued", "Running")
    lines = {line.split()[0]: line for line in kyu.kyu("jobs", "-o", "wide").stdout.splitlines()}
    assert set(lines) == {"JOB", "free", "queued"}
    assert "not queued" in lines["free"]
    assert "not queued" not in lines["queued"]
    kinds = {item["kind"] for item in json.loads(kyu.kyu("jobs", "-o", "json").stdout)["items"]}
    assert kinds == {"Job", "Workload"}
    assert "free" not in kyu.kyu("jobs", "-q", "local").stdout
    refused = kyu.kyu("why", "free", check=False)
    assert refused.returncode == 1
    assert "has no label kueue.x-k8s.io/queue-name" in refused.stderr


def test_of_two_workloads_of_the_same_second_the_one_in_force_is_newer() -> None:
    ended = {"type": "Finished", "status": "True", "reason": "WorkloadSliceReplaced"}
    meta = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    old: Json = {"metadata": meta, "spec": {}, "status": {"conditions": [ended]}}
    new: Json = {"metadata": meta, "spec": {}, "status": {}}
    assert lookup.newness(new) > lookup.newness(old)
    assert jobs.state_of(old).word == "Replaced"


def test_who_should_run_a_pod_may_say_what_is_wrong() -> None:
    pod = {"status": {"phase": "Pending", "reason": "NoRunner", "message": "pool a does not answer"}}
    assert jobs_pods.troubles([pod]) == ["1 pod: NoRunner: pool a does not answer"]


def pod(*, ready: bool = False, waiting: Json | None = None) -> Json:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {"status": {"conditions": [condition], "containerStatuses": [{"state": {"waiting": waiting or {}}}]}}


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([], "its pods do not exist yet"),
        ([pod(ready=True), pod()], "1 of 3 pods are ready"),
        ([pod(ready=True), pod(waiting={"reason": "ImagePullBackOff"})], "1 pod: ImagePullBackOff"),
    ],
)
def test_a_job_that_is_starting_tells_what_its_pods_wait_for_or_how_far_they_are(pods: list[Json], why: str) -> None:
    assert jobs_pods.why_starting(3, pods) == why


def test_the_list_and_the_reasons_of_a_job_tell_that_no_node_takes_its_pods(kyu: LocalKyu) -> None:
    container = {"name": "main", "image": "x", "command": ["true"], "resources": {"requests": {"cpu": "100m"}}}
    template = {"restartPolicy": "Never", "nodeSelector": {"gpu": "yes"}, "containers": [container]}
    meta = {"name": "picky", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "local"}}
    kyu.client.create(JOB, {"metadata": meta, "spec": {"template": {"spec": template}}})
    kyu.wait_for("picky", "Starting")

    def line() -> str:
        return next(line for line in kyu.kyu("jobs", "-o", "wide").stdout.splitlines() if line.startswith("picky"))

    kyu.wait("it tells why", lambda: "1 pod: Unschedulable: 0/1 nodes are available" in line())
    told = json.loads(kyu.kyu("why", "picky", "-o", "json").stdout)
    assert told["state"] == "Starting"
    assert told["pods"][0].startswith("1 pod: Unschedulable: ")
    kyu.kyu("cancel", "picky")


@pytest.mark.parametrize(
    "start",
    ["", "Bypassed scheduling evaluation because an equivalent workload recently failed: "],
    ids=["own", "equal"],
)
def test_the_reason_itself_comes_first_in_a_table(start: str) -> None:
    message = f"{start}couldn't assign flavors to pod set main: insufficient quota for cpu"
    condition = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": message}
    assert jobs.state_of({"spec": {}, "status": {"conditions": [condition]}}).why == "insufficient quota for cpu"


def test_the_queue_that_a_fresh_folder_has_is_held_while_it_is_used(kyu: LocalKyu) -> None:
    def is_held() -> bool:
        found = [kyu.client.find(kind, Key("", "local")) for kind in (ClusterQueue.KIND, ResourceFlavor.KIND)]
        return all(obj and IN_USE in (obj["metadata"].get("finalizers") or ()) for obj in found)

    kyu.wait("queue and flavor are held", is_held)


class Counting(logs.LogFollower):
    most = 0

    def _read(self, pod: Json) -> None:
        self.most = max(self.most, self._open)
        super()._read(pod)


def test_of_a_large_array_only_some_pods_are_read_at_a_time(
    kyu: LocalKyu, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kyu.submit(
        "tasks", "local", "echo task $JOB_COMPLETION_INDEX", completions=5, parallelism=5, completionMode="Indexed"
    )
    kyu.wait_for("tasks", "Succeeded")
    monkeypatch.setattr(logs, "MOST_STREAMS", 2)
    following = Counting(ServerConnection(kyu.client, "default", ""), "tasks", {"follow": "true"})
    following.run()
    told = capfd.readouterr()
    assert sorted(line.split("  ")[1] for line in told.out.splitlines()) == [f"task {i}" for i in range(5)]
    assert following.most == 2
    assert "reading 2 pods at a time; 3 more follow when others have ended" in told.err


def test_every_list_of_jobs_names_those_that_a_job_waits_for(kyu: LocalKyu) -> None:
    kyu.kyu("submit", "-q", "local", "--name", "later", "--after", "nobody", "--", "true")
    kyu.wait_for("later", "Queued")
    for words in (["jobs"], ["top", "--once"], ["ctl", "list", "workload", "--status", "pending"]):
        (line,) = (line for line in kyu.kyu(*words).stdout.splitlines() if " later " in f" {line}")
        assert line.endswith("waits for nobody, which does not exist")
    kyu.kyu("cancel", "later")


def test_the_list_tells_how_the_pods_of_a_failed_job_ended(kyu: LocalKyu) -> None:
    kyu.submit("broken", "local", "exit 7")
    kyu.wait_for("broken", "Failed")
    listed = kyu.kyu("jobs", "--all", "-o", "wide").stdout.splitlines()
    line = next(line for line in listed if line.startswith("broken"))
    assert line.endswith("1 pod: Error, exit code 7; Job has reached the specified backoff limit")
    assert "1 pod: Error, exit code 7" in kyu.kyu("why", "broken").stdout
