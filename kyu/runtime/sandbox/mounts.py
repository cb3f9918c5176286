"""
Gives a container its volumes at their mount paths, in a mount namespace of its own.

A mount needs a place to be mounted on. If the path exists on the machine, the volume covers it, except where that
would hide a part of the system. If it does not exist, the deepest folder that does is covered by an empty file system
with its old entries bound in it, and the missing folders are made there. The machine itself is never changed.

All of this runs as the pod's user, which can do no more here than change its own view of the machine.

Called by: spawn.py, in the child between fork and exec. Linux only; standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field

from kyu.runtime.sandbox import files, kernel
from kyu.runtime.sandbox.kernel import MS_BIND, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT, MS_SLAVE

# Flags of a mount that only its owner may clear; a remount must repeat them.
KEPT_FLAGS = (
    kernel.MS_NOSUID
    | kernel.MS_NODEV
    | kernel.MS_NOEXEC
    | kernel.MS_NOATIME
    | kernel.MS_NODIRATIME
    | kernel.MS_RELATIME
)
# Mirroring a folder binds each of its entries; above this it would take too long to be useful.
MOST_ENTRIES = 2000
# Programs read these to decide what to trust and what to run. Only the administrator lets a volume cover them.
SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin", "/sys",
    "/usr", "/var",
)  # fmt: skip
# Folders in the system's that belong to the programs that run.
NOT_SYSTEM = ("/dev/shm", "/var/tmp")
DEVICES = "/dev"
# Nothing can be made below these: the kernel fills them.
KERNEL = ("/proc", "/sys")


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume, or a part of it, at a path of the container.

    ``source``: the volume's folder, or a place of the machine. ``inner``: the part of it, a path beneath it.
    ``allowed``: for a place of the machine, the folders that it must lie in. ``is_optional``: without it, the container
    runs all the same.
    """

    source: str
    target: str
    read_only: bool = False
    inner: str = ""
    allowed: Sequence[str] | None = None
    is_optional: bool = False


class MountFailed(Exception):
    """The mount path cannot be provided. The message names the path and the cause."""


def enter(mounts: list[Mount], scratch: str, may_cover: Sequence[str] = ()) -> None:
    """
    Put the volumes in place, in the mount namespace of this process alone. Outer mount paths come first.

    The scratch folder is empty and of no use to the container: a new root can be mounted on it.
    """
    ordered = sorted(mounts, key=lambda mount: mount.target.count("/"))
    # All sources are opened before anything is covered: a volume's folder may lie below another's mount path.
    sources = [(mount, source) for mount in ordered if (source := _find_source(mount)) >= 0]
    covers = Covers(scratch, may_cover)
    for mount, source in sources:
        try:
            is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
            target = covers.ensure_target(os.path.normpath(mount.target), is_folder=is_folder)
            bind(source, target, read_only=mount.read_only)
            if not mount.read_only:
                covers.writable.append(target)
        except (OSError, MountFailed) as error:
            if mount.is_optional:
                continue
            if isinstance(error, MountFailed):
                raise
            raise MountFailed(f"mountPath {mount.target}: {error.strerror or error}") from error
        finally:
            os.close(source)
    covers.protect()


def _find_source(mount: Mount) -> int:
    """Open the source; return -1 if it is missing and may be."""
    try:
        return open_source(mount)
    except MountFailed:
        if mount.is_optional:
            return -1
        raise


def open_source(mount: Mount) -> int:
    """Open the volume, or the part of it, that is to be mounted."""
    root = -1
    try:
        root = os.open(mount.source, os.O_PATH | os.O_CLOEXEC)
        if mount.allowed is not None:
            _check_allowed(root, mount)
        return files.open_beneath(root, mount.inner, make_folders=mount.allowed is None or not mount.read_only)
    except OSError as error:
        where = mount.source if not mount.inner else f"subPath {mount.inner}"
        raise MountFailed(f"mountPath {mount.target}: {where}: {error.strerror}") from error
    finally:
        if root >= 0:
            os.close(root)


def _check_allowed(root: int, mount: Mount) -> None:
    real = os.readlink(f"/proc/self/fd/{root}")
    if not any(is_within(real, folder) for folder in mount.allowed or ()):
        raise MountFailed(f"mountPath {mount.target}: {real} is in none of the folders that hostPath may name")


def bind(source: int, target: str, *, read_only: bool) -> None:
    """Bind an open file or folder on a path of this mount namespace."""
    place = os.open(target, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        kernel.bind(source, place)
    finally:
        os.close(place)
    if not read_only:
        return
    place = os.open(target, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # A process of the pod may have put another folder in its place meanwhile.
        if not os.path.samestat(os.fstat(place), os.fstat(source)):
            raise OSError(errno.ESTALE, "the path has changed while it was mounted")
        flags = os.fstatvfs(place).f_flag & KEPT_FLAGS
        kernel.mount("", f"/proc/self/fd/{place}", "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
    finally:
        os.close(place)


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def enter_namespaces() -> None:
    """Make a mount namespace for this process, where its pod has none; others than root need a user namespace."""
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    kernel.mount("", "/", "", MS_REC | MS_SLAVE)


@dataclass(slots=True)
class Covers:
    """The empty file systems that were mounted to make room for mount paths; folders may be made in them freely."""

    scratch: str
    may_cover: Sequence[str] = ()
    devices: set[int] = field(default_factory=set)
    mirrored: list[str] = field(default_factory=list)
    # Mount paths of volumes that are writable: mounts below them have their place in the volume itself.
    writable: list[str] = field(default_factory=list)

    def ensure_target(self, target: str, *, is_folder: bool) -> str:
        """Return the real path of the place to mount on, made if it is missing."""
        if target == "/":
            raise MountFailed("mountPath /: the root folder cannot be a volume")
        real = os.path.realpath(target)
        if self.volume_of(target) != self.volume_of(real):
            raise MountFailed(f"mountPath {target}: a symbolic link in a volume is in the way")
        if os.path.lexists(real):
            if os.path.isdir(real) != is_folder:
                raise MountFailed(f"mountPath {target}: a {'file' if is_folder else 'folder'} is in the way")
            self.refuse_system(target, real)
            return real
        if any(is_within(real, folder) for folder in KERNEL):
            raise MountFailed(f"mountPath {target}: nothing can be mounted there")
        existing = deepest_existing(real)
        if os.stat(existing).st_dev not in self.devices and not self.volume_of(existing):
            self.mirror(existing)
        os.makedirs(real if is_folder else os.path.dirname(real), exist_ok=True)
        if not is_folder:
            os.close(os.open(real, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644))
        return real

    def refuse_system(self, target: str, real: str) -> None:
        if self.volume_of(real) or any(is_within(real, folder) for folder in (*NOT_SYSTEM, *self.may_cover)):
            return
        if any(is_within(real, folder) for folder in SYSTEM) and os.stat(real).st_dev not in self.devices:
            raise MountFailed(
                f"mountPath {target}: a volume may not cover {real}, which belongs to the system; "
                f"`kyu up --mount-over {real}` permits it"
            )

    def volume_of(self, path: str) -> str:
        """Return the mount path of the writable volume that the path lies in; empty if it lies in none."""
        return next((target for target in reversed(self.writable) if is_within(path, target)), "")

    def mirror(self, folder: str) -> None:
        """Cover the folder by an empty file system with all its entries bound in it, so that more can be added."""
        entries = os.listdir(folder)
        if folder == DEVICES:
            # Most are terminals and disks that only root may open, and each one costs two calls and a mount..
            entries = [entry for entry in entries if is_usable(os.path.join(folder, entry))]
        if len(entries) > MOST_ENTRIES:
            raise MountFailed(f"mountPath below {folder}: that folder has {len(entries)} entries, too many to mirror")
        original = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            cover = self.scratch if folder == "/" else folder
            kernel.mount("tmpfs", cover, "tmpfs", MS_NOSUID, "mode=755")
            self.devices.add(os.stat(cover).st_dev)
            for entry in entries:
                bind_entry(original, entry, os.path.join(cover, entry))
            if folder == "/":
                os.chroot(cover)
                os.chdir("/")
            self.mirrored.append(folder)
        finally:
            os.close(original)

    def protect(self) -> None:
        """Let no file be added to the mirrored folders: they stand for folders of the system."""
        for folder in self.mirrored:
            flags = os.statvfs(folder).f_flag & KEPT_FLAGS
            kernel.mount("", folder, "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def deepest_existing(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.path.realpath(path)


def is_usable(path: str) -> bool:
    """Return whether the user can read or write here."""
    return os.path.islink(path) or os.access(path, os.R_OK) or os.access(path, os.W_OK)


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
        kernel.mount(f"/proc/self/fd/{descriptor}", target, "", MS_BIND | MS_REC)
    finally:
        os.close(descriptor)


def why_not_permitted() -> str:
    """Try it in a child. Empty if mounts work here, else the reason."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            enter_namespaces()
            kernel.mount("tmpfs", tempfile.gettempdir(), "tmpfs", 0)
        except OSError as error:
            os.write(writer, str(error.strerror).encode())
        finally:
            os._exit(0)
    os.close(writer)
    reason = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(child, 0)
    return reason


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
