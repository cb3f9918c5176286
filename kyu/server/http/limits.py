"""
The bounds of the HTTP server, and the accounts that hold them: connections, and bytes of bodies in memory.

A connection belongs to its address until a request on it carries a valid token, and to that user from then on. Each
owner has a bound of its own, so that a flood of one caller takes nothing from the others.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

MEGABYTE = 1024 * 1024
# Descriptors for the database, for logs, and for pods.
RESERVED_DESCRIPTORS = 256
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The bounds of one server: counts, bytes and seconds.

    ``guests``: connections without a valid token, in all and from one address. ``users``: those with one, in all and of
    one user. ``body_bytes``: bytes of request bodies in memory, in all, of one user, and of one address without a user.
    ``answer_bytes``: the same for answers that are not sent yet.

    ``head_seconds`` and ``body_seconds``: from the first byte of a request to the last of its head and of its body.
    ``write_seconds``: how long a client may take nothing of an answer. ``idle_seconds``: between two requests; longer
    than the usual clients keep an idle connection, so that they close first and never write to a closed one.
    ``tunnel_idle_seconds``: an interactive stream without any bytes (the kubelet's number).
    """

    guests: int = 512
    guests_per_address: int = 256
    users: int = 2048
    connections_per_user: int = 256
    body_bytes: int = 192 * MEGABYTE
    body_bytes_per_user: int = 24 * MEGABYTE
    body_bytes_per_address: int = MEGABYTE
    answer_bytes: int = 256 * MEGABYTE
    answer_bytes_per_user: int = 32 * MEGABYTE
    handshake_seconds: float = 10.0
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    write_seconds: float = 30.0
    idle_seconds: float = 120.0
    guest_idle_seconds: float = 10.0
    tunnel_idle_seconds: float = 4 * 3600.0


def limits_within(descriptors: int) -> ConnectionLimits:
    """Return the usual limits, or smaller ones for a process that may not open so many files."""
    usual = ConnectionLimits()
    free = max(descriptors - RESERVED_DESCRIPTORS, RESERVED_DESCRIPTORS)
    guests = min(usual.guests, free // 4)
    return replace(usual, guests=guests, users=min(usual.users, free - guests))


class Members(Generic[Entry]):
    """Entries by owner, oldest first, with a bound for each owner and one for all.

    ``join`` returns the entry that has to go so that the bounds hold: the oldest of the owner, or of the largest owner.
    """

    def __init__(self, in_all: int, per_owner: int) -> None:
        self._in_all = in_all
        self._per_owner = per_owner
        self._by_owner: dict[str, dict[Entry, None]] = {}
        self.count = 0

    def join(self, owner: str, entry: Entry) -> Entry | None:
        own = self._by_owner.setdefault(owner, {})
        own[entry] = None
        self.count += 1
        if len(own) > self._per_owner:
            return next(iter(own))
        if self.count > self._in_all:
            largest: dict[Entry, None] = max(self._by_owner.values(), key=len)
            return next(iter(largest))
        return None

    def leave(self, owner: str, entry: Entry) -> None:
        own = self._by_owner.get(owner)
        if own is not None and entry in own:
            del own[entry]
            self.count -= 1
            if not own:
                del self._by_owner[owner]

    def is_full_for(self, owner: str) -> bool:
        """Return whether one more entry of the owner would break a bound."""
        return self.count >= self._in_all or len(self._by_owner.get(owner, ())) >= self._per_owner

    def of(self, owner: str) -> list[Entry]:
        return list(self._by_owner.get(owner, ()))


class ByteAccount:
    """Bytes in memory by owner, with a bound in all."""

    def __init__(self, in_all: int) -> None:
        self._in_all = in_all
        self._by_owner: dict[str, int] = {}
        self.count = 0

    def take(self, owner: str, size: int, most: int) -> bool:
        """Count the bytes for the owner, which may have ``most``; return False if a bound is reached."""
        taken = self._by_owner.get(owner, 0) + size
        if taken > most or self.count + size > self._in_all:
            return False
        self._by_owner[owner] = taken
        self.count += size
        return True

    def give(self, owner: str, size: int) -> None:
        left = self._by_owner.get(owner, 0) - size
        self.count -= size
        if left > 0:
            self._by_owner[owner] = left
        else:
            self._by_owner.pop(owner, None)


@lru_cache(maxsize=4096)
def network_of(host: str) -> str:
    """Return the address that counts as one caller: a network of IPv6 is given to one customer, so /64 is one."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
