"""Writes that came before in the same words lead to what they would have led to on a server that remembers nothing."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kyu.api.meta import Json, Key, Kind
from kyu.kube.client import Client
from kyu.kube.errors import ApiError
from kyu.server import repeats
from kyu.server.api import Api
from kyu.server.bodies import APPLY_PATCH, MERGE_PATCH
from kyu.server.exchange import Response
from kyu.server.repeats import Memory, Texts
from tests.servers import DEFINITION, WORKLOAD, ask, following, serving, until, workload

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLLECTION = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
TYPED = {"apiVersion": WORKLOAD.api_version, "kind": WORKLOAD.kind}
SHELF = Kind("test.dev", "v1", "Shelf", "shelves")


class Clock:
    """Moved by hand, so that no time is the same by chance."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


class Pair:
    """Two servers that are told the same: one of them with more spaces each time, so that no text comes twice."""

    def __init__(self, remembering: Api, forgetful: Api, clock: Clock) -> None:
        self._remembering = remembering
        self._forgetful = forgetful
        self._clock = clock
        self._spaces = b""

    async def tell(self, method: str, target: str, body: bytes, **headers: str) -> Response:
        """The answer, which is that of both."""
        self._spaces += b" "
        spaced = body.replace(b"{", b"{" + self._spaces)
        answers = [
            await ask(self._remembering, method, target, body, **headers),
            await ask(self._forgetful, method, target, spaced, **headers),
        ]
        self._clock.now += timedelta(seconds=1)
        shown = [(each.status, each.warnings, without_chance(each.body)) for each in answers]
        assert shown[0] == shown[1]
        return answers[0]


@contextlib.asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    clock = Clock()
    async with contextlib.AsyncExitStack() as stack:
        apis = []
        for name in ("remembering", "forgetful"):
            (folder / name).mkdir()
            apis.append((await stack.enter_async_context(serving(folder / name, clock=clock)))[0])
        yield Pair(apis[0], apis[1], clock)


def without_chance(body: Any) -> bytes:
    """An answer without what is no server's choice; as bytes, because the order of fields counts, too."""
    assert isinstance(body, bytes)
    value = msgspec.json.decode(body)
    metadata = value.get("metadata", {})
    for name in ("uid", "resourceVersion"):
        if name in metadata:
            metadata[name] = ""
    if "generateName" in metadata:
        metadata["name"] = ""
    return msgspec.json.encode(value)


def body_of(metadata: Json, spec: Any, **more: Any) -> bytes:
    return msgspec.json.encode({**TYPED, "metadata": metadata, "spec": spec, **more})


# What may be different about a Workload.

SPEC: Json = workload("w")["spec"]
POD_SET: Json = SPEC["podSets"][0]
SPECS: list[Any] = [
    SPEC,
    {**SPEC, "priority": 5},
    {**SPEC, "active": None},
    {**SPEC, "unknown": 1},
    {**SPEC, "priority": "high"},
    {**SPEC, "podSets": [{**POD_SET, "minCount": 1}]},
    {**SPEC, "podSets": [{**POD_SET, "minCount": 2}]},
    {**SPEC, "podSets": [POD_SET, POD_SET]},
    {**SPEC, "podSets": []},
    {},
    None,
    [],
]
METADATA: list[Json] = [
    {},
    {"namespace": "default"},
    {"namespace": "other"},
    {"generateName": "w-", "name": ""},
    {"labels": {"a": "b"}, "finalizers": ["test.dev/kept"]},
    {"labels": {"a": "-"}},
    {"labels": "none"},
    {"unknown": 1},
    {"resourceVersion": "7"},
    {"uid": "mine", "creationTimestamp": None},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}] * 2},
    {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}},
    {"annotations": {"kueue.x-k8s.io/admission-gated-by": "no domain"}},
    {"managedFields": []},
    {"name": "UPPER"},
]
QUERIES = ("", "?fieldValidation=Strict", "?fieldValidation=Ignore", "?dryRun=All", "?fieldManager=m")


async def test_creates_are_answered_as_if_each_were_the_first(tmp_path: Path) -> None:
    chance = random.Random(1)
    async with pair(tmp_path) as both:
        for number in range(300):
            # The first ones are told more often: what is remembered must be met by all that is odd.
            spec = chance.choice((chance.choice(SPECS[:3]), chance.choice(SPECS)))
            metadata = chance.choice(({}, chance.choice(METADATA)))
            body = body_of({"name": f"w{number}", **metadata}, spec)
            await both.tell("POST", COLLECTION + chance.choice(QUERIES), body)


CONDITION = {"type": "QuotaReserved", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T12:00:00Z"}
ASSIGNMENT = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}, "count": 1}
ADMISSION = {"clusterQueue": "main", "podSetAssignments": [ASSIGNMENT]}
STATUSES: list[Any] = [
    {"conditions": [{**CONDITION, "status": "True"}], "admission": ADMISSION},
    {"conditions": [{**CONDITION, "status": "False"}]},
    {"conditions": [{**CONDITION, "status": "False"}], "admission": None},
    {"conditions": [{**CONDITION, "status": "True"}], "admission": {**ADMISSION, "podSetAssignments": []}},
    {"admission": {**ADMISSION, "clusterQueue": "other"}},
    {"requeueState": {"count": 1}},
    {"requeueState": {"count": "1"}},
    {"unknown": 1},
    {},
    None,
]
WRITERS = (
    (MERGE_PATCH, "?fieldManager=a"),
    (MERGE_PATCH, "?fieldManager=b"),
    (MERGE_PATCH, "?fieldManager=a&dryRun=All"),
    (APPLY_PATCH, "?fieldManager=a"),
    (APPLY_PATCH, "?fieldManager=b"),
    (APPLY_PATCH, "?fieldManager=b&force=true"),
)


Told = tuple[Any, tuple[str, str]]
PATCHER, OTHER_PATCHER, _, APPLIER, OTHER_APPLIER, FORCING_APPLIER = WRITERS
COUNTS = [{"requeueState": {"count": count}} for count in range(3)]


async def tell_status(both: Pair, name: str, told: Told) -> None:
    status, (type_, query) = told
    body = msgspec.json.encode({**(TYPED if type_ == APPLY_PATCH else {}), "status": status})
    await both.tell("PATCH", f"{COLLECTION}/{name}/status{query}", body, content_type=type_)


async def test_statuses_are_answered_as_if_each_were_the_first(tmp_path: Path) -> None:
    chance = random.Random(2)
    async with pair(tmp_path) as both:
        for number in range(25):
            history: list[Told] = [
                (chance.choice((STATUSES[number % 3], chance.choice(STATUSES))), chance.choice(WRITERS))
                for _ in range(chance.randint(1, 3))
            ]
            for copy in range(4):
                # The last one is not like the others.
                metadata = {"name": f"w{number}-{copy}", **({"annotations": {"a": "b"}} if copy == 3 else {})}
                await both.tell("POST", COLLECTION, body_of(metadata, SPEC))
                for told in history:
                    await tell_status(both, f"w{number}-{copy}", told)


@pytest.mark.parametrize(
    "history",
    [
        [(COUNTS[0], PATCHER), (COUNTS[1], PATCHER), (COUNTS[2], PATCHER)],
        [(COUNTS[0], APPLIER), (COUNTS[1], APPLIER), (COUNTS[1], OTHER_APPLIER)],
        [(COUNTS[0], PATCHER), (COUNTS[1], OTHER_PATCHER), ({"requeueState": None}, PATCHER)],
    ],
    ids=["patched", "applied", "removed"],
)
async def test_objects_that_differ_are_told_apart(tmp_path: Path, history: list[Told]) -> None:
    """Their owners are the same, and so is what they are told."""
    async with pair(tmp_path) as both:
        for number in range(8):
            await both.tell("POST", COLLECTION, body_of({"name": f"w{number}"}, {**SPEC, "priority": number % 2}))
            for told in history:
                await tell_status(both, f"w{number}", told)


def timed(*seconds: int, **more: str) -> Json:
    """A status with a condition for each time; the second 60 does not exist."""
    reason = {"type": "", "status": "True", "reason": "Test", "message": "", **more}
    return {
        "conditions": [
            {**reason, "type": f"C{number}", "lastTransitionTime": f"2026-01-01T12:00:{second:02}Z"}
            for number, second in enumerate(seconds)
        ]
    }


async def test_times_are_told_apart_by_their_order_and_written_as_they_are(tmp_path: Path) -> None:
    chance = random.Random(3)
    async with pair(tmp_path) as both:
        for number in range(60):
            await both.tell("POST", COLLECTION, body_of({"name": f"w{number}"}, SPEC))
            writer, other = PATCHER, (APPLIER if number % 2 else OTHER_PATCHER)
            first = [chance.randint(1, 4) for _ in range(2)]
            # The same again, another time, a time more, and now and then one that is none.
            second = [first[0], *chance.sample((first[1], 2, 5, 6), 2), *chance.sample((7, 60), number % 9 == 0)]
            await tell_status(both, f"w{number}", (timed(*first), writer))
            await tell_status(both, f"w{number}", (timed(*second), chance.choice((writer, other))))


async def test_objects_of_other_seconds_are_answered_from_memory(tmp_path: Path) -> None:
    """Those that are told the same in the same second then share it, from the first one on."""
    async with serving(tmp_path) as (api, client):
        async with following(api, client, WORKLOAD) as (followed,):
            for number, second in enumerate((1, 1, 2, 2)):
                await client.create(WORKLOAD, workload(f"w{number}"))
                await client.patch(
                    WORKLOAD, Key("default", f"w{number}"), {"status": timed(second)}, subresource="status"
                )
        statuses = [obj["status"] for obj in followed.objects[1:8:2]]
        assert statuses[2] is statuses[3]
        assert [status["conditions"][0]["lastTransitionTime"][-3:-1] for status in statuses] == ["01", "01", "02", "02"]


async def test_what_was_taken_by_force_is_not_given_without(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        for number in range(6):
            await both.tell("POST", COLLECTION, body_of({"name": f"w{number}"}, SPEC))
            await tell_status(both, f"w{number}", (COUNTS[0], PATCHER))
            await tell_status(both, f"w{number}", (COUNTS[1], FORCING_APPLIER if number % 3 else OTHER_APPLIER))


async def test_fields_that_stand_twice_are_told_of_each_time(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        plain = json.dumps(SPEC, separators=(",", ":")).encode()
        twice = plain.replace(b'"queueName":', b'"queueName":"first","queueName":')
        for number, spec in enumerate((plain, plain, twice, twice, plain)):
            start = b'{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"w%d"' % number
            for query in ("?dryRun=All", "?dryRun=All&fieldValidation=Strict", ""):
                await both.tell("POST", COLLECTION + query, b'%b},"spec":%b}' % (start, spec))
                await both.tell("POST", COLLECTION + query, b'%b,"name":"x"},"spec":%b}' % (start, spec))
                await both.tell("POST", COLLECTION + query, b'%b},"spec":{},"spec":%b}\n' % (start, spec))


async def test_equal_parts_are_shared(tmp_path: Path) -> None:
    """This is how the memory shows: without it each object has parts of its own."""
    async with serving(tmp_path) as (api, client):
        async with following(api, client, WORKLOAD) as (followed,):
            for name in ("a", "b", "c"):
                await client.create(WORKLOAD, workload(name))
                body = {"metadata": workload(name)["metadata"], "status": STATUSES[0]}
                await client.apply(WORKLOAD, body, manager="m", subresource="status")
        seen = followed.objects[:6]
        assert seen[0]["spec"] is seen[2]["spec"] is seen[4]["spec"]
        assert seen[3]["status"] is seen[5]["status"]
        assert len({obj["metadata"]["uid"] for obj in seen}) == 3


async def test_a_changed_definition_is_asked_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await define(api, client, {"size": {"type": "integer"}, "colour": {"type": "string", "default": "red"}})
        assert (await shelf(client, "a", size=3))["spec"] == {"size": 3, "colour": "red"}
        assert (await shelf(client, "b", size=3))["spec"] == {"size": 3, "colour": "red"}
        await redefine(client, {"size": {"type": "integer"}, "colour": {"type": "string", "default": "blue"}})
        assert (await shelf(client, "c", size=3))["spec"] == {"size": 3, "colour": "blue"}
        await redefine(client, {"size": {"type": "integer", "maximum": 2}})
        with pytest.raises(ApiError, match="less than or equal to 2"):
            await shelf(client, "d", size=3)


async def test_a_rule_about_the_name_is_asked_of_each_object(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        rule = {"rule": "self.metadata.name != self.spec.rival", "message": "a shelf is no rival of itself"}
        await define(api, client, {"rival": {"type": "string"}}, rule)
        await shelf(client, "a", rival="c")
        await shelf(client, "b", rival="c")
        with pytest.raises(ApiError, match="no rival of itself"):
            await shelf(client, "c", rival="c")


def definition(properties: Json, *rules: Json) -> Json:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if rules:
        schema["x-kubernetes-validations"] = list(rules)
    names = {"plural": SHELF.plural, "singular": "shelf", "kind": SHELF.kind, "listKind": "ShelfList"}
    spec = {"group": SHELF.group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{SHELF.plural}.{SHELF.group}"}, "spec": spec}


async def define(api: Api, client: Client, properties: Json, *rules: Json) -> None:
    await client.create(DEFINITION, definition(properties, *rules))
    await until(api, lambda: api.registry.find(SHELF.group, SHELF.version, SHELF.plural) is not None)


async def redefine(client: Client, properties: Json) -> None:
    body = definition(properties)
    await client.patch(DEFINITION, Key("", body["metadata"]["name"]), {"spec": body["spec"]})


async def shelf(client: Client, name: str, **spec: Any) -> Json:
    return await client.create(SHELF, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


# The memory itself.


def test_what_is_asked_for_stays_and_the_rest_goes() -> None:
    memory: Memory[int, str] = Memory()
    memory.keep(-1, "asked for", 1)
    memory.keep(-2, "not asked for", 1)
    for number in range(3 * repeats.KEPT_ANSWERS):
        memory.keep(number, "other", 1)
        assert memory.find(-1) == "asked for"
    assert memory.find(-2) is None


def test_it_is_bounded_in_bytes() -> None:
    memory: Memory[int, str] = Memory()
    for number in range(100):
        memory.keep(number, "large", repeats.LONGEST_QUESTION)
    kept = [number for number in range(100) if memory.find(number) is not None]
    assert kept
    assert len(kept) * repeats.LONGEST_QUESTION <= 2 * repeats.KEPT_BYTES
    memory.keep(-1, "too large", repeats.LONGEST_QUESTION + 1)
    assert memory.find(-1) is None


def test_a_text_is_known_when_it_comes_again() -> None:
    texts = Texts()
    assert [texts.is_known(text) for text in (b"a", b"b", b"a", b"a")] == [False, False, True, True]
