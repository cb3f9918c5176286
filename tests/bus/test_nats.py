"""NATS with a real nats-server: subscriptions, refusals, reconnects, endless expressions, signatures."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kyu.api.meta import Json
from kyu.api.pool_messages import LONGEST_MESSAGE_BYTES
from kyu.api.pools import PoolReport, PoolSource
from kyu.bus import envelopes, signing
from kyu.bus import nats as bus
from kyu.bus.connector import BadConnector, Connector, Unanswered
from kyu.bus.nats import NatsConnection
from kyu.controllers.pools import subscriptions as listening
from kyu.controllers.pools.expressions import ExpressionQuery, Expressions
from kyu.pools import publisher
from kyu.pools.offers import Offer
from tests.support.nats_listening import LONGEST_SECONDS, SUBJECT, heard, say, speaking
from tests.support.nats_servers import NatsServer, nats_server

MESSAGE = {"quotas": {"cpu": "8", "memory": "16Gi", "pods": 20, "nvidia.com/gpu": 0}, "labels": ["a=b"], "taints": []}


@pytest.fixture
def nats(tmp_path: Path) -> Any:
    with nats_server(tmp_path) as server:
        yield server


async def test_a_message_becomes_a_report_and_garbage_is_counted(nats: NatsServer) -> None:
    async with heard() as one, speaking(nats.url) as mouth:
        one.put(nats.url)
        await one.until("connected", lambda: one.source().connected)
        await say(mouth, "podman-firenze", MESSAGE)
        await one.until("the pool", lambda: one.pools() == ["podman-firenze"])
        report = one.cache.list(PoolReport)[0]
        assert report.quotas == {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "0", "pods": "20"}
        for pool, body in {
            "podman-firenze": b"{not json",
            "b": b"\x80\x04\x95pickle",
            "UPPER": MESSAGE,
            "c": {"quotas": {"cpu": "lots"}},
            "d": {"quotas": {"cpu": "-1"}},
            "e": {**MESSAGE, "pool": "podman-firenze"},
            "f": b'{"quotas": {}, "labels": ["' + b"x" * LONGEST_MESSAGE_BYTES + b'"]}',
            "g": {**MESSAGE, "ts": time.time() - 3600},
        }.items():
            await say(mouth, pool, body)
        wanted = {"Malformed": 2, "BadPoolName": 1, "BadQuota": 2, "Foreign": 1, "TooLarge": 1, "Outdated": 1}
        await one.until("the counts", lambda: one.source().refused == wanted)
        assert one.pools() == ["podman-firenze"]
        assert one.cache.list(PoolReport)[0].quotas == report.quotas


async def test_a_replayed_message_changes_nothing(nats: NatsServer) -> None:
    async with heard() as one, speaking(nats.url) as mouth:
        one.put(nats.url, pools=["a"], poolRegExp="")
        await one.until("connected", lambda: one.source().connected)
        old = {**MESSAGE, "seq": 1}
        await say(mouth, "a", old)
        await say(mouth, "a", {"quotas": {"cpu": 2}, "seq": 2})
        await say(mouth, "a", old)
        await one.until("the refusal", lambda: one.source().refused == {"Replayed": 1})
        assert one.cache.list(PoolReport)[0].quotas == {"cpu": "2"}


async def test_with_a_key_only_the_owner_of_it_is_believed(nats: NatsServer, tmp_path: Path) -> None:
    owner, other = (signing.load_or_make(tmp_path / name) for name in ("owner", "other"))
    async with heard() as one, speaking(nats.url) as mouth:
        one.put(nats.url, pools=["a"], poolRegExp="", publicKeys={"a": owner.public_key})
        await one.until("connected", lambda: one.source().connected)
        for signer, cpu in ((None, "64"), (other, "32"), (owner, "8")):
            said = publisher.Publication(SUBJECT, "a", 1.0, signer=signer)
            await publisher.publish_once(mouth, said, Offer({"cpu": cpu}))
        await one.until("the pool", lambda: one.pools() == ["a"])
        assert one.cache.list(PoolReport)[0].quotas == {"cpu": "8"}
        await one.until("the counts", lambda: one.source().refused == {"BadSignature": 2})


async def test_nats_that_is_killed_and_started_again_is_found_and_says_so_without_secrets(tmp_path: Path) -> None:
    with nats_server(tmp_path, "--user", "ana", "--pass", "hidden") as server:
        url = server.url.replace("nats://", "nats://ana:hidden@")
        async with heard() as one:
            one.put(url)
            await one.until("connected", lambda: one.source().connected)
            since = one.source().since
            server.stop()
            await one.until("lost", lambda: not one.source().connected)
            await one.until("refused", lambda: "lost" not in one.source().error)
            assert "hidden" not in one.source().error
            server.start()
            await one.until("connected again", lambda: one.source().connected)
            assert one.source().since > since
            async with speaking(url) as mouth:
                await say(mouth, "a", MESSAGE)
                await one.until("heard again", lambda: one.pools() == ["a"])


async def test_a_server_that_hangs_is_noticed_and_no_pool_is_forgotten(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "PING_SECONDS", 1)
    monkeypatch.setattr(bus, "CONNECT_SECONDS", 1)
    async with heard() as one:
        async with speaking(nats.url) as mouth:
            one.put(nats.url)
            await one.until("connected", lambda: one.source().connected)
            # Not awaited: with a slow server the connection is lost, and the messages with it.
            while not one.pools():
                await mouth.send(f"{SUBJECT}.a", json.dumps(MESSAGE).encode())
                await asyncio.sleep(0.01)
        nats.pause()
        await one.until("noticed", lambda: not one.source().connected)
        nats.resume()
        await one.until("connected again", lambda: one.source().connected)
        assert one.pools() == ["a"]


async def test_after_a_suspension_no_pool_counts_as_silent(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "PULSE_SECONDS", 0.01)
    async with heard() as one, speaking(nats.url) as mouth:
        one.put(nats.url)
        await one.until("connected", lambda: one.source().connected)
        await say(mouth, "a", MESSAGE)
        await one.until("heard", lambda: one.pools() == ["a"])
        one.slept = timedelta(hours=1)
        awoke = datetime.now(UTC) + one.slept
        await one.until("silence counts from now on", lambda: one.source().since >= awoke.timestamp())


async def test_a_wrong_password_is_told_without_it(tmp_path: Path) -> None:
    with nats_server(tmp_path, "--user", "ana", "--pass", "right") as server:
        async with heard() as one:
            one.put(server.url.replace("nats://", "nats://ana:wrong-secret@"))
            await one.until("refused", lambda: "Authorization" in one.source().error)
            assert "wrong-secret" not in one.source().error


async def test_credentials_come_from_a_secret(tmp_path: Path) -> None:
    with nats_server(tmp_path, "--auth", "a-token") as server:
        async with heard(token="a-token") as one:
            one.put(server.url, credentialsSecret={"namespace": "kyu", "name": "nats"})
            await one.until("connected", lambda: one.source().connected)
            one.put(server.url, credentialsSecret={"namespace": "kyu", "name": "missing"})
            await one.until("missing", lambda: one.source().error == "Secret kyu/missing does not exist")


async def test_groups_share_a_connection_and_what_is_gone_is_forgotten(nats: NatsServer) -> None:
    async with heard() as one, speaking(nats.url) as mouth:
        one.put(nats.url)
        await one.until("connected", lambda: one.source().connected)
        await say(mouth, "a", MESSAGE)
        await one.until("heard", lambda: one.pools() == ["a"])
        # Another expression: the subscription is new, the connection is not.
        before = one.listener.find_connection("mq", "i")
        one.put(nats.url, poolRegExp="b", poolMatch="full")
        await one.until("forgotten", lambda: one.pools() == [])
        await one.until("connected", lambda: one.source().connected)
        assert one.listener.find_connection("mq", "i") is before
        await say(mouth, "bb", MESSAGE)
        await say(mouth, "b", MESSAGE)
        await one.until("heard", lambda: one.pools() == ["b"])
        one.remove()
        await one.until("nothing is left", lambda: one.pools() == [] and one.source() == PoolSource())
        assert one.listener.find_connection("mq", "i") is None


async def test_a_late_report_of_a_deleted_flavor_is_dropped(nats: NatsServer) -> None:
    """A second refusal is reported two seconds after the first; by then another subscription has taken the place."""
    told: list[dict[str, int]] = []
    async with heard() as one, speaking(nats.url) as mouth:
        one.put(nats.url)
        await one.until("connected", lambda: one.source().connected)
        await say(mouth, "a", b"garbage")
        await one.until("told", lambda: one.source().refused == {"Malformed": 1})
        await say(mouth, "a", b"garbage")
        one.put(nats.url, poolRegExp="b")
        await one.until("another ear", lambda: one.source().connected and not one.source().refused)
        one.cache.subscribe(lambda kind, old, new: told.append((new or {}).get("refused") or {}))
        for count in (1, 2):
            await say(mouth, "UPPER", MESSAGE)
            await one.until("told", lambda count=count: one.source().refused == {"BadPoolName": count})  # type: ignore[misc]
        assert {"Malformed": 2} not in told


async def test_an_endless_expression_is_cut_off_and_stalls_nothing(nats: NatsServer) -> None:
    async with heard() as one, speaking(nats.url) as mouth:
        one.put(nats.url, poolRegExp="(a+)+$")
        await one.until("connected", lambda: one.source().connected)
        started = time.monotonic()
        await say(mouth, "a" * 40 + "-b", MESSAGE)
        await say(mouth, "aaa", MESSAGE)
        ticks = 0
        while one.pools() != ["aaa"]:
            assert time.monotonic() - started < LONGEST_SECONDS
            ticks += 1
            await asyncio.sleep(0.005)
        assert ticks > 5, "the event loop stood still"
        await one.until("told", lambda: "cut off" in one.source().expression_error)


async def test_expressions_search_as_python_does_and_bad_ones_say_what_is_wrong() -> None:
    expressions = Expressions()
    try:
        assert (await expressions.ask(ExpressionQuery("podman-.*", False, "not-podman-x"))).selected
        assert not (await expressions.ask(ExpressionQuery("podman-.*", True, "not-podman-x"))).selected
        verdict = await expressions.ask(ExpressionQuery("(", False, "a"))
        assert not verdict.selected
        assert "unterminated subpattern" in verdict.error
        assert expressions.find(ExpressionQuery("(", False, "a")) == verdict
    finally:
        await expressions.close()


async def test_more_pools_than_anyone_has_are_not_remembered(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MOST_POOLS", 5)
    async with heard() as one, speaking(nats.url) as mouth:
        one.put(nats.url)
        await one.until("connected", lambda: one.source().connected)
        for number in range(9):
            await say(mouth, f"p{number}", MESSAGE)
            if number < 5:
                await one.until("heard", lambda pool=f"p{number}": pool in one.pools())  # type: ignore[misc]
        await one.until("refused", lambda: one.source().refused == {"TooManyPools": 4})
        assert one.pools() == [f"p{number}" for number in range(5)]


async def test_a_pool_that_was_silent_for_long_makes_room_for_another(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MOST_POOLS", 1)
    monkeypatch.setattr(listening, "FORGOTTEN_AFTER", 0.0)
    async with heard() as one, speaking(nats.url) as mouth:
        one.put(nats.url)
        await one.until("connected", lambda: one.source().connected)
        for pool in ("first", "second"):
            await say(mouth, pool, MESSAGE)
            await one.until("heard", lambda pool=pool: one.pools() == [pool])  # type: ignore[misc]
        assert one.source().refused == {}


def test_a_connector_shows_no_secrets() -> None:
    connector = Connector("wss://ana:hidden@host/path", token="t0ken")
    assert connector.address == "wss://host/path"
    assert "hidden" not in repr(connector)
    assert "t0ken" not in repr(connector)
    assert connector.clean("bad login ana:hidden with t0ken") == "bad login ***:*** with ***"
    with pytest.raises(BadConnector, match="starts with"):
        Connector("http://ana:hidden@host")


def test_envelopes_open_once_for_those_on_the_list(tmp_path: Path) -> None:
    us, others = (signing.load_or_make(tmp_path / name) for name in ("us", "others"))
    letter = envelopes.new_letter("status", {"uids": ["x"]}, 1000.0)
    sealed = envelopes.seal(letter, "pool", us)
    assert envelopes.unseal(sealed, "pool", [us.public_key], us) == (letter, us.public_key)
    with pytest.raises(envelopes.NotOpened, match="not in the list"):
        envelopes.unseal(sealed, "pool", [others.public_key], us)
    with pytest.raises(envelopes.NotOpened, match="signature"):
        envelopes.unseal(sealed, "another-pool", [us.public_key], us)
    changed: Json = msgspec.json.decode(sealed)
    changed["body"] = changed["body"].replace('"x"', '"y"')
    with pytest.raises(envelopes.NotOpened, match="signature"):
        envelopes.unseal(msgspec.json.encode(changed), "pool", [us.public_key], us)
    once = envelopes.Once()
    once.check(letter, 1001.0)
    with pytest.raises(envelopes.NotOpened, match="seen before"):
        once.check(letter, 1002.0)
    with pytest.raises(envelopes.NotOpened, match="too old"):
        envelopes.Once().check(letter, 1100.0)


async def test_a_request_without_a_subscriber_fails_at_once(nats: NatsServer) -> None:
    async with speaking(nats.url) as mouth:
        with pytest.raises(Unanswered, match="there is no subscriber"):
            await mouth.request("interlink.run.nobody", b"", 5.0)


async def test_a_cancellation_is_never_lost(nats: NatsServer) -> None:
    """At whichever moment of a publication it comes."""

    async def publish_for_ever(mouth: NatsConnection) -> None:
        while True:
            await mouth.publish("elsewhere", b"")

    async with speaking(nats.url) as mouth:
        for moments in range(100):
            task = asyncio.create_task(publish_for_ever(mouth))
            for _ in range(moments):
                await asyncio.sleep(0)
            task.cancel()
            async with asyncio.timeout(LONGEST_SECONDS):
                await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
