"""The command line as a whole: help for every command, exit codes, remedies, and nothing slow is loaded."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from kyu.api.meta import Json
from kyu.cli import output
from kyu.cli.batch import submit
from kyu.cli.batch.submission.job import make_job
from kyu.cli.commands import COMMANDS, Command
from kyu.cli.main import BadInput, main


class Kyu(Protocol):
    """A command line, run in this process."""

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def kyu(capsys: pytest.CaptureFixture[str]) -> Kyu:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, said.out, said.err)

    return run


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command.name, "--help"])
    assert ended.value.code == 0
    assert f"usage: kyu {command.name}" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_usage_names_arguments_in_capitals_and_once(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command.name, "--help"])
    usage = capsys.readouterr().out.partition("\n\n")[0]
    words = [word for word in re.sub(r"\[.*?\]|\{.*?\}", "", usage, flags=re.DOTALL).split()[3:] if word.isalpha()]
    assert words == [word.upper() for word in words]
    assert "[KIND [NAME" not in usage


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {command.name} " in shown for command in COMMANDS)


def test_an_unknown_command_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frobnicate"]) == 2
    assert "`kyu --help` lists them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("jbos", "did you mean `kyu jobs`?"),
        ("--data", "options come after the command"),
        ("x", "there is no command 'x'; `"),
    ],
)
def test_a_misspelt_command_is_told_with_what_was_meant(
    word: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 2
    assert told in capsys.readouterr().err


def test_help_of_a_command_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["help", "submit"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: kyu submit")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["submit", "--help"], ["manifests"]], ids=" ".join)
def test_nothing_is_said_when_the_reader_has_gone(words: list[str], unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "kyu", *words]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    os.close(writer)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["up", "-d", "--data", "/proc/nowhere"], 1, "kyu up: /proc/nowhere: No such file or directory"),
        (
            ["up", "-d", "--data", "{}/data", "--cpu", "0"],
            2,
            "kyu up: --cpu 0: the machine must offer at least one core",
        ),
        (["up", "-d", "--data", "{}/data", "--config", "{}/no"], 2, "kyu up: --config {}/no: the file does not exist"),
        (["up", "--data", "{}/data", "--nodes", "{}/no"], 2, "kyu up: --nodes {}/no: the file does not exist"),
        (["up", "-d", "--data", "{}/data", "--listen", ":x"], 2, "kyu up: --listen :x: 'x' is not a port number"),
    ],
)
def test_a_place_where_nothing_can_start_is_told_in_one_line(
    kyu: Kyu, words: list[str], code: int, told: str, tmp_path: Path
) -> None:
    done = kyu(*(word.format(tmp_path) for word in words))
    assert (done.returncode, done.stderr) == (code, told.format(tmp_path) + "\n")


def test_a_server_whose_folder_is_a_file_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = [sys.executable, "-m", "kyu", "up", "--data", str(tmp_path / "file")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"kyu up: {tmp_path}/file/lock: Not a directory\n")


def test_a_server_that_does_not_answer_is_told_in_one_line(kyu: Kyu, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        '{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x"}}],'
        ' "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}]}'
    )
    done = kyu("jobs", "--kubeconfig", str(config))
    assert done.returncode == 1
    assert done.stderr.startswith("kyu jobs: http://127.0.0.1:9 does not answer")
    assert "Traceback" not in done.stderr


def test_commands_for_users_load_no_server_and_no_asynchronous_client() -> None:
    code = "import sys; import kyu.cli.batch.submit, kyu.cli.batch.jobs, kyu.cli.batch.wait; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in (
        "aiohttp",
        "httptools",
        "jsonschema_rs",
        "kyu.server",
        "kyu.engine",
        "kyu.runtime",
        "prometheus_client",
    ):
        assert f"'{heavy}'" not in loaded, f"{heavy} is loaded"


def test_the_help_of_a_limit_says_its_units(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["submit", "--help"])
    assert "90 is seconds" in " ".join(capsys.readouterr().out.split())


def test_all_faults_of_a_submission_are_told_together(kyu: Kyu) -> None:
    done = kyu("submit", "--dry-run", "--cpu", "many", "--time", "soon", "--request", "x", "--", "true")
    assert done.returncode == 2
    assert [line.split(":")[1].split()[0] for line in done.stderr.splitlines()] == ["--time", "--request", "--cpu"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--array", "0", "--", "true"], "--array 0: an array has at least one task"),
        (["--time", "0", "--", "true"], "--time 0: the limit must be at least one second"),
        (["--name", "My Job", "--", "true"], "--name 'My Job': a lowercase RFC 1123 subdomain must consist"),
        (["--name", "a" * 64, "--", "true"], "must be no more than 63"),
        (["--", ""], "the command is empty"),
        (
            ["--memory", "5GB", "--", "true"],
            "--memory 5GB: '5GB' is not a quantity: there is no suffix 'GB'; write it as 512Mi",
        ),
        (["--cpu", "-1", "--", "true"], "--cpu -1: it is negative; write it as 500m or 2"),
        (["--gpu", "1.5", "--", "true"], "--gpu 1.5: it is not a whole number; write it as 1 or 2"),
        (["--request", "example.com/x=y", "--", "true"], "--request example.com/x=y: 'y' is not a quantity"),
        (["--env", "=1", "--", "true"], "--env =1: write it as NAME=VALUE"),
        (["ls", "-l"], "usage: kyu submit [OPTION …] SCRIPT | -- COMMAND [ARGUMENT …]"),
    ],
)
def test_a_submission_that_makes_no_sense_is_refused_before_it_is_sent(kyu: Kyu, words: list[str], told: str) -> None:
    done = kyu("submit", "--dry-run", *words)
    assert done.returncode == 2
    assert told in done.stderr


def test_memory_and_what_cannot_be_shared_are_submitted_with_a_limit(kyu: Kyu) -> None:
    wanted = ("--cpu", "2", "--memory", "1Gi", "--gpu", "2", "--request", "example.com/license=1")
    done = kyu("submit", "--dry-run", *wanted, "--print", "json", "--", "true")
    (container,) = json.loads(done.stdout)["spec"]["template"]["spec"]["containers"]
    limits = {"memory": "1Gi", "nvidia.com/gpu": "2", "example.com/license": "1"}
    assert container["resources"] == {"requests": {"cpu": "2", **limits}, "limits": limits}


def test_a_submission_is_a_job_that_kueue_would_queue_too(kyu: Kyu) -> None:
    done = kyu("submit", "--dry-run", "-q", "main", "--name", "n", "--count", "2", "--gpu", "1", "--", "run", "it")
    assert done.returncode == 0
    assert "kueue.x-k8s.io/queue-name: main" in done.stdout
    assert "parallelism: 2" in done.stdout
    assert "nvidia.com/gpu" in done.stdout


def test_a_job_that_is_only_printed_has_no_queue_that_is_nobodys(kyu: Kyu) -> None:
    done = kyu("submit", "--dry-run", "--print", "json", "--", "true")
    assert json.loads(done.stdout)["metadata"]["labels"] == {}
    assert "add -q" in done.stderr


def submitted(*words: str) -> Json:
    """The Job that `kyu submit` would make."""
    parser = argparse.ArgumentParser()
    submit.arguments(parser)
    return make_job(parser.parse_args([*words, "--", "run"]), "/here")


@pytest.mark.parametrize(
    ("words", "pods", "mode", "annotations"),
    [
        ((), 1, None, None),
        (("--count", "2"), 2, "Indexed", None),
        (("--array", "20"), 20, "Indexed", {"kyu.dev/array": "0-19", "kueue.x-k8s.io/job-min-parallelism": "1"}),
        (("--array", "1"), 1, "Indexed", {"kyu.dev/array": "0"}),
        (
            ("--after", "a", "--after", "b"), 1, None,
            {"kyu.dev/after": "a,b", "kueue.x-k8s.io/admission-gated-by": "kyu.dev/after"},
        ),
        (
            ("--after", "ok:a,any:job.batch/b", "--after", "notok:c", "--after", "singleton"), 1, None,
            {"kyu.dev/after": "a,any:b,notok:c,singleton", "kueue.x-k8s.io/admission-gated-by": "kyu.dev/after"},
        ),
    ],
)  # fmt: skip
def test_pods_of_a_submission(words: tuple[str, ...], pods: int, mode: str | None, annotations: Json | None) -> None:
    job = submitted(*words)
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (pods, pods)
    assert job["spec"].get("completionMode") == mode
    assert job["metadata"].get("annotations") == annotations


def test_an_array_has_a_width_and_a_limit_for_each_task() -> None:
    job = submitted("--array", "0-98:2%10", "--retries", "3")
    spec = job["spec"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimitPerIndex"]) == (10, 50, 3)
    assert "backoffLimit" not in spec
    assert job["metadata"]["annotations"]["kyu.dev/array"] == "0-98:2"
    env = spec["template"]["spec"]["containers"][0]["env"]
    field = {"fieldRef": {"fieldPath": "metadata.annotations['kyu.dev/task']"}}
    assert {"name": "KYU_TASK_ID", "valueFrom": field} in env


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--count 0", "--count"), ("--array 0", "at least one task"), ("--array=-1", "write a number"),
        ("--retries -1", "--retries"), ("--array 2 --count 2", "exclude each other"), ("--array 1,1", "twice"),
        ("--array 1-3 --image python", "from 0 without gaps"), ("--after later:a", "notok:JOB"),
        ("--after singleton --name x", "--generate-name"),
    ],
)  # fmt: skip
def test_submissions_of_no_pods_or_of_two_minds_are_refused(words: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        submitted(*words.split())


def test_tables_align_numbers_right_and_show_empty_cells() -> None:
    shown = output.table(["NAME", "COUNT"], [["a", 5], ["long", 10], ["none", None]])
    assert shown.splitlines() == ["NAME   COUNT", "a          5", "long      10", "none       -"]


def test_a_column_without_any_number_is_not_aligned_as_numbers() -> None:
    assert output.table(["NAME", "WHY"], [["a", ""]]).splitlines()[1] == "a      -"


@pytest.mark.parametrize("room", [40, 60, 80, 200])
def test_a_table_fits_its_room_and_shows_every_column(room: int) -> None:
    header = ["JOB", "STATE", "PODS", "WHY"]
    lines = output.table(header, [["j" * 63, "Running", 1, "w" * 90], ["short", "Queued", 20, ""]], room).splitlines()
    assert max(map(len, lines)) == min(room, 63 + 7 + 4 + 90 + 9)
    assert lines[0].split() == header
    assert lines[1].split()[1:3] == ["Running", "1"]


def test_a_reason_gives_way_before_a_name() -> None:
    (_, line) = output.table(["JOB", "WHY"], [["j" * 30, "w" * 90]], 60).splitlines()
    assert line == f"{'j' * 30}   {'w' * 26}…"


def test_a_line_with_colours_is_as_wide_as_what_is_seen() -> None:
    red = "\033[31mred\033[0m"
    assert output.clipped(f"ab {red}", 6) == f"ab {red}"
    assert output.clipped(f"ab {red}", 5) == "ab r…"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(kyu: Kyu, shell: str) -> None:
    script = kyu("completion", shell).stdout
    assert all(command.name in script for command in COMMANDS)


def test_bash_completes_commands_and_options(kyu: Kyu) -> None:
    script = kyu("completion", "bash").stdout + '\nCOMP_WORDS=(kyu sub); COMP_CWORD=1; _kyu; echo "${COMPREPLY[@]}"'
    script += '\nCOMP_WORDS=(kyu submit --prio); COMP_CWORD=2; _kyu; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["submit", "--priority"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("jobs -o j", "json"),
        ("jobs --output ya", "yaml"),
        ("ctl create --nom", "--nominal-quota"),
        ("ctl create clusterq", "clusterqueue"),
        ("ctl create --queuing-strategy Str", "StrictFIFO"),
        ("submit --prio", "--priority"),
    ],
)
def test_bash_completes_values_and_what_stands_behind_a_verb(kyu: Kyu, words: str, offered: str) -> None:
    count = len(words.split())
    script = f"{kyu('completion', 'bash').stdout}\nCOMP_WORDS=(kyu {words}); COMP_CWORD={count}; _kyu"
    script += '; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert offered in done.stdout.split()


def test_fish_completes_values_and_what_stands_behind_a_verb(kyu: Kyu) -> None:
    lines = kyu("completion", "fish").stdout.splitlines()
    assert any("from jobs' -s o -l output -x -a 'table " in line for line in lines)
    assert any("from ctl; and __fish_seen_subcommand_from create' -l nominal-quota" in line for line in lines)
