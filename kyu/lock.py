"""A lock on a folder that ends with its process, even after a crash."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Locked(Exception):
    """Another process holds the lock."""

    def __init__(self, path: Path, holder: int | None) -> None:
        super().__init__(f"{path.parent} is in use by process {holder or 'unknown'}")
        self.holder = holder


class Lock:
    """A lock that is held until ``release`` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise Locked(path, holder(path)) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder(path: Path) -> int | None:
    """Return the process that took the lock last; it holds the lock if ``is_locked``."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
