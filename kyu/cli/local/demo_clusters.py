"""The second story of `kyu demo`: a hub and two clusters on this machine, and jobs that go where there is room."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from kyu.cli import target
from kyu.cli.local.fleet import QUEUE
from kyu.cli.main import Failed

CLUSTERS = 2
JOBS = ("north", "south", "west")
# A busy machine needs longer than an idle one.
LONGEST_SECONDS = 300.0
POLL_SECONDS = 0.5


def tell(data: Path, pace: float, *, keep: bool) -> int:
    """Tell the story. The folder is removed by the caller."""
    story = ClusterStory(data, pace)
    try:
        story.tell()
        if keep:
            input(f"\nexport KUBECONFIG={data / 'kubeconfig'}\nPress Enter to end the demo.")
    finally:
        story.kyu("down", "--stop-jobs", "--grace", "0", "--data", str(data))
    return 0


class ClusterStory:
    """The scenes. Each waits until the servers show its result."""

    def __init__(self, data: Path, pace: float) -> None:
        self._data = data
        self._pace = pace
        self._ends = time.monotonic() + LONGEST_SECONDS

    def tell(self) -> None:
        self._say(f"Starting a hub and {CLUSTERS} clusters …")
        self.kyu("up", "--clusters", str(CLUSTERS), "--data", str(self._data), must=True)
        self._say("The clusters report their nodes, and the quota of the hub follows:")
        self._wait_for(("Ready",), "clusters", times=CLUSTERS)
        self._wait_for(("False",), "get capacityquotas", times=1)
        print(self.kyu("clusters"))
        self._say("Three jobs go to one queue. A whole cluster is small: each takes one core.")
        for name in JOBS:
            script = f"echo {name} runs as a process of its cluster; sleep 5"
            self.kyu("submit", "--name", name, "-q", QUEUE, "--cpu", "1", "--", "sh", "-c", script, must=True)
        self._wait_for(("in cluster", "Succeeded"), "jobs --all", times=2)
        print(self.kyu("jobs", "--all-clusters"))
        self._say("The output of a job is read through the hub, wherever it runs:")
        self._wait_for(("runs as",), f"logs {JOBS[0]}", times=1)
        print(self.kyu("logs", JOBS[0]))
        self._say("All jobs end, and the quota is free again:")
        self._wait_for(("Succeeded",), "jobs --all", times=len(JOBS))
        print(self.kyu("jobs", "--all", "--all-clusters"))

    def kyu(self, *words: str, must: bool = False) -> str:
        """Run a command on the hub, and return its output."""
        environment = {**os.environ, "KUBECONFIG": str(self._data / "kubeconfig")}
        done = subprocess.run([*target.KYU, *words], capture_output=True, text=True, env=environment)
        if must and done.returncode:
            raise Failed(done.stderr.strip() or done.stdout.strip())
        return done.stdout.rstrip()

    def _wait_for(self, words: tuple[str, ...], command: str, *, times: int) -> None:
        """Run a command until its output has these words often enough."""
        while True:
            shown = self.kyu(*command.split())
            if sum(shown.count(word) for word in words) >= times:
                return
            if time.monotonic() > self._ends:
                raise Failed(f"the demo took too long: `kyu {command}` does not show {' or '.join(words)!r}")
            time.sleep(POLL_SECONDS)

    def _say(self, text: str) -> None:
        time.sleep(self._pace)
        print(f"\n{text}\n", flush=True)
