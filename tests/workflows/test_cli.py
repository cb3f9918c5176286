"""`kyu plugin`: labelled objects on the command line, and messages about objects that cannot be labelled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kyu.cli.main import main
from kyu.workflows import support

SETTINGS = Path(__file__).parent.parent / "cases" / "workflows" / "queueconfig.yaml"
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}},
}


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB))
    return str(path)


def render(*words: str) -> int:
    return main(["plugin", "render", *words])


def test_render_prints_the_object(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert render("--scheduler", "kueue", "--org", "acme", "-f", manifest) == 0
    assert yaml.safe_load(capsys.readouterr().out)["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "acme.job"}


def test_the_scheduler_may_come_from_the_settings(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--queueconfig", str(SETTINGS), "--org", "acme", "--type", "ray", "--execution-id", "n1", "-o", "json"]
    assert render(*words, "--user", "ann", "--groups", "a,b", "--explain", "-f", manifest) == 0
    captured = capsys.readouterr()
    pod = json.loads(captured.out)["spec"]["template"]
    assert pod["metadata"]["labels"]["yunikorn.apache.org/app-id"] == "ray-n1"
    assert json.loads(pod["metadata"]["annotations"]["yunikorn.apache.org/user.info"])["groups"] == ["a", "b"]
    assert "set: spec.template.spec[schedulerName] = yunikorn  # YuniKorn places the pods" in captured.err


def test_a_choice_between_two_values_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**JOB, "metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "mine"}}}))
    words = ["--scheduler", "kueue", "--org", "acme", "-f", str(path)]
    assert render(*words) == 2
    assert "is 'mine' in the object" in capsys.readouterr().err
    assert render(*words, "--on-conflict", "keep", "--explain") == 0
    assert "kept the object's (mine)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--org", "a"], "name a scheduler with --scheduler"),
        (["--org", "a", "--scheduler", "slurm"], "there is no plugin 'slurm'"),
        (["--org", "a", "--queueconfig", "/nowhere.yaml"], "/nowhere.yaml"),
        (["--org", "a", "--scheduler", "kueue", "--array-size", "0"], "at least 1"),
        (["--org", "a", "--scheduler", "yunikorn", "--user", "7"], "does not accept the user"),
    ],
)
def test_bad_input_is_told(words: list[str], part: str, manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert render(*words, "-f", manifest) == 2
    captured = capsys.readouterr()
    assert part in captured.err
    assert captured.out == ""


def test_bad_settings_are_told_with_their_line(
    tmp_path: Path, manifest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("queueconfig:\n  scheduler: kueue\n  jobs:\n  - type: ray\n    gangscheduling: hard\n")
    assert render("--queueconfig", str(path), "--org", "a", "-f", manifest) == 2
    assert f"{path}: line 5: queueconfig.jobs[0].gangscheduling: 'hard' has no value" in capsys.readouterr().err


def test_an_object_without_a_name_needs_an_execution_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**JOB, "metadata": {"generateName": "j-"}}))
    words = ["--scheduler", "kueue", "--org", "a", "-f", str(path)]
    assert render(*words) == 2
    assert "add --execution-id" in capsys.readouterr().err
    assert render(*words, "--execution-id", "e") == 0


def test_list_shows_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugin", "list"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("plugins: kueue, yunikorn")
    assert all(row.kind in out for row in support.ROWS)


@pytest.mark.parametrize("scheduler", ["kueue", "yunikorn"])
def test_the_example_engine_runs(scheduler: str) -> None:
    folder = Path(__file__).parent.parent.parent / "examples" / "03-scheduler-plugins"
    command = [sys.executable, str(folder / "engine.py"), scheduler]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kinds = [obj["kind"] for obj in yaml.safe_load_all(out)]
    assert kinds == ["SparkApplication", "RayJob"]
    assert ("yunikorn.apache.org/task-groups" in out) == (scheduler == "yunikorn")
    assert ("kueue.x-k8s.io/queue-name: organization1.ray" in out) == (scheduler == "kueue")
