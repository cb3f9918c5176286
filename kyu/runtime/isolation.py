"""
How far pods of different users are kept apart on this machine.

As root, each namespace can have a user id of its own: its pods cannot read or signal those of others, nor Kyu's files.
Without root all pods are the user that runs Kyu, and share all that this user may do.

Called by: processes.py (which user?), embedded.py (may a second user be let in?).
"""

from __future__ import annotations

import os
from typing import Literal

from kyu.runtime import records
from kyu.runtime.podplan import Options

USERS = "users.json"

Level = Literal["UserPerNamespace", "None"]


def isolation_level(options: Options) -> Level:
    """What these options give on this machine. With ``None``, every user of Kyu must trust every other."""
    return "UserPerNamespace" if options.user_per_namespace and os.geteuid() == 0 else "None"


def find_barrier(folder: str) -> str | None:
    """The first folder above that other users cannot pass through: their pods would not reach their own files."""
    path = os.path.abspath(folder)
    while path != "/":
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & 0o001:
            return path
    return None


class Users:
    """The user id of each namespace, the same for ever: files that outlive a pod keep their owner."""

    def __init__(self, folder: str, first: int) -> None:
        self._path = os.path.join(folder, USERS)
        self._first = first
        self._user_by_namespace: dict[str, int] = records.find(self._path) or {}

    def user(self, namespace: str) -> int:
        if namespace not in self._user_by_namespace:
            self._user_by_namespace[namespace] = self._first + len(self._user_by_namespace)
            records.write(self._path, self._user_by_namespace, durable=True)
        return self._user_by_namespace[namespace]
