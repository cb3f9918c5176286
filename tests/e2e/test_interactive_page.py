"""The page about interactive work, typed as it stands there: each command, and what it prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local_kyu import local_kyu

PAGE = Path(__file__).parent.parent.parent / "docs" / "tasks" / "interactive.md"


def script_of(page: str) -> tuple[str, str]:
    """Return the commands of a page as one script, and what they print together."""
    commands, printed = [], []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append(line.removeprefix("$ "))
            else:
                printed.append(line)
    return "\n".join(commands), "".join(f"{line}\n" for line in printed)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_page_is_true(tmp_path: Path) -> None:
    script, printed = script_of(PAGE.read_text())
    with local_kyu(tmp_path / "data", "--cpu", "8") as kyu:
        tools = tmp_path / "tools"
        tools.mkdir()
        (tools / "kyu").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m kyu "$@"\n')
        (tools / "kyu").chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "KUBECONFIG": str(kyu.data / "kubeconfig"),
            "HOME": str(tmp_path),
        }
        # A reader enters the job after it has started.
        before, submit, after = script.partition("kyu submit")
        submit, _, after = (submit + after).partition("\n")
        shell = {"capture_output": True, "text": True, "env": environment, "cwd": tmp_path, "timeout": 110}
        first = subprocess.run(["bash", "-c", before + submit], **shell)
        kyu.wait("the job runs", lambda: kyu.state("train") == "Running")
        second = subprocess.run(["bash", "-c", after], **shell)
        assert first.stdout + second.stdout == printed, first.stderr + second.stderr
