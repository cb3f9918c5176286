"""Leases: one holder at a time, another when it ends or falls silent, and no holder without a valid Lease."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kyu.api.meta import Json, Key
from kyu.kube import errors
from kyu.kube.client import Client
from kyu.kube.direct import Direct
from kyu.kube.lease import LEASE, Lease, LeaseLost, ObservedLease, Terms, claimed
from kyu.kube.requests import Answer, Call
from kyu.server.api import Api
from tests.support.servers import serving

KEY = Key("kueue-system", "one")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def terms(holder: str, duration: float = 15) -> Terms:
    return Terms(KEY, holder, duration, renew_deadline=duration / 2, retry=0.01)


def test_the_spec_has_holder_times_and_transitions() -> None:
    first = claimed({}, terms("a"), NOW)
    assert first == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    later = NOW.replace(second=2)
    assert claimed(first, terms("a"), later) == {**first, "renewTime": "2026-01-01T00:00:02.000000Z"}
    assert claimed(first, terms("b"), later) == {
        "holderIdentity": "b",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:02.000000Z",
        "renewTime": "2026-01-01T00:00:02.000000Z",
        "leaseTransitions": 1,
    }


def test_it_is_free_when_it_did_not_change_for_its_duration_whatever_its_times_say() -> None:
    sight = ObservedLease({}, 0.0)
    assert sight.is_free_for("b", 100.0)
    sight.observe(claimed({}, terms("a"), NOW), 100.0)
    assert sight.is_free_for("a", 100.0)
    assert not sight.is_free_for("b", 114.9)
    sight.observe(claimed(sight.spec, terms("a"), NOW.replace(year=2020)), 110.0)
    assert not sight.is_free_for("b", 124.9)
    assert sight.is_free_for("b", 125.0)
    sight.observe({**sight.spec, "holderIdentity": ""}, 111.0)
    assert sight.is_free_for("b", 111.0)


class Cable(Direct):
    """A transport that can be cut, and records its use."""

    is_cut = False

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.was_answered = asyncio.Event()
        self.was_refused = asyncio.Event()

    async def send(self, call: Call) -> Answer:
        if self.is_cut:
            self.was_refused.set()
            raise errors.NoAnswer("the cable is cut")
        answer = await super().send(call)
        self.was_answered.set()
        return answer

    async def until_refused(self) -> None:
        async with asyncio.timeout(30):
            await self.was_refused.wait()


async def holder_of(client: Client) -> str:
    return str((await client.get(LEASE, KEY))["spec"]["holderIdentity"])


class Story:
    """The events of a test, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._news = asyncio.Event()

    def tell(self, word: str) -> None:
        self.told.append(word)
        self._news.set()

    async def until(self, word: str) -> None:
        async with asyncio.timeout(30):
            while word not in self.told:
                self._news.clear()
                await self._news.wait()


async def act(lease: Lease, name: str, story: Story, end: asyncio.Event) -> None:
    try:
        async with lease.held():
            story.tell(f"{name} acts")
            await end.wait()
            story.tell(f"{name} ends")
    except LeaseLost:
        story.tell(f"{name} has lost it")


def now() -> datetime:
    return datetime.now(UTC)


async def test_one_after_the_other_and_at_once_when_the_first_ends(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        story, end, cable = Story(), asyncio.Event(), Cable(api)
        first = asyncio.create_task(act(Lease(client, terms("a", 1000), now), "a", story, end))
        await story.until("a acts")
        second = asyncio.create_task(act(Lease(Client(cable), terms("b", 1000), now), "b", story, end))
        await asyncio.wait_for(cable.was_answered.wait(), 30)
        assert await holder_of(client) == "a"
        assert story.told == ["a acts"]
        end.set()
        await asyncio.wait_for(asyncio.gather(first, second), 30)
        assert story.told == ["a acts", "a ends", "b acts", "b ends"]
        assert await holder_of(client) == ""


async def test_a_standby_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        story, end, cable = Story(), asyncio.Event(), Cable(api)
        first = asyncio.create_task(act(Lease(client, terms("a", 1000), now), "a", story, end))
        await story.until("a acts")
        lease = Lease(Client(cable), terms("b", 1000), now)
        second = asyncio.create_task(act(lease, "b", story, end))
        await asyncio.wait_for(cable.was_answered.wait(), 30)
        cable.is_cut = True
        await cable.until_refused()
        assert lease.is_standing_by
        cable.is_cut = False
        end.set()
        await asyncio.wait_for(asyncio.gather(first, second), 30)
        assert story.told == ["a acts", "a ends", "b acts", "b ends"]
        assert not lease.is_standing_by


async def test_a_holder_that_cannot_renew_ends_before_another_begins(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        story, never, cable = Story(), asyncio.Event(), Cable(api)
        first = asyncio.create_task(act(Lease(Client(cable), terms("a", 1), now), "a", story, never))
        await story.until("a acts")
        second = asyncio.create_task(act(Lease(client, terms("b", 1000), now), "b", story, never))
        cable.is_cut = True
        await story.until("b acts")
        assert story.told == ["a acts", "a has lost it", "b acts"]
        await first
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert await holder_of(client) == ""


async def test_a_holder_that_finds_another_holder_ends(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        story, never = Story(), asyncio.Event()
        first = asyncio.create_task(act(Lease(client, terms("a", 1000), now), "a", story, never))
        await story.until("a acts")
        patch: Json = {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 1000}}
        await client.patch(LEASE, KEY, patch)
        await asyncio.wait_for(first, 30)
        assert story.told == ["a acts", "a has lost it"]
        assert await holder_of(client) == "somebody"


async def test_a_missing_permission_is_reported(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await client.create(LEASE, {"metadata": {"name": "one", "namespace": "default"}})
        bad = Terms(Key("default", "Not a name"), "a", 15, 10, 2)
        with pytest.raises(errors.Invalid):
            async with Lease(client, bad, now).held():
                raise AssertionError("it is held")
