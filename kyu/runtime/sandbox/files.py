"""
Files and folders in places that a tenant can change: opened without following links, removed without being led astray.

A path is walked folder by folder, each opened beneath the one before and never through a symbolic link. So the walk
ends beneath its root or fails, whatever the tenant exchanges meanwhile.

Called by: mounts.py, records.py, supervisor.py, processes.py, logs.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat

# Limits of the kernel.
LONGEST_PATH = 4095
LONGEST_NAME = 255


def why_not_a_path(path: str) -> str | None:
    """Return why no file can have this path, or None."""
    if "\0" in path:
        return "it has a NUL character"
    try:
        parts = os.fsencode(path).split(b"/")
    except UnicodeEncodeError:
        return "it is no text"
    if sum(map(len, parts)) + len(parts) > LONGEST_PATH:
        return f"it is longer than {LONGEST_PATH} bytes"
    if any(len(part) > LONGEST_NAME for part in parts):
        return f"one of its names is longer than {LONGEST_NAME} bytes"
    return None


def open_beneath(root: int, path: str, *, make_folders: bool = False) -> int:
    """Return a descriptor of what the path names beneath the root. Links and ``..`` are refused."""
    descriptor = os.dup(root)
    for part in (part for part in path.split("/") if part not in ("", ".")):
        try:
            following = open_entry(descriptor, part, make_folders=make_folders)
        finally:
            os.close(descriptor)
        descriptor = following
    return descriptor


def open_entry(folder: int, name: str, *, make_folders: bool) -> int:
    if name == "..":
        raise OSError(errno.EXDEV, "the path leaves its volume")
    if make_folders:
        with contextlib.suppress(FileExistsError, NotADirectoryError):
            os.mkdir(name, 0o755, dir_fd=folder)
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, f"{name} is a symbolic link, and links are not followed here")
    return descriptor


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file. A pipe or a device in its place cannot make the caller wait; a link is not followed."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path} is no regular file")
    return descriptor


def open_owned(folder: int, name: str) -> int:
    """Open a regular file for reading, if it belongs to the owner of its folder: no link leads to another's file."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.fstat(folder).st_uid:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{name} is no regular file of the owner of its folder")
    return descriptor


def remove_tree(path: str) -> None:
    """Remove a folder with all in it, however deep it is.

    A folder below the first level is moved up to it before it is emptied. So the path never gets long, two descriptors
    are enough, and no step depends on how deep a tenant has nested folders.
    """
    numbers = itertools.count()
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        open_up(top)
        pending = os.listdir(top)
        while pending:
            name = pending.pop()
            if is_folder(top, name):
                pending += empty_folder(top, name, numbers)
                os.rmdir(name, dir_fd=top)
            else:
                os.unlink(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def is_folder(folder: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def empty_folder(top: int, name: str, numbers: itertools.count[int]) -> list[str]:
    """Remove the files of a folder, and move its folders up. Return their new names."""
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=top)
    try:
        open_up(place)
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)
    moved = []
    try:
        for entry in os.listdir(folder):
            if not is_folder(folder, entry):
                os.unlink(entry, dir_fd=folder)
                continue
            # A folder of another name may be there already: names of tenants can be anything.
            while os.path.lexists(f"/proc/self/fd/{top}/{(new := f'.removed.{next(numbers)}')}"):
                pass
            make_movable(folder, entry)
            os.rename(entry, new, src_dir_fd=folder, dst_dir_fd=top)
            moved.append(new)
    finally:
        os.close(folder)
    return moved


def make_movable(folder: int, name: str) -> None:
    """Let its owner move a folder: that changes its entry for the parent."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        open_up(descriptor)
    finally:
        os.close(descriptor)


def open_up(descriptor: int) -> None:
    """Let the owner of a folder list and change it, whatever its mode was."""
    if os.fstat(descriptor).st_mode & 0o700 != 0o700:
        os.chmod(f"/proc/self/fd/{descriptor}", 0o700)
