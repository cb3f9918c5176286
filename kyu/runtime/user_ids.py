"""
The user ids of tenants: a range of the machine for each server, and a number of that range for each namespace.

Ranges are registered in one file of the machine, so two servers never give the same number to different tenants. They
lie above the numbers that distributions, containers and systemd use. A namespace keeps its number for ever: files that
outlive a pod keep their owner.

Called by: processes.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Any

from kyu.runtime import records

USERS = "users.json"
# The folder of the ranges of namespaces, for the users that their images have.
BLOCKS = "user-ranges"
REGISTRY = "/var/lib/kyu-user-ids.json"
SUBORDINATE = "/etc/subuid"
# The part of the numbers that systemd's documentation lists as unused: 0x70000000 to 0x7FFDFFFF.
FIRST = 0x70000000
END = 0x7FFE0000
RANGE_SIZE = 0x10000


class NoUserIds(Exception):
    """No numbers can be had for the tenants of this server."""


class UserIds:
    """The user id of each namespace of one server."""

    def __init__(self, folder: str, registry: str = REGISTRY) -> None:
        self._path = os.path.join(folder, USERS)
        self._blocks = os.path.join(folder, BLOCKS)
        self._registry = registry
        known = records.find(self._path) or {}
        first = claim_range(registry, self._path, known.get("first"))
        if first != known.get("first"):
            known = {"first": first, "namespaces": {}}
            records.write(self._path, known, durable=True)
        self.first: int = first
        self._user_by_namespace: dict[str, int] = known["namespaces"]

    def user(self, namespace: str) -> int:
        if namespace not in self._user_by_namespace:
            if len(self._user_by_namespace) + 1 >= RANGE_SIZE:
                raise NoUserIds(f"all {RANGE_SIZE} user ids of this server are in use")
            # The first number of the range is for trials.
            number = self.first + 1 + len(self._user_by_namespace)
            document = {"first": self.first, "namespaces": self._user_by_namespace | {namespace: number}}
            records.write(self._path, document, durable=True)
            self._user_by_namespace[namespace] = number
        return self._user_by_namespace[namespace]

    def block(self, namespace: str) -> int:
        """Return the first number of a range for the users of images, which the namespace alone has."""
        os.makedirs(self._blocks, mode=0o700, exist_ok=True)
        path = os.path.join(self._blocks, f"{namespace}.json")
        known = (records.find(path) or {}).get("first")
        if known is None:
            # The file is there before the range: ranges of missing files are free for others.
            records.write(path, {}, durable=True)
        first = claim_range(self._registry, path, known)
        if first != known:
            records.write(path, {"first": first}, durable=True)
        return first


def claim_range(registry: str, owner: str, known: int | None) -> int:
    """Return the first number of the range that belongs to the owner, a file's path; register one if it has none."""
    check_mapped()
    with locked(registry):
        document = records.find(registry) or {"next": FIRST, "ranges": {}}
        ranges: dict[str, str] = document["ranges"]
        if known is not None and ranges.get(str(known)) == owner:
            return known
        first = free_range(document)
        ranges[str(first)] = owner
        document["next"] = first + RANGE_SIZE
        records.write(registry, document, durable=True)
        return first


def free_range(document: dict[str, Any]) -> int:
    """Return the next range. Those of servers whose folder is gone come last, since files of them may be left."""
    ranges: dict[str, str] = document["ranges"]
    count = (END - FIRST) // RANGE_SIZE
    begin = (int(document["next"]) - FIRST) // RANGE_SIZE
    for step in range(count):
        first = FIRST + (begin + step) % count * RANGE_SIZE
        owner = ranges.get(str(first))
        if (owner is None or not os.path.exists(owner)) and not is_delegated(first):
            return first
    raise NoUserIds(f"all ranges of user ids are registered in {REGISTRY}")


def is_delegated(first: int, path: str = SUBORDINATE) -> bool:
    """Return whether the administrator has given a part of the range to a user, for containers."""
    with contextlib.suppress(FileNotFoundError), open(path) as file:
        for line in file:
            words = line.strip().split(":")
            if len(words) == 3 and words[1].isdigit() and words[2].isdigit():
                start, count = int(words[1]), int(words[2])
                if start < first + RANGE_SIZE and first < start + count:
                    return True
    return False


def check_mapped() -> None:
    """Refuse where this machine is a container that has not all numbers."""
    with open("/proc/self/uid_map") as file:
        for line in file:
            inside, _, count = map(int, line.split())
            if inside <= FIRST and inside + count >= END:
                return
    raise NoUserIds(f"the user ids from {FIRST} on do not exist in this container")


@contextlib.contextmanager
def locked(registry: str) -> Iterator[None]:
    """Hold the registry for this process alone."""
    os.makedirs(os.path.dirname(registry), mode=0o700, exist_ok=True)
    descriptor = os.open(f"{registry}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
