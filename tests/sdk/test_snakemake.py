"""A real Snakemake with the executor `kyu`: a workflow of real processes, a Flux step, and failures that say why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kyu.sdk.submitter import Submitter

pytest.importorskip("snakemake", reason="Snakemake is not installed: pip install 'kyu[snakemake]'")
requests = pytest.importorskip("snakemake_executor_plugin_kyu.requests")

SETTINGS: dict[str, Any] = {
    "queue_name": None, "namespace": None, "container": None, "working_dir": None, "mounts": None, "nodes": 1,
    "flux_container": None, "priority": None, "retries": 0,
}  # fmt: skip
# The shape of Snakemake's tutorial: each sample is mapped and sorted, then all are called and plotted together.
WORKFLOW = """
SAMPLES = ["a", "b"]
envvars: "SDK_TEST_TOKEN"

rule all:
    input: "plots/quals.txt"

rule map:
    input: "data/{sample}.fastq"
    output: temp("mapped/{sample}.txt")
    resources: kueue_memory="300Mi"
    shell: "grep -v '^#' {input} > {output}"

rule sort:
    input: "mapped/{sample}.txt"
    output: "sorted/{sample}.txt"
    threads: 1
    resources: runtime=10
    shell: "sort {input} > {output}; echo $SDK_TEST_TOKEN > token.{wildcards.sample}"

rule plot:
    input: expand("sorted/{sample}.txt", sample=SAMPLES)
    output: "plots/quals.txt"
    run:
        with open(output[0], "w") as file:
            for path in input:
                file.write(open(path).read())
"""
FLUX = """
rule all:
    output: "done.txt"
    resources: kueue_operator="flux-operator", kueue_tasks=1
    shell: "echo $JOB_COMPLETION_INDEX > {output}"
"""
FAILING = """
rule all:
    output: "never.txt"
    shell: "echo the disk is wrong; exit 7"
"""


def snakemake(folder: Path, workflow: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "Snakefile").write_text(workflow)
    words = ["--executor", "kyu", "--jobs", "4", "--default-resources", "mem_mb=200", *options]
    return subprocess.run(
        [sys.executable, "-m", "snakemake", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def jobs() -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, "-m", "kyu", "get", "jobs", "-o", "json"], capture_output=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return [job for job in found if job["metadata"]["name"].startswith("snakejob-")]


def test_a_workflow_runs_through_a_queue(kyu_local: Submitter, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for sample in ("a", "b"):
        (tmp_path / "data" / f"{sample}.fastq").write_text(f"# head\n{sample} 2\n{sample} 1\n")
    done = snakemake(tmp_path, WORKFLOW, SDK_TEST_TOKEN="hidden")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "plots" / "quals.txt").read_text() == "a 1\na 2\nb 1\nb 2\n"
    assert (tmp_path / "token.a").read_text() == "hidden\n", "variables reach the jobs"
    assert jobs() == [], "Jobs that succeeded are deleted"
    # Everything is made: a second run submits nothing.
    assert "Nothing to be done" in snakemake(tmp_path, WORKFLOW, SDK_TEST_TOKEN="hidden").stderr


def test_a_flux_step_is_queued_as_a_mini_cluster(kyu_local: Submitter, tmp_path: Path) -> None:
    done = snakemake(tmp_path, FLUX, "--kyu-queue-name", "local")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "done.txt").read_text() == "0\n"


def test_a_failed_job_says_why_and_stays(kyu_local: Submitter, tmp_path: Path) -> None:
    done = snakemake(tmp_path, FAILING)
    assert done.returncode == 1
    assert "the disk is wrong" in "".join(
        path.read_text() for path in (tmp_path / ".snakemake/kyu_logs").rglob("*.log")
    )
    (job,) = jobs()
    assert job["spec"]["completions"] == 1
    assert job["metadata"]["name"] in done.stderr
    subprocess.run([sys.executable, "-m", "kyu", "cancel", job["metadata"]["name"]], check=True, capture_output=True)


def test_the_names_of_the_kueue_executor_are_accepted() -> None:
    settings = SimpleNamespace(**{**SETTINGS, "queue_name": "user-queue", "mounts": "/data=claim"})
    rule = {"container": "ubuntu", "kueue_memory": "1Gi", "_cores": 4, "runtime": 2, "gpu": 1, "mem_mb": 5}
    assert requests.job_options(rule, settings, threads=1) == {
        "cpu": 4, "memory": "1Gi", "gpu": 1, "time": 120, "queue": "user-queue", "image": "ubuntu",
        "mounts": {"/data": "claim"},
    }  # fmt: skip


def test_a_mini_cluster_has_the_keys_of_its_definition() -> None:
    settings = SimpleNamespace(**{**SETTINGS, "nodes": 3})
    options = {"cpu": 2, "queue": "q", "priority": "high", "time": 60, "cwd": "/w"}
    made = requests.mini_cluster("name", "true", options, {"kueue_tasks": 6}, settings)
    spec = made["spec"]
    assert spec["jobLabels"] == {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "high"}
    assert (spec["size"], spec["tasks"], spec["deadlineSeconds"]) == (3, 6, 60)
    assert spec["containers"][0]["workingDir"] == "/w"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: requests.operator({"kueue_operator": "mpi"}), "kueue_operator=mpi: known are"),
        (lambda: requests.mounts("data=claim"), "write PATH=CLAIM"),
        (lambda: requests.mini_cluster("n", "true", {"cpu": 1}, {}, SimpleNamespace(**SETTINGS)), "needs a queue"),
        (lambda: requests.job_options({"mem_mb": "<TBD>"}, SimpleNamespace(**SETTINGS), 1), "expected a number"),
    ],
)
def test_what_cannot_be_honoured_is_refused(call: Any, message: str) -> None:
    with pytest.raises(requests.BadResource, match=message):
        call()
