"""
The one SQLite file: a table of revisions, where each row is a change of one object.

A row is never changed. The newest row of an object is its present state, or the mark of its deletion; the rows in
between are what a watch reads when it comes back. ``forget`` removes what no one may ask for any more, and the highest
version that was ever forgotten is kept, so that version numbers never run twice.

Called by: server/store.py. This is the only file that speaks SQL.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

# Raised by one with each change of the tables. A file of a newer Kyu is refused, not guessed at.
SCHEMA_VERSION = 1
APPLICATION_ID = 0x6B797500
PAGE_BYTES = 16_384
JOURNAL_BYTES = 32 * 1024 * 1024

_TABLES = """
CREATE TABLE IF NOT EXISTS revision (
    version   INTEGER PRIMARY KEY,
    resource  TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL,
    previous  INTEGER NOT NULL,
    deleted   INTEGER NOT NULL,
    value     BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""

# How many rows one statement writes, or forgets, at most. After every statement the thread has to wait for its turn in
# Python, which under load takes as long as the statement.
MAXIMAL_ROWS = 32
MAXIMAL_FORGOTTEN = 500

# version, resource, namespace, name, uid, previous version of the same object (0: none), deleted, value
Row: TypeAlias = tuple[int, str, str, str, str, int, int, bytes]


class DatabaseError(Exception):
    """The file cannot be used or written; the message says why."""


class Database:
    """One writing and one reading connection to the file. Each is used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        try:
            self._writer = _connect(path)
            _prepare(self._writer, path)
            self._reader = _connect(path)
        except sqlite3.Error as error:
            raise DatabaseError(f"{path}: {error}") from error

    def rows(self) -> Iterator[Row]:
        """Every row, oldest change first: played through, they give the present."""
        return self._reader.execute(
            "SELECT version, resource, namespace, name, uid, previous, deleted, value FROM revision ORDER BY version"
        )

    def versions(self) -> tuple[int, int]:
        """The last version given out, and the last one that was compacted away."""
        last = int(self._reader.execute("SELECT coalesce(max(version), 0) FROM revision").fetchone()[0])
        row = self._reader.execute("SELECT value FROM state WHERE name = 'compacted'").fetchone()
        compacted = int(row[0]) if row else 0
        return max(last, compacted), compacted

    def between(self, resource: str, after: int, until: int) -> list[tuple[Row, bytes | None]]:
        """The changes of a resource in ``after < version <= until``, each with the value before it."""
        rows = self._reader.execute(
            "SELECT r.version, r.resource, r.namespace, r.name, r.uid, r.previous, r.deleted, r.value, p.value"
            " FROM revision r LEFT JOIN revision p ON p.version = r.previous"
            " WHERE r.version > ? AND r.version <= ? AND r.resource = ? ORDER BY r.version",
            (after, until, resource),
        )
        return [(row[:8], row[8]) for row in rows]

    def commit(self, rows: Sequence[Row], forget: Iterable[int], compacted: int) -> None:
        """Append the rows and drop the forgotten ones; returns when they are on the disk."""
        forgotten = list(forget)
        try:
            if len(rows) <= MAXIMAL_ROWS and not forgotten:
                # A single statement is a transaction of its own.
                self._insert(rows)
                return
            self._writer.execute("BEGIN IMMEDIATE")
            for start in range(0, len(rows), MAXIMAL_ROWS):
                self._insert(rows[start : start + MAXIMAL_ROWS])
            if forgotten:
                for start in range(0, len(forgotten), MAXIMAL_FORGOTTEN):
                    part = forgotten[start : start + MAXIMAL_FORGOTTEN]
                    self._writer.execute(_deletion(len(part)), part)
                self._writer.execute("INSERT OR REPLACE INTO state VALUES ('compacted', ?)", (compacted,))
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise DatabaseError(str(error)) from error

    def _insert(self, rows: Sequence[Row]) -> None:
        if rows:
            self._writer.execute(_insertion(len(rows)), [value for row in rows for value in row])

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


@cache
def _insertion(rows: int) -> str:
    return "INSERT INTO revision VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * rows)


@cache
def _deletion(rows: int) -> str:
    return "DELETE FROM revision WHERE version IN (" + ", ".join("?" * rows) + ")"


def back_up(source: Path, target: Path) -> int:
    """Copy the database as it is now, while others read and write it. Returns the number of bytes written."""
    if target.exists():
        raise DatabaseError(f"{target} exists already; a backup never overwrites")
    try:
        connection = _connect(source)
        _refuse_newer(connection, source)
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection.execute("VACUUM INTO ?", (str(target),))
        connection.close()
    except (sqlite3.Error, OSError) as error:
        raise DatabaseError(f"cannot back up {source} to {target}: {error}") from error
    return target.stat().st_size


def _connect(path: Path) -> sqlite3.Connection:
    # A connection may be opened in one thread and used in another; never in two at once.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    # Of a new file only. Objects have some thousand bytes: in the usual pages of 4,096, half of each would be empty.
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    # Writers wait while the journal is moved to the file: seldom is better than often.
    connection.execute(f"PRAGMA wal_autocheckpoint = {JOURNAL_BYTES // PAGE_BYTES}")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    _refuse_newer(connection, path)
    connection.executescript(_TABLES)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _refuse_newer(connection: sqlite3.Connection, path: Path) -> None:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > SCHEMA_VERSION:
        raise DatabaseError(f"{path} was written by a newer Kyu (schema {found}; this one knows {SCHEMA_VERSION})")
