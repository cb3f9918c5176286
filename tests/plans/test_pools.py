"""
From announcements to quota, on objects in memory: the cases of tests/cases/pools, in rounds.

A round says what is heard at which time (`heard: {pool: {cpu: 8}}`; `group/pool` or `queue/group/pool` where there are
several), and what is wanted: every write it causes
(`writes`, in order), parts of objects, conditions as `Status/Reason: part of the message`, and the next time to look.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kyu.api import codec, duration
from kyu.api.actions import Action, Apply, Create, Delete, Event, Patch, WakeAt
from kyu.api.kueue import ClusterQueue
from kyu.api.meta import Json, Key
from kyu.api.pools import MasterQueue
from kyu.plans.clusters.supply import SupplyTable
from kyu.plans.pools import master_queue as pools
from kyu.plans.pools import totals
from tests.plans.test_cases import check_object, put, remove
from tests.support.memory_view import MemoryView

CASES = Path(__file__).parent.parent / "cases" / "pools"
START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_ROUNDS = 10


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda p: p.stem)
def test_case(path: Path) -> None:
    documents = [manifest.object for manifest in codec.read(path.read_text(), path.name)]
    rounds = [document for document in documents if document["kind"] == "Round"]
    assert rounds, f"{path.name} has no rounds"
    view = MemoryView([document for document in documents if document["kind"] != "Round"])
    for number, one in enumerate(rounds, 1):
        run_round(view, one, f"{path.name}, round {number}")


def run_round(view: MemoryView, one: Json, where: str) -> None:
    now = START + duration.parse(one["at"])
    hear(view, one, now)
    for change in one.get("put") or ():
        put(view, change)
    for name in one.get("delete") or ():
        remove(view, name)
    written, events, wake = settle(view, now, where)
    want = one.get("want") or {}
    if "writes" in want:
        assert written == want["writes"], f"{where}: {written}"
    if "events" in want:
        assert events == want["events"], f"{where}: {events}"
    if "wakes" in want:
        assert wake == START + duration.parse(want["wakes"]), f"{where}: {wake}"
    for path, expected in want.items():
        if path not in ("writes", "events", "wakes"):
            check_object(view, path, "", expected, where)


def hear(view: MemoryView, one: Json, now: datetime) -> None:
    """Put what was heard in the view, as the listener does."""
    for queue in view.list(MasterQueue):
        name = queue.metadata.name
        for group in queue.spec.flavors:
            key = {"namespace": name, "name": group.name}
            if group.nats_flavor is not None and "source" in one:
                body = {"since": now.timestamp(), **one["source"]}
                view.put({"apiVersion": "vk.io/v1", "kind": "PoolSource", "metadata": key, **body})
    for path, said in (one.get("heard") or {}).items():
        *before, pool = path.split("/")
        queues = view.list(MasterQueue)
        queue = next(one for one in queues if one.metadata.name == before[0]) if len(before) == 2 else queues[0]
        flavor = before[-1] if before else queue.spec.flavors[0].name
        body = {"flavor": flavor, "pool": pool, "at": now.timestamp(), **said}
        body["quotas"] = {resource: str(amount) for resource, amount in body.get("quotas", {}).items()}
        metadata = {"namespace": queue.metadata.name, "name": f"{flavor}.{pool}"}
        view.put({"apiVersion": "vk.io/v1", "kind": "PoolReport", "metadata": metadata, **body})


def settle(view: MemoryView, now: datetime, where: str) -> tuple[list[str], list[str], datetime | None]:
    """Plan and write until nothing is left to write; what was written besides the status, events, the next wake."""
    written: list[str] = []
    events: list[str] = []
    table = SupplyTable()
    for _ in range(MOST_ROUNDS):
        planned = [action for queue in view.list(MasterQueue) for action in pools.plan(table, view, queue.key, now)]
        if not any(is_write(action) for action in planned):
            planned += [
                action for queue in view.list(ClusterQueue) for action in totals.plan(view, queue.key, now)
            ]
        wakes = [action.at for action in planned if isinstance(action, WakeAt)]
        events += [f"{action.reason}: {action.message}" for action in planned if isinstance(action, Event)]
        writes = [action for action in planned if is_write(action)]
        for action in writes:
            view.carry_out(action)
            written.append(describe(action))
        if not writes:
            return written, events, min(wakes, default=None)
    raise AssertionError(f"{where}: the plan does not settle: {written}")


def is_write(action: Action) -> bool:
    return not isinstance(action, WakeAt | Event)


def describe(action: Action) -> str:
    match action:
        case Apply(kind, body) | Create(kind, body):
            return f"{kind.kind}/{body['metadata']['name']}"
        case Patch(ref, _, "status"):
            return f"{ref.kind.kind}/{ref.key.name} status"
        case Patch(ref):
            return f"{ref.kind.kind}/{ref.key.name}"
        case Delete(ref):
            return f"delete {ref.kind.kind}/{ref.key.name}"
        case _:
            raise AssertionError(f"unexpected {action}")


def master_queue(**nats: object) -> Json:
    flavor = {
        "name": "interlink",
        "natsFlavor": {"natsConnector": "nats://u:p@h", "natsSubject": "i.resources", "poolRegExp": ".*", **nats},
        "canLendTo": [{"queue": "group1"}],
    }
    return {
        "apiVersion": "vk.io/v1",
        "kind": "MasterQueue",
        "metadata": {"name": "mq"},
        "spec": {"flavors": [flavor]},
    }


def test_a_pool_that_speaks_every_30_2_seconds_against_a_timeout_of_30_never_flaps() -> None:
    view = MemoryView([master_queue(poolTimeout=30)])
    hear(view, {"source": {"connected": True}}, START)
    heard, now, written = START, START, []
    while now < START + timedelta(minutes=10):
        if now >= heard:
            report = {"quotas": {"cpu": 8}, "period": None if heard == START else 30.2}
            hear(view, {"heard": {"podman-firenze": report}}, now)
            heard += timedelta(seconds=30.2)
        written += settle(view, now, "flapping")[0]
        now += timedelta(seconds=0.2)
    applied = [one for one in written if not one.endswith("status")]
    assert applied == ["ResourceFlavor/mq-interlink-podman-firenze", "ClusterQueue/mq", "ClusterQueue/group1"]
    # The second message told the period, and the status says that the timeout is too short for it.
    assert written.count("MasterQueue/mq status") == 2


def test_more_pools_than_a_queue_holds_are_named() -> None:
    view = MemoryView([master_queue()])
    pools_heard = {f"pool-{number:02}": {"quotas": {"cpu": 1}} for number in range(70)}
    hear(view, {"source": {"connected": True}, "heard": pools_heard}, START)
    settle(view, START, "70 pools")
    assert flavors_of(view) == [f"mq-interlink-pool-{number:02}" for number in range(64)]
    left_out = ", ".join(f"pool-{number:02}" for number in range(64, 70))
    said = {"conditions": {"TooManyPools": f"True/LeftOut: left out: {left_out}"}}
    check_object(view, "MasterQueue/mq", "", said, "70 pools")


def test_a_newcomer_displaces_nobody_and_comes_in_when_another_goes() -> None:
    view = MemoryView([master_queue(poolTimeout=30)])
    everyone = {f"pool-{number:02}": {"quotas": {"cpu": 1}, "period": 10} for number in range(64)}
    hear(view, {"source": {"connected": True}, "heard": everyone}, START)
    settle(view, START, "64 pools")
    before = flavors_of(view)
    # By its name it would be the first.
    hear(view, {"heard": {"a-pool": {"quotas": {"cpu": 1}, "period": 10}}}, START)
    assert settle(view, START, "one more")[0] == ["MasterQueue/mq status"]
    assert flavors_of(view) == before
    said = {"conditions": {"TooManyPools": "True/LeftOut: left out: a-pool"}}
    check_object(view, "MasterQueue/mq", "", said, "one more")
    later = START + timedelta(seconds=31)
    del everyone["pool-07"]
    hear(view, {"heard": {"a-pool": {"quotas": {"cpu": 1}, "period": 10}, **everyone}}, later)
    settle(view, later, "one is silent")
    assert flavors_of(view) == sorted({"mq-interlink-a-pool", *before} - {"mq-interlink-pool-07"})


def flavors_of(view: MemoryView) -> list[str]:
    queue = view.objects["kueue.x-k8s.io", "ClusterQueue", Key("", "mq")]
    return [flavor["name"] for flavor in queue["spec"]["resourceGroups"][0]["flavors"]]
