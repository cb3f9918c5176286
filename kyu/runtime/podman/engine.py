"""
The command lines of podman for the containers of one pod, and their processes. A part of the pod's supervisor.

``podman run`` stands for a container: it passes on the streams and ends with the exit code. Podman tells through a
socket when the program has started. Signals go to the program itself. Whatever podman leaves behind when a container
has ended is below the supervisor, and ends with it.

Called by: supervisor.py, execs.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shlex
import signal
import socket
import stat
from dataclasses import dataclass, field
from typing import Any

from kyu.runtime.podman import entering
from kyu.runtime.sandbox import files, mounts
from kyu.runtime.sandbox.mounts import Mount, MountFailed
from kyu.runtime.sandbox.namespaces import Sandbox

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A command that was started in a container has this variable, so that it can be found.
COMMAND_MARK = "KYU_COMMAND"
LONGEST_NOTICE = 1024
LONGEST_LOG = 65536

# Nothing of the machine's own settings applies: a pod gets the same wherever it runs.
CONTAINERS_CONF = """[containers]
log_driver = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
tmp_dir = {tmp}
[engine.runtimes]
crun = [{crun}]
"""
CRUN_SCRIPT = "crun.sh"
# Podman does not always say where crun keeps the states of containers.
CRUN = """#!/bin/sh
exec crun --root={root} "$@"
"""
STORAGE_CONF = """[storage]
driver = "overlay"
graphroot = {storage}
runroot = {run}
[storage.options]
additionalimagestores = [{images}]
"""


@dataclass(slots=True)
class ContainerStart:
    """One start of a container: the socket that tells of it, and the processes that belong to it."""

    listener: socket.socket
    pid_file: str
    is_ready: bool = False
    monitor: int = 0

    def read(self) -> bool:
        """Read the messages of podman; return whether the container runs now, and did not before."""
        was_ready = self.is_ready
        with contextlib.suppress(BlockingIOError):
            while True:
                fields = dict(line.partition(b"=")[::2] for line in self.listener.recv(LONGEST_NOTICE).split(b"\n"))
                self.is_ready = self.is_ready or fields.get(b"READY") == b"1"
                self.monitor = int(fields.get(b"MAINPID", self.monitor))
        return self.is_ready and not was_ready

    def signal(self, which: signal.Signals) -> bool:
        """Signal the program of the container; return False if podman has not started it, which is signalled then."""
        pid = self.find_pid() if self.is_ready or which == signal.SIGKILL else None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)
        return self.is_ready and pid is not None

    def end(self, poll: select.poll) -> bool:
        """End what is left of the container, whose podman has ended; return whether it had started."""
        self.read()
        poll.unregister(self.listener)
        self.listener.close()
        # The monitor would only tidy up what is removed with the pod.
        for pid in filter(None, (self.find_pid(), self.monitor)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return self.is_ready

    def find_pid(self) -> int | None:
        """Return the process of the container's program, as the pod counts its processes."""
        try:
            with open(self.pid_file) as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):
            return None


@dataclass(slots=True)
class Engine:
    """The engine of a pod. ``folder`` is the path by which podman finds its files."""

    folder: str
    # The mounts that are in place, by container.
    sources: dict[str, list[str]] = field(default_factory=dict)
    commands: int = 0
    # The CPU time that podman itself has used, and the size of the largest other process.
    podman_seconds: float = 0.0
    largest_kilobytes: int = 0

    @classmethod
    def open(cls, sandbox: Sandbox) -> Engine:
        """Write the settings of podman, in the namespaces of the pod."""
        folder = entering.PLACE
        images = os.path.join(folder, entering.IMAGES) if sandbox.user is not None else sandbox.images
        # A string of TOML is one of JSON.
        words = {name: json.dumps(f"{folder}/{name}") for name in ("tmp", "storage", "run")}
        words |= {"images": json.dumps(images), "crun": json.dumps(f"{folder}/{CRUN_SCRIPT}")}
        words["root"] = shlex.quote(f"{folder}/crun")
        for name, text in (("containers.conf", CONTAINERS_CONF), ("storage.conf", STORAGE_CONF), (CRUN_SCRIPT, CRUN)):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text.format(**words))
                os.fchmod(file.fileno(), 0o700)
        return cls(folder)

    # Command lines

    def run(self, plan: dict[str, Any], number: int) -> tuple[ContainerStart, dict[str, Any]]:
        """Return a start of the container, and the plan of the process that stands for it."""
        wanted, name = plan["podman"], container_name(plan, number)
        words = ["run", f"--name={name}", "--pull=never", "--sdnotify=conmon", f"--pidfile={self.pid_file(name)}"]
        words += ["--cgroups=disabled", "--network=host", "--ulimit=host", *wanted["options"]]
        for mount, source in zip(plan["mounts"], self.bind(plan), strict=True):
            words += [f"--volume={source}:{mount['target']}:{'ro' if mount['read_only'] else 'rw'}"]
        more = self.write_environment(name, plan["env"])
        words += [f"--env-file={self.path(f'{name}.env')}", *(f"--env={each}" for each in more)]
        start = ContainerStart(listen(ready(name)), self.pid_file(name))
        words += [wanted["image"], *wanted["arguments"]]
        return start, self.process(plan, words, more | {"NOTIFY_SOCKET": ready(name)})

    def command(self, plan: dict[str, Any], number: int, argv: list[str], *, is_terminal: bool) -> dict[str, Any]:
        """Return the plan of the process that stands for a command in a container that runs."""
        self.commands += 1
        mark = f"{COMMAND_MARK}={self.commands}"
        words = ["exec", "--interactive", f"--env={mark}", *(["--tty", "--env=TERM=xterm"] if is_terminal else [])]
        return {**self.process(plan, [*words, container_name(plan, number), *argv], {}), "mark": mark}

    def process(self, plan: dict[str, Any], words: list[str], environment: dict[str, str]) -> dict[str, Any]:
        own = {
            "PATH": PATH,
            "HOME": self.folder,
            "XDG_RUNTIME_DIR": self.folder,
            "TMPDIR": self.folder,
            "CONTAINERS_CONF": self.path("containers.conf"),
            "CONTAINERS_STORAGE_CONF": self.path("storage.conf"),
        }
        return {**plan, "argv": ["podman", *words], "env": environment | own, "workingDir": self.folder, "mounts": []}

    def write_environment(self, name: str, environment: dict[str, str]) -> dict[str, str]:
        """Write the variables of a container to a file: a list of processes would show them to all users.

        Return those of several lines, which such a file cannot have.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self.path(f"{name}.env"), flags, 0o600), "w") as file:
            file.writelines(f"{key}={value}\n" for key, value in environment.items() if "\n" not in value)
        return {key: value for key, value in environment.items() if "\n" in value}

    # Volumes

    def bind(self, plan: dict[str, Any]) -> list[str]:
        """Mount the sources of the volumes in the folder of the engine, opened with the rights of the pod's user.

        So podman is given no path that a container can change.
        """
        name = plan["name"]
        if name not in self.sources:
            wanted = [Mount(**mount) for mount in plan["mounts"]]
            places = [self.path(f"mounts.{name}.{position}") for position in range(len(wanted))]
            self.sources[name] = [bind_source(mount, place) for mount, place in zip(wanted, places, strict=True)]
        return self.sources[name]

    def count(self, used: resource.struct_rusage, *, is_podman: bool) -> None:
        """Count what a process has used that has ended."""
        if is_podman:
            self.podman_seconds += used.ru_utime + used.ru_stime
        else:
            self.largest_kilobytes = max(self.largest_kilobytes, used.ru_maxrss)

    def pid_file(self, name: str) -> str:
        return self.path(f"{name}.pid")

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def container_name(plan: dict[str, Any], number: int) -> str:
    return f"{plan['name']}.{number}"


def ready(name: str) -> str:
    """Return the path of the socket by which podman tells that the container runs.

    It lies in the shared memory that the pod has for itself: the path of a socket must be short.
    """
    return f"{entering.SHARED_MEMORY}/{name}"


def listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    listener.bind(path)
    listener.setblocking(False)
    return listener


def bind_source(mount: Mount, place: str) -> str:
    """Mount a volume, or the part of it that is meant, on a new file or folder."""
    source = mounts.open_source(mount)
    try:
        if stat.S_ISDIR(os.fstat(source).st_mode):
            os.mkdir(place, 0o700)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        mounts.bind(source, place, read_only=mount.read_only)
    except OSError as error:
        raise MountFailed(f"mountPath {mount.target}: {error.strerror or error}") from error
    finally:
        os.close(source)
    return place


def signal_marked(mark: str, which: signal.Signals) -> None:
    """Signal the processes of a command in a container: podman ends without them."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
            if mark.encode() in file.read().split(b"\0"):
                os.kill(int(entry), which)


def why_failed(log: str) -> str:
    """Return podman's own words from the log of a container that never ran."""
    try:
        with open(files.open_regular(log), errors="replace") as file:
            lines = [line.split(" ", 3)[-1].strip() for line in file.read(LONGEST_LOG).splitlines()]
    except OSError:
        lines = []
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return (errors or lines or ["podman did not start the container"])[-1]
