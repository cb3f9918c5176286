"""The store: acknowledged writes are on disk, unwritten changes are never visible, and past versions can be read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from kyu.server.storage.batches import Unwritable
from kyu.server.storage.database import Database, DatabaseError, Row, back_up
from kyu.server.storage.records import Record
from kyu.server.storage.store import Expired, Store, Windows

THINGS = "things"


@contextlib.asynccontextmanager
async def opened(folder: Path, **windows: int) -> AsyncIterator[Store]:
    store = Store(Database(folder / "kyu.db"), windows=Windows(**windows))
    try:
        yield store
    finally:
        await store.close()


def record(store: Store, name: str, text: str = "", namespace: str = "n", size: int = 0) -> Record:
    version = store.next_version
    value = {"metadata": {"name": name, "resourceVersion": str(version), "labels": {"l": text}}, "pad": "x" * size}
    labels = {"l": text}
    return Record(THINGS, namespace, name, f"uid-{name}", version, msgspec.json.encode(value), labels, ())


def put(store: Store, name: str, text: str = "", **options: int) -> asyncio.Future[None]:
    return store.append(record(store, name, text, **options))


def names(store: Store, **where: str) -> list[str]:
    return [each.name for each in store.objects(THINGS, where.get("namespace"))]


async def test_a_write_is_seen_by_readers_only_when_it_is_stored(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        done = put(store, "a")
        assert store.find(THINGS, "n", "a") is None
        assert store.latest(THINGS, "n", "a") is not None
        await done
        assert store.find(THINGS, "n", "a") is not None


async def test_writes_of_one_turn_share_a_transaction_and_keep_their_order(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        heard: list[int] = []
        store.listen(lambda change: heard.append(change.record.version))
        await asyncio.gather(*(put(store, f"o-{i}") for i in range(100)))
        assert heard == sorted(heard)
        assert len(heard) == 100
        assert store.version == heard[-1]


async def test_an_object_deleted_and_made_again_while_both_are_on_their_way(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await put(store, "a", "1")
        first = store.append(record(store, "a", "1"), deleted=True)
        second = put(store, "a", "2")
        third = store.append(record(store, "a", "2"), deleted=True)
        assert store.latest(THINGS, "n", "a") is None
        await asyncio.gather(first, second, third)
        assert store.find(THINGS, "n", "a") is None
        changes = await store.changes(THINGS, 0)
        assert [change.type for change in changes] == ["ADDED", "DELETED", "ADDED", "DELETED"]


async def test_objects_come_in_order_of_namespace_and_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for namespace, name in [("b", "x"), ("a", "z"), ("a", "y"), ("ab", "w")]:
            await store.append(record(store, name, namespace=namespace))
        assert [each.key for each in store.objects(THINGS)] == [("a", "y"), ("a", "z"), ("ab", "w"), ("b", "x")]
        assert names(store, namespace="a") == ["y", "z"]


async def test_a_page_shows_the_state_of_an_earlier_version(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for name in "abd":
            await put(store, name, "old")
        then = store.version
        await put(store, "a", "new")
        await put(store, "c", "new")
        await store.append(record(store, "d"), deleted=True)
        undo = await store.changes(THINGS, then)
        page = list(store.page(THINGS, None, None, undo))
        assert [(each.name, each.labels["l"]) for each in page] == [("a", "old"), ("b", "old"), ("d", "old")]


async def test_history_survives_a_restart_with_what_was_before(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await put(store, "a", "1")
        seen = store.version
        await put(store, "a", "2")
        await store.append(record(store, "a", "2"), deleted=True)
        last = store.version
    async with opened(tmp_path) as store:
        assert store.version == last
        changes = await store.changes(THINGS, seen)
        assert [(c.type, c.record.labels["l"]) for c in changes] == [("MODIFIED", "2"), ("DELETED", "2")]
        assert changes[0].previous is not None
        assert changes[0].previous.labels == {"l": "1"}


async def test_history_reaches_from_the_table_into_memory_without_a_gap(tmp_path: Path) -> None:
    async with opened(tmp_path, changes=5) as store:
        for i in range(20):
            await put(store, "a", str(i))
        changes = await store.changes(THINGS, 3)
        assert [change.record.version for change in changes] == list(range(4, 21))
        assert [c.record.version for c in await store.changes(THINGS, 3, until=10)] == list(range(4, 11))


async def test_compaction_forgets_the_past_and_keeps_the_present(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for i in range(5):
            await put(store, "a", str(i))
        await put(store, "b")
        store.compact(4)
        await store.flush()
        with pytest.raises(Expired):
            await store.changes(THINGS, 3)
        assert len(await store.changes(THINGS, 4)) == 2
        assert names(store) == ["a", "b"]
    rows = sqlite3.connect(tmp_path / "kyu.db").execute("SELECT version FROM revision ORDER BY version").fetchall()
    assert rows == [(4,), (5,), (6,)]


async def test_old_rows_go_by_themselves_when_there_are_too_many(tmp_path: Path) -> None:
    async with opened(tmp_path, obsolete=10) as store:
        for i in range(50):
            await put(store, "a", str(i))
        assert store.compacted >= 35
        assert await store.changes(THINGS, 45)
    async with opened(tmp_path, obsolete=10) as store:
        assert names(store) == ["a"]
        assert store.compacted >= 35


async def test_a_version_is_never_given_twice_even_if_its_row_is_forgotten(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await put(store, "a")
        await store.append(record(store, "a"), deleted=True)
        store.compact(store.version)
        await store.flush()
        last = store.version
    async with opened(tmp_path) as store:
        assert store.next_version == last + 1
        with pytest.raises(Expired):
            await store.changes(THINGS, last - 1)


@contextlib.contextmanager
def full_disk(at_bytes: int) -> Iterator[None]:
    """Limit the size of all files of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_refuses_writes_and_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await put(store, "a")
        size = (tmp_path / "kyu.db-wal").stat().st_size
        with full_disk(size + 20_000):
            writes = [put(store, f"big-{i}", size=100_000) for i in range(3)]
            results = await asyncio.gather(*writes, return_exceptions=True)
            assert all(isinstance(result, Unwritable) for result in results)
            assert names(store) == ["a"]
            assert store.latest(THINGS, "n", "big-0") is None
        await put(store, "b")
        assert names(store) == ["a", "b"]
    async with opened(tmp_path) as store:
        assert names(store) == ["a", "b"]


async def test_writes_behind_a_failed_batch_fail_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await put(store, "a", "1")
        with full_disk((tmp_path / "kyu.db-wal").stat().st_size + 20_000):
            first = put(store, "a", "2", size=100_000)
            await asyncio.sleep(0)  # A write during the commit of a batch builds on the batch.
            second = put(store, "a", "3")
            results = await asyncio.gather(first, second, return_exceptions=True)
        assert all(isinstance(result, Unwritable) for result in results)
        assert [each.labels["l"] for each in store.objects(THINGS)] == ["1"]


def rows_from(first: int, count: int) -> list[Row]:
    return [(version, THINGS, "n", f"o-{version}", "u", 0, 0, b"{}") for version in range(first, first + count)]


@pytest.mark.parametrize("rows", [1, 2, 32, 33, 70])
def test_rows_are_stored_all_or_none(tmp_path: Path, rows: int) -> None:
    database = Database(tmp_path / "kyu.db")
    batch, later = rows_from(1, rows), rows_from(rows + 1, rows)
    database.commit(batch, [], 0)
    assert list(database.rows()) == batch
    with pytest.raises(DatabaseError):
        # The last of them has a version that was given before.
        database.commit([*later[:-1], batch[-1]], [], 0)
    assert list(database.rows()) == batch
    database.commit(later, [1], 1)
    assert list(database.rows()) == [*batch, *later][1:]
    database.close()


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "kyu.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(DatabaseError, match="newer Kyu"):
        Database(tmp_path / "kyu.db")


async def test_a_backup_of_a_running_store_is_a_whole_store(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    async with opened(tmp_path) as store:
        for i in range(20):
            await put(store, f"o-{i}")
        assert back_up(tmp_path / "kyu.db", tmp_path / "copy" / "kyu.db") > 0
        await put(store, "later")
    async with opened(tmp_path / "copy") as store:
        assert len(names(store)) == 20
    with pytest.raises(DatabaseError, match="never overwrites"):
        back_up(tmp_path / "kyu.db", tmp_path / "copy" / "kyu.db")


WRITER = """
import asyncio, sys
from pathlib import Path
from tests.server.test_store import opened, put
async def main():
    async with opened(Path(sys.argv[1])) as store:
        start = store.version
        async def write(k):
            i = 0
            while True:
                await put(store, f"{start}-{k}-{i}")
                print(f"{start}-{k}-{i}", flush=True)
                i += 1
        await asyncio.gather(*(write(k) for k in range(8)))
asyncio.run(main())
"""


def write_until_killed(folder: Path) -> set[str]:
    """Return what a process had acknowledged when it was killed during writes."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = {process.stdout.readline().strip() for _ in range(150)}
    os.kill(process.pid, signal.SIGKILL)
    rest, _ = process.communicate()
    # The last line may have been cut by the signal.
    return acknowledged | set(rest.splitlines()[:-1])


async def test_every_acknowledged_write_is_there_after_kill_9(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for _ in range(4):
        acknowledged |= write_until_killed(tmp_path)
        async with opened(tmp_path) as store:
            assert acknowledged <= set(names(store))
            versions = [change.record.version for change in await store.changes(THINGS, store.compacted)]
            assert versions == sorted(versions)
            assert versions[-1] == store.version
