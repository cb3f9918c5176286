"""
Ends all pods of a folder without a Runtime: for ``kyu down --stop-jobs``, when Kyu itself has stopped already.

Each supervisor gets a stop request, as from Runtime, and is awaited. The records stay: the next Kyu reads how the pods
ended.

Called by: the command. Calls: records.py.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from kyu.runtime import records

# Beyond the grace period, for the last records to be written.
SPARE_SECONDS = 10.0


def stop_all(folder: str, grace_seconds: float) -> int:
    """End all pods and return their number. Raise TimeoutError if some live long after their grace period."""
    pods = os.path.join(folder, "pods")
    waiting: dict[int, str] = {}
    for uid in sorted(os.listdir(pods)) if os.path.isdir(pods) else ():
        descriptor = ask(os.path.join(pods, uid), grace_seconds)
        if descriptor is not None:
            waiting[descriptor] = uid
    count = len(waiting)
    try:
        wait(waiting, time.monotonic() + grace_seconds + SPARE_SECONDS)
    finally:
        for descriptor in waiting:
            os.close(descriptor)
    return count


def ask(folder: str, grace_seconds: float) -> int | None:
    """Return a descriptor that tells when the supervisor has gone; None if there is none."""
    claim = records.find(os.path.join(folder, records.CLAIM))
    if claim is None:
        return None
    process = records.Process(**claim)
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if not records.is_alive(process):
        os.close(descriptor)
        return None
    wish = {"requestedAt": time.time(), "graceSeconds": grace_seconds, "reason": "", "message": ""}
    records.write(os.path.join(folder, records.STOP), wish, mode=0o644)
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    return descriptor


def wait(waiting: dict[int, str], until: float) -> None:
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    while waiting:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{len(waiting)} pods have not ended: {', '.join(waiting.values())}")
        for descriptor, _ in poll.poll(left * 1000):
            poll.unregister(descriptor)
            os.close(descriptor)
            del waiting[descriptor]
