"""
Gives a container its volumes at their real mount paths, in a mount namespace of its own.

A mount needs a place to be mounted on. Where the path exists on the machine, the volume covers it. Where it does not,
the deepest folder that exists is covered by an empty file system in which its old entries are bound again, and the
missing folders are made there: the machine itself is never changed. Root needs only a mount namespace; others get a
user namespace in which they keep their own uid.

Called by: spawn.py, in the child between fork and exec. Linux only; standard library only.
"""

from __future__ import annotations

import ctypes
import os
import stat
import tempfile
from dataclasses import dataclass, field

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 1024, 2048, 4096, 16384, 1 << 18, 1 << 21
# Flags of a mount that only its owner may clear; a remount must repeat them.
KEPT_FLAGS = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME | MS_RELATIME
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Mirroring a folder binds each of its entries; above this it would take too long to be useful.
MOST_ENTRIES = 2000

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    read_only: bool = False


class MountFailed(Exception):
    """The mount path cannot be provided. The message names the path and the cause."""


def enter(mounts: list[Mount], scratch: str) -> None:
    """
    Move this process to its own mount namespace, with the volumes in place. Outer mount paths come first.

    The scratch folder is empty and of no use to the container: a new root can be mounted on it.
    """
    enter_namespaces()
    ordered = sorted(mounts, key=lambda mount: mount.target.count("/"))
    # All sources are opened before anything is covered: a volume's folder may lie below another's mount path.
    sources = [(mount, _open(mount)) for mount in ordered]
    covers = Covers(scratch)
    for mount, source in sources:
        try:
            is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
            target = covers.ensure_target(os.path.normpath(mount.target), is_folder=is_folder)
            _mount(f"/proc/self/fd/{source}", target, "", MS_BIND | MS_REC)
            if mount.read_only:
                flags = os.statvfs(target).f_flag & KEPT_FLAGS
                _mount("", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
            else:
                covers.writable.append(target)
        except OSError as error:
            raise MountFailed(f"mountPath {mount.target}: {error.strerror or error}") from error
        finally:
            os.close(source)


def _open(mount: Mount) -> int:
    try:
        return os.open(mount.source, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise MountFailed(f"mountPath {mount.target}: {mount.source}: {error.strerror}") from error


def enter_namespaces() -> None:
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        _unshare(CLONE_NEWNS)
    else:
        _unshare(CLONE_NEWUSER | CLONE_NEWNS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    # What is mounted from here on stays here.
    _mount("", "/", "", MS_REC | MS_PRIVATE)


@dataclass(slots=True)
class Covers:
    """The empty file systems that were mounted to make room for mount paths; folders may be made in them freely."""

    scratch: str
    devices: set[int] = field(default_factory=set)
    # Mount paths of volumes that are writable: what is mounted below them has its place in the volume itself.
    writable: list[str] = field(default_factory=list)

    def ensure_target(self, target: str, *, is_folder: bool) -> str:
        """The place to mount on, made if it is missing."""
        if target == "/":
            raise MountFailed("mountPath /: the root folder cannot be a volume")
        existing = deepest_existing(target)
        if os.path.lexists(target):
            if os.path.isdir(target) != is_folder:
                raise MountFailed(f"mountPath {target}: a {'file' if is_folder else 'folder'} is in the way")
            return target
        if os.stat(existing).st_dev not in self.devices and not self.is_in_volume(existing):
            self.mirror(existing)
        os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
        if not is_folder:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        return target

    def is_in_volume(self, path: str) -> bool:
        return any(path == target or path.startswith(f"{target}/") for target in self.writable)

    def mirror(self, folder: str) -> None:
        """Cover the folder by an empty file system with all its entries bound in it, so that more can be added."""
        entries = os.listdir(folder)
        if len(entries) > MOST_ENTRIES:
            raise MountFailed(f"mountPath below {folder}: that folder has {len(entries)} entries, too many to mirror")
        original = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            cover = self.scratch if folder == "/" else folder
            _mount("tmpfs", cover, "tmpfs", MS_NOSUID, "mode=755")
            self.devices.add(os.stat(cover).st_dev)
            for entry in entries:
                bind_entry(original, entry, os.path.join(cover, entry))
            if folder == "/":
                os.chroot(cover)
                os.chdir("/")
        finally:
            os.close(original)


def deepest_existing(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.path.realpath(path)


def bind_entry(folder: int, entry: str, target: str) -> None:
    mode = os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(entry, dir_fd=folder), target)
        return
    if stat.S_ISDIR(mode):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    descriptor = os.open(entry, os.O_PATH | os.O_CLOEXEC, dir_fd=folder)
    try:
        _mount(f"/proc/self/fd/{descriptor}", target, "", MS_BIND | MS_REC)
    finally:
        os.close(descriptor)


def why_not_permitted() -> str:
    """Try in a child. Empty if mounts work here, else the reason."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            enter_namespaces()
            _mount("tmpfs", tempfile.gettempdir(), "tmpfs", 0)
        except OSError as error:
            os.write(writer, str(error.strerror).encode())
        finally:
            os._exit(0)
    os.close(writer)
    reason = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(child, 0)
    return reason


def become_subreaper() -> None:
    """Orphans of this process's descendants become its children, so that none is lost."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(signal_number: int) -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        _fail()


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    encoded = [word.encode() if word else None for word in (source, target, kind)]
    if _libc.mount(*encoded, ctypes.c_ulong(flags), data.encode() if data else None) != 0:
        _fail()


def _fail() -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
