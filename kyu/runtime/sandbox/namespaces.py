"""
The namespaces of a pod. The supervisor of the pod is its first process, and all containers are its children in them.

The launcher forks the supervisor into new namespaces. There it drops to the pod's user before it does anything that
depends on the pod. When the supervisor ends, by whatever cause, the kernel ends every process of the pod, and only
then is the supervisor gone. From inside, it can be neither killed nor looked into.

    launcher (the server's user) ── supervisor (the pod's user, process 1 of the pod) ─┬─ container
                                                                                       └─ container …

Called by: launcher.py, supervisor.py, spawn.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import resource
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kyu.runtime.sandbox import kernel, seccomp

# The parts of a pod's folder that its containers see, and the one that tenants see as /tmp.
HOME, VOLUMES, SCRATCH = "home", "volumes", "scratch"
TEMPORARY = "tmp"
# The files of the engine that runs the pod's containers, where they come from images.
ENGINE = "engine"
# Files of the pod's folder that tenants see in /etc.
ACCOUNTS = ("passwd", "group")
MACHINE = platform.machine()
# The user and group of the launcher. A supervisor in a new user namespace has no number until it is mapped.
LAUNCHER = os.getuid(), os.getgid()
# The capabilities that mounts and a loopback interface need, where a user namespace does not give them.
MOUNTING = 1 << kernel.CAP_SYS_ADMIN | 1 << kernel.CAP_SYS_CHROOT | 1 << kernel.CAP_NET_ADMIN
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
PRIVATE_FOLDERS = ("/tmp", "/var/tmp", "/run/lock", "/var/crash", "/dev/mqueue")
# A tenant's processes and threads, in all pods of a namespace together.
MOST_PROCESSES = 16384
# In a folder in memory there may be a file for each of so many bytes, but so many in any case.
BYTES_PER_FILE, LEAST_FILES = 4096, 1024
# Process numbers of the machine. A new process namespace may have another limit, so this is read before the fork.
PROCESS_NUMBERS = int(Path("/proc/sys/kernel/pid_max").read_text()) if sys.platform == "linux" else MOST_PROCESSES


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How a pod is kept apart. A part of the pod's plan.

    ``user``: the user of its processes; None for the user that runs Kyu. ``group``: their group, of the number of the
    user if None; ``groups``: their other groups. ``namespaces``: whether it has process, mount and IPC namespaces.
    ``user_namespace``: whether it has a user namespace, too. ``tenant``: whether calls into the kernel are filtered,
    and folders of the machine are hidden. ``network``: ``host`` for the machine's network, ``none`` for a loopback
    interface of its own. ``images``: the folder of the engine that runs the containers from images; empty if they are
    plain processes. ``uid_map`` and ``gid_map``: the numbers of its user namespace where that has more than one.
    """

    user: int | None = None
    namespaces: bool = False
    user_namespace: bool = False
    tenant: bool = False
    network: str = "host"
    group: int | None = None
    groups: tuple[int, ...] = ()
    images: str = ""
    uid_map: str = ""
    gid_map: str = ""

    @property
    def own_group(self) -> int | None:
        return self.user if self.group is None else self.group


@dataclass(frozen=True, slots=True)
class Memory:
    """The sizes of the pod's folders in memory: /dev/shm, and volumes by name."""

    shared_bytes: int = 64 * 1024 * 1024
    volumes: Mapping[str, int] = field(default_factory=dict)


class SandboxFailed(Exception):
    """The pod cannot be kept apart as planned, so it must not run."""


def flags(sandbox: Sandbox) -> int:
    """Return the namespaces that the supervisor is born in: those that it cannot make for itself.

    A tenant's user namespace comes later: the supervisor is no tenant yet.
    """
    if not sandbox.namespaces:
        return 0
    return kernel.CLONE_NEWPID | (kernel.CLONE_NEWUSER if sandbox.user_namespace and sandbox.user is None else 0)


def fork(namespaces: int) -> int:
    """Fork a supervisor. If the kernel refuses the namespaces, ``enter`` tells so in the child."""
    if not namespaces:
        return os.fork()
    try:
        return kernel.fork_into(namespaces, MACHINE)
    except (OSError, KeyError):
        return os.fork()


def enter(sandbox: Sandbox, folder: str, memory: Memory | None = None) -> None:
    """Become the pod's user in the pod's namespaces. The working directory is the pod's folder.

    All that runs as root here touches no path that a tenant can change.
    """
    try:
        kernel.leave_session_keyring(MACHINE)
        if sandbox.namespaces:
            if os.getpid() != 1:
                raise SandboxFailed("the system does not permit process, mount and IPC namespaces")
            if sandbox.user is None and sandbox.user_namespace:
                map_user(*LAUNCHER)
            make_namespaces(sandbox)
        if sandbox.user is not None:
            become_user(sandbox, sandbox.user)
        kernel.gain_no_privileges()
        if sandbox.network == "none":
            raise_loopback()
        memory = memory or Memory()
        if sandbox.tenant:
            hide_machine(folder, memory.shared_bytes)
        if sandbox.namespaces:
            for name, size in memory.volumes.items():
                mount_memory(os.path.join(folder, VOLUMES, name), size, "0700")
        if sandbox.user is not None and sandbox.user_namespace:
            user, group = os.getuid(), os.getgid()
            kernel.unshare(kernel.CLONE_NEWUSER)
            map_user(user, group)
        if sandbox.namespaces:
            # No container may look into this process: it is the one that ends the pod.
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    except OSError as error:
        raise SandboxFailed(str(error)) from error


def map_user(user: int, group: int) -> None:
    """Give the new user namespace the one user that it has."""
    # A process that changed its user may not write here. No process that could look into this one exists yet.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{user} {user} 1")
    write("/proc/self/gid_map", f"{group} {group} 1")
    kernel.drop_bounding_set()


def make_namespaces(sandbox: Sandbox) -> None:
    """Give the pod mounts, processes and shared memory of its own. Later mounts of the machine still appear in it."""
    network = kernel.CLONE_NEWNET if sandbox.network == "none" else 0
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | network)
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)


def become_user(sandbox: Sandbox, user: int) -> None:
    processes = most_processes()
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    # No core file is that small, and of all limits only this one keeps the kernel from running a crash handler.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL)
    if not sandbox.user_namespace:
        kernel.drop_bounding_set()
    if sandbox.namespaces:
        kernel.prctl(kernel.PR_SET_KEEPCAPS, 1)
    group = user if sandbox.group is None else sandbox.group
    os.setgroups(sandbox.groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    if user == 0 or {*os.getresuid()} != {user} or {*os.getresgid()} != {group}:
        # The kernel takes some numbers for "no change".
        raise SandboxFailed(f"{user} cannot be the user of a pod")
    kernel.set_capabilities(MOUNTING if sandbox.namespaces else 0)


def most_processes() -> int:
    """Return how many processes a tenant may have. A few tenants must not take all numbers of the machine."""
    return min(MOST_PROCESSES, PROCESS_NUMBERS // 8)


def mount_memory(path: str, size: int, mode: str) -> None:
    """Put an empty file system in memory on a folder. Empty files cost memory too, so their number is bounded."""
    options = f"mode={mode},size={size},nr_inodes={max(LEAST_FILES, size // BYTES_PER_FILE)}"
    kernel.mount("tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def hide_machine(folder: str, shared_bytes: int) -> None:
    """Give a tenant's pod temporary folders of its own, and hide the server's folders."""
    # Before Linux 5.12 there is no such call; set-uid bits have no effect on the pod's processes in any case.
    with contextlib.suppress(OSError):
        kernel.ignore_set_uid("/")
    temporary = os.open(TEMPORARY, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for path in PRIVATE_FOLDERS:
        if os.path.isdir(path):
            kernel.mount(f"/proc/self/fd/{temporary}", path, "", kernel.MS_BIND)
    if os.path.isdir("/dev/shm"):
        mount_memory("/dev/shm", shared_bytes, "1777")
    os.close(temporary)
    show_accounts()
    show_own_folder(folder)


def show_accounts() -> None:
    """Show the files in which the pod's user has a name."""
    for name in ACCOUNTS:
        if os.path.isfile(name) and os.path.isfile(f"/etc/{name}"):
            kernel.mount(name, f"/etc/{name}", "", kernel.MS_BIND)
            options = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
            kernel.mount("", f"/etc/{name}", "", options)


def show_own_folder(folder: str, names: Sequence[str] = (HOME, VOLUMES, SCRATCH)) -> None:
    """Hide the server's folders, and show those that are the pod's own in their place."""
    hidden = first_closed_folder(folder) or os.path.dirname(os.path.dirname(folder))
    is_there = os.path.isdir(hidden)
    if is_there:
        kernel.mount("tmpfs", hidden, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=64k")
    for name in names:
        if os.path.isdir(name):
            place = os.path.join(folder, name)
            os.makedirs(place, exist_ok=True)
            kernel.mount(name, place, "", kernel.MS_BIND)
    if is_there:
        options = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("", hidden, "", options)


def first_closed_folder(folder: str) -> str | None:
    """Return the first folder on the way that the pod's user cannot pass through."""
    path = ""
    for part in folder.strip("/").split("/"):
        path += f"/{part}"
        if os.path.isdir(path) and not os.access(path, os.X_OK):
            return path
    return None


def raise_loopback() -> None:
    """Set the loopback interface up: a new network namespace has it down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH22x", b"lo", 0)
        found = struct.unpack("16sH22x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", found | IFF_UP))


def drop_privileges(sandbox: Sandbox) -> None:
    """Give up what the mounts needed: from here on the process is the container's."""
    if sandbox.user is not None or os.getuid() != 0:
        kernel.set_capabilities(0)
    if sandbox.tenant and (program := seccomp.build_filter(MACHINE)) is not None:
        seccomp.install(program)


def load_nothing_more() -> None:
    """Let Python load no more code: the pod's user may change the folders that it would look in."""
    sys.meta_path.clear()


def close_descriptors(*keep: int) -> None:
    """Close all but the standard ones and these."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))


def why_not_permitted(sandbox: Sandbox, folder: str, enter: Callable[[Sandbox, str], None] = enter) -> str:
    """Try it in a child. Empty if such a sandbox can be made here, else the reason. The folder is that of a pod."""
    reader, writer = os.pipe()
    child = fork(flags(sandbox))
    if child == 0:
        reason = "the trial ended early"
        try:
            os.chdir(folder)
            enter(sandbox, folder)
            reason = ""
        except (SandboxFailed, OSError) as error:
            reason = str(error)
        finally:
            os.write(writer, reason.encode(errors="replace"))
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        reason = pipe.read().decode(errors="replace")
    os.waitpid(child, 0)
    return reason


def write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
