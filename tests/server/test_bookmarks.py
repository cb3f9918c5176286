"""Bookmarks of watches: their representations, and the options that are rejected."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest

from kyu.api.meta import Json
from kyu.server.api import Api
from tests.support.answers import MAPS, make, send
from tests.support.servers import ask, serving

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
END = {"k8s.io/initial-events-end": "true"}


async def events(api: Api, query: str, accept: str = "", *, write: bool = False) -> list[Json]:
    """Return all events of a short watch; with ``write``, an object is written after it has begun."""
    response = await ask(api, "GET", f"{MAPS}?watch=1&timeoutSeconds=60&{query}", accept=accept)
    assert not isinstance(response.body, bytes)
    if write:
        await send(api, f"POST {MAPS}", {"metadata": {"name": "written"}})
    response.body.close()
    async with contextlib.aclosing(response.body.parts()) as parts:
        return [msgspec.json.decode(line) async for part in parts for line in part.splitlines()]


@pytest.mark.parametrize(
    "query", ["", "resourceVersion=0&", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&"]
)
async def test_a_bookmark_marks_the_end_of_the_initial_events(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        added, mark = await events(api, f"{query}allowWatchBookmarks=true")
        assert (added["type"], mark["type"]) == ("ADDED", "BOOKMARK")
        assert mark["object"]["metadata"]["annotations"] == END


async def test_a_short_watch_ends_with_a_bookmark_if_anything_happened(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        made = await make(api, MAPS)
        query = f"allowWatchBookmarks=true&resourceVersion={made['metadata']['resourceVersion']}"
        assert await events(api, query) == []
        assert [event["type"] for event in await events(api, query, write=True)] == ["ADDED", "BOOKMARK"]


async def test_a_watch_without_initial_events_shows_no_existing_objects(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make(api, MAPS)
        query = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        found = await events(api, query, write=True)
        assert [event["object"]["metadata"]["name"] for event in found] == ["written"]


async def test_a_bookmark_has_the_form_of_the_watch(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        query = "resourceVersion=0&allowWatchBookmarks=true&labelSelector=none"
        (partial,) = await events(api, query, PARTIAL)
        assert partial["object"]["kind"] == "PartialObjectMetadata"
        (table,) = await events(api, query, TABLE)
        assert [column["name"] for column in table["object"]["columnDefinitions"]] == ["Name", "Data", "Age"]
        (row,) = table["object"]["rows"]
        assert row["cells"] == ["", 0, "<unknown>"]
        assert row["object"]["metadata"]["annotations"] == END


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        (
            "watch=1&resourceVersionMatch=Exact",
            [
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                'Unsupported value: "Exact": supported values: "NotOlderThan"',
            ],
        ),
        (
            "watch=1&sendInitialEvents=false",
            ["Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"],
        ),
        ("watch=1&continue=x", ["Forbidden: resourceVersionMatch is forbidden when continue is provided"]),
        (
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            [
                "Forbidden: sendInitialEvents is forbidden for list",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ],
        ),
    ],
)
async def test_questions_that_no_watch_answers(tmp_path: Path, query: str, texts: list[str]) -> None:
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"GET {MAPS}?{query}")
        assert response.status == 422
        assert [cause["message"] for cause in status["details"]["causes"]] == texts
