"""The site's end of a pool: its offers, its announcements, and the senders that it accepts."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from kyu.api import pool_messages
from kyu.api.core import Taint
from kyu.api.meta import Json
from kyu.api.pool_messages import Announcement
from kyu.bus import envelopes, signing
from kyu.bus.connector import Connector, Unanswered
from kyu.bus.nats import NatsConnection
from kyu.cli.main import main
from kyu.pools import offers, pods, publisher
from kyu.pools.offers import NoOffer, Offer
from kyu.pools.publisher import Publication
from kyu.pools.runner import Runner
from tests.support.manifests import node, pod
from tests.support.nats_servers import nats_server

SUBJECT = "interlink.resources"
LONGEST_SECONDS = 30.0

SINFO = """\
n1|0/64/0/64|256000|200000|gpu:a100:4(S:0-1)|idle
n2|32/32/0/64|256000|100000|gpu:a100:4(S:0-1)|mix
n2|32/32/0/64|256000|100000|gpu:a100:4(S:0-1)|mix
n3|64/0/0/64|256000|50000|(null)|alloc
n4|0/0/64/64|256000|N/A|(null)|drain*
n5|0/16/0/16|64000|60000|gpu:2|idle~
"""


def test_slurm_offers_what_is_idle_on_nodes_that_take_jobs() -> None:
    offer = offers.parse_sinfo(SINFO)
    assert offer.quotas == {"cpu": "112", "memory": "360000Mi", "pods": "440", "nvidia.com/gpu": "6"}
    with pytest.raises(NoOffer, match="cannot be read"):
        offers.parse_sinfo("sinfo: error\n")


def test_a_cluster_offers_what_its_pods_leave() -> None:
    capacity = {"pods": "10", "example.com/licence": "2"}
    nodes = [
        node("a", allocatable=capacity),
        node("b", allocatable=capacity),
        node("c", allocatable=capacity, ready="False"),
        node("d", allocatable=capacity, unschedulable=True),
    ]
    pods = [
        pod("runs", node="a", cpu="1500m", memory="1Gi", phase="Running"),
        pod("over", node="a", cpu="2", memory="1Gi", phase="Succeeded"),
        pod("large", node="b", cpu="5", memory="1Gi", phase="Running"),
        pod("unready", node="c", cpu="1", memory="1Gi", phase="Running"),
    ]
    offer = offers.offer_of_nodes(nodes, pods)
    # Node b is overcommitted, which takes nothing from a.
    assert offer.quotas == {
        "cpu": "2500m",
        "memory": "14Gi",
        "pods": "18",
        "nvidia.com/gpu": "0",
        "example.com/licence": "4",
    }


def test_this_machine_offers_all_of_itself(tmp_path: Path) -> None:
    offer = offers.local_offer(str(tmp_path))
    assert set(offer.quotas) == {"cpu", "memory", "pods", "nvidia.com/gpu"}
    assert set(offer.free) == {"cpu", "memory"}
    body = publisher.message(Publication(SUBJECT, "a", 1.0), offer, time.time())
    assert isinstance(pool_messages.parse("a", msgspec.json.encode(body)), Announcement)


def test_a_message_has_the_fields_of_todays_publishers(tmp_path: Path) -> None:
    signer = signing.load_or_make(tmp_path / "key")
    publication = Publication(SUBJECT, "a", 5.0, ("site=a",), ("x=y:NoExecute",), runs=True, signer=signer)
    body = publisher.message(publication, Offer({"cpu": "8"}), 1000.0)
    assert {name: body[name] for name in ("quotas", "labels", "taints")} == {
        "quotas": {"cpu": "8"},
        "labels": ["site=a"],
        "taints": ["x=y:NoExecute"],
    }
    parsed = pool_messages.parse("a", msgspec.json.encode(body))
    assert isinstance(parsed, Announcement)
    assert (parsed.period, parsed.runs, parsed.seq) == (5.0, True, 1_000_000)
    assert signing.is_signed(pool_messages.signed_part(body, "a"), body["signature"], signer.public_key)


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("k=v:NoExecute", Taint("k", "NoExecute", "v")),
        ("k:PreferNoSchedule", Taint("k", "PreferNoSchedule")),
        ("k", Taint("k", "NoSchedule")),
        ("k=v", Taint("k", "NoSchedule", "v")),
        ("k=v:Whatever", None),
        ("", None),
        ("a b=c", None),
    ],
)
def test_taints_are_read_with_or_without_value_and_effect(text: str, taint: Taint | None) -> None:
    assert pool_messages.parse_taint(text) == taint


def test_a_label_without_a_value_is_empty_and_a_bad_one_is_none() -> None:
    assert pool_messages.parse_label("bare") == ("bare", "")
    assert pool_messages.parse_label("a=b") == ("a", "b")
    assert pool_messages.parse_label("a=b c") is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nats", "nats://127.0.0.1:1"], "--nats and --pool are required"),
        (["--nats", "http://ana:hidden@host", "--pool", "a"], "starts with nats://"),
        (["--nats", "nats://127.0.0.1:1", "--pool", "A_B"], "lower case"),
        (["--nats", "nats://127.0.0.1:1", "--pool", "a", "--nats-secret", "/no/such"], "no folder"),
        (["--nats", "nats://127.0.0.1:1", "--pool", "a", "--run"], "needs --allow"),
        (["--nats", "nats://far.example.org:4222", "--pool", "a", "--run", "--allow", "k"], "tls://"),
        (["--nats", "nats://127.0.0.1:1", "--pool", "a", "--period", "0"], "at least"),
    ],
)
def test_an_invalid_announcement_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pool", "publish", *words]) == 2
    answer = capsys.readouterr().err
    assert said in answer
    assert "hidden" not in answer


def a_pod(uid: str, script: str) -> Json:
    container = {"name": "main", "image": "busybox", "command": ["/bin/sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "with.dots", "namespace": "default", "uid": uid},
        "spec": {"restartPolicy": "Never", "containers": [container], "nodeName": "interlink"},
    }


class Sender:
    """A sender of pods to the pool `a`."""

    def __init__(self, connection: NatsConnection, signer: signing.Signer, runner: str = "") -> None:
        self._connection = connection
        self._signer = signer
        self._runner = runner

    async def ask(self, verb: envelopes.Verb, content: Json, seconds: float = LONGEST_SECONDS) -> Json:
        letter = envelopes.new_letter(verb, content, time.time())
        sealed = envelopes.seal(letter, "a", self._signer, to=self._runner)
        return await self.send(sealed, seconds)

    async def send(self, sealed: bytes, seconds: float) -> Json:
        answer = await self._connection.request(envelopes.subject_of(SUBJECT, "a"), sealed, seconds)
        letter, _ = envelopes.unseal(answer, "a", None, self._signer)
        return letter.content if not letter.error else {"error": letter.error}

    async def wait_for(self, uid: str, phase: str) -> Json:
        ends = time.monotonic() + LONGEST_SECONDS
        while True:
            status: Json = (await self.ask("status", {"uids": [uid]}))["statuses"].get(uid) or {}
            if status.get("phase") == phase:
                return status
            assert time.monotonic() < ends, f"{uid} is not {phase}: {status}"
            await asyncio.sleep(0.02)


@asynccontextmanager
async def far_end(folder: Path, allowed: str) -> AsyncIterator[NatsConnection]:
    with nats_server(folder) as server:
        connection = NatsConnection(Connector(server.url), "test")
        connecting = asyncio.create_task(connection.run())
        await asyncio.wait_for(connection.connected(), LONGEST_SECONDS)
        running = asyncio.create_task(Runner(connection, SUBJECT, "a", folder, [allowed]).run())
        try:
            yield connection
        finally:
            for task in (running, connecting):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def until_listening(sender: Sender) -> None:
    for _ in range(200):
        try:
            await sender.ask("status", {"uids": []})
            return
        except Unanswered:
            await asyncio.sleep(0.05)
    raise AssertionError("the runner does not listen")


@pytest.mark.parametrize("encrypted", [True, False])
async def test_a_runner_answers_listed_senders_only(tmp_path: Path, *, encrypted: bool) -> None:
    us, others, runner = (signing.load_or_make(tmp_path / name) for name in ("us", "others", "pool.key"))
    async with far_end(tmp_path, us.public_key) as connection:
        key = runner.public_key if encrypted else ""
        sender, stranger = Sender(connection, us, key), Sender(connection, others, key)
        await until_listening(sender)
        overheard: list[bytes] = []
        connection.listen(">", lambda subject, payload, reply: overheard.append(payload))
        created = {"pod": a_pod("u-1", "echo hello; echo $WORD"), "objects": {}}
        created["pod"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "words"}}]
        created["objects"] = {"ConfigMap/words": {"data": {"WORD": "from afar"}}}
        with pytest.raises(Unanswered):
            await stranger.ask("create", created, seconds=0.3)
        assert (await sender.ask("status", {"uids": ["u-1"]})) == {"statuses": {}}

        await sender.ask("create", created)
        await sender.wait_for("u-1", "Succeeded")
        wanted = {
            "uid": "u-1",
            "pod": "with.dots",
            "container": "main",
            "previous": False,
            "timestamps": False,
            "offset": 0,
        }
        answer = await sender.ask("logs", wanted)
        assert base64.b64decode(answer["text"]) == b"hello\nfrom afar\n"
        assert answer["ended"]
        tail = await sender.ask("logs", {**wanted, "tail": 1})
        assert base64.b64decode(tail["text"]) == b"from afar\n"

        # A repeated request finds the same pod, and after its removal nothing is left.
        assert (await sender.ask("create", created))["status"]["phase"] == "Succeeded"
        await sender.ask("remove", {"uid": "u-1"})
        assert not (tmp_path / "runtime" / "pods" / "u-1").exists()
        assert any(b"from afar" in payload for payload in overheard) != encrypted


async def test_a_runner_ends_pods_and_refuses_what_it_cannot_run_and_what_it_has_seen(tmp_path: Path) -> None:
    us = signing.load_or_make(tmp_path / "us")
    async with far_end(tmp_path, us.public_key) as connection:
        sender = Sender(connection, us)
        await until_listening(sender)
        await sender.ask("create", {"pod": a_pod("u-2", "sleep 600"), "objects": {}})
        await sender.wait_for("u-2", "Running")
        await sender.ask("stop", {"uid": "u-2", "grace": 0})
        await sender.wait_for("u-2", "Failed")

        missing = a_pod("u-3", "true")
        missing["spec"]["containers"][0]["command"] = ["/no/such/program"]
        await sender.ask("create", {"pod": missing, "objects": {}})
        await sender.wait_for("u-3", "Failed")

        escaping = await sender.ask("create", {"pod": a_pod("../../x", "true"), "objects": {}})
        assert "uid" in escaping["error"]

        sealed = envelopes.seal(envelopes.new_letter("status", {"uids": []}, time.time()), "a", us)
        assert await sender.send(sealed, LONGEST_SECONDS) == {"statuses": {}}
        with pytest.raises(Unanswered):
            await sender.send(sealed, 0.3)


async def test_secrets_are_sent_only_to_a_listed_key() -> None:
    connection = NatsConnection(Connector("nats://127.0.0.1:1"), "test")
    listed, unlisted = (pods.Route(connection, "run.a", "a", key) for key in ("key", ""))
    pods.refuse_open_secrets(listed, {"Secret/a": {}})
    pods.refuse_open_secrets(unlisted, {"ConfigMap/a": {}})
    with pytest.raises(pods.NoRunner, match="publicKeys of the MasterQueue has no key for pool a"):
        pods.refuse_open_secrets(unlisted, {"Secret/a": {}})
