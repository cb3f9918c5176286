"""
Starts the launcher, hands pods to it, and starts another one if it ends.

Pods that are started together share one wait for the disk: their folders get their names in one step each, and the
folder that holds them is synced once.

Called by: processes.py. Calls: launcher.py, through a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import kyu
from kyu import log
from kyu.runtime import podfolder, podplan, records
from kyu.runtime.background import Background
from kyu.runtime.sandbox import files
from kyu.runtime.sandbox.namespaces import Sandbox

# A folder that is being made, and one that is being removed. Neither is ever run.
NEW = ".new"
GONE = ".gone"
# A folder like that of a pod, to try in what can be isolated here.
TRIAL = "trial"
# The folder that Python finds the launcher in, without any search path.
PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(kyu.__file__)))


@dataclass(frozen=True, slots=True)
class Launch:
    """A pod to start: its folder, and the namespaces of its supervisor as flags of the kernel."""

    uid: str
    folder: str
    namespaces: int


@dataclass(frozen=True, slots=True)
class Trial:
    """The findings of the launcher: why each sandbox is refused, and why mounts are. Empty if permitted."""

    refused: list[str]
    mounts_refused: str


class Launching:
    """The launcher's process, and the pods that wait for it.

    ``give_up(uid, message)`` is called for a pod whose folder cannot be kept. ``unclaimed`` returns the pods that a
    launcher which has ended may not have started.
    """

    def __init__(
        self,
        pods: str,
        background: Background,
        give_up: Callable[[str, str], None],
        unclaimed: Callable[[], list[Launch]],
    ) -> None:
        self._pods = pods
        self._background = background
        self._give_up = give_up
        self._unclaimed = unclaimed
        self._sandboxes: list[Sandbox] = []
        self._user: int | None = None
        self.process: asyncio.subprocess.Process | None = None
        self._waiting: list[Launch] = []

    async def start(self, sandboxes: list[Sandbox], user: int | None) -> Trial:
        """Start the launcher, and return how pods can be isolated. ``user``: the user of the trial, if tenants run."""
        self._sandboxes, self._user = sandboxes, user
        trial = os.path.join(self._pods, TRIAL + NEW)
        remove_folder(trial)
        podfolder.make_trial(trial, user)
        launcher = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-E", "-s", "-m", "kyu.runtime.launcher",
            json.dumps([asdict(sandbox) for sandbox in sandboxes]), trial,
            cwd=PACKAGES,
            env={"PATH": podplan.DEFAULT_PATH},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert launcher.stdout is not None
        first = await launcher.stdout.readline()
        remove_folder(trial)
        if not first:
            raise RuntimeError(f"the launcher of pods ended at once, with code {await launcher.wait()}")
        answer = json.loads(first)
        self.process = launcher
        self._background.start(self._watch(launcher))
        return Trial(answer["refused"], answer["mountsRefused"])

    async def _watch(self, launcher: asyncio.subprocess.Process) -> None:
        code = await launcher.wait()
        if self.process is not launcher:
            return
        log.warning("launcher ended", exit_code=code)
        await self.start(self._sandboxes, self._user)
        # The pods that it had not started yet. A pod that it had is claimed, so a second request does no harm.
        await self.hand_over(self._unclaimed())

    def stop(self) -> None:
        """Let the launcher end; the supervisors stay."""
        launcher, self.process = self.process, None
        if launcher is not None and launcher.stdin is not None:
            launcher.stdin.close()

    def launch_soon(self, launch: Launch) -> None:
        self._waiting.append(launch)
        if len(self._waiting) == 1:
            self._background.start(self._launch_waiting())

    async def _launch_waiting(self) -> None:
        await asyncio.sleep(0)
        while batch := self._waiting[:]:
            try:
                await asyncio.to_thread(self._name, [launch.folder for launch in batch])
                await self.hand_over(batch)
            except OSError as error:
                for launch in batch:
                    self._give_up(launch.uid, f"cannot keep the pod's folder: {error}")
            del self._waiting[: len(batch)]

    def _name(self, folders: list[str]) -> None:
        for folder in folders:
            os.rename(folder + NEW, folder)
        # The name survives a power cut: after one, a pod that may have run is not run again.
        records.sync_folder(self._pods)

    async def hand_over(self, launches: list[Launch]) -> None:
        """Let the launcher start these pods. Each has its name."""
        launcher = self.process
        if launcher is None or launcher.stdin is None:
            # Closing: the next Kyu finds the folder without a claim, and starts it.
            return
        with contextlib.suppress(ConnectionError):
            launcher.stdin.write("".join(f"{each.namespaces} {each.folder}\n" for each in launches).encode())
            await launcher.stdin.drain()


def remove_folder(path: str) -> None:
    """Remove a pod's folder. If the disk refuses, the next Kyu removes it."""
    try:
        files.remove_tree(path)
    except OSError as error:
        log.warning("pod folder not removed", folder=path, error=error)
