"""
The audit log: which user did what, when, from where, and with which result.

Each line is an Event of the group audit.k8s.io, at the level Metadata: no body, query or header with a secret is in it.
Writes, refusals and reads of Secrets are logged; successful reads of other kinds are not. Refusals of one caller are
bounded per second. A flood of them would otherwise push the rest out of the log, which has a bounded number of files.

Kubernetes: apiserver/pkg/audit, with the policy rules of a small cluster.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from kyu import log
from kyu.api.meta import Json
from kyu.server.exchange import Request
from kyu.server.routing.routes import parse_path

FILE_BYTES: Final = 16 * 1024 * 1024
FILES: Final = 8
LONGEST_TEXT: Final = 256
FLUSH_SECONDS: Final = 0.1
LINES_AT_ONCE: Final = 16
# Refusals of one caller that are logged at once, and per second from then on.
REFUSALS_AT_ONCE: Final = 50
REFUSALS_PER_SECOND: Final = 1.0
KEPT_CALLERS: Final = 4096
WRITES: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
REFUSED: Final = frozenset({401, 403, 429})
IMPERSONATED: Final = "impersonate-user"
_encode = msgspec.json.Encoder().encode


class AuditLog:
    """The log of one server: files of a bounded size, the newest without a number."""

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self._path = path
        self._clock = clock
        self._descriptor = -1
        self._size = 0
        self._number = 0
        self._lines: list[bytes] = []
        # The refusals that each caller may still cause in the log, and those that were left out.
        self._left: dict[str, tuple[float, float]] = {}
        self.dropped = 0

    def note(self, request: Request, code: int, seconds: float) -> None:
        """Log a request if it is a write, a refusal or a read of Secrets."""
        is_refused = code in REFUSED
        if not is_refused and request.method not in WRITES and not _reads_secrets(request):
            return
        if is_refused and not self._may_log(f"{request.host} {request.user.name}"):
            self.dropped += 1
            return
        self._lines.append(_encode(self._event(request, code, seconds)) + b"\n")
        if len(self._lines) == 1:
            self._flush_soon()

    def _flush_soon(self) -> None:
        """Write the lines of some milliseconds together; outside of an event loop, at once."""
        try:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        except RuntimeError:
            self.flush()

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        for start in range(0, len(lines), LINES_AT_ONCE):
            self._write(b"".join(lines[start : start + LINES_AT_ONCE]))

    def _event(self, request: Request, code: int, seconds: float) -> Json:
        self._number += 1
        user: Json = {"username": _cut(request.user.name), "groups": [_cut(each) for each in request.user.groups]}
        event: Json = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": f"{os.getpid()}-{self._number}",
            "stage": "ResponseComplete",
            "requestURI": _cut(request.path),
            "verb": _verb(request),
            "user": user,
            "sourceIPs": [request.host],
            "userAgent": _cut(request.headers.get("user-agent", "")),
            "responseStatus": {"code": code},
            "stageTimestamp": self._clock().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "annotations": {"kyu.dev/milliseconds": f"{seconds * 1000:.1f}"},
        }
        if path := parse_path(request.path):
            reference = {"apiGroup": path.group, "apiVersion": path.version, "resource": path.plural}
            reference |= {"namespace": path.namespace or "", "name": path.name, "subresource": path.subresource}
            event["objectRef"] = {key: _cut(value) for key, value in reference.items() if value}
        if IMPERSONATED in request.headers:
            event["impersonatedUser"] = {"username": _cut(request.headers[IMPERSONATED])}
        if self.dropped:
            event["annotations"]["kyu.dev/refusals-left-out"] = str(self.dropped)
        return event

    def _may_log(self, caller: str) -> bool:
        now = time.monotonic()
        left, since = self._left.pop(caller, (float(REFUSALS_AT_ONCE), now))
        left = min(float(REFUSALS_AT_ONCE), left + (now - since) * REFUSALS_PER_SECOND) - 1
        if len(self._left) >= KEPT_CALLERS:
            del self._left[next(iter(self._left))]
        self._left[caller] = max(left, -1.0), now
        return left >= 0

    def _write(self, line: bytes) -> None:
        try:
            if self._descriptor < 0 or self._size + len(line) > FILE_BYTES:
                self._open()
            self._size += os.write(self._descriptor, line)
        except OSError as error:
            # A full disk refuses the write of the object, too. The log says once that it has a gap.
            if not self.dropped:
                log.warning("audit log not written", path=self._path, error=error)
            self.dropped += 1

    def _open(self) -> None:
        """Open the newest file; one that is full gets a number, and the oldest goes."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._path.exists() and self._path.stat().st_size >= FILE_BYTES - LONGEST_TEXT * 20:
            for number in range(FILES - 1, 0, -1):
                older = self._numbered(number - 1)
                if older.exists():
                    older.replace(self._numbered(number))
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def close(self) -> None:
        self.flush()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _reads_secrets(request: Request) -> bool:
    if "secrets" not in request.path:
        return False
    path = parse_path(request.path)
    return path is not None and path.plural == "secrets"


def _verb(request: Request) -> str:
    return WRITES.get(request.method, "watch" if "watch" in request.query else request.method.lower())


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
