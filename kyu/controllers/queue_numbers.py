"""
Which queues have other numbers than they show, and what the numbers are.

A queue may change with every workload that comes or goes, so its status is written a moment after a change and then not
again for a while; and of all queues only so many at once, those that wait longest first. In a process that has more to
do than it can, they wait longer: what is admitted is worth more than the count of it.

Called by: scheduler.py; the rows of the queues ask for the numbers. Calls: the engine's counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kyu.api.kueue import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, Workload
from kyu.api.meta import Json, Key, Object, key_of
from kyu.controllers.live import LiveView
from kyu.engine.state import State
from kyu.engine.stats import Stats
from kyu.plans.queue_status import Numbers

# A status is written within this time after a change, and not again before the pause is over.
TICK_SECONDS = 0.1
PAUSE_SECONDS = 1.0
# With this many a tick, thousands of queues leave most of the time to admissions.
QUEUES_PER_TICK = 5
# A tick that comes late says that the process is busy: the next one comes after this many times the delay.
PAUSES_PER_DELAY = 40
LONGEST_TICK_SECONDS = 1.0


class QueueNumbers:
    """``changed`` is called with each queue that should be written now."""

    def __init__(
        self, view: LiveView, state: Callable[[], State], changed: Callable[[type[Object], Key], None]
    ) -> None:
        self._view = view
        self._state = state
        self._changed = changed
        # Where workloads have changed since the last tick: namespace, LocalQueue, and the ClusterQueue of their quota.
        self._touched: dict[tuple[str, str, str], None] = {}
        self._waiting: dict[tuple[type[Object], Key], None] = {}
        self._told: dict[tuple[type[Object], Key], float] = {}

    # What has changed.

    def note(self, type_: type[Object], old: Json | None, new: Json | None) -> None:
        """Whose numbers a change may have touched."""
        states = [obj for obj in (old, new) if obj is not None]
        if type_ is Workload:
            # Of them come thousands between two ticks, and they have few queues: those are looked up in the tick.
            for obj in states:
                self._touched[place_of(obj)] = None
        elif type_ in (ClusterQueue, Cohort):
            self._waiting.update(((type_, key_of(obj)), None) for obj in states)
        elif type_ is LocalQueue:
            for obj in states:
                self._waiting[(LocalQueue, key_of(obj))] = None
                if is_other_queue(old, new):
                    # What waits in it counts there, too.
                    self._note_cluster_queue(led_to_by(obj))
        elif type_ in (ResourceFlavor, AdmissionCheck, Topology):
            for queue in self._view.list_json(ClusterQueue.KIND):
                self._waiting[(ClusterQueue, key_of(queue))] = None
        if type_ is ClusterQueue and new is not None and is_other_queue(old, new):
            name = new["metadata"]["name"]
            for queue in self._view.list_json(LocalQueue.KIND):
                if led_to_by(queue) == name:
                    self._waiting[(LocalQueue, key_of(queue))] = None

    def _note_touched(self) -> None:
        """For each workload: its LocalQueue, the ClusterQueue that it waits in, and the one that it has quota of."""
        for namespace, name, holds_quota_of in self._touched:
            key = Key(namespace, name)
            self._waiting[(LocalQueue, key)] = None
            queue = self._view.find_json(LocalQueue.KIND, key)
            if queue is not None:
                self._note_cluster_queue(led_to_by(queue))
            self._note_cluster_queue(holds_quota_of)
        self._touched.clear()

    def _note_cluster_queue(self, name: str) -> None:
        if name:
            self._waiting[(ClusterQueue, Key("", name))] = None

    async def tell(self) -> None:
        clock = asyncio.get_running_loop().time
        pause = TICK_SECONDS
        while True:
            due_at = clock() + pause
            await asyncio.sleep(pause)
            now = clock()
            pause = pause_after(now - due_at)
            for queue in self.take_due(now):
                self._changed(*queue)

    def take_due(self, now: float) -> list[tuple[type[Object], Key]]:
        """The queues to be written in this tick, those first that have waited longest."""
        self._note_touched()
        due = [queue for queue in self._waiting if self._told.get(queue, -PAUSE_SECONDS) <= now - PAUSE_SECONDS]
        for queue in due[:QUEUES_PER_TICK]:
            del self._waiting[queue]
            self._told[queue] = now
        return due[:QUEUES_PER_TICK]

    # What the numbers are.

    def of_cluster_queue(self, key: Key) -> Numbers:
        state = self._state()
        return self._numbers(state.stats(key.name)) if key.name in state.queues else Numbers()

    def of_local_queue(self, key: Key) -> Numbers:
        return self._numbers(self._state().local_queue_stats(key))

    def of_cohort(self, key: Key) -> Numbers:
        state = self._state()
        return self._numbers(state.cohort_stats(key.name)) if key.name in state.hierarchy.cohorts else Numbers()

    def _numbers(self, stats: Stats) -> Numbers:
        return Numbers(
            stats.pending,
            stats.reserving,
            stats.admitted,
            {(cell.flavor, cell.resource): usage.reserved for cell, usage in stats.usage.items()},
            {(cell.flavor, cell.resource): usage.admitted for cell, usage in stats.usage.items()},
            stats.weighted_share if self._state().options.fair_sharing else None,
        )


def pause_after(delay: float) -> float:
    """Seconds until the next tick, after one that came so much later than it should have."""
    return min(max(TICK_SECONDS, PAUSES_PER_DELAY * delay), LONGEST_TICK_SECONDS)


def is_other_queue(old: Json | None, new: Json | None) -> bool:
    """Whether those above or below would show it differently: its spec, or whether it is active; not what it holds."""
    if old is None or new is None:
        return True
    return old.get("spec") != new.get("spec") or conditions(old) != conditions(new)


def place_of(workload: Json) -> tuple[str, str, str]:
    """Its namespace, its LocalQueue, and the ClusterQueue whose quota it has."""
    admission = (workload.get("status") or {}).get("admission") or {}
    queue_name = (workload.get("spec") or {}).get("queueName", "")
    return workload["metadata"].get("namespace", ""), queue_name, admission.get("clusterQueue", "")


def led_to_by(local_queue: Json) -> str:
    """The name of its ClusterQueue."""
    name: str = (local_queue.get("spec") or {}).get("clusterQueue", "")
    return name


def conditions(queue: Json) -> object:
    return (queue.get("status") or {}).get("conditions")
