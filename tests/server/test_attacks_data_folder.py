"""A damaged data folder: the server refuses to start with the remedy, and what is readable can be saved."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from kyu import app
from kyu.cli.main import main
from kyu.server.storage import check
from kyu.server.storage.database import SCHEMA_VERSION, Database
from kyu.server.storage.records import Record
from kyu.server.storage.store import Expired, Store, Windows
from kyu.server.storage.tip import TipFile, tip_path
from tests.support.servers import CONFIG_MAP, config_map


def settings(folder: Path) -> app.Settings:
    return app.Settings(folder, bare=True, server_only=True)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder after a clean stop, with some objects in it."""
    folder = tmp_path_factory.mktemp("folder") / "data"

    async def fill() -> None:
        async with app.embedded(settings(folder)) as running:
            for number in range(200):
                await running.client().create(CONFIG_MAP, config_map(f"m-{number}"))

    asyncio.run(fill())
    return folder


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "data"))


async def names(data: Path) -> set[str]:
    async with app.embedded(settings(data)) as running:
        return {record.name for record in running.api.store.objects("configmaps", "default")}


async def refusal(data: Path) -> str:
    with pytest.raises(app.CannotStart) as refused:
        async with app.embedded(settings(data)):
            pass
    return str(refused.value)


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))


async def test_a_whole_folder_starts_and_is_found_whole(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(await names(data)) == 200
    assert main(["check", "--data", str(data)]) == 0
    assert "is whole" in capsys.readouterr().out


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_empty_or_missing_database_beside_keys_is_refused(data: Path, is_there: bool) -> None:
    (data / "kyu.db").unlink()
    if is_there:
        (data / "kyu.db").touch()
    assert "kyu restore" in await refusal(data)
    (data / "kubeconfig").unlink()
    assert "kyu restore" in await refusal(data)
    tip_path(data / "kyu.db").unlink()
    assert await names(data) == set()


async def test_no_flipped_byte_is_served_as_if_it_were_right(data: Path) -> None:
    original = (data / "kyu.db").read_bytes()
    whole = await values(data)
    size = len(original)
    refused = 0
    for position in [*range(0, 120, 7), *range(200, size, size // 60)]:
        (data / "kyu.db").write_bytes(original)
        flip(data / "kyu.db", position)
        try:
            served = await values(data)
        except app.CannotStart:
            refused += 1
        else:
            assert served == whole, position
    assert refused > 20


async def values(data: Path) -> set[bytes]:
    async with app.embedded(settings(data)) as running:
        return {record.value for record in running.api.store.objects("configmaps")}


async def test_a_cut_journal_is_noticed(data: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    async with app.embedded(settings(data)) as running:
        for number in range(20):
            await running.client().create(CONFIG_MAP, config_map(f"late-{number}"))
        # The folder as it would be after kill -9.
        shutil.copytree(data, killed)
    journal = killed / "kyu.db-wal"
    assert len(await names(Path(shutil.copytree(killed, tmp_path / "copy")))) == 220
    os.truncate(journal, journal.stat().st_size // 2)
    (killed / "kyu.db-shm").unlink(missing_ok=True)
    assert "was written" in await refusal(killed)
    assert main(["check", "--data", str(killed)]) == 1
    assert main(["restore", "--salvage", "--data", str(killed)]) == 0
    assert len(await names(killed)) >= 200


async def test_what_is_readable_is_saved(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(data / "kyu.db") as connection:
        connection.execute("UPDATE revision SET value = 'x' WHERE name = 'm-7'")
    assert "m-7" in await refusal(data)
    assert main(["check", "--data", str(data)]) == 1
    assert main(["restore", "--salvage", "--data", str(data)]) == 0
    assert "lost: a state of configmaps default/m-7" in capsys.readouterr().out
    assert await names(data) == {f"m-{number}" for number in range(200)} - {"m-7"}
    assert any(name.startswith("kyu.db.before-") for name in os.listdir(data))


async def test_rows_behind_a_broken_page_are_saved(data: Path) -> None:
    path = data / "kyu.db"
    pages = path.stat().st_size // 16_384
    with path.open("r+b") as file:
        file.seek((pages - 2) * 16_384)
        file.write(os.urandom(16_384))
    await refusal(data)
    assert main(["restore", "--salvage", "--data", str(data)]) == 0
    assert len(await names(data)) > 50


async def test_a_backup_is_put_back(data: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    assert main(["backup", str(backup), "--data", str(data)]) == 0
    async with app.embedded(settings(data)) as running:
        await running.client().create(CONFIG_MAP, config_map("later"))
        assert main(["restore", str(backup), "--data", str(data)]) == 1
    flip(data / "kyu.db", 20)
    assert main(["restore", str(backup), "--data", str(data)]) == 0
    assert "later" not in await names(data)
    flip(backup, backup.stat().st_size // 2)
    assert main(["restore", str(backup), "--data", str(data)]) == 1


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
async def test_a_broken_authority_is_refused(data: Path, name: str) -> None:
    text = (data / name).read_bytes()
    (data / name).write_bytes(text[:100] + bytes([text[100] ^ 1]) + text[101:])
    assert name in await refusal(data)
    (data / name).unlink()
    assert "missing" in await refusal(data)


@pytest.mark.parametrize("name", ["server.crt", "server.key"])
async def test_a_broken_server_certificate_is_made_anew(data: Path, name: str) -> None:
    (data / name).write_bytes(b"broken")
    assert len(await names(data)) == 200


async def test_a_database_of_the_first_schema_is_brought_up_to_date(data: Path) -> None:
    with sqlite3.connect(data / "kyu.db") as connection:
        connection.execute("ALTER TABLE revision DROP COLUMN checksum")
        connection.execute("PRAGMA user_version = 1")
    tip_path(data / "kyu.db").unlink()
    assert check.problems(data / "kyu.db", is_in_use=False) == []
    assert len(await names(data)) == 200
    assert check.problems(data / "kyu.db", is_in_use=False) == []
    with sqlite3.connect(data / "kyu.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


async def test_readyz_tells_of_writes_that_fail(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with app.embedded(settings(data)) as running:
        client = running.client()
        assert await client.raw("/readyz") == b"ok"
        monkeypatch.setattr("kyu.server.storage.database.LEAST_FREE_BYTES", 2**62)
        status, _, body = await running.api.serve("GET", "/readyz", {}, {}, b"")
        assert status == 500
        assert isinstance(body, bytes)
        assert b"bytes are free" in body
        assert (await running.api.serve("GET", "/livez", {}, {}, b""))[0] == 200


async def test_a_full_disk_at_the_start_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kyu.app._write_private", full)
    assert "No space left" in await refusal(data)


def test_an_unreadable_tip_is_no_tip(tmp_path: Path) -> None:
    tip = TipFile(tmp_path / "kyu.db")
    for text in (b"", b"1 2 3 00000000", b"\xff\xfe", b"a b c d"):
        tip.path.write_bytes(text)
        assert tip.read() is None


async def test_history_that_is_damaged_is_not_served(tmp_path: Path) -> None:
    store = Store(Database(tmp_path / "kyu.db"), windows=Windows(changes=1))
    for _ in range(5):
        version = store.next_version
        value = b'{"metadata":{"name":"a"}}'
        await store.append(Record("things", "n", "a", "uid", version, value, {}, ()))
    assert len(await store.changes("things", 1)) == 4
    with sqlite3.connect(tmp_path / "kyu.db") as connection:
        connection.execute("UPDATE revision SET uid = 'x' WHERE version = 2")
    with pytest.raises(Expired):
        await store.changes("things", 1)
    await store.close()
