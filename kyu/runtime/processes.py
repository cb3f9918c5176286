"""
Runs pods as processes of this machine, and tells what becomes of them. START READING HERE.

``start`` resolves the pod, makes its folder and hands it to the launcher, which forks a supervisor. From then on the
supervisor owns the pod; Runtime only reads its records when told so through a pipe, and watches that it lives. A pod's
folder gets its name in one step, and a supervisor claims it in one step, so whenever Kyu dies, the next Kyu can tell
what was started and starts nothing twice.

Called by: agent.py, through PodRuntime; pools/runner.py. Calls: podplan.py, podfolder.py, status.py;
launcher.py, through a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

import kyu
from kyu import log
from kyu.api.meta import Json
from kyu.runtime import cgroups, isolation, podfolder, podplan, records, status
from kyu.runtime.background import Background
from kyu.runtime.environment import Facts, Objects

# A folder that is being made, and one that is being removed. Neither is ever run.
NEW = ".new"
GONE = ".gone"
# Where Python finds the launcher, without any search path.
PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(kyu.__file__)))

OnStatus = Callable[[Json, Json], None]


class UnsupportedSystem(Exception):
    """This operating system lacks what pods need."""


class CannotIsolate(Exception):
    """A user for each namespace was asked for, and cannot be had in this folder."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What pods see of their node."""

    node_name: str
    allocatable: dict[str, str] = field(default_factory=dict)
    gpus: int = 0


@dataclass(slots=True)
class Entry:
    """A pod that was started here. Its supervisor is watched through a pidfd from its claim to its end."""

    pod: Json
    folder: str
    claimed: bool = False
    over: bool = False
    stopping: bool = False
    gpus: tuple[int, ...] = ()
    pidfd: int = -1
    status: Json = field(default_factory=dict)


class Runtime:
    """
    All pods of this machine. ``on_status(pod, status)`` is called in the event loop after each change.

    The folder belongs to one Runtime at a time; the caller sees to that.
    """

    def __init__(
        self, folder: str, machine: Machine, on_status: OnStatus, options: podplan.Options | None = None
    ) -> None:
        if sys.platform != "linux":
            raise UnsupportedSystem("pods run as processes on Linux only; elsewhere use simulated nodes")
        self._folder = os.path.abspath(folder)
        self._pods = os.path.join(self._folder, "pods")
        self._notices = os.path.join(self._folder, records.NOTICES)
        self._machine = machine
        self._on_status = on_status
        self._options = options or podplan.Options()
        self._entries: dict[str, Entry] = {}
        self._boot_id = records.boot_id()
        self._mounts_refused = ""
        self._cgroups = cgroups.find_root()
        self._users: isolation.Users | None = None
        self._launcher: asyncio.subprocess.Process | None = None
        self._waiting: list[str] = []
        self._background = Background("runtime")
        self._notice_reader = -1
        self._notice_rest = b""
        # Set when pods are adopted and can be started, and what this machine can do is known.
        self.opened = asyncio.Event()

    # Life of the runtime itself

    async def open(self) -> None:
        """Get ready, and adopt the pods that an earlier Kyu left."""
        os.makedirs(self._pods, exist_ok=True)
        for folder in (self._folder, self._pods):
            os.chmod(folder, 0o711)
        if isolation.isolation_level(self._options) == "UserPerNamespace":
            if barrier := isolation.find_barrier(self._folder):
                raise CannotIsolate(f"{barrier} keeps other users out, so pods of other users cannot run below it")
            self._users = isolation.Users(self._folder, self._options.first_user)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._notices, 0o600)
        # Also open for writing, so that the pipe never ends when a supervisor does.
        self._notice_reader = os.open(self._notices, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        asyncio.get_running_loop().add_reader(self._notice_reader, self._read_notices)
        await self._start_launcher()
        self._adopt()
        self.opened.set()

    async def close(self) -> None:
        """Let go. The pods run on, and are adopted by the next Runtime on this folder."""
        loop = asyncio.get_running_loop()
        launcher, self._launcher = self._launcher, None
        if launcher is not None and launcher.stdin is not None:
            launcher.stdin.close()
        await self._background.finish()
        if self._notice_reader >= 0:
            loop.remove_reader(self._notice_reader)
            os.close(self._notice_reader)
            self._notice_reader = -1
        for entry in self._entries.values():
            self._forget_supervisor(entry)

    @property
    def cgroup_root(self) -> cgroups.Root:
        """Where limits are enforced, or why they are not."""
        return self._cgroups

    @property
    def mounts_refused(self) -> str:
        """Empty if volumes appear at their mount paths, else why they cannot."""
        return self._mounts_refused

    # Pods

    def uids(self) -> list[str]:
        return list(self._entries)

    def find_status(self, uid: str) -> Json | None:
        entry = self._entries.get(uid)
        return entry.status if entry else None

    def folder(self, uid: str) -> str:
        """Where logs.py finds what the pod has printed."""
        return os.path.join(self._pods, uid)

    def start(self, pod: Json, objects: Objects) -> podplan.Outcome | None:
        """
        Start the pod, once: None if it was started before. ``objects`` are those that it reads its settings from.

        A refused pod gets its last status at once. One that is not yet ready to start may be tried again.
        """
        uid = pod["metadata"]["uid"]
        if uid in self._entries:
            return None
        now = records.rfc3339(time.time())
        if has_run(pod):
            # Its folder is gone, by a power cut or by hand. Rather not at all than twice.
            message = "the pod ran on this machine, and its folder is gone"
            self._on_status(pod, status.failed_status(pod, "PodFolderLost", message, "", now))
            return None
        place = self._place(pod)
        facts = Facts(pod, self._machine.node_name, self._machine.allocatable)
        outcome = podplan.plan_pod(facts, objects, self._options, place)
        match outcome:
            case podplan.Plan():
                self._make(outcome, place)
                self._entries[uid] = Entry(pod, place.folder, gpus=place.gpus, status=pod.get("status") or {})
                self._launch_soon(uid)
            case podplan.Refused(reason, message, container):
                self._on_status(pod, status.failed_status(pod, reason, message, container, now))
            case podplan.NotYet(container, message):
                self._on_status(pod, status.waiting_status(pod, container, message, now))
            case _:
                assert_never(outcome)
        return outcome

    def stop(self, uid: str, grace_seconds: float, reason: str = "", message: str = "") -> None:
        """End the pod: the polite signal now, the other after the grace period. With a reason the pod has failed."""
        entry = self._entries[uid]
        if entry.over:
            return
        wish = {"requestedAt": time.time(), "graceSeconds": grace_seconds, "reason": reason, "message": message}
        try:
            records.write(os.path.join(entry.folder, records.STOP), wish)
        except FileNotFoundError:
            # It has not got its name yet, and gets it with the wish in it; or got it just now.
            folder = entry.folder + NEW
            records.write(os.path.join(folder if os.path.isdir(folder) else entry.folder, records.STOP), wish)
        entry.stopping = True
        # A supervisor that has not claimed the pod yet reads the wish when it does.
        if entry.pidfd >= 0:
            self._signal(entry)

    async def remove(self, uid: str) -> None:
        """Forget a pod that is over, with its logs and volumes."""
        entry = self._entries[uid]
        assert entry.over, f"pod {uid} still runs"
        self._forget_supervisor(entry)
        del self._entries[uid]
        gone = entry.folder + GONE
        os.rename(entry.folder, gone)
        await asyncio.to_thread(shutil.rmtree, gone, ignore_errors=True)

    # Starting

    def _place(self, pod: Json) -> podplan.Place:
        meta = pod["metadata"]
        user = self._users.user(meta.get("namespace", "")) if self._users else None
        folder = os.path.join(self._pods, meta["uid"])
        return podplan.Place(
            folder, self._notices, self._boot_id, self._cgroups.path, self._mounts_refused, user, self._gpus(pod)
        )

    def _gpus(self, pod: Json) -> tuple[int, ...]:
        """The first ones that no other pod has. Binding sees to it that there are enough."""
        taken = {gpu for entry in self._entries.values() if not entry.over for gpu in entry.gpus}
        free = [gpu for gpu in range(self._machine.gpus) if gpu not in taken]
        return tuple(free[: podplan.pod_gpus(pod)])

    def _make(self, plan: podplan.Plan, place: podplan.Place) -> None:
        try:
            podfolder.make(place.folder + NEW, plan, place)
        except OSError:
            shutil.rmtree(place.folder + NEW, ignore_errors=True)
            raise

    def _launch_soon(self, uid: str) -> None:
        """Pods that are started together share one wait for the disk."""
        self._waiting.append(uid)
        if len(self._waiting) == 1:
            self._background.start(self._launch_waiting())

    async def _launch_waiting(self) -> None:
        await asyncio.sleep(0)
        while batch := self._waiting[:]:
            folders = [self._entries[uid].folder for uid in batch]
            try:
                await asyncio.to_thread(self._name, folders)
                await self._hand_over(folders)
            except OSError as error:
                for uid in batch:
                    self._give_up(uid, f"cannot keep the pod's folder: {error}")
            del self._waiting[: len(batch)]

    def _give_up(self, uid: str, message: str) -> None:
        """The disk refuses: the pod has not run, and must not by chance do so later."""
        entry = self._entries.pop(uid)
        for folder in (entry.folder, entry.folder + NEW):
            shutil.rmtree(folder, ignore_errors=True)
        now = records.rfc3339(time.time())
        failed = status.failed_status(entry.pod, "StartError", message, "", now)
        self._on_status(entry.pod, failed)

    def _name(self, folders: list[str]) -> None:
        for folder in folders:
            os.rename(folder + NEW, folder)
        # The name survives a power cut: after one, a pod that may have run is not run again.
        records.sync_folder(self._pods)

    async def _hand_over(self, folders: list[str]) -> None:
        launcher = self._launcher
        if launcher is None or launcher.stdin is None:
            # Closing: the next Kyu finds the folder without a claim, and starts it.
            return
        with contextlib.suppress(ConnectionError):
            launcher.stdin.write("".join(f"{folder}\n" for folder in folders).encode())
            await launcher.stdin.drain()

    async def _start_launcher(self) -> None:
        launcher = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-E", "-s", "-m", "kyu.runtime.launcher",
            cwd=PACKAGES,
            env={"PATH": podplan.DEFAULT_PATH},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert launcher.stdout is not None
        first = await launcher.stdout.readline()
        if not first:
            raise RuntimeError(f"the launcher of pods ended at once, with code {await launcher.wait()}")
        self._mounts_refused = json.loads(first)["mountsRefused"]
        self._launcher = launcher
        self._background.start(self._watch_launcher(launcher))

    async def _watch_launcher(self, launcher: asyncio.subprocess.Process) -> None:
        code = await launcher.wait()
        if self._launcher is not launcher:
            return
        log.warning("launcher ended", exit_code=code)
        await self._start_launcher()
        # Those that it had not started yet. One that it had is claimed, so asking again does no harm.
        await self._hand_over([entry.folder for entry in self._entries.values() if not entry.claimed])

    # Adopting

    def _adopt(self) -> None:
        for name in sorted(os.listdir(self._pods)):
            folder = os.path.join(self._pods, name)
            if name.endswith((NEW, GONE)):
                shutil.rmtree(folder, ignore_errors=True)
                continue
            plan = records.find(os.path.join(folder, records.PLAN))
            if plan is None:
                log.warning("pod folder without a pod", folder=folder)
                continue
            stopping = os.path.exists(os.path.join(folder, records.STOP))
            self._entries[name] = entry = Entry(plan["pod"], folder, stopping=stopping, gpus=tuple(plan["gpus"]))
            if any(os.path.exists(os.path.join(folder, file)) for file in (records.CLAIM, records.RECORD)):
                self._look(name)
            elif plan["bootId"] == self._boot_id:
                self._background.start(self._hand_over([folder]))
            else:
                # Its claim may have been lost with the power. Rather not at all than twice.
                self._lose(entry)

    # Watching

    def _read_notices(self) -> None:
        data = self._notice_rest
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._notice_reader, 65536):
                data += chunk
        *uids, self._notice_rest = data.split(b"\n")
        for uid in dict.fromkeys(uids):
            self._look(uid.decode())

    def _look(self, uid: str) -> None:
        """Read the pod's files again, and tell what has changed."""
        entry = self._entries.get(uid)
        if entry is None or entry.over:
            return
        if not entry.claimed and not self._watch_supervisor(uid, entry):
            self._ended(uid)
            return
        record = records.find(os.path.join(entry.folder, records.RECORD))
        if record is not None:
            self._tell(entry, record)

    def _watch_supervisor(self, uid: str, entry: Entry) -> bool:
        """False if the supervisor has ended."""
        claim = records.find(os.path.join(entry.folder, records.CLAIM))
        entry.claimed = True
        if claim is None:
            return False
        process = records.Process(**claim)
        try:
            entry.pidfd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        # Asked after the descriptor was opened: it cannot be somebody else's now.
        if not records.is_alive(process):
            self._forget_supervisor(entry)
            return False
        asyncio.get_running_loop().add_reader(entry.pidfd, self._ended, uid)
        if entry.stopping:
            self._signal(entry)
        return True

    def _signal(self, entry: Entry) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(entry.pidfd, signal.SIGTERM)

    def _ended(self, uid: str) -> None:
        """The supervisor has gone: with a last record, or without."""
        entry = self._entries[uid]
        self._forget_supervisor(entry)
        record = records.find(os.path.join(entry.folder, records.RECORD))
        if record is not None and record["phase"] in ("Succeeded", "Failed"):
            self._tell(entry, record)
        else:
            self._lose(entry, record)

    def _forget_supervisor(self, entry: Entry) -> None:
        if entry.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(entry.pidfd)
            os.close(entry.pidfd)
            entry.pidfd = -1

    def _lose(self, entry: Entry, record: Json | None = None) -> None:
        """Nobody watched how the pod ended: end what is left of it, and say so for ever."""
        plan = records.find(os.path.join(entry.folder, records.PLAN)) or {}
        now = records.rfc3339(time.time())
        if plan.get("bootId") == self._boot_id:
            reason, message = "SupervisorLost", "the process that watched the pod was killed"
        else:
            reason, message = "NodeRestarted", "the machine was restarted while the pod ran"
        record = record or {"uid": entry.pod["metadata"]["uid"], "startTime": now, "containers": {}}
        for state in record["containers"].values():
            kill_left_over(state.get("process"))
        record = status.lost_record(record, reason, message, now)
        try:
            records.write(os.path.join(entry.folder, records.RECORD), record, durable=True)
        except OSError as error:
            # Whoever comes next finds it as lost as it is now.
            log.warning("pod not written down", folder=entry.folder, error=error)
        self._tell(entry, record)

    def _tell(self, entry: Entry, record: Json) -> None:
        entry.over = record["phase"] in ("Succeeded", "Failed")
        pod = {**entry.pod, "status": entry.status}
        now = records.rfc3339(time.time())
        changed = status.pod_status(pod, record, now)
        if changed != entry.status:
            entry.status = changed
            self._on_status(entry.pod, changed)


def has_run(pod: Json) -> bool:
    """A container of it was seen running, or ended."""
    entries = (pod.get("status") or {}).get("containerStatuses") or ()
    return any({"running", "terminated"} & set(entry.get("state") or {}) or entry.get("lastState") for entry in entries)


def kill_left_over(process: list[object] | None) -> None:
    """End a container's processes, if it is still the same that was written down."""
    if not process:
        return
    known = msgspec.convert(process, records.Process)
    if records.is_alive(known):
        # The process too: one that was forked just now has no group of its own yet.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(known.pid, signal.SIGKILL)
