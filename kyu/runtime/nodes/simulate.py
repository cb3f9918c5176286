"""
Pods that only pretend to run: they take the time that an annotation says, and end with the exit code that it says.

The same interface as processes.py, so the rest of Kyu cannot tell the difference, and thousands of pods cost nothing
but their timers. Time comes from a clock. A pod that was running before Kyu was restarted goes on from its start time.

Called by: agent.py, through PodRuntime, for simulated nodes. Calls: status.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from kyu.api.meta import Json
from kyu.runtime import records, status
from kyu.runtime.environment import SettingsSource
from kyu.runtime.identity.service_account import NO_ACCESS, ServerAccess

RUN_SECONDS = "kyu.dev/run-seconds"
EXIT_CODE = "kyu.dev/exit-code"
# A pod without the annotation has to end some time, or nothing that is tried ever finishes.
DEFAULT_RUN_SECONDS = 60.0
TERMINATED_EXIT_CODE = 143

OnStatus = Callable[[Json, Json], None]


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def call_at(self, at: float, callback: Callable[[], None]) -> None: ...


class RealClock:
    def now(self) -> float:
        return time.time()

    def call_at(self, at: float, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(max(0.0, at - time.time()), callback)


@dataclass(slots=True)
class SimulatedPod:
    pod: Json
    started_at: float
    status: Json = field(default_factory=dict)
    over: bool = False


class SimulatedRuntime:
    """All pods of all simulated nodes."""

    def __init__(self, clock: Clock, on_status: OnStatus) -> None:
        self._clock = clock
        self._on_status = on_status
        self._entries: dict[str, SimulatedPod] = {}

    async def open(self) -> None:
        """Nothing to adopt: what ran is told by the pods' own status."""

    async def close(self) -> None:
        self._entries.clear()

    def uids(self) -> list[str]:
        return list(self._entries)

    def find_status(self, uid: str) -> Json | None:
        entry = self._entries.get(uid)
        return entry.status if entry else None

    async def prepare(self, pod: Json) -> None:
        """Do nothing: a simulated pod needs no image."""

    def start(self, pod: Json, objects: SettingsSource, access: ServerAccess = NO_ACCESS) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._entries:
            return
        try:
            run_seconds, exit_code = parse_wishes(pod)
        except ValueError as error:
            now = records.rfc3339(self._clock.now())
            self._on_status(pod, status.failed_status(pod, "InvalidAnnotation", str(error), "", now))
            return
        entry = SimulatedPod(pod, find_start(pod) or self._clock.now(), pod.get("status") or {})
        self._entries[uid] = entry
        self._tell(entry, "Running", None)
        deadline = pod["spec"].get("activeDeadlineSeconds")
        if deadline is not None and deadline < run_seconds:
            at = entry.started_at + deadline
            self._clock.call_at(at, lambda: self._end(uid, entry, TERMINATED_EXIT_CODE, "DeadlineExceeded"))
        else:
            self._clock.call_at(entry.started_at + run_seconds, lambda: self._end(uid, entry, exit_code))

    def stop(self, uid: str, grace_seconds: float, reason: str = "", message: str = "") -> None:
        """End a simulated pod at once: it has no process to clean up."""
        entry = self._entries[uid]
        self._end(uid, entry, TERMINATED_EXIT_CODE, reason, message)

    async def keep_output(self, uid: str) -> bool:
        return True

    async def remove(self, uid: str) -> None:
        assert self._entries[uid].over, f"pod {uid} still runs"
        del self._entries[uid]

    def _end(self, uid: str, entry: SimulatedPod, exit_code: int, reason: str = "", message: str = "") -> None:
        if entry.over or self._entries.get(uid) is not entry:
            return
        entry.over = True
        self._tell(entry, "Failed" if exit_code else "Succeeded", exit_code, reason, message)

    def _tell(
        self, entry: SimulatedPod, phase: str, exit_code: int | None, reason: str = "", message: str = ""
    ) -> None:
        now = records.rfc3339(self._clock.now())
        started = records.rfc3339(entry.started_at)
        state: Json = {"running": {"startedAt": started}}
        if exit_code is not None:
            ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
            state = {"terminated": {**ended, "startedAt": started, "finishedAt": now}}
        spec = entry.pod["spec"]
        done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": started}}
        states = {c["name"]: {"state": done} for c in spec.get("initContainers") or ()}
        states |= {c["name"]: {"state": state} for c in spec["containers"]}
        record = {
            "uid": entry.pod["metadata"]["uid"],
            "phase": phase,
            "startTime": started,
            "reason": reason,
            "message": message,
            "containers": states,
        }
        entry.status = status.pod_status({**entry.pod, "status": entry.status}, record, now)
        self._on_status(entry.pod, entry.status)


def parse_wishes(pod: Json) -> tuple[float, int]:
    """Return how long the pod takes, and how it ends."""
    annotations = pod["metadata"].get("annotations") or {}
    seconds, code = annotations.get(RUN_SECONDS), annotations.get(EXIT_CODE, "0")
    try:
        run_seconds = DEFAULT_RUN_SECONDS if seconds is None else float(seconds)
    except ValueError:
        raise ValueError(f"annotation {RUN_SECONDS}: {seconds!r} is not a number of seconds") from None
    # Also false for a number that is not one (nan).
    if not 0 <= run_seconds < float("inf"):
        raise ValueError(f"annotation {RUN_SECONDS}: {seconds!r} must be zero or more")
    if not (code.isascii() and code.isdigit() and int(code) <= 255):
        raise ValueError(f"annotation {EXIT_CODE}: {code!r} is not a number from 0 to 255")
    return run_seconds, int(code)


def find_start(pod: Json) -> float | None:
    """Return when an earlier Kyu started the pod."""
    text = (pod.get("status") or {}).get("startTime")
    return datetime.fromisoformat(text).astimezone(UTC).timestamp() if text else None
