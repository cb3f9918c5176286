"""The product as a whole: `kyu up`, real jobs, real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api.kueue import ClusterQueue, Workload, WorkloadPriorityClass
from kyu.api.meta import Json, Key, key_of
from kyu.cli.batch import jobs, jobs_pods, lookup
from kyu.cli.connection import ServerConnection
from kyu.kinds.job import JOB
from kyu.kinds.pod import POD
from tests.support.local_kyu import LocalKyu, local_kyu


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu") / "data") as running:
        yield running


def condition(obj: Json, type_: str) -> Json:
    return next((c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] == type_), {})


def test_a_fresh_folder_has_a_queue_of_the_size_of_this_machine(kyu: LocalKyu) -> None:
    queue = kyu.client.get(ClusterQueue.KIND, Key("", "local"))
    kyu.wait("it is active", lambda: condition(kyu.client.get(ClusterQueue.KIND, Key("", "local")), "Active"))
    assert {r["name"] for r in queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]} >= {"cpu", "memory"}


def test_a_command_is_submitted_runs_and_is_waited_for(kyu: LocalKyu, tmp_path: Path) -> None:
    name = kyu.kyu("submit", "-q", "local", "--cpu", "100m", "--", "sh", "-c", "echo here is $PWD", cwd=tmp_path).stdout
    assert kyu.kyu("wait", name.strip()).returncode == 0
    assert kyu.kyu("logs", name.strip()).stdout == f"here is {tmp_path}\n"


def test_a_command_runs_word_by_word_as_it_was_typed(kyu: LocalKyu) -> None:
    words = ("a  b", "$$", "$(A)", "$$(A)", "$A", "", "'\"", "日本", "$")
    name = kyu.kyu("submit", "-q", "local", "--cpu", "50m", "--env", "A=$(A) $$", "--", "printf", "%s|", *words).stdout
    kyu.kyu("wait", name.strip())
    assert kyu.kyu("logs", name.strip()).stdout == "".join(f"{word}|" for word in words)
    kyu.kyu("submit", "-q", "local", "--cpu", "50m", "--name", "variable", "--env", "A=$(A) $$", "--", "printenv", "A")
    kyu.kyu("wait", "variable")
    assert kyu.kyu("logs", "variable").stdout == "$(A) $$\n"


def test_what_is_no_text_comes_out_as_it_was_written(kyu: LocalKyu, tmp_path: Path) -> None:
    kyu.submit("binary", "local", r"printf '\377\376\n\000'", cpu="50m")
    kyu.kyu("wait", "binary")
    with open(tmp_path / "out", "wb") as out:
        words = [sys.executable, "-m", "kyu", "logs", "binary", "--data", str(kyu.data)]
        subprocess.run(words, stdout=out, check=True)
    assert (tmp_path / "out").read_bytes() == b"\xff\xfe\n\x00"


def pods_of(kyu: LocalKyu, job: str) -> set[str]:
    """The uids of its pods."""
    found = kyu.client.list(POD, "default")
    return {pod["metadata"]["uid"] for pod in found if pod["metadata"]["labels"].get("job-name") == job}


@pytest.mark.parametrize("elastic", ["true", "false"])
def test_a_job_that_grows_while_it_runs_keeps_its_pods_if_it_is_elastic(kyu: LocalKyu, elastic: str) -> None:
    name = f"elastic-{elastic}"
    container = {
        "name": "main",
        "image": "any",
        "command": ["sleep", "1000"],
        "resources": {"requests": {"cpu": "50m"}},
    }
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}}
    annotations = {"kueue.x-k8s.io/elastic-job": elastic}
    meta = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "local"}, "annotations": annotations}
    spec = {"parallelism": 1, "completions": 4, "template": template}
    kyu.client.create(JOB, {"metadata": {"namespace": "default", **meta}, "spec": spec})
    small = key_of(kyu.wait_for(name, "Running"))
    (first,) = pods_of(kyu, name)
    kyu.client.patch(JOB, Key("default", name), {"spec": {"parallelism": 2}})

    def is_grown() -> bool:
        mine = [w for w in kyu.client.list(Workload.KIND) if jobs.owner_of(w)[1] == name]
        return any(w["spec"]["podSets"][0]["count"] == 2 and jobs.state_of(w).word == "Running" for w in mine)

    kyu.wait("it runs in its new size", is_grown)
    if elastic == "false":
        kyu.wait("the first pod is gone", lambda: first not in pods_of(kyu, name))
    else:
        assert first in pods_of(kyu, name)
        server = ServerConnection(kyu.client, "default", "")
        kyu.wait("the first is over", lambda: jobs.state_of(kyu.client.get(Workload.KIND, small)).word == "Replaced")
        now = lookup.current_workload(server, kyu.client.get(Workload.KIND, small))
        assert key_of(now) != small
        assert {pod["metadata"]["uid"] for pod in jobs_pods.pods_of(server, now)} == pods_of(kyu, name)
    kyu.kyu("cancel", name)


def test_a_queue_that_is_not_there_is_refused_by_name(kyu: LocalKyu) -> None:
    done = kyu.kyu("submit", "-q", "locla", "--", "true", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no queue 'locla'; there are: " in done.stderr


def test_a_priority_class_that_is_not_there_is_refused_by_name(kyu: LocalKyu) -> None:
    done = kyu.kyu("submit", "-q", "local", "--priority", "urgnt", "--", "true", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no WorkloadPriorityClass 'urgnt'; there are: " in done.stderr


def test_a_failed_command_gives_its_exit_code(kyu: LocalKyu) -> None:
    kyu.kyu("submit", "-q", "local", "--cpu", "100m", "--name", "fails", "--", "sh", "-c", "exit 7")
    assert kyu.kyu("wait", "fails", check=False).returncode == 7


def test_why_tells_what_keeps_pods_from_running(kyu: LocalKyu) -> None:
    container = {"name": "main", "image": "some-image", "resources": {"requests": {"cpu": "100m"}}}
    kyu.client.create(
        JOB,
        {
            "metadata": {"name": "wordless", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "local"}},
            "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        },
    )
    kyu.wait_for("wordless", "Failed")
    assert '1 pod: StartError, exit code 128: container "main" has no command' in kyu.kyu("why", "wordless").stdout


def test_an_array_runs_each_index_once(kyu: LocalKyu, tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/$JOB_COMPLETION_INDEX"
    kyu.kyu("submit", "-q", "local", "--cpu", "100m", "--array", "5", "--name", "array", "--", "sh", "-c", script)
    kyu.kyu("wait", "array")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {str(i): "x\n" for i in range(5)}


def test_quota_holds_jobs_back_and_says_why(kyu: LocalKyu, tmp_path: Path) -> None:
    kyu.make_queue("narrow", "200m")
    kyu.submit("first", "narrow", "exec sleep 1000", cpu="200m")
    kyu.wait_for("first", "Running")
    kyu.submit("second", "narrow", "true", cpu="200m")
    waiting = kyu.wait(
        "it says why", lambda: (w := kyu.workload("second")) and condition(w, "QuotaReserved").get("message")
    )
    assert "insufficient unused quota for cpu in flavor narrow" in waiting
    assert "insufficient unused quota for cpu in flavor narrow, 200m more needed" in kyu.kyu("jobs").stdout
    told = kyu.kyu("why", "second").stdout
    assert "cpu of flavor narrow: 200m requested, 0 free, 200m missing" in told
    assert "would free enough" in told
    assert "default/first " in told
    job = kyu.kyu("submit", "--dry-run", "-q", "narrow", "--cpu", "100m", "--name", "third", "--", "true").stdout
    (tmp_path / "third.yaml").write_text(job)
    tried = kyu.kyu("decide", "--live", "-f", str(tmp_path / "third.yaml")).stdout
    assert "insufficient unused quota for cpu in flavor narrow, 100m more needed" in tried
    assert "second" not in tried
    (shortage,) = json.loads(kyu.kyu("why", "second", "-o", "json").stdout)["shortages"]
    holders = [(holder["job"], holder["amount"], holder["enough"]) for holder in shortage["holders"]]
    assert holders == [("default/first", "200m", True)]
    kyu.kyu("cancel", "first")
    kyu.wait_for("second", "Succeeded")
    kyu.wait("the quota is free again", lambda: kyu.used("narrow") == "0")


def test_a_higher_priority_preempts_and_the_victim_runs_later(kyu: LocalKyu) -> None:
    kyu.make_queue("ranked", "200m", preemption={"withinClusterQueue": "LowerPriority"})
    for name, value in (("low", 1), ("high", 100)):
        kyu.client.create(WorkloadPriorityClass.KIND, {"metadata": {"name": name}, "value": value})
    kyu.kyu("submit", "-q", "ranked", "--cpu", "200m", "--priority", "low", "--name", "victim", "--", "sleep", "1000")
    kyu.wait_for("victim", "Running")
    kyu.kyu("submit", "-q", "ranked", "--cpu", "200m", "--priority", "high", "--name", "boss", "--", "sleep", "0.2")
    kyu.wait_for("boss", "Succeeded")
    victim = kyu.wait_for("victim", "Running")
    assert victim["status"]["schedulingStats"]["evictions"] == [
        {"reason": "Preempted", "underlyingCause": "", "count": 1}
    ]
    kyu.kyu("cancel", "victim")


def pod(name: str, group: str = "", total: int = 0) -> Json:
    labels = {"kueue.x-k8s.io/queue-name": "local"} | ({"kueue.x-k8s.io/pod-group-name": group} if group else {})
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(total)} if group else {}
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", f"echo {name}; sleep 0.2"],
        "resources": {"requests": {"cpu": "50m"}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    meta = {"name": name, "namespace": "default", "labels": labels, "annotations": annotations}
    return {"metadata": meta, "spec": spec}


def test_a_plain_pod_is_queued_and_runs(kyu: LocalKyu) -> None:
    kyu.client.create(POD, pod("plain"))
    workload = kyu.wait_for("plain", "Succeeded")
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "Pod"


def test_a_pod_group_waits_for_all_its_members(kyu: LocalKyu) -> None:
    kyu.client.create(POD, pod("member-0", "band", 2))
    kyu.wait("it is held", lambda: kyu.client.get(POD, Key("default", "member-0"))["spec"].get("schedulingGates"))
    assert kyu.client.find(Workload.KIND, Key("default", "band")) is None
    kyu.client.create(POD, pod("member-1", "band", 2))
    kyu.wait_for("band", "Succeeded")


def test_deleting_a_gated_pod_always_works(kyu: LocalKyu) -> None:
    kyu.client.create(POD, pod("lonely", "incomplete", 3))
    kyu.client.delete(POD, Key("default", "lonely"))
    kyu.wait("it is gone", lambda: kyu.client.find(POD, Key("default", "lonely")) is None)


def test_after_a_crash_running_jobs_are_adopted_and_none_runs_twice(tmp_path: Path) -> None:
    with local_kyu(tmp_path / "data") as kyu:
        names = [f"job-{number}" for number in range(4)]
        for name in names:
            script = f"echo x >> {tmp_path}/{name}; while ! test -e {tmp_path}/go; do sleep 0.05; done; exit 3"
            kyu.submit(name, "local", script, cpu="50m")
        for name in names:
            kyu.wait_for(name, "Running")
        kyu.kill()
        kyu.start()
        (tmp_path / "go").touch()
        for name in names:
            kyu.wait_for(name, "Failed")
            assert (tmp_path / name).read_text() == "x\n"
            job = kyu.client.get(JOB, Key("default", name))
            assert condition(job, "Failed")["reason"] == "BackoffLimitExceeded"
        kyu.wait("the quota is free again", lambda: kyu.used("local") == "0")


def test_a_job_that_waits_for_others_says_for_whom(kyu: LocalKyu) -> None:
    kyu.kyu("submit", "-q", "local", "--cpu", "50m", "--name", "broken", "--", "false")
    kyu.wait_for("broken", "Failed")
    after = ("--after", "broken", "--after", "job.batch/nobody", "--name", "patient")
    said = kyu.kyu("submit", "-q", "local", "--cpu", "50m", *after, "--", "true").stderr
    assert "the job will wait for nobody, which does not exist" in said
    kyu.wait("its gate holds it", lambda: condition(kyu.workload("patient") or {}, "QuotaReserved"))
    waits = "waits for broken, which has failed; nobody, which does not exist"
    for words in (["jobs"], ["why", "patient"]):
        assert waits in kyu.kyu(*words).stdout
    assert waits in kyu.kyu("wait", "--timeout", "0", "patient", check=False).stderr


def test_a_gpu_that_the_queue_does_not_have_is_waited_for_with_the_reason(kyu: LocalKyu) -> None:
    kyu.kyu("submit", "-q", "local", "--gpu", "1", "--name", "eager", "--", "true")
    kyu.wait("it says why", lambda: "nvidia.com/gpu unavailable in ClusterQueue" in kyu.kyu("jobs").stdout)


def test_a_name_that_is_taken_is_told_with_the_way_out(kyu: LocalKyu) -> None:
    words = ("submit", "-q", "local", "--cpu", "50m", "--name", "taken", "--", "true")
    kyu.kyu(*words)
    refused = kyu.kyu(*words, check=False)
    assert refused.returncode == 1
    assert "`kyu cancel taken` deletes it" in refused.stderr


def test_several_jobs_are_waited_for_and_the_first_failure_counts(kyu: LocalKyu) -> None:
    for name, code in (("fine", 0), ("bad", 3), ("worse", 4)):
        kyu.submit(name, "local", f"exit {code}", cpu="50m")
    done = kyu.kyu("wait", "fine", "bad", "worse", check=False)
    assert done.returncode == 3
    assert "fine: succeeded" in done.stderr
    assert "bad: 1 pod: Error, exit code 3" in done.stderr
    assert "worse: failed" in done.stderr


def test_logs_of_a_job_that_could_not_start_say_so(kyu: LocalKyu) -> None:
    kyu.kyu("submit", "-q", "local", "--cpu", "50m", "--name", "missing", "--", "/no/such/program")
    kyu.wait_for("missing", "Failed")
    said = kyu.kyu("logs", "missing")
    assert said.stdout == ""
    assert "no output; 1 pod: StartError" in said.stderr


def test_followed_logs_go_on_until_the_last_task_of_an_array(kyu: LocalKyu) -> None:
    kyu.make_queue("one-by-one", "100m")
    script = ("--", "sh", "-c", "echo task $JOB_COMPLETION_INDEX")
    kyu.kyu("submit", "-q", "one-by-one", "--cpu", "100m", "--array", "3", "--name", "tasks", *script)
    lines = kyu.kyu("logs", "-f", "tasks").stdout.splitlines()
    assert sorted(line.split("  ")[1] for line in lines) == ["task 0", "task 1", "task 2"]
    pod = lines[0].split("  ")[0]
    assert kyu.kyu("logs", f"pod/{pod}").stdout == lines[0].split("  ")[1] + "\n"


def test_a_job_starts_after_those_that_it_names(kyu: LocalKyu, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"sleep 0.5; echo first >> {log}"
    kyu.kyu("submit", "-q", "local", "--cpu", "50m", "--name", "before", "--", "sh", "-c", script)
    after = ("--after", "before", "--name", "afterwards")
    kyu.kyu("submit", "-q", "local", "--cpu", "50m", *after, "--", "sh", "-c", f"echo second >> {log}")
    kyu.wait_for("afterwards", "Succeeded")
    assert log.read_text() == "first\nsecond\n"
