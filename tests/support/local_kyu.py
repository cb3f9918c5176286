"""A control plane of its own for a test, as a user starts it: `kyu up -d` in a temporary folder."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TypeVar

import pytest

from kyu import lock
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Json, Key
from kyu.cli import main
from kyu.cli.batch import jobs
from kyu.kinds.job import JOB
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient

T = TypeVar("T")
LONGEST_SECONDS = 120.0
INTERACTIVE = ("attach", "exec", "run")


class LocalKyu:
    """Commands and objects of one control plane."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.client = BlockingClient(kubeconfig.load(data / "kubeconfig"))

    def kyu(
        self, *words: str, check: bool = True, cwd: Path | None = None, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """
        Run a command against it, in this process: most of the time of a command goes into imports.

        A command that works in another folder, or on the descriptors of its process, gets a process of its own.
        """
        environment = {"KUBECONFIG": str(self.data / "kubeconfig")}
        if cwd is None and stdin is None and words[0] not in INTERACTIVE:
            done = command(list(words), environment)
        else:
            done = subprocess.run(
                [sys.executable, "-m", "kyu", *words],
                capture_output=True,
                text=True,
                env={**os.environ, **environment},
                cwd=cwd,
                timeout=90,
                input=stdin,
            )
        assert not check or done.returncode == 0, f"kyu {' '.join(words)}: {done.stdout}{done.stderr}\n{self.log()}"
        return done

    def wait(self, what: str, ask: Callable[[], T | None]) -> T:
        """Ask until there is an answer."""
        ends = time.monotonic() + LONGEST_SECONDS
        pause = 0.02
        while True:
            if answer := ask():
                return answer
            assert time.monotonic() < ends, f"{what}: not seen in {LONGEST_SECONDS:.0f} s\n{self.log()}"
            time.sleep(pause)
            # Each question takes time from what it waits for.
            pause = min(pause * 1.3, 0.2)

    def log(self) -> str:
        return "\n".join((self.data / "server.log").read_text().splitlines()[-30:])

    def workload(self, job: str) -> Json | None:
        found = [w for w in self.client.list(Workload.KIND) if jobs.owner_of(w)[1] == job]
        return found[-1] if found else None

    def state(self, job: str) -> str:
        workload = self.workload(job)
        return jobs.state_of(workload).word if workload else ""

    def wait_for(self, job: str, *states: str) -> Json:
        self.wait(f"{job} is {' or '.join(states)}", lambda: self.state(job) in states)
        workload = self.workload(job)
        assert workload is not None
        return workload

    def make_queue(self, name: str, cpu: str, **spec: object) -> None:
        """A flavor, a ClusterQueue of this size and a LocalQueue in `default`, all of one name."""
        self.client.create(ResourceFlavor.KIND, {"metadata": {"name": name}})
        quota = {"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
        group = {"coveredResources": ["cpu"], "flavors": [quota]}
        body = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
        self.client.create(ClusterQueue.KIND, {"metadata": {"name": name}, "spec": body})
        queue = {"metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name}}
        self.client.create(LocalQueue.KIND, queue)

    def submit(
        self, name: str, queue: str, script: str, *, cpu: str = "100m", namespace: str = "default", **spec: object
    ) -> None:
        container = {
            "name": "main",
            "image": "busybox",
            "command": ["/bin/sh", "-c", script],
            "resources": {"requests": {"cpu": cpu}},
        }
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
        meta = {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}}
        self.client.create(JOB, {"metadata": meta, "spec": {"backoffLimit": 0, "template": {"spec": pod}, **spec}})

    def used(self, queue: str) -> str:
        """What the ClusterQueue says is reserved of its cpu."""
        status = self.client.get(ClusterQueue.KIND, Key("", queue)).get("status") or {}
        listed = [r for flavor in status.get("flavorsReservation") or () for r in flavor["resources"]]
        return next((r["total"] for r in listed if r["name"] == "cpu"), "0")

    def kill(self) -> None:
        """`kill -9`, as a crash does it."""
        holder = lock.holder(self.data / "lock")
        assert holder is not None
        os.kill(holder, signal.SIGKILL)
        self.wait("the lock dies with its holder", lambda: not lock.is_locked(self.data / "lock"))
        self.client.close()

    def start(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "kyu", "up", "-d", "--data", str(self.data)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def command(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command as its process would: with an environment and outputs of its own, and an exit code for errors."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", io.StringIO())
        try:
            code = main.main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            code = 1
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return subprocess.CompletedProcess(["kyu", *words], code, *texts)


@contextmanager
def local_kyu(data: Path, *options: str) -> Iterator[LocalKyu]:
    kyu = [sys.executable, "-m", "kyu"]
    started = subprocess.run([*kyu, "up", "-d", "--data", str(data), *options], capture_output=True, text=True)
    assert started.returncode == 0, started.stderr
    try:
        running = LocalKyu(data)
        yield running
        running.client.close()
    finally:
        command(["down", "--stop-jobs", "--grace", "0", "--data", str(data)], {})
