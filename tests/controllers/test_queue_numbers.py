"""The counts in the status of queues: late under load, never lost, and right in the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from kyu import app
from kyu.api.config.config import Configuration
from kyu.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue, ResourceFlavor, Topology, Workload
from kyu.api.meta import Json, Key, Kind, Object
from kyu.bench import objects, pretended
from kyu.bench.loads import Load, WorkloadSet
from kyu.bench.pretended import PlannedWorkload
from kyu.controllers import queue_numbers
from kyu.controllers.live_view import LiveView
from kyu.controllers.queue_numbers import (
    LONGEST_TICK_SECONDS,
    PAUSE_SECONDS,
    QUEUES_PER_TICK,
    TICK_SECONDS,
    QueueNumbers,
)
from kyu.engine.options import from_configuration
from kyu.engine.state import State
from kyu.kube.cache import Cache, Reflector
from kyu.kube.client import Client
from tests.support import builders


def numbers_of_queues(count: int) -> QueueNumbers:
    """Return this many queues whose status is out of date."""
    numbers = numbers_over(Cache())
    for number in range(count):
        note(numbers, number)
    return numbers


def numbers_over(cache: Cache) -> QueueNumbers:
    state = State(from_configuration(Configuration()))
    return QueueNumbers(LiveView(cache, Configuration(), lambda: None), lambda: state, lambda *queue: None, app.clock)


def note(numbers: QueueNumbers, number: int) -> None:
    numbers.note(ClusterQueue, None, builders.codec_json(builders.cluster_queue(f"queue-{number:03d}", {})))


def names(due: list[tuple[type, Key]]) -> list[str]:
    return [key.name for _, key in due]


def seen(cache: Cache, type_: type[Object], name: str, namespace: str = "", **parts: Json) -> Json:
    meta = {"name": name, "resourceVersion": "1", **({"namespace": namespace} if namespace else {})}
    body: Json = {"metadata": meta, **parts}
    cache.observe(type_.KIND, body)
    return body


def test_a_queue_that_is_stopped_or_inactive_shows_in_the_local_queues_below_it() -> None:
    cache = Cache()
    seen(cache, LocalQueue, "door", "team", spec={"clusterQueue": "main"})
    seen(cache, LocalQueue, "other", "team", spec={"clusterQueue": "else"})
    main = seen(cache, ClusterQueue, "main", spec={})
    numbers = numbers_over(cache)
    inactive = {**main, "status": {"conditions": [{"type": "Active", "status": "False"}]}}
    for later in ({**main, "spec": {"stopPolicy": "Hold"}}, inactive):
        numbers.note(ClusterQueue, main, later)
        assert sorted(names(numbers.take_due(0.0))) == ["door", "main"]
        numbers = numbers_over(cache)
    numbers.note(ClusterQueue, main, {**main, "status": {"pendingWorkloads": 3}})
    assert names(numbers.take_due(0.0)) == ["main"]


@pytest.mark.parametrize("type_", [ResourceFlavor, AdmissionCheck, Topology])
def test_flavors_checks_and_topologies_may_change_whether_queues_are_active(type_: type[Object]) -> None:
    cache = Cache()
    seen(cache, ClusterQueue, "main", spec={})
    numbers = numbers_over(cache)
    numbers.note(type_, None, seen(cache, type_, "x"))
    assert names(numbers.take_due(0.0)) == ["main"]


@pytest.mark.parametrize(
    ("delay", "write", "pause"),
    [
        pytest.param(0.0, 0.0, TICK_SECONDS, id="in time"),
        pytest.param(0.001, 0.01, TICK_SECONDS, id="a little late"),
        pytest.param(0.01, 0.0, 0.4, id="late"),
        pytest.param(0.0, 0.1, 0.4, id="slow API server"),
        pytest.param(10.0, 10.0, LONGEST_TICK_SECONDS, id="never longer than this"),
    ],
)
def test_a_late_tick_or_a_slow_write_is_followed_by_a_longer_pause(delay: float, write: float, pause: float) -> None:
    assert queue_numbers.pause_after(delay, write) == pytest.approx(pause)


def test_however_busy_the_process_is_every_queue_has_its_turn_after_so_many_ticks() -> None:
    ticks = 4
    numbers = numbers_of_queues(ticks * QUEUES_PER_TICK)
    told: list[str] = []
    for tick in range(ticks):
        # All others go on changing meanwhile, and do not overtake a queue that has waited longer.
        note(numbers, 0)
        told += names(numbers.take_due(tick * LONGEST_TICK_SECONDS))
    assert sorted(told[: ticks * QUEUES_PER_TICK]) == [
        f"queue-{number:03d}" for number in range(ticks * QUEUES_PER_TICK)
    ]


def test_a_change_during_the_pause_is_told_after_it() -> None:
    numbers = numbers_of_queues(1)
    assert names(numbers.take_due(10.0)) == ["queue-000"]
    note(numbers, 0)
    assert names(numbers.take_due(10.0 + PAUSE_SECONDS / 2)) == []
    assert names(numbers.take_due(10.0 + PAUSE_SECONDS)) == ["queue-000"]
    assert names(numbers.take_due(10.0 + 3 * PAUSE_SECONDS)) == []


def test_a_workload_changes_its_queues_before_and_after() -> None:
    cache = Cache()
    for name, cluster_queue in (("from", "one"), ("to", "two")):
        cache.observe(LocalQueue.KIND, builders.codec_json(builders.local_queue(name, cluster_queue)))
    numbers = numbers_over(cache)
    # It was moved to another LocalQueue while it held quota of a ClusterQueue.
    admission = {"clusterQueue": "former", "podSetAssignments": []}
    old = builders.workload("w", queue="from", status={"admission": admission})
    new = builders.workload("w", queue="to")
    numbers.note(Workload, builders.codec_json(old), builders.codec_json(new))
    assert set(numbers.take_due(0.0)) == {
        (LocalQueue, Key("default", "from")),
        (LocalQueue, Key("default", "to")),
        (ClusterQueue, Key("", "one")),
        (ClusterQueue, Key("", "two")),
        (ClusterQueue, Key("", "former")),
    }


def test_a_local_queue_that_goes_takes_what_waits_in_it_from_its_cluster_queue() -> None:
    numbers = numbers_over(Cache())
    numbers.note(LocalQueue, builders.codec_json(builders.local_queue("from", "one")), None)
    assert set(numbers.take_due(0.0)) == {(LocalQueue, Key("default", "from")), (ClusterQueue, Key("", "one"))}


def test_numbers_that_a_local_queue_shows_are_no_news_for_its_cluster_queue() -> None:
    numbers = numbers_over(Cache())
    queue = builders.codec_json(builders.local_queue("from", "one"))
    numbers.note(LocalQueue, queue, {**queue, "status": {"pendingWorkloads": 1}})
    assert numbers.take_due(0.0) == [(LocalQueue, Key("default", "from"))]


# The whole stack under load.

LOAD = Load("burst", cohorts=1, queues=3, sets=(WorkloadSet("small", 40, 0, 0, 50, 1),), nominal=4, borrowing=0)


class Shown:
    """The status of Workloads and queues, as a watcher sees it."""

    def __init__(self) -> None:
        self.cache = Cache()
        self._changed = asyncio.Event()
        self.cache.subscribe(lambda *change: self._changed.set())

    async def run(self, client: Client) -> None:
        kinds: tuple[Kind, ...] = (Workload.KIND, LocalQueue.KIND, ClusterQueue.KIND)
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(Reflector(client, self.cache, kind).run())

    async def until_all_queues_have(self, *, waiting: int) -> None:
        """Wait until each queue shows this many pending Workloads, besides those that hold all quota."""
        wanted = (waiting, LOAD.nominal, LOAD.nominal, LOAD.nominal)
        while any(counts != wanted for counts in self.queues()):
            self._changed.clear()
            await self._changed.wait()

    def workloads(self) -> Mapping[str, int]:
        return Counter(state(one) for one in self.cache.list_json(Workload.KIND))

    def queues(self) -> list[tuple[int, int, int, int]]:
        names = [f"queue-0-{index}" for index in range(LOAD.queues)]
        shown = [
            *(self.cache.find_json(LocalQueue.KIND, Key(name, name)) for name in names),
            *(self.cache.find_json(ClusterQueue.KIND, Key("", name)) for name in names),
        ]
        return [counts((queue or {}).get("status") or {}) for queue in shown]


def state(workload: Json) -> str:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    holds = {condition["type"] for condition in conditions if condition["status"] == "True"}
    return "finished" if "Finished" in holds else "admitted" if "Admitted" in holds else "pending"


def counts(status: Json) -> tuple[int, int, int, int]:
    """Return pending, reserving, admitted, and the reserved cores; each Workload requests one."""
    cores = int(status["flavorsReservation"][0]["resources"][0]["total"]) if "flavorsReservation" in status else -1
    return (
        status.get("pendingWorkloads", -1),
        status.get("reservingWorkloads", -1),
        status.get("admittedWorkloads", -1),
        cores,
    )


def staying(name: str) -> list[PlannedWorkload]:
    """Return a Workload in each queue that does not finish."""
    keys = [Key(f"queue-0-{index}", name) for index in range(LOAD.queues)]
    return [PlannedWorkload(key, objects.workload(key, key.namespace, cpu="1", priority=0), 0, 0) for key in keys]


async def test_after_a_burst_all_queues_show_what_there_is(tmp_path: Path) -> None:
    async with app.embedded(app.Settings(tmp_path, bare=True)) as running:
        client = running.client()
        await pretended.make_queues(client, LOAD)
        burst = pretended.submissions(LOAD, at_once=True)
        shown = Shown()
        following = asyncio.create_task(shown.run(client))
        async with pretended.pretended_pods(client, burst) as pods, asyncio.timeout(100):
            held = [one for number in range(LOAD.nominal) for one in staying(f"stays-{number}")]
            await pretended.submit(client, [*burst, *held])
            await pods.done.wait()
            await shown.until_all_queues_have(waiting=0)
            await pretended.submit(client, staying("late"))
            await shown.until_all_queues_have(waiting=1)
        assert shown.workloads() == {
            "finished": LOAD.total,
            "admitted": LOAD.queues * LOAD.nominal,
            "pending": LOAD.queues,
        }
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
