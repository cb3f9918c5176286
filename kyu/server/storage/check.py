"""
The full check of a database, the way back to a backup, and what can be saved of a damaged one.

Only this file and database.py contain SQL.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kyu.server.storage.database import COLUMNS, SCHEMA_VERSION, Damaged, Database, DatabaseError, Row, checked, connect
from kyu.server.storage.tip import Tip, TipFile, tip_path

MOST_PROBLEMS = 20
ROWS_AT_ONCE = 500
# Versions that are looked up one by one behind a place that cannot be read.
LOOKED_UP = 2_000
_decode = msgspec.json.decode


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The objects that were saved, and the versions of rows that could not be read."""

    objects: int
    lost: list[str]


def problems(path: Path, *, is_in_use: bool) -> list[str]:
    """Return all that is wrong with a database, up to a bound. One in use may be ahead of its tip."""
    tip = TipFile(path)
    if not path.exists() or path.stat().st_size == 0:
        return [f"{path} is {'empty' if path.exists() else 'missing'}"]
    found: list[str] = []
    try:
        with contextlib.closing(connect(path)) as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version not in (1, SCHEMA_VERSION):
                return [f"{path} has the schema {version}, and this Kyu knows {SCHEMA_VERSION}"]
            pages = connection.execute(f"PRAGMA integrity_check({MOST_PROBLEMS})").fetchall()
            found += [str(row[0]) for row in pages if row[0] != "ok"]
            last = count = 0
            for row_version, fault in _row_faults(connection, path, has_checksums=version == SCHEMA_VERSION):
                last, count = row_version, count + 1
                if fault:
                    found.append(fault)
                if len(found) >= MOST_PROBLEMS:
                    return found
            row = connection.execute("SELECT value FROM state WHERE name = 'compacted'").fetchone()
            compacted = int(row[0]) if row else 0
            fault = "" if is_in_use else tip.fault_of(Tip(max(last, compacted), count, compacted))
            return [*found, fault] if fault else found
    except sqlite3.DatabaseError as error:
        return [*found, str(error)]


def _row_faults(connection: sqlite3.Connection, path: Path, *, has_checksums: bool) -> Iterator[tuple[int, str]]:
    """Yield the version of each row, with its fault or an empty text."""
    columns = COLUMNS if has_checksums else COLUMNS.removesuffix(", checksum")
    for row in connection.execute(f"SELECT {columns} FROM revision ORDER BY version"):
        what = f"version {row[0]} ({row[1]} {row[2]}/{row[3]})"
        fault = ""
        if has_checksums:
            with contextlib.suppress(Damaged):
                checked(path, row)
                yield row[0], _content_fault(row, what)
                continue
            fault = f"the checksum of {what} is wrong"
        yield row[0], fault or _content_fault(row, what)


def _content_fault(row: Row, what: str) -> str:
    try:
        name = _decode(row[7])["metadata"]["name"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"{what} holds no object"
    return "" if name == row[3] else f"{what} holds the object {name}"


def restore(backup: Path, database: Path, suffix: str) -> list[Path]:
    """Put a backup in the place of a database; return the files that were there before, under their new names."""
    if found := problems(backup, is_in_use=True):
        raise DatabaseError(f"{backup} is no whole backup: {found[0]}")
    fresh = database.with_name(f"{database.name}.new")
    fresh.unlink(missing_ok=True)
    shutil.copyfile(backup, fresh)
    _sync(fresh)
    kept = set_aside(database, suffix)
    fresh.replace(database)
    return kept


def set_aside(database: Path, suffix: str) -> list[Path]:
    """Rename the files of a database, so that another takes its place; return the new names."""
    kept: list[Path] = []
    for ending in ("-tip", "-shm", "-wal", ""):
        file = database.with_name(database.name + ending)
        if file.exists():
            # SQLite finds the journal of a database by its name.
            kept.append(file.rename(database.with_name(f"{database.name}.{suffix}{ending}")))
    return kept


def salvage(damaged: Path, target: Path, last_version: int) -> Salvaged:
    """Write a new database of all objects that can still be read in a damaged one, which stays as it is."""
    copy = target.with_name(f"{target.name}.reading")
    endings = ("", "-wal")
    try:
        for ending in endings:
            if (source := damaged.with_name(damaged.name + ending)).exists():
                shutil.copyfile(source, copy.with_name(copy.name + ending))
        newest: dict[tuple[str, str, str], Row] = {}
        lost: list[str] = []
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            for row in _readable(connection, last_version):
                last_version = max(last_version, row[0])
                try:
                    whole = checked(damaged, row)
                except Damaged:
                    lost.append(f"{row[1]} {row[2]}/{row[3]}")
                    continue
                if whole[6]:
                    newest.pop(whole[1:4], None)
                else:
                    newest[whole[1:4]] = whole
    finally:
        for ending in (*endings, "-shm"):
            copy.with_name(copy.name + ending).unlink(missing_ok=True)
    rows = sorted((*row[:5], 0, *row[6:]) for row in newest.values())
    database = Database(target)
    try:
        for start in range(0, len(rows), ROWS_AT_ONCE):
            # A removal of nothing, which writes down how far versions have come: no watch can look back further.
            database.commit(rows[start : start + ROWS_AT_ONCE], [0], last_version)
    finally:
        database.close()
    return Salvaged(len(rows), lost)


def _readable(
    connection: sqlite3.Connection, last_version: int
) -> Iterator[tuple[int, str, str, str, str, int, int, bytes, int]]:
    """Yield the rows that SQLite can read; behind a broken page, versions are looked up one by one."""
    connection.text_factory = lambda text: text.decode(errors="replace")
    after, select = 0, f"SELECT {COLUMNS} FROM revision"
    while True:
        try:
            for row in connection.execute(f"{select} WHERE version > ? ORDER BY version", (after,)):
                after = row[0]
                yield row
        except sqlite3.DatabaseError:
            if after >= last_version:
                return
            for version in range(after + 1, after + 1 + LOOKED_UP):
                with contextlib.suppress(sqlite3.DatabaseError):
                    yield from connection.execute(f"{select} WHERE version = ?", (version,))
            after += LOOKED_UP
        else:
            return


def last_known_version(database: Path) -> int:
    """Return the last version that was written to a database, as its tip says."""
    tip = TipFile(database).read()
    return tip.version if tip is not None else 0


def remove_tip(database: Path) -> None:
    tip_path(database).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
