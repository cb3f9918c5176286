"""Kyu is killed again and again while a Workflow runs: each step runs once, in order, also after a retry."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path

from kyu.api.meta import Json
from kyu.api.workflows import Workflow
from tests.support.local_kyu import LocalKyu, local_kyu
from tests.support.workflows import is_over, shell, status, workflow

STEPS = int(os.environ.get("KYU_DAG_STEPS", "20"))
KILLS = int(os.environ.get("KYU_DAG_KILLS", "3"))


def fan(folder: Path, fixed: Path) -> list[Json]:
    """Return steps that each leave a line: a start, a wide middle, a chain with a step that fails at first, an end."""
    line = f"echo $KYU_STEP-$KYU_INDEX >> {folder}/lines"
    wide, chain = STEPS // 2, STEPS - STEPS // 2 - 2
    steps = [shell("start", line)]
    items = [str(number) for number in range(wide)]
    steps.append(shell("wide", line, "start", forEach={"items": items, "width": 10}))
    for number in range(chain):
        script = f"{line}; sleep 0.1"
        if number == chain // 2:
            script = f"echo tried >> {folder}/tries; [ -e {fixed} ] || exit 3; {script}"
        before = "start" if number == 0 else f"chain-{number - 1}"
        steps.append(shell(f"chain-{number}", script, before))
    steps.append(shell("end", line, "wide", f"chain-{chain - 1}"))
    return steps


def lines(folder: Path) -> list[str]:
    path = folder / "lines"
    return path.read_text().splitlines() if path.exists() else []


def have_run(folder: Path, count: int) -> bool:
    return len(lines(folder)) >= count


def test_each_step_runs_once_however_often_kyu_is_killed(tmp_path: Path) -> None:
    with local_kyu(tmp_path / "data", "--bare") as kyu:
        kyu.make_queue("local", "2")
        run_and_kill(kyu, tmp_path)


def run_and_kill(kyu: LocalKyu, tmp_path: Path) -> None:
    fixed = tmp_path / "fixed"
    steps = fan(tmp_path, fixed)
    retries = {"limit": 1, "backoffSeconds": 1}
    kyu.client.create(Workflow.KIND, workflow("dag", steps, retries=retries))
    started_again = 0
    for kill in range(KILLS):
        if kill == KILLS - 2:
            kyu.wait("the failing step has failed", partial(is_over, kyu, "dag"))
            assert status(kyu, "dag")["state"] == "Failed"
            started_again = len(lines(tmp_path))
            fixed.touch()
            kyu.kyu("workflow", "retry", "dag")
        else:
            # Before the failing step: somewhere in the wide middle. After it: in the rest of the chain.
            count = started_again + 1 if kill > KILLS - 2 else STEPS // 10 * (kill + 1)
            kyu.wait("so many steps have run", partial(have_run, tmp_path, count))
        kyu.kill()
        kyu.start()
    kyu.wait("it succeeds", lambda: status(kyu, "dag").get("state") == "Succeeded")
    ran = lines(tmp_path)
    expected = [name for step in steps for name in names_of(step)]
    assert Counter(ran) == Counter(expected)
    assert ran[0] == "start-"
    assert ran[-1] == "end-"
    chain = [name for name in ran if name.startswith("chain")]
    assert chain == [name for name in expected if name.startswith("chain")]
    # Twice in the first run, once after it was started again.
    assert (tmp_path / "tries").read_text().splitlines() == ["tried"] * 3
    assert len({entry["object"] for entry in status(kyu, "dag")["steps"]}) == len(expected)


def names_of(step: Json) -> list[str]:
    if "forEach" not in step:
        return [f"{step['name']}-"]
    return [f"{step['name']}-{index}" for index in range(len(step["forEach"]["items"]))]
