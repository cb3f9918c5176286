"""
Runs pods as processes of this machine, and reports their states. START READING HERE.

``start`` resolves the pod, makes its folder and hands it to the launcher, which forks a supervisor. From then on the
supervisor owns the pod; Runtime reads its records when a pipe says so, and watches that it lives. A pod's folder gets
its name in one step, and a supervisor claims it in one step, so whenever Kyu dies, the next Kyu can tell which pods
were started and starts none twice. A pod is over when all its processes are gone, not before.

Called by: agent.py, through PodRuntime; pools/runner.py. Calls: podplan.py, podfolder.py, launching.py, left_over.py,
status.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

from kyu import log
from kyu.api.meta import Json
from kyu.runtime import accounts, cgroups, left_over, podfolder, podplan, records, status, user_ids, volumes
from kyu.runtime.background import Background
from kyu.runtime.environment import NotYet, PodFacts, PodRefused, SettingsSource
from kyu.runtime.identity import unix_users
from kyu.runtime.identity.service_account import NO_ACCESS, ServerAccess, TokenFile
from kyu.runtime.identity.unix_users import NoUnixUser
from kyu.runtime.interactive import commands
from kyu.runtime.interactive.pipes import Descriptor
from kyu.runtime.isolation import Isolation, choose, engine_sandbox, sandboxes, with_users
from kyu.runtime.launching import GONE, NEW, Launch, Launching, remove_folder
from kyu.runtime.log_archive import LogArchive
from kyu.runtime.podman.images import Images
from kyu.runtime.sandbox import namespaces
from kyu.runtime.sandbox.namespaces import Sandbox
from kyu.runtime.storage.eviction import EVICTED, Evictor, RunningPod

# Faults of the machine that pass; all others are faults of the pod.
NOT_FOR_EVER = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EROFS, errno.ENOMEM})
# Processes of a lost pod that the kernel cannot end keep its quota no longer than this.
LEFT_OVER_SECONDS = 300.0
# A pod that lives this long after its last grace period is reported.
SLOW_END_SECONDS = 30.0
# As for the kubelet, an eviction for storage waits no longer.
EVICTION_GRACE_SECONDS = 1.0
OVER = ("Succeeded", "Failed")
OnStatus = Callable[[Json, Json], None]
OnEvent = Callable[[Json, str, str], None]


class UnsupportedSystem(Exception):
    """This operating system lacks what pods need."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The node, as pods see it."""

    node_name: str
    allocatable: dict[str, str] = field(default_factory=dict)
    gpus: int = 0


class PodAccounts(Protocol):
    """The accounts of pods: what is known of each at its start, and a line when it has ended."""

    def begin(self, pod: Json) -> Json: ...

    def known(self, uids: Collection[str]) -> set[str]: ...

    def end(self, account: Json, status: Json, *, stopped: bool, usage: Json) -> bool: ...

    async def sync(self) -> None: ...


@dataclass(slots=True)
class StartedPod:
    """A pod that was started here. Its supervisor is watched through a pidfd from its claim to its end."""

    pod: Json
    folder: str
    claimed: bool = False
    over: bool = False
    stopping: bool = False
    losing: bool = False
    gpus: tuple[int, ...] = ()
    cgroup: str = ""
    # The namespaces that its supervisor is forked into, as flags of the kernel.
    namespaces: int = 0
    pidfd: int = -1
    status: Json = field(default_factory=dict)
    # The description of its start for the accounts, and whether it has its line.
    account: Json = field(default_factory=dict)
    is_accounted: bool = False
    # Why a supervisor was killed that could not be asked to end its pod.
    evicted: str = ""
    clearing: asyncio.Task[None] | None = None
    usage: Json = field(default_factory=dict)
    # The tokens in its volumes, which are renewed while it runs.
    tokens: tuple[TokenFile, ...] = ()

    @property
    def launch(self) -> Launch:
        return Launch(self.pod["metadata"]["uid"], self.folder, self.namespaces)


class Runtime:
    """
    All pods of this machine. ``on_status(pod, status)`` is called in the event loop after each change.

    ``on_event(pod, reason, message)`` is called for warnings. The folder belongs to one Runtime at a time; the caller
    sees to that.
    """

    def __init__(
        self,
        folder: str,
        machine: Machine,
        on_status: OnStatus,
        options: podplan.RuntimeOptions | None = None,
        archive: LogArchive | None = None,
        on_event: OnEvent | None = None,
        accounts: PodAccounts | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise UnsupportedSystem("pods run as processes on Linux only; elsewhere use simulated nodes")
        self._folder = os.path.abspath(folder)
        self._pods = os.path.join(self._folder, "pods")
        self._notices = os.path.join(self._folder, records.NOTICES)
        self._machine = machine
        self._on_status = on_status
        self._on_event = on_event
        self._options = options or podplan.RuntimeOptions()
        self._archive = archive
        self._accounts = accounts
        self._entries: dict[str, StartedPod] = {}
        self._boot_id = records.boot_id()
        self._mounts_refused = ""
        self._cgroups = cgroups.find_root()
        self._users: user_ids.UserIds | None = None
        self._isolation = Isolation()
        self._background = Background("runtime")
        self._images = Images(self._options.runtime)
        # The sandbox of pods that run from images.
        self._engine = Sandbox()
        self._launching = Launching(self._pods, self._background, self._give_up, self._unclaimed)
        interval, tenants = self._options.storage_interval_seconds, self._options.tenants
        self._evictor = Evictor(self._pods, self._evictable, self._evict, interval, protects_disk=tenants)
        self._watching = Background("evictions")
        self._notice_reader = -1
        self._notice_rest = b""
        # Set when pods are adopted and can be started, and the abilities of this machine are known.
        self.opened = asyncio.Event()

    # Life of the runtime itself

    async def open(self) -> None:
        """Get ready, and adopt the pods that an earlier Kyu left."""
        os.makedirs(self._pods, exist_ok=True)
        for folder in (self._folder, self._pods):
            os.chmod(folder, 0o700)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._notices, 0o600)
        # Supervisors run as the pod's user. They hold a descriptor of the pipe; no other process reaches its folder.
        os.chmod(self._notices, 0o622)
        # Also open for writing, so that the pipe never ends when a supervisor does.
        self._notice_reader = os.open(self._notices, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        asyncio.get_running_loop().add_reader(self._notice_reader, self._read_notices)
        try:
            self._users = user_ids.UserIds(self._folder, self._options.user_ids) if self._gives_users() else None
        except (user_ids.NoUserIds, OSError) as error:
            self._isolation = Isolation(refused=f"no user ids: {error}")
        first = self._users.first if self._users is not None else None
        wanted = sandboxes(self._options, first)
        await self._images.open()
        engine = [] if self._images.refused else [engine_sandbox(self._options, first, self._images.store)]
        trial = await self._launching.start([*wanted, *engine], first)
        if not self._isolation.refused:
            self._isolation = choose(wanted, trial.refused[: len(wanted)], tenants=self._options.tenants)
        if engine:
            self._engine, self._images.refused = engine[0], self._isolation.refused or trial.refused[-1]
        self._mounts_refused = "" if self._isolation.sandbox.namespaces else trial.mounts_refused
        if self._archive is not None:
            self._archive.open()
        self._adopt()
        self._watching.start(self._evictor.run())
        self.opened.set()

    def _gives_users(self) -> bool:
        return self._options.tenants and os.geteuid() == 0

    async def close(self) -> None:
        """Let go. The pods run on, and are adopted by the next Runtime on this folder."""
        loop = asyncio.get_running_loop()
        self._launching.stop()
        await self._watching.cancel()
        await self._images.close()
        await self._background.finish()
        await asyncio.gather(*(entry.clearing for entry in self._entries.values() if entry.clearing is not None))
        if self._notice_reader >= 0:
            loop.remove_reader(self._notice_reader)
            os.close(self._notice_reader)
            self._notice_reader = -1
        for entry in self._entries.values():
            self._forget_supervisor(entry)

    @property
    def cgroup_root(self) -> cgroups.Root:
        """The control group of pods, or why limits are not enforced."""
        return self._cgroups

    @property
    def mounts_refused(self) -> str:
        """Empty if volumes appear at their mount paths, else why they cannot."""
        return self._mounts_refused

    @property
    def images(self) -> Images:
        """The images of this machine, or why pods do not run from images."""
        return self._images

    @property
    def isolation(self) -> Isolation:
        """How pods are isolated, once the runtime is open."""
        return self._isolation

    # Pods

    def uids(self) -> list[str]:
        return list(self._entries)

    def find_status(self, uid: str) -> Json | None:
        entry = self._entries.get(uid)
        return entry.status if entry else None

    def folder(self, uid: str) -> str:
        """Return the pod's folder, in which logs.py finds its output."""
        return os.path.join(self._pods, uid)

    async def prepare(self, pod: Json) -> NotYet | None:
        """Get what a pod needs before it can start: its images. A pod that waits for one says so."""
        if not self._images.runs(pod) or self._images.why_not(pod):
            return None
        outcome = await self._images.prepare(pod)
        if outcome is not None:
            self._tell_waiting(pod, outcome)
        return outcome

    def _tell_waiting(self, pod: Json, outcome: NotYet) -> None:
        now = records.rfc3339(time.time())
        self._on_status(pod, status.waiting_status(pod, outcome.container, outcome.reason, outcome.message, now))

    def start(self, pod: Json, objects: SettingsSource, access: ServerAccess = NO_ACCESS) -> podplan.Outcome | None:
        """
        Start the pod, once: None if it was started before. ``objects`` are the ConfigMaps and Secrets that it reads.
        ``access`` is its way to the server.

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
        outcome = self._plan(pod, objects, access)
        match outcome:
            case podplan.Plan(document):
                self._entries[uid] = entry = StartedPod(
                    pod,
                    self.folder(uid),
                    gpus=tuple(document["gpus"]),
                    cgroup=document["cgroup"],
                    namespaces=namespaces.flags(Sandbox(**document["sandbox"])),
                    status=pod.get("status") or {},
                    account=document["account"],
                    tokens=read_tokens(document),
                )
                self._launching.launch_soon(entry.launch)
            case PodRefused(reason, message, container):
                self._on_status(pod, status.failed_status(pod, reason, message, container, now))
            case NotYet():
                self._tell_waiting(pod, outcome)
            case _:
                assert_never(outcome)
        return outcome

    def stop(self, uid: str, grace_seconds: float, reason: str = "", message: str = "") -> None:
        """End the pod: SIGTERM now, SIGKILL after the grace period. With a reason the pod has failed."""
        entry = self._entries[uid]
        if entry.over:
            return
        grace_seconds = min(grace_seconds, self._options.longest_grace_seconds)
        wish = {"requestedAt": time.time(), "graceSeconds": grace_seconds, "reason": reason, "message": message}
        try:
            # The supervisor reads it as the pod's user; no other process of that user reaches the folder.
            records.write(os.path.join(entry.folder, records.STOP), wish, mode=0o644)
        except FileNotFoundError:
            # The folder has not got its name yet, and gets it with the stop in it; or got it just now.
            folder = entry.folder + NEW
            path = os.path.join(folder if os.path.isdir(folder) else entry.folder, records.STOP)
            records.write(path, wish, mode=0o644)
        if not entry.stopping:
            delay = grace_seconds + SLOW_END_SECONDS
            asyncio.get_running_loop().call_later(delay, self._kill_slow_pod, uid)
        entry.stopping = True
        # A supervisor that has not claimed the pod yet reads the stop when it does.
        if entry.pidfd >= 0:
            self._signal(entry)

    async def keep_output(self, uid: str) -> bool:
        """Copy the logs of a pod that is over to the archive, while its folder is still there."""
        entry = self._entries.get(uid)
        if self._archive is None or entry is None:
            return False
        try:
            await asyncio.to_thread(self._archive.keep, {**entry.pod, "status": entry.status}, entry.folder)
        except OSError as error:
            log.warning("pod logs not kept", folder=entry.folder, error=error)
            return False
        return True

    async def remove(self, uid: str) -> None:
        """Forget a pod that is over, with its volumes. The archive keeps its logs."""
        entry = self._entries[uid]
        assert entry.over, f"pod {uid} still runs"
        self._forget_supervisor(entry)
        del self._entries[uid]
        if self._accounts is not None:
            # Without its line the folder stays, and the next Kyu writes it.
            if not entry.is_accounted and not self._account(entry):
                return
            try:
                await self._accounts.sync()
            except OSError as error:
                log.warning("ledger not on disk", error=error)
                return
        if entry.clearing is not None:
            await entry.clearing
        gone = entry.folder + GONE
        os.rename(entry.folder, gone)
        await asyncio.to_thread(self._discard, gone, {**entry.pod, "status": entry.status})

    def _discard(self, folder: str, pod: Json | None) -> None:
        """Remove the folder of a deleted pod, after its logs are kept. If the disk refuses, the next Kyu does it."""
        if self._archive is not None and pod is not None:
            try:
                self._archive.keep(pod, folder)
            except OSError as error:
                log.warning("pod logs not kept", folder=folder, error=error)
                return
        remove_folder(folder)

    def _kill_slow_pod(self, uid: str) -> None:
        """Kill a supervisor that has not ended its pod in time: the kernel ends the pod with it."""
        entry = self._entries.get(uid)
        if entry is None or entry.over or entry.losing:
            return
        if entry.namespaces and entry.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(entry.pidfd, signal.SIGKILL)
        asyncio.get_running_loop().call_later(SLOW_END_SECONDS, self._report_slow_end, uid)

    def _report_slow_end(self, uid: str) -> None:
        entry = self._entries.get(uid)
        if entry is not None and not entry.over:
            self._warn(entry.pod, "NotEnded", "its processes were killed and are not gone; its quota stays in use")

    def _evictable(self) -> list[RunningPod]:
        entries = [entry for entry in self._entries.values() if entry.claimed and not entry.over and not entry.stopping]
        return [RunningPod.of(entry.pod, entry.folder) for entry in entries]

    def _evict(self, uid: str, message: str) -> None:
        """End a pod at once, because of the storage that it uses."""
        entry = self._entries.get(uid)
        if entry is None or entry.over:
            return
        self._warn(entry.pod, EVICTED, message)
        try:
            self.stop(uid, EVICTION_GRACE_SECONDS, EVICTED, message)
        except OSError:
            # A full disk takes no stop request.
            entry.evicted = message
            if entry.namespaces and entry.pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(entry.pidfd, signal.SIGKILL)

    def _warn(self, pod: Json, reason: str, message: str) -> None:
        log.warning("pod", uid=pod["metadata"]["uid"], reason=reason, message=message)
        if self._on_event is not None:
            self._on_event(pod, reason, message)

    # Tokens

    def tokens(self) -> Iterator[tuple[Json, TokenFile, float]]:
        """Yield the pods that run, with each of their tokens and the time at which it was written."""
        for entry in self._entries.values():
            for file in () if entry.over else entry.tokens:
                # A pod that just gets its folder has no file yet, and a fresh token.
                with contextlib.suppress(OSError):
                    path = os.path.join(entry.folder, records.VOLUMES, file.volume, file.path)
                    yield entry.pod, file, os.lstat(path).st_mtime

    def put_token(self, uid: str, file: TokenFile, token: str) -> None:
        """Write a new token in the place of the old one."""
        entry = self._entries.get(uid)
        if entry is not None and not entry.over:
            root = os.path.join(entry.folder, records.VOLUMES, file.volume)
            volumes.replace_file(root, file.path, token.encode())

    # Commands

    def runs(self, uid: str, container: str) -> bool:
        """Return whether the container of a pod of this machine runs."""
        entry = self._entries.get(uid)
        statuses = entry.status if entry is not None and not entry.over else {}
        listed = (*statuses.get("initContainerStatuses", ()), *statuses.get("containerStatuses", ()))
        return any(each["name"] == container and "running" in (each.get("state") or {}) for each in listed)

    async def run_command(
        self, uid: str, container: str, argv: list[str], wanted: commands.CommandStreams
    ) -> commands.RunningCommand:
        """Start a command in a container that runs. Raise NoCommand if that is not possible."""
        entry = self._entries.get(uid)
        if entry is None:
            raise commands.NoCommand("the pod does not run on this machine")
        plan = records.find(os.path.join(entry.folder, records.PLAN)) or {}
        user = Sandbox(**plan["sandbox"]).user if plan else None
        return await commands.start(entry.folder, container, argv, wanted, user)

    async def attach(self, uid: str, container: str, wanted: commands.CommandStreams) -> commands.RunningCommand:
        """Connect with the program of a container that runs. Raise NoCommand if that is not possible."""
        return await commands.attach(self.folder(uid), container, wanted)

    async def connect(self, uid: str, port: int) -> Descriptor:
        """Connect with a port of a pod that runs. Raise NoCommand or OSError if that is not possible."""
        return await commands.connect(self.folder(uid), port)

    # Starting

    def _plan(self, pod: Json, objects: SettingsSource, access: ServerAccess) -> podplan.Outcome:
        """Plan the pod and make its folder. A fault that another try would not mend is a refusal."""
        if self._isolation.refused:
            message = f"pods of several users are not run here: {self._isolation.refused}"
            return PodRefused("IsolationFailed", message)
        if self._images.runs(pod) and (refusal := self._images.why_not(pod)):
            return refusal
        facts = PodFacts(pod, self._machine.node_name, self._machine.allocatable, access)
        try:
            place = self._place(pod)
            outcome = podplan.plan_pod(facts, objects, self._options, place)
            if isinstance(outcome, podplan.Plan):
                outcome.document["account"] = self._accounts.begin(pod) if self._accounts is not None else {}
                self._make(outcome, place)
        except (user_ids.NoUserIds, NoUnixUser) as error:
            return PodRefused("IsolationFailed", str(error))
        except (ValueError, RecursionError) as error:
            return PodRefused("InvalidPod", f"{type(error).__name__}: {error}")
        except OSError as error:
            if error.errno in NOT_FOR_EVER:
                return NotYet("", f"the pod's folder cannot be made: {error.strerror}")
            return PodRefused("StartError", f"the pod's folder cannot be made: {error}")
        return outcome

    def _place(self, pod: Json) -> podplan.Place:
        meta = pod["metadata"]
        images = self._images.known(pod) if self._images.runs(pod) else {}
        sandbox = self._engine if images else self._isolation.sandbox
        user_name, files, home = accounts.own_name(), "", ""
        account = unix_users.user_of(pod, can_switch=self._users is not None and sandbox.tenant)
        if account is not None and not images:
            # Without a user namespace: the user sees the owners and groups of all files as at a login.
            sandbox = replace(sandbox, user=account.uid, group=account.gid, groups=account.groups, user_namespace=False)
            user_name, home = account.name, account.home if os.path.isdir(account.home) else ""
            files = accounts.ensure(self._folder, account.uid, accounts.entries_of(account))
        elif self._users is not None:
            namespace = meta.get("namespace", "")
            user = self._users.user(namespace)
            sandbox = replace(sandbox, user=user)
            if images:
                sandbox = with_users(sandbox, user, self._users.block(namespace))
            user_name = accounts.name_of(namespace)
            files = accounts.ensure(self._folder, user, accounts.entries_for(user, user_name))
        return podplan.Place(
            self.folder(meta["uid"]),
            self._notices,
            self._boot_id,
            self._cgroups.path,
            "" if images else self._mounts_refused,
            sandbox,
            self._gpus(pod),
            user_name,
            files,
            home,
            images,
        )

    def _gpus(self, pod: Json) -> tuple[int, ...]:
        """Return the first ones that no other pod has. Binding ensures that there are enough."""
        taken = {gpu for entry in self._entries.values() if not entry.over for gpu in entry.gpus}
        free = [gpu for gpu in range(self._machine.gpus) if gpu not in taken]
        return tuple(free[: podplan.pod_gpus(pod)])

    def _make(self, plan: podplan.Plan, place: podplan.Place) -> None:
        try:
            podfolder.make(place.folder + NEW, plan, place)
        except (OSError, ValueError, RecursionError):
            remove_folder(place.folder + NEW)
            raise

    def _give_up(self, uid: str, message: str) -> None:
        """Fail the pod that the disk refuses: it has not run, and must not by chance do so later."""
        entry = self._entries.pop(uid)
        for folder in (entry.folder, entry.folder + NEW):
            remove_folder(folder)
        now = records.rfc3339(time.time())
        failed = status.failed_status(entry.pod, "StartError", message, "", now)
        self._on_status(entry.pod, failed)

    def _unclaimed(self) -> list[Launch]:
        return [entry.launch for entry in self._entries.values() if not entry.claimed]

    # Adopting

    def _adopt(self) -> None:
        names = sorted(os.listdir(self._pods))
        accounted = self._accounts.known(names) if self._accounts is not None else set()
        for name in names:
            folder = os.path.join(self._pods, name)
            plan = records.find(os.path.join(folder, records.PLAN))
            if name.endswith((NEW, GONE)):
                self._discard(folder, plan["pod"] if plan and name.endswith(GONE) else None)
                continue
            if plan is None:
                log.warning("pod folder without a pod", folder=folder)
                continue
            stopping = os.path.exists(os.path.join(folder, records.STOP))
            self._entries[name] = entry = StartedPod(
                plan["pod"],
                folder,
                stopping=stopping,
                gpus=tuple(plan["gpus"]),
                cgroup=plan["cgroup"],
                namespaces=namespaces.flags(Sandbox(**plan["sandbox"])),
                account=plan.get("account") or {},
                tokens=read_tokens(plan),
                is_accounted=name in accounted,
            )
            if any(os.path.exists(os.path.join(folder, file)) for file in (records.CLAIM, records.RECORD)):
                self._look(name)
            elif plan["bootId"] == self._boot_id:
                self._background.start(self._launching.hand_over([entry.launch]))
            else:
                # Its claim may have been lost with the power. Rather not at all than twice.
                self._lose(entry, None)

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
        """Read the pod's files again, and report changes."""
        entry = self._entries.get(uid)
        if entry is None or entry.over:
            return
        if not entry.claimed and not self._watch_supervisor(uid, entry):
            self._ended(uid)
            return
        record = records.find(os.path.join(entry.folder, records.RECORD))
        # The last record counts when the supervisor is gone, and so all processes of the pod are.
        if record is not None and record["phase"] not in OVER:
            self._tell(entry, record)

    def _watch_supervisor(self, uid: str, entry: StartedPod) -> bool:
        """Watch the supervisor; return False if it has ended."""
        claim = records.find(os.path.join(entry.folder, records.CLAIM))
        entry.claimed = True
        if claim is None:
            return False
        process = records.Process(**claim)
        try:
            entry.pidfd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        # Checked after the descriptor was opened: from here on it cannot be that of another process.
        if not records.is_alive(process):
            self._forget_supervisor(entry)
            return False
        asyncio.get_running_loop().add_reader(entry.pidfd, self._ended, uid)
        if entry.stopping:
            self._signal(entry)
        return True

    def _signal(self, entry: StartedPod) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(entry.pidfd, signal.SIGTERM)

    def _ended(self, uid: str) -> None:
        """Take note that the supervisor has gone: with a last record, or without."""
        entry = self._entries[uid]
        self._forget_supervisor(entry)
        record = records.find(os.path.join(entry.folder, records.RECORD))
        if record is not None and record["phase"] in OVER:
            cgroups.remove(entry.cgroup)
            self._tell(entry, record)
        else:
            self._lose(entry, record)

    def _forget_supervisor(self, entry: StartedPod) -> None:
        if entry.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(entry.pidfd)
            os.close(entry.pidfd)
            entry.pidfd = -1

    def _lose(self, entry: StartedPod, record: Json | None) -> None:
        """Fail a pod whose end was not watched, after all that is left of it has ended."""
        if not entry.losing:
            entry.losing = True
            self._background.start(self._end_left_over(entry, record))

    async def _end_left_over(self, entry: StartedPod, record: Json | None) -> None:
        plan = records.find(os.path.join(entry.folder, records.PLAN)) or {}
        if plan.get("bootId") == self._boot_id:
            reason, message = "SupervisorLost", "the process that watched the pod was killed"
            if entry.evicted:
                reason, message = EVICTED, entry.evicted
            remains = left_over.Remains.of(entry.pod["metadata"]["uid"], plan, record)
            if not await asyncio.to_thread(left_over.end, remains, LEFT_OVER_SECONDS):
                text = f"its processes could not be ended within {LEFT_OVER_SECONDS:.0f} s; its quota is given back"
                self._warn(entry.pod, "ProcessesLeft", text)
        else:
            reason, message = "NodeRestarted", "the machine was restarted while the pod ran"
        now = records.rfc3339(time.time())
        record = record or {"uid": entry.pod["metadata"]["uid"], "startTime": now, "containers": {}}
        record = status.lost_record(record, reason, message, now)
        try:
            records.write(os.path.join(entry.folder, records.RECORD), record, durable=True)
        except OSError as error:
            # The next Kyu finds the pod as lost as it is now.
            log.warning("pod not written down", folder=entry.folder, error=error)
        cgroups.remove(entry.cgroup)
        self._tell(entry, record)

    def _tell(self, entry: StartedPod, record: Json) -> None:
        entry.over = record["phase"] in OVER
        pod = {**entry.pod, "status": entry.status}
        now = records.rfc3339(time.time())
        changed = status.pod_status(pod, record, now)
        if changed != entry.status:
            entry.status = changed
            self._on_status(entry.pod, changed)
        if entry.over:
            entry.usage = record.get("usage") or {}
            self._account(entry)
            if self._options.tenants and entry.clearing is None:
                entry.clearing = asyncio.create_task(asyncio.to_thread(podfolder.clear, entry.folder))

    def _account(self, entry: StartedPod) -> bool:
        """Write the line of a pod that has ended, once. A pod of an earlier version has no account, and no line."""
        if not entry.is_accounted and self._accounts is not None:
            entry.is_accounted = not entry.account or self._accounts.end(
                entry.account, entry.status, stopped=entry.stopping, usage=entry.usage
            )
        return entry.is_accounted


def read_tokens(plan: Json) -> tuple[TokenFile, ...]:
    """Return the tokens of a plan. One of an earlier version has none."""
    return tuple(TokenFile(**token) for token in plan.get("tokens") or ())


def has_run(pod: Json) -> bool:
    """Return whether a container of the pod was seen running, or ended."""
    entries = (pod.get("status") or {}).get("containerStatuses") or ()
    return any({"running", "terminated"} & set(entry.get("state") or {}) or entry.get("lastState") for entry in entries)
