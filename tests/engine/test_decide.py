"""kyu decide: manifests in, decisions out; bad input is refused with file, document and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kyu.api.checks import AdmissionCheck
from kyu.api.meta import Object
from kyu.cli import main as cli
from kyu.cli.admin.decide import rehearse
from kyu.engine.options import Options
from tests.support import builders

QUEUES = """
apiVersion: v1
kind: Namespace
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: main}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: default}
spec: {clusterQueue: main}
"""


def workload(name: str, cpu: int, priority: int = 0, minute: int = 0) -> str:
    return f"""
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {{name: {name}, namespace: default, creationTimestamp: "2026-01-01T00:{minute:02d}:00Z"}}
spec:
  queueName: main
  priority: {priority}
  podSets:
  - name: main
    count: 1
    template: {{spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}
"""


def decide(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *words: str) -> Any:
    file = tmp_path / "objects.yaml"
    file.write_text(text)
    code = cli.main(["decide", "-f", str(file), "--now", "2026-01-01T01:00:00Z", "-o", "json", *words])
    assert code == 0
    return json.loads(capsys.readouterr().out)


def test_who_fits_is_admitted_and_who_does_not_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = decide(tmp_path, capsys, QUEUES + workload("a", 3) + workload("b", 2, minute=1))
    (cycle,) = found["cycles"]
    assert cycle["admitted"]["default/a"]["podSets"] == [
        {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "usage": {"cpu": "3"}}
    ]
    assert cycle["pending"]["default/b"]["reason"] == "WaitingForQuota"
    assert cycle["inadmissible"] == {"main": ["default/b"]}
    amounts = {"nominal": "4", "used": "3", "borrowed": "0", "available": "1"}
    assert found["clusterQueues"]["main"]["flavors"] == {"default": {"cpu": amounts}}


def test_a_pending_workload_is_explained_with_what_would_admit_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = workload("a", 3).replace("spec:\n  queueName", "spec:\n  maximumExecutionTimeSeconds: 3600\n  queueName")
    text = QUEUES + running + workload("b", 2, minute=1)
    found = decide(tmp_path, capsys, text, "--why", "b")
    assert found["reason"] == "WaitingForQuota"
    assert found["needsNoChange"] is False
    kinds = {change["kind"]: change for change in found["counterfactuals"]}
    assert list(kinds) == ["request", "priority", "nominalQuota", "time"]
    assert kinds["request"] == {
        "kind": "request",
        "podSet": "main",
        "resource": "cpu",
        "from": "2",
        "to": "1",
        "clusterQueue": "main",
        "flavors": {"main": {"cpu": "default"}},
        "preempts": [],
        "text": "with 1 cpu per pod instead of 2",
    }
    assert (kinds["time"]["at"], kinds["time"]["ended"]) == ("2026-01-01T02:00:00+00:00", 1)
    assert decide(tmp_path, capsys, text, "--why", "default/a")["needsNoChange"] is True
    file = tmp_path / "objects.yaml"
    assert cli.main(["decide", "-f", str(file), "--now", "2026-01-01T01:00:00Z", "--why", "b"]) == 0
    shown = capsys.readouterr().out
    assert "unless jobs come before it, it is admitted by 2026-01-01 02:00 UTC" in shown
    assert "    if ClusterQueue main owned 5 cpu of flavor default instead of 4" in shown
    assert cli.main(["decide", "-f", str(file), "--why", "nothing"]) == 2


def test_one_cycle_looks_at_one_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = QUEUES + workload("a", 1) + workload("b", 1, minute=1)
    (cycle,) = decide(tmp_path, capsys, text, "--cycles", "1")["cycles"]
    assert list(cycle["admitted"]) == ["default/a"]
    assert cycle["left"] == {"main": ["default/b"]}
    assert decide(tmp_path, capsys, text, "--cycles", "2")["cycles"][1]["admitted"].keys() == {"default/b"}


def test_preempted_workloads_release_their_quota_and_queue_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = QUEUES + workload("low", 4)
    steps = decide(tmp_path, capsys, text + workload("high", 4, priority=1, minute=1), "--cycles", "1")["cycles"]
    assert list(steps[0]["admitted"]) == ["default/high"]
    status = """
status:
  conditions:
  - type: QuotaReserved
    status: "True"
    reason: QuotaReserved
    message: quota
    lastTransitionTime: "2026-01-01T00:00:00Z"
  admission:
    clusterQueue: main
    podSetAssignments: [{name: main, count: 1, flavors: {cpu: default}, resourceUsage: {cpu: 4}}]
"""
    steps = decide(tmp_path, capsys, text + status + workload("high", 4, priority=1, minute=1))["cycles"]
    assert steps[0]["preempted"] == [
        {"workload": "default/low", "reason": "InClusterQueue", "preemptor": "default/high"}
    ]
    assert list(steps[1]["admitted"]) == ["default/high"]
    assert list(steps[-1]["pending"]) == ["default/low"]


def test_the_table_names_every_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(QUEUES + workload("a", 3) + workload("b", 9))
    assert cli.main(["decide", "-f", str(tmp_path), "--no-validate"]) == 0
    out = capsys.readouterr().out
    assert "default/a" in out
    assert "ExceedsMaxQuota" in out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: ClusterQueue", "apiVersion"),
        (QUEUES.replace("nominalQuota: 4", "nominalQuota: [4]"), "document 3"),
        ("{", "document 1"),
    ],
)
def test_bad_input_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    assert cli.main(["decide", "-f", str(file)]) == 2
    error = capsys.readouterr().err
    assert "bad.yaml" in error
    assert expected in error


@pytest.mark.parametrize("words", [["--cycles", "0"], ["--now", "yesterday"], ["-f", "no-such-file.yaml"]])
def test_bad_arguments_are_refused(words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(QUEUES)
    assert cli.main(["decide", "-f", str(file), *words]) == 2


def test_a_misspelt_field_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(QUEUES.replace("nominalQuota: 4", "nominalQuota: 4, borowingLimit: 2"))
    assert cli.main(["decide", "-f", str(file)]) == 0
    field = "spec.resourceGroups[0].flavors[0].resources[0].borowingLimit"
    told = capsys.readouterr().err
    assert told.startswith("warning: ")
    assert told.endswith(f"{field}: unknown field, ignored\n")
    assert cli.main(["decide", "-f", str(file), "--no-validate"]) == 0
    assert not capsys.readouterr().err


def test_rules_of_admission_are_checked_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(QUEUES.replace("nominalQuota: 4", "nominalQuota: 4, borrowingLimit: 2"))
    assert cli.main(["decide", "-f", str(file)]) == 2
    error = capsys.readouterr().err
    assert "objects.yaml: document 3" in error
    assert "spec.resourceGroups" in error
    assert cli.main(["decide", "-f", str(file), "--no-validate"]) == 0


def job(kind: str, name: str, **rest: Any) -> str:
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    meta = {"name": name, "labels": labels, **rest.pop("metadata", {})}
    return "\n---\n" + json.dumps({"apiVersion": "batch/v1", "kind": kind, "metadata": meta, **rest})


def pod_spec(cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [container], "restartPolicy": "Never"}


def test_jobs_become_workloads_first_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [
        job("Job", name, spec={"parallelism": 2, "template": {"spec": pod_spec("1500m")}}) for name in ("zebra", "ant")
    ]
    (cycle,) = decide(tmp_path, capsys, QUEUES + "".join(jobs))["cycles"]
    (admitted,) = cycle["admitted"].items()
    assert admitted[0].startswith("default/job-zebra-")
    assert admitted[1]["podSets"][0]["usage"] == {"cpu": "3"}
    assert [name[:16] for name in cycle["pending"]] == ["default/job-ant-"]


def test_pods_of_a_group_are_one_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = {
        "labels": {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/pod-group-name": "gang"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
    }
    pods = [job("Pod", name, metadata=group, spec=pod_spec("1")).replace("batch/v1", "v1") for name in ("a", "b")]
    (cycle,) = decide(tmp_path, capsys, QUEUES + "".join(pods))["cycles"]
    assert [(name, sum(p["count"] for p in a["podSets"])) for name, a in cycle["admitted"].items()] == [
        ("default/gang", 2)
    ]


def test_a_name_that_the_server_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = job("Job", "", metadata={"generateName": "sample-"}, spec={"template": {"spec": pod_spec("1")}})
    (cycle,) = decide(tmp_path, capsys, QUEUES + text.replace('"name": "", ', ""))["cycles"]
    assert [name[:19] for name in cycle["admitted"]] == ["default/job-sample-"]


def test_a_job_that_would_be_refused_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    wrong = {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "many"}}
    file.write_text(QUEUES + job("Job", "j", metadata=wrong, spec={"template": {"spec": pod_spec("1")}}))
    assert cli.main(["decide", "-f", str(file)]) == 2
    error = capsys.readouterr().err
    assert "job.yaml: document 5" in error
    assert "job-min-parallelism" in error


LIMITS = """
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: default}
spec: {limits: [{type: Container, max: {cpu: 2}}]}
"""


def test_the_order_of_the_documents_does_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asks = workload("a", cpu=3)
    for text in (QUEUES + LIMITS + asks, QUEUES + asks + LIMITS):
        (cycle,) = decide(tmp_path, capsys, text)["cycles"]
        assert cycle["pending"]["default/a"]["reason"] == "Misconfigured"


def test_without_workloads_the_queues_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)
    assert cli.main(["decide", "-f", str(file)]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["QUEUE", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWED", "AVAILABLE"]
    assert row.split() == ["main", "default", "cpu", "4", "0", "0", "4"]


def test_namespaces_that_no_file_has_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, queues = QUEUES.split("---", 1)
    (cycle,) = decide(tmp_path, capsys, queues + workload("a", cpu=3))["cycles"]
    assert list(cycle["admitted"]) == ["default/a"]


@pytest.mark.parametrize(
    ("text", "words", "wanted"),
    [
        ("", [], "nothing to decide"),
        ("{apiVersion: v1, kind: Secret, metadata: {name: s}}", [], "nothing to decide"),
        (QUEUES + workload("a", cpu=1).replace("cpu: 1", "cpu: much"), ["--no-validate"], "Workload default/a: 'much'"),
    ],
)
def test_what_cannot_be_decided_is_refused(
    text: str, words: list[str], wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(text)
    assert cli.main(["decide", "-f", str(file), *words]) != 0
    assert wanted in capsys.readouterr().err


def borrowing_queues() -> list[Object]:
    """Two queues that borrow all they use from a third; one of them preempts."""
    preempts = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}}
    return [
        builders.flavor("f"),
        builders.cluster_queue("spare", {"f": {"cpu": 1}}, cohort="c"),
        builders.cluster_queue("meek", {"f": {"cpu": 0}}, cohort="c"),
        builders.cluster_queue("greedy", {"f": {"cpu": 0}}, cohort="c", preemption=preempts),
        builders.local_queue("meek"),
        builders.local_queue("greedy"),
    ]


@pytest.mark.parametrize(("by_priority", "line"), [(True, ["old", "young"]), (False, ["young", "old"])])
def test_who_was_preempted_by_a_borrower_keeps_its_place_where_priorities_are_compared(
    by_priority: bool, line: list[str]
) -> None:
    state = builders.state_of(
        *borrowing_queues(),
        builders.holding(builders.workload("old", queue="meek", cpu=1), "meek", {"cpu": "f"}),
        builders.workload("young", queue="meek", created=9, cpu=1),
        builders.workload("borrower", queue="greedy", priority=1, created=9, cpu=1),
        options=Options(priority_sorting_within_cohort=by_priority),
    )
    found = rehearse(state, builders.at(60), 1)
    assert [p["workload"] for p in found["cycles"][0]["preempted"]] == ["default/old"]
    assert [ask.key.name for ask in state.pending_in("meek")] == line


def test_between_cycles_what_was_admitted_is_admitted_for_good_unless_checks_are_to_be_made() -> None:
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "check"}]}}
    active = {"conditions": [builders.condition("Active", 0)]}
    state = builders.state_of(
        builders.make(AdmissionCheck, "AdmissionCheck", {"name": "check"}, spec={"controllerName": "x"}, status=active),
        builders.flavor("f"),
        builders.cluster_queue("free", {"f": {"cpu": 1}}),
        builders.cluster_queue("checked", {"f": {"cpu": 1}}, **checks),
        builders.local_queue("free"),
        builders.local_queue("checked"),
        builders.workload("a", queue="free", cpu=1),
        builders.workload("b", queue="checked", cpu=1),
    )
    rehearse(state, builders.at(60), 1)
    state.check()
    assert {name: (s.reserving, s.admitted) for name in ("free", "checked") if (s := state.stats(name))} == {
        "free": (1, 1),
        "checked": (1, 0),
    }
