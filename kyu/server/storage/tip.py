"""
The tip of the database: its last version and its number of rows, in a small file beside it.

The file is written after each transaction is on the disk, and never synced. So it is as new as the database after the
end of the process, however that came, and possibly older after the end of the machine. A database that is older than
its tip has lost changes that were acknowledged.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tip:
    """How far a database has come."""

    version: int
    rows: int
    compacted: int


class TipFile:
    """The file of one database."""

    def __init__(self, database: Path) -> None:
        self.path = tip_path(database)
        self._descriptor = -1

    def read(self) -> Tip | None:
        """Return what was written last; None if there is nothing, or nothing readable."""
        try:
            text, _, check = self.path.read_text(errors="replace").strip().rpartition(" ")
        except OSError:
            return None
        if check != f"{zlib.crc32(text.encode()):08x}":
            return None
        return Tip(*map(int, text.split()))

    def fault_of(self, found: Tip) -> str:
        """Return how the database differs from its tip; empty if it does not."""
        last = self.read()
        if last is None or last == found or found.version > last.version:
            return ""
        if found.version < last.version:
            return f"its last version is {found.version}, and {last.version} was written"
        # A process may have ended after it removed history and before it wrote that down.
        return "" if found.compacted != last.compacted else f"it has {found.rows} rows, and {last.rows} were written"

    def write(self, tip: Tip) -> None:
        text = f"{tip.version} {tip.rows} {tip.compacted}"
        # One line of fixed length: it is replaced in place, by one call.
        line = f"{text} {zlib.crc32(text.encode()):08x}".ljust(79).encode() + b"\n"
        # The transaction is stored: a full disk must not make it look refused.
        with contextlib.suppress(OSError):
            if self._descriptor < 0:
                self._descriptor = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            os.pwrite(self._descriptor, line, 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def tip_path(database: Path) -> Path:
    return database.with_name(f"{database.name}-tip")
