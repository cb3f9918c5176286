"""
A loopback address of its own for each control plane.

Linux answers on all of 127.0.0.0/8, so control plane *n* takes 127.64.n.1 and every part has a fixed port there: no
two can want the same one, and none has to guess a free one. A claim is a lock on a small file, which the kernel
releases when the process that holds it is gone. The ports are the usual ones plus 20000, because a cluster that the
machine's owner runs may hold the usual ones on every address.

Called by: controlplane.py.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

NUMBERS = range(1, 255)
API_PORT = 26443
ETCD_PORT = 22379
ETCD_PEER_PORT = 22380
CONTROLLER_MANAGER_PORT = 30257
SCHEDULER_PORT = 30259
KWOK_PORT = 30247
KUEUE_HEALTH_PORT = 28081
KUEUE_WEBHOOK_PORT = 29443
KUEUE_METRICS_PORT = 28443
KUEUE_VISIBILITY_PORT = 28082
KYU_WEBHOOK_PORT = 29543
KYU_HEALTH_PORT = 28181
KYU_METRICS_PORT = 28543
KYU_VISIBILITY_PORT = 28282
YUNIKORN_PORT = 29080


class NoAddress(Exception):
    """Every address is taken."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An address that is ours until the file is closed."""

    address: str
    file: IO[str]

    def release(self) -> None:
        self.file.close()


def claim() -> Claim:
    folder = Path(tempfile.gettempdir()) / f"kyu-control-plane-addresses-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for number in NUMBERS:
        address = f"127.64.{number}.1"
        claimed = Claim(address, (folder / address).open("w"))
        if take(claimed.file) and is_free(address):
            return claimed
        claimed.release()
    raise NoAddress(f"all {len(NUMBERS)} loopback addresses are taken: see {folder}")


def take(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_free(address: str) -> bool:
    """Whether no API server listens there: one of another user or container does not hold our lock."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, API_PORT))
        except OSError:
            return False
    return True
