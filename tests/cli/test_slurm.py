"""The commands of Slurm: a script with options, an array, a dependency, the past; unknown options by name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kyu.cli.batch.submission import slurm
from kyu.cli.main import BadInput
from kyu.cli.slurm import words
from tests.support.local_kyu import LocalKyu, local_kyu

Slurm = Callable[..., "subprocess.CompletedProcess[str]"]
SCRIPT = """#!/bin/sh
#SBATCH --job-name=train -c 1
#SBATCH --array=1-9
echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT, $1, $SHOWN"
test "$SLURM_ARRAY_TASK_ID" != 4
"""


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu"), "--cpu", "4") as running:
        yield running


@pytest.fixture(scope="module")
def slurm_command(kyu: LocalKyu, tmp_path_factory: pytest.TempPathFactory) -> Slurm:
    """Runs an installed command in a folder with the script."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "job.sh").write_text(SCRIPT)
    kyu.kyu("slurm", "install", str(folder / "bin"))

    def run(*given: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(kyu.data / "kubeconfig"), "SHOWN": "shown"}
        command = [str(folder / "bin" / given[0]), *given[1:]]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=90)
        assert not check or done.returncode == 0, f"{given}: {done.stdout}{done.stderr}"
        return done

    return run


def test_a_day_with_slurm(kyu: LocalKyu, slurm_command: Slurm) -> None:
    told = slurm_command("sbatch", "--array=2-6:2%2", "job.sh", "argument").stdout
    assert told.startswith("Submitted batch job train-")
    array = told.split()[-1]
    kyu.wait_for(array, "Failed")
    assert kyu.kyu("logs", array, "--task", "6").stdout == "task 6 of 3, argument, shown\n"
    blocker = slurm_command("sbatch", "--parsable", "--wrap", "sleep 600").stdout.strip()
    kyu.wait_for(blocker, "Running")
    after = slurm_command("sbatch", "--parsable", "-d", f"afterany:{blocker}", "--wrap", "exit 3").stdout.strip()
    assert slurm_command("squeue", "--me", "-h", "-o", "%i %t %u").stdout.splitlines() == [
        f"{blocker} R admin", f"{after} PD admin",
    ]  # fmt: skip
    assert slurm_command("squeue", "-h", "-n", "train", "-t", "F", "-o", "%i|%T").stdout == f"{array}|FAILED\n"
    assert slurm_command("sinfo", "-h").stdout.split()[:2] == ["local", "up"]
    slurm_command("scancel", blocker)
    kyu.wait_for(after, "Failed")
    columns = ("-n", "-P", "-o", "JobID,State,ExitCode,User")
    assert slurm_command("sacct", "-j", f"{array},{after}", *columns).stdout.splitlines() == [
        f"{array}_2|COMPLETED|0:0|admin", f"{array}_4|FAILED|1:0|admin", f"{array}_6|COMPLETED|0:0|admin",
        f"{after}|FAILED|3:0|admin",
    ]  # fmt: skip
    # The next job may start before the last pod of a deleted one has ended.
    cancelled = kyu.wait("it has ended", lambda: slurm_command("sacct", "-s", "CA", *columns).stdout.strip())
    assert cancelled == f"{blocker}|CANCELLED|0:15|admin"


def test_sbatch_waits(slurm_command: Slurm) -> None:
    done = slurm_command("sbatch", "-W", "-Q", "--wrap", "exit 4", check=False)
    assert (done.returncode, done.stdout) == (4, "")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("sbatch", "--licenses=x", "job.sh"), "job.sh: --licenses is not an option that Kyu knows"),
        (("sbatch", "missing.sh"), "sbatch: missing.sh: the file does not exist"),
        (("sbatch", "--wrap", "true", "job.sh"), "sbatch: --wrap takes no script, and 'job.sh' was given"),
        (("squeue", "--federation"), "squeue: --federation is not an option that Kyu knows"),
        (("squeue", "-o", "%Z"), "squeue: %Z is not a column that Kyu knows; there are: %i"),
        (("squeue", "-t", "ODD"), "squeue: ODD is not a state that Kyu knows; there are: PENDING"),
        (("scancel",), "scancel: name the jobs, or choose them with --me, -u, -p, -n or -t"),
        (("scancel", "a_1"), "scancel: a_1: single tasks cannot be cancelled; name the whole array"),
        (("sinfo", "-R"), "sinfo: -R is not an option that Kyu knows"),
        (("sacct", "-o", "JobID,Reason"), "sacct: Reason is not a column that Kyu knows; there are: JobID"),
        (("sacct", "-S", "soon"), "sacct: --starttime soon: write a date as 2026-11-01"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(slurm_command: Slurm, given: tuple[str, ...], told: str) -> None:
    done = slurm_command(*given, check=False)
    assert done.returncode == 2
    assert told in done.stderr


def test_another_program_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\n")
    command = [sys.executable, "-m", "kyu", "slurm", "install", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stderr) == (
        1, f"kyu slurm: {tmp_path}/squeue is another program; choose a folder of its own\n",
    )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["squeue"]


def test_options_of_the_command_line_come_before_the_script() -> None:
    options = slurm.Translation("sbatch")
    assert options.add_command_line(["-c4", "--mem", "1G", "--parsable", "job.sh", "-c", "9"]) == ["job.sh", "-c", "9"]
    assert options.pop("--parsable") == ""
    assert options.options() == ["--memory", "1Gi", "--cpu", "4"]
    with pytest.raises(BadInput, match="sbatch: --cpus-per-task needs a value"):
        slurm.Translation("sbatch").add_command_line(["-c"])


@pytest.mark.parametrize(("seconds", "text"), [(5, "00:00:05"), (3725, "01:02:05"), (90061, "1-01:01:01")])
def test_times_as_slurm_writes_them(seconds: float, text: str) -> None:
    assert words.clock(seconds) == text


@pytest.mark.parametrize(("code", "text"), [(None, "0:0"), (0, "0:0"), (3, "3:0"), (137, "0:9")])
def test_exit_codes_as_slurm_writes_them(code: int | None, text: str) -> None:
    assert words.exit_code(code) == text


def test_srun_stays_with_its_command(slurm_command: Slurm) -> None:
    done = slurm_command("srun", "-c", "1", "-J", "step", "sh", "-c", "echo out; exit 7", check=False)
    assert (done.returncode, done.stdout) == (7, "out\n")
    refused = slurm_command("srun", "--no-such-option", "true", check=False)
    assert refused.returncode == 2
    assert "--no-such-option" in refused.stderr


def test_srun_in_a_job_is_a_step(kyu: LocalKyu, slurm_command: Slurm) -> None:
    job = slurm_command("sbatch", "--parsable", "--wrap", "bin/srun echo inner; bin/srun -n 2 true").stdout.strip()
    kyu.wait_for(job, "Failed")
    told = kyu.kyu("logs", job).stdout
    assert told.startswith("inner\n")
    assert "a step has one task here" in told
