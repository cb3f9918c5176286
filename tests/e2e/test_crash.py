"""Kyu is killed again and again while jobs flow: each runs as often as it should, and nothing is left over."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kyu import lock
from kyu.kinds.job import JOB
from kyu.kinds.pod import POD
from tests.support.local_kyu import LocalKyu, local_kyu

JOBS = int(os.environ.get("KYU_CRASH_JOBS", "60"))
KILLS = 5
SEED = 20261115
EXIT_CODE = 7


@dataclass(frozen=True, slots=True)
class Work:
    """One job, and what it must have done in the end."""

    name: str
    completions: int
    fails: bool

    def submit(self, kyu: LocalKyu, folder: Path) -> None:
        """Each process leaves a line; those of a job that fails do so with a code of their own."""
        script = f"echo $HOSTNAME >> {folder}/{self.name}; sleep 0.2; exit {EXIT_CODE if self.fails else 0}"
        shape = {"completions": self.completions, "parallelism": self.completions, "completionMode": "Indexed"}
        kyu.submit(self.name, "busy", script, cpu="50m", **shape)


def draw(chance: random.Random) -> list[Work]:
    drawn = []
    for number in range(JOBS):
        fails = chance.random() < 0.2
        drawn.append(Work(f"job-{number}", 1 if fails else chance.choice((1, 1, 2)), fails))
    return drawn


def lines(folder: Path) -> Counter[str]:
    """How often the processes of each job have run, by the lines that they left."""
    return Counter({path.name: len(path.read_text().splitlines()) for path in folder.iterdir()})


def have_run(folder: Path, count: int) -> bool:
    return lines(folder).total() >= count


def test_every_job_runs_as_often_as_it_should_however_often_kyu_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    works = draw(chance)
    folder = tmp_path / "lines"
    folder.mkdir()
    with local_kyu(tmp_path / "data", "--bare") as kyu:
        kyu.make_queue("busy", "1")
        for kill in range(KILLS):
            first, last = (len(works) * number // KILLS for number in (kill, kill + 1))
            for work in works[first:last]:
                work.submit(kyu, folder)
            # Somewhere between "nothing of these has run" and "nearly all have".
            moment = sum(work.completions for work in works[:first]) + chance.randrange(last - first)
            kyu.wait("so many have run", partial(have_run, folder, moment))
            kyu.kill()
            kyu.start()
        kyu.wait("all jobs are over", lambda: len(ended(kyu)) == len(works))
        assert lines(folder) == Counter({work.name: work.completions for work in works})
        assert ended(kyu) == {work.name: "Failed" if work.fails else "Complete" for work in works}
        assert exit_codes(kyu) == {work.name: {EXIT_CODE if work.fails else 0} for work in works}
        # Each process has one line in the ledger, and the commands read them all.
        told = json.loads(kyu.kyu("history", "--attempts", "-o", "json").stdout)
        assert Counter(one["job"] for one in told) == lines(folder)
        assert all(one["seconds"] >= 0.2 and one["exit_code"] in (0, EXIT_CODE) for one in told)
        kyu.wait("no quota is used", lambda: kyu.used("busy") == "0")
        holder = lock.holder(kyu.data / "lock")
        kyu.wait("no process of a pod is left", lambda: not (set(processes_of(kyu.data / "runtime")) - {holder}))


def ended(kyu: LocalKyu) -> dict[str, str]:
    found = {}
    for job in kyu.client.list(JOB, "default"):
        for condition in (job.get("status") or {}).get("conditions") or ():
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                found[job["metadata"]["name"]] = condition["type"]
    return found


def exit_codes(kyu: LocalKyu) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for pod in kyu.client.list(POD, "default"):
        name = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        for container in pod["status"]["containerStatuses"]:
            found.setdefault(name, set()).add(container["state"]["terminated"]["exitCode"])
    return found


def processes_of(folder: Path) -> Iterator[int]:
    """Processes that have something open in the folder, or in their environment: supervisors and containers."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            opened = [os.readlink(path) for path in (entry / "fd").iterdir()]
            if any(path.startswith(f"{folder}/pods") for path in opened) or str(folder).encode() in (
                (entry / "environ").read_bytes()
            ):
                yield pid


def test_a_pod_ends_when_its_folder_is_deleted_under_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with local_kyu(data) as kyu:
        kyu.submit("long", "local", "echo started; exec sleep 600", cpu="50m")
        kyu.wait_for("long", "Running")
        kyu.kill()
        before = set(processes_of(data / "runtime"))
        assert len(before) == 2, "a supervisor and a container"
        (data / "server.log").rename(tmp_path / "server.log")
        shutil.rmtree(data)
        data.mkdir()
        (tmp_path / "server.log").rename(data / "server.log")
        kyu.wait("both have ended", lambda: not (before & set(processes_of(data / "runtime"))))
