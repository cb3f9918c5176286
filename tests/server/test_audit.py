"""The audit log: which lines it has, what they never contain, and that it is bounded."""

from __future__ import annotations

import asyncio
import http.client
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from kyu import app
from kyu.api.meta import Json
from kyu.server.exchange import Request, User
from kyu.server.routing import audit
from tests.attack.floods import Target

USER = User("ana", ("team",))
MAPS = "/api/v1/namespaces/team-a/configmaps"


def lines(path: Path) -> list[Json]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def audited(tmp_path: Path) -> audit.AuditLog:
    return audit.AuditLog(tmp_path / "audit.log", lambda: datetime(2026, 1, 2, tzinfo=UTC))


def request(method: str, path: str, **fields: object) -> Request:
    return Request(method, path, host="10.0.0.1", user=USER, **fields)  # type: ignore[arg-type]


def test_writes_refusals_and_secrets_are_logged(audited: audit.AuditLog, tmp_path: Path) -> None:
    body = b'{"data":{"password":"hunter2"}}'
    headers = {"authorization": "Bearer hunter2", "user-agent": "kubectl/1", "impersonate-user": "bob"}
    audited.note(request("POST", MAPS, body=body, headers=headers, query={"x": "hunter2"}), 201, 0.0125)
    audited.note(request("GET", f"{MAPS}/a"), 200, 0.0)
    audited.note(request("GET", f"{MAPS}/a"), 403, 0.0)
    audited.note(request("GET", "/api/v1/namespaces/team-a/secrets"), 200, 0.0)
    assert b"hunter2" not in (tmp_path / "audit.log").read_bytes()
    created, refused, secrets = lines(tmp_path / "audit.log")
    assert created["user"] == {"username": "ana", "groups": ["team"]}
    assert (created["verb"], created["sourceIPs"], created["responseStatus"]) == ("create", ["10.0.0.1"], {"code": 201})
    assert created["objectRef"] == {"apiVersion": "v1", "resource": "configmaps", "namespace": "team-a"}
    assert created["stageTimestamp"] == "2026-01-02T00:00:00.000Z"
    assert created["impersonatedUser"] == {"username": "bob"}
    assert refused["responseStatus"]["code"] == 403
    assert secrets["objectRef"]["resource"] == "secrets"


def test_no_text_of_a_caller_can_make_a_line(audited: audit.AuditLog, tmp_path: Path) -> None:
    audited.note(request("DELETE", '/a\n{"kind":"Event"}' + "x" * 10_000, headers={"user-agent": "a\r\nb"}), 200, 0.0)
    (line,) = lines(tmp_path / "audit.log")
    assert len(line["requestURI"]) < 300


def test_a_flood_of_refusals_does_not_push_others_out(audited: audit.AuditLog, tmp_path: Path) -> None:
    for _ in range(10_000):
        audited.note(request("GET", MAPS), 401, 0.0)
    audited.note(request("DELETE", f"{MAPS}/a"), 200, 0.0)
    found = lines(tmp_path / "audit.log")
    assert len(found) <= audit.REFUSALS_AT_ONCE + 3
    assert int(found[-1]["annotations"]["kyu.dev/refusals-left-out"]) > 9_000


def test_files_are_rotated_and_bounded(
    audited: audit.AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES", 20_000)
    for _ in range(1_000):
        audited.note(request("POST", MAPS), 201, 0.0)
    files = sorted(tmp_path.iterdir())
    assert len(files) == audit.FILES
    assert all(path.stat().st_size <= 20_000 and path.stat().st_mode & 0o77 == 0 for path in files)


def test_a_full_disk_leaves_a_gap_and_no_fault(audited: audit.AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    audited.note(request("POST", MAPS), 201, 0.0)
    assert audited.dropped == 1


async def test_the_server_logs_requests_with_their_address(tmp_path: Path) -> None:
    settings = app.Settings(tmp_path / "data", bare=True, server_only=True)
    async with app.embedded(settings):
        target = Target(settings.data)
        connection = http.client.HTTPSConnection(
            target.host, target.port, context=target.context, source_address=("127.0.3.4", 0)
        )

        def ask() -> int:
            headers = {"authorization": "Bearer wrong", "content-type": "application/json"}
            connection.request("POST", MAPS, body=b"{}", headers=headers)
            return connection.getresponse().status

        assert await asyncio.to_thread(ask) == 401
        connection.close()
    (line,) = lines(settings.data / "audit.log")
    assert (line["sourceIPs"], line["responseStatus"], line["verb"]) == (["127.0.3.4"], {"code": 401}, "create")
