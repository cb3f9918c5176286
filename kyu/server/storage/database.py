"""
The one SQLite file: a table of revisions, where each row is a change of one object.

A row is never changed. The newest row of an object is its present state, or the mark of its deletion; the rows in
between are the history that a watch reads when it comes back. ``commit`` removes the history that is no longer kept.
The highest version that was ever removed is remembered, so that version numbers never run twice.

SQLite does not check what it reads. So each row has a checksum, and a small file beside the database has the last
version and the number of rows: a cut journal or a lost page is noticed at the next start.

Only this file and check.py contain SQL.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

from kyu.server.storage.tip import Tip, TipFile

# Raised by one with each change of the tables. A file of a newer Kyu is refused.
SCHEMA_VERSION = 2
APPLICATION_ID = 0x6B797500
PAGE_BYTES = 16_384
JOURNAL_BYTES = 32 * 1024 * 1024
# A transaction of some large objects.
LEAST_FREE_BYTES = 4 * 1024 * 1024

_TABLES = """
CREATE TABLE IF NOT EXISTS revision (
    version   INTEGER PRIMARY KEY,
    resource  TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL,
    previous  INTEGER NOT NULL,
    deleted   INTEGER NOT NULL,
    value     BLOB NOT NULL,
    checksum  INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
COLUMNS = "version, resource, namespace, name, uid, previous, deleted, value, checksum"

# Rows that one statement writes, or removes. After every statement the thread waits for the interpreter, which under
# load takes as long as the statement.
MAXIMAL_ROWS = 32
MAXIMAL_FORGOTTEN = 500

# version, resource, namespace, name, uid, previous version of the same object (0: none), deleted, value
Row: TypeAlias = tuple[int, str, str, str, str, int, int, bytes]


class DatabaseError(Exception):
    """The file cannot be used or written; the message says why."""


class Damaged(DatabaseError):
    """The file holds something else than what was written; the message says where."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{path} is damaged: {what}. `kyu restore FILE` puts a backup in its place, `kyu restore --salvage` keeps"
            " what can still be read; both keep the damaged file. `kyu check` shows all that is wrong"
        )


class TooMuch(Exception):
    """A reader wants more bytes of history than fit into memory."""


class Database:
    """One writing and one reading connection to the file. Each is used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tip = TipFile(path)
        self._last = Tip(0, 0, 0)
        _refuse_lost(path, self._tip.read())
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        try:
            self._writer = connect(path)
            _prepare(self._writer, path)
            self._reader = connect(path)
        except sqlite3.DatabaseError as error:
            raise explained(path, error) from error

    def rows(self) -> Iterator[Row]:
        """Yield every row, oldest change first: played through, they give the present. Raise if one is damaged."""
        count = version = 0
        try:
            for row in self._reader.execute(f"SELECT {COLUMNS} FROM revision ORDER BY version"):
                count, version = count + 1, row[0]
                yield checked(self.path, row)
        except sqlite3.DatabaseError as error:
            raise explained(self.path, error) from error
        _, compacted = self.versions()
        self._last = Tip(max(version, compacted), count, compacted)
        if fault := self._tip.fault_of(self._last):
            raise Damaged(self.path, fault)
        self._tip.write(self._last)

    def versions(self) -> tuple[int, int]:
        """Return the last version given out, and the last one that was compacted away."""
        try:
            last = int(self._reader.execute("SELECT coalesce(max(version), 0) FROM revision").fetchone()[0])
            row = self._reader.execute("SELECT value FROM state WHERE name = 'compacted'").fetchone()
        except sqlite3.DatabaseError as error:
            raise explained(self.path, error) from error
        compacted = int(row[0]) if row else 0
        return max(last, compacted), compacted

    def between(self, resource: str, after: int, until: int, most_bytes: int) -> list[tuple[Row, bytes | None]]:
        """Return the changes of a resource in ``after < version <= until``, each with the value before it.

        Raise TooMuch if they have more bytes than ``most_bytes``.
        """
        rows = self._reader.execute(
            "SELECT r.version, r.resource, r.namespace, r.name, r.uid, r.previous, r.deleted, r.value, r.checksum,"
            " p.value FROM revision r LEFT JOIN revision p ON p.version = r.previous"
            " WHERE r.version > ? AND r.version <= ? AND r.resource = ? ORDER BY r.version",
            (after, until, resource),
        )
        found: list[tuple[Row, bytes | None]] = []
        for row in rows:
            most_bytes -= len(row[7]) + len(row[9] or b"")
            if most_bytes < 0:
                raise TooMuch
            found.append((checked(self.path, row[:9]), row[9]))
        return found

    def commit(self, rows: Sequence[Row], forget: Iterable[int], compacted: int) -> None:
        """Append the rows and drop the forgotten ones; return when they are on the disk."""
        forgotten = list(forget)
        removed = 0
        try:
            if len(rows) <= MAXIMAL_ROWS and not forgotten:
                # A single statement is a transaction of its own.
                self._insert(rows)
            else:
                self._writer.execute("BEGIN IMMEDIATE")
                for start in range(0, len(rows), MAXIMAL_ROWS):
                    self._insert(rows[start : start + MAXIMAL_ROWS])
                for start in range(0, len(forgotten), MAXIMAL_FORGOTTEN):
                    part = forgotten[start : start + MAXIMAL_FORGOTTEN]
                    removed += self._writer.execute(_deletion(len(part)), part).rowcount
                if forgotten:
                    self._writer.execute("INSERT OR REPLACE INTO state VALUES ('compacted', ?)", (compacted,))
                self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise DatabaseError(str(error)) from error
        version = rows[-1][0] if rows else self._last.version
        compacted = compacted if forgotten else self._last.compacted
        self._last = Tip(version, self._last.rows + len(rows) - removed, compacted)
        self._tip.write(self._last)

    def find_fault(self) -> str:
        """Return why the next write would fail, as far as that can be known before; empty if it would not."""
        try:
            found = os.statvfs(self.path)
        except OSError as error:
            return str(error)
        free = found.f_bavail * found.f_frsize
        return f"{free} bytes are free on the disk" if free < LEAST_FREE_BYTES else ""

    def _insert(self, rows: Sequence[Row]) -> None:
        if rows:
            self._writer.execute(_insertion(len(rows)), [value for row in rows for value in (*row, checksum(*row))])

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
        self._tip.close()


def checksum(
    version: int, resource: str, namespace: str, name: str, uid: str, previous: int, deleted: int, value: bytes
) -> int:
    key = f"{version} {resource} {namespace} {name} {uid} {previous} {deleted}"
    return zlib.crc32(value, zlib.crc32(key.encode()))


def checked(path: Path, row: tuple[int, str, str, str, str, int, int, bytes, int]) -> Row:
    """Return the row without its checksum; raise if they do not fit."""
    # A flipped bit can also make a number or a text of a value.
    if type(row[7]) is not bytes or checksum(*row[:8]) != row[8]:
        raise Damaged(path, f"the checksum of version {row[0]} ({row[1]} {row[2]}/{row[3]}) is wrong")
    return row[:8]


def explained(path: Path, error: sqlite3.DatabaseError) -> DatabaseError:
    """Return what an error of SQLite means: a damaged file, or one that cannot be used at the moment."""
    is_text = "decode to UTF-8" in str(error)
    if isinstance(error, sqlite3.OperationalError) and not is_text:
        return DatabaseError(f"{path}: {error}")
    return Damaged(path, str(error))


@cache
def _insertion(rows: int) -> str:
    return f"INSERT INTO revision ({COLUMNS}) VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * rows)


@cache
def _deletion(rows: int) -> str:
    return "DELETE FROM revision WHERE version IN (" + ", ".join("?" * rows) + ")"


def back_up(source: Path, target: Path) -> int:
    """Copy the database as it is now, while others read and write it; return the number of bytes written."""
    if target.exists():
        raise DatabaseError(f"{target} exists already; a backup never overwrites")
    try:
        connection = connect(source)
        _refuse_newer(connection, source)
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection.execute("VACUUM INTO ?", (str(target),))
        connection.close()
    except (sqlite3.Error, OSError) as error:
        raise DatabaseError(f"cannot back up {source} to {target}: {error}") from error
    return target.stat().st_size


def connect(path: Path) -> sqlite3.Connection:
    # A connection may be opened in one thread and used in another; never in two at once.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    # For a new file only. Objects have some thousand bytes: in the usual pages of 4,096, half of each would be empty.
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    # Writers wait while the journal is moved to the file: seldom is better than often.
    connection.execute(f"PRAGMA wal_autocheckpoint = {JOURNAL_BYTES // PAGE_BYTES}")
    # Cells whose sizes do not fit their page are an error, not garbage.
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    found = _refuse_newer(connection, path)
    if found:
        _check_pages(connection, path)
    if found == SCHEMA_VERSION:
        return
    if found == 1:
        _add_checksums(connection)
    connection.executescript(_TABLES)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    fault = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if fault != "ok":
        raise Damaged(path, " ".join(fault.split()))


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Bring a database of the first schema up to date, in one transaction."""
    connection.create_function("checksum_of", 8, checksum, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ALTER TABLE revision ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
    connection.execute(
        "UPDATE revision SET checksum = checksum_of(version, resource, namespace, name, uid, previous, deleted, value)"
    )
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _refuse_newer(connection: sqlite3.Connection, path: Path) -> int:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > SCHEMA_VERSION:
        raise DatabaseError(f"{path} was written by a newer Kyu (schema {found}; this one knows {SCHEMA_VERSION})")
    return found


def _refuse_lost(path: Path, tip: Tip | None) -> None:
    """Raise if the file was there before and has gone, or is empty."""
    size = path.stat().st_size if path.exists() else -1
    if size <= 0 and tip is not None:
        raise Damaged(path, "it is empty" if size == 0 else "it is missing")
