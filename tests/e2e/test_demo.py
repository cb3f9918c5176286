"""`kyu demo`, as a newcomer runs it first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def test_the_demo_goes_well_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kyu", "demo"]
    environment = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in (
        "400m borrowed",
        "was preempted by report",
        "wants 5 cpu, 800m is the most",
        "Now the rest of the jobs run",
        "What to try next",
    ):
        assert word in done.stdout
    # A slow machine shows later steps.
    assert re.search(r"train-1 \| step \d+ of 14", done.stdout)
    assert "400m borrowed; 2 waiting" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    assert list(tmp_path.iterdir()) == []


def test_the_demo_of_clusters(tmp_path: Path) -> None:
    """A hub and two clusters of one command: quota follows, jobs run in clusters, and output comes through the hub."""
    environment = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "kyu", "demo", "clusters"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "north runs as a process of its cluster" in done.stdout
    ended = [line.split()[:5] for line in done.stdout.splitlines() if "Succeeded" in line]
    last = ended[-3:]
    assert [row[1] for row in last] == ["north", "south", "west"]
    assert {row[0] for row in last} <= {"cluster1", "cluster2"}
    assert not list(tmp_path.glob("kyu-demo-*"))
