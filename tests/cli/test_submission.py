"""Submissions: batch scripts with options, times, the submitter's environment, and sizes that look like slips."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.cli.batch.submission import environment, script, sizes, times
from kyu.cli.main import BadInput
from kyu.kinds.job import JOB
from kyu.runtime import user_files
from tests.support.local_kyu import LocalKyu, local_kyu


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu"), "--cpu", "4") as running:
        yield running


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("15m", 900), ("2h30", 9000), ("2h30m", 9000), ("1d12", 129600), ("1m30", 90),
        ("1d", 86400), ("1-12:00:00", 129600), ("01:30:00", 5400), ("10:30", 630), ("2-0", 172800),
        ("", None), ("soon", None), ("1s30", None), ("1h2d", None), ("1:2:3:4", None), ("-5", None),
    ],
)  # fmt: skip
def test_times(text: str, seconds: int | None) -> None:
    assert times.seconds(text) == seconds


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("--job-name=Train_1", ["--generate-name", "Train_1"]),
        ("-J x -p gpu", ["--generate-name", "x", "--queue", "gpu"]),
        ("-c4 --ntasks=2", ["--cpu", "8"]),
        ("--mem=4000", ["--memory", "4000Mi"]),
        ("--mem 4GB", ["--memory", "4Gi"]),
        ("-c 2 --mem-per-cpu=1G", ["--memory", "2Gi", "--cpu", "2"]),
        ("-t 90", ["--time", "5400"]),
        ("--time=1-00:00:00", ["--time", "86400"]),
        ("--gres=gpu:a100:2", ["--gpu", "2"]),
        ("--gres=gpu", ["--gpu", "1"]),
        ("-G 3", ["--gpu", "3"]),
        ("-a 0-9", ["--array", "0-9"]),
        ("-a 1-99:2%5", ["--array", "1-99:2%5"]),
        ("--array=5", ["--array", "5-5"]),
        ("-d afterok:a:b", ["--after", "ok:a", "--after", "ok:b"]),
        ("-d afterany:a,afternotok:b,singleton", ["--after", "any:a", "--after", "notok:b", "--after", "singleton"]),
        ("-o out.%j -e err.%j", ["--output", "out.%j", "--error", "err.%j"]),
        ("-N 1 --export=ALL  # a comment", ["--export", "ALL"]),
        ("--mail-user=me@example.com", []),
    ],
)
def test_options_of_slurm(line: str, options: list[str]) -> None:
    assert list(script.read("job.sh", f"#!/bin/bash\n#SBATCH {line}\ntrue\n").options) == options


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--burst-buffer=x", "job.sh: line 3: --burst-buffer is not an option that Kyu knows"),
        ("-Z", "job.sh: line 3: -Z is not an option that Kyu knows"),
        ("--nodes=4", "job.sh: line 3: --nodes=4: a script runs on one node; see --count for more"),
        ("--time=later", "job.sh: line 3: --time later: write minutes, H:M:S or D-H:M:S"),
        ("--mem=0", "job.sh: line 3: --mem=0: write a size, for example 4G"),
        (
            "--dependency=after:x",
            "job.sh: line 3: --dependency=after:x: "
            "only afterok:JOB, afterany:JOB, afternotok:JOB and singleton are known",
        ),
        ("-c", "job.sh: line 3: --cpus-per-task needs a value"),
        ("-J 'x", "job.sh: line 3: No closing quotation"),
    ],
)
def test_options_of_slurm_that_cannot_be_honoured_are_named(line: str, told: str) -> None:
    with pytest.raises(BadInput) as refused:
        script.read("job.sh", f"#!/bin/bash\n\n#SBATCH {line}\ntrue\n")
    assert str(refused.value) == told


def test_options_end_at_the_first_command() -> None:
    text = "#!/bin/bash\n# text\n#KYU --cpu 2\n\n#SBATCH --mem=1G\necho\n#KYU --cpu 9\n"
    assert script.read("job.sh", text).options == ("--memory", "1Gi", "--cpu", "2")


@pytest.mark.parametrize(
    ("first", "command"),
    [
        ("#!/bin/bash -l", ["/bin/bash", "-l", "-c", "TEXT", "job.sh", "x"]),
        ("#!/usr/bin/env python3", ["/usr/bin/env", "python3", "-c", "TEXT", "x"]),
        ("#!/usr/bin/perl", ["/usr/bin/perl", "-e", "TEXT", "x"]),
    ],
)
def test_scripts_are_part_of_the_command(first: str, command: list[str]) -> None:
    text = f"{first}\n"
    assert script.read("job.sh", text).command(["x"]) == [text if word == "TEXT" else word for word in command]


def test_an_interpreter_that_takes_no_text_is_refused() -> None:
    with pytest.raises(BadInput, match="scripts of awk cannot be kept"):
        script.read("job", "#!/usr/bin/awk -f\n")


def test_a_script_runs_as_it_was_submitted(kyu: LocalKyu, tmp_path: Path) -> None:
    options = "#KYU --cpu 200m --name kept\n#SBATCH -J other -c 3\n"
    text = f"#!/bin/bash\n{options}echo $0 $1 $(pwd) $SLURM_JOB_ID '$(HOME)'\nexit 3\n"
    (tmp_path / "job.sh").write_text(text)
    kyu.make_queue("closed", "0")
    assert kyu.kyu("submit", "-q", "closed", "job.sh", "--", "argument", cwd=tmp_path).stdout == "kept\n"
    (tmp_path / "job.sh").write_text("#!/bin/bash\necho changed\n")
    (job,) = (job for job in kyu.client.list(JOB) if job["metadata"]["name"] == "kept")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "200m"}
    kyu.kyu("cancel", "kept")
    kyu.kyu("submit", "-q", "local", "-", cwd=tmp_path, stdin=text.replace("kept", "piped"))
    assert kyu.kyu("wait", "piped", check=False).returncode == 3
    assert kyu.kyu("logs", "piped").stdout == f"job {tmp_path} piped $(HOME)\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("#!/bin/sh\n#KYU --cpus 2\n", "job.sh: unrecognized arguments: --cpus"),
        ("#!/bin/sh\n#KYU train\n", "job.sh: a line of options contains 'train', which is no option"),
        ("echo\n", "job.sh: the first line must name an interpreter, for example #!/bin/bash"),
    ],
)
def test_a_script_that_cannot_be_submitted_is_named(kyu: LocalKyu, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "job.sh").write_text(text)
    refused = kyu.kyu("submit", "job.sh", cwd=tmp_path, check=False)
    assert (refused.returncode, refused.stderr.strip()) == (2, told)


HERE = {"PATH": "/a", "VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c", "FOO": "1", "PWD": "/x", "BASH_FUNC_x%%": "y"}
SELECTED = {"PATH": "/a", "VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c"}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([], SELECTED),
        (["ALL"], {**SELECTED, "FOO": "1"}),
        (["NONE"], {}),
        (["FOO"], {"FOO": "1"}),
        (["NONE", "BAR=2"], {"BAR": "2"}),
        (["FOO,PATH"], {"FOO": "1", "PATH": "/a"}),
    ],
)
def test_variables_of_the_submitter(wanted: list[str], found: dict[str, str]) -> None:
    faults: list[str] = []
    assert environment.exported(wanted, HERE, faults, by_default=True) == found
    assert faults == []


def test_a_variable_that_is_not_set_is_named() -> None:
    faults: list[str] = []
    environment.exported(["NOPE"], HERE, faults, by_default=True)
    assert faults == ["--export NOPE: not set in your environment; write ALL, NONE or names of variables"]


def test_a_job_has_the_path_and_umask_of_its_submitter(
    kyu: LocalKyu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "my-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\numask\necho $VIRTUAL_ENV\ntouch made\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", "/some/environment")
    before = os.umask(0o027)
    try:
        kyu.kyu("submit", "-q", "local", "--name", "mine", "-o", "out", "--", "my-tool", cwd=tmp_path)
    finally:
        os.umask(before)
    kyu.wait_for("mine", "Succeeded")
    assert kyu.kyu("logs", "mine").stdout == "0027\n/some/environment\n"
    assert ((tmp_path / "made").stat().st_mode & 0o777, (tmp_path / "out").stat().st_mode & 0o777) == (0o640, 0o640)


def test_the_annotation_of_the_umask_is_the_one_that_nodes_read() -> None:
    assert environment.UMASK == user_files.UMASK


@pytest.mark.parametrize(
    ("requests", "told"),
    [
        ({"memory": "500m"}, "--memory 500m is less than a byte; did you mean 500Mi?"),
        ({"memory": "512"}, "--memory 512 is 512 bytes; did you mean 512Mi?"),
        ({"cpu": "0"}, "--cpu 0: the job needs no quota of CPU, so its queue does not limit such jobs"),
        ({"cpu": "500u"}, "--cpu 500u is less than a thousandth of a core; did you mean 500m?"),
        ({"cpu": "500m", "memory": "1Mi"}, ""),
    ],
)
def test_sizes_that_look_like_slips(requests: dict[str, str], told: str) -> None:
    assert list(sizes.suspicious(requests)) == ([told] if told else [])


def test_a_request_that_no_node_can_serve_is_told(kyu: LocalKyu) -> None:
    submitted = kyu.kyu("submit", "-q", "local", "--cpu", "64", "--memory", "500m", "--", "true")
    assert "warning: no node has 64 of cpu; the largest has 4\n" in submitted.stderr
    assert "warning: --memory 500m is less than a byte" in submitted.stderr
    kyu.kyu("cancel", submitted.stdout.strip())
