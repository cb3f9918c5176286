"""
The counts and usage in the status of queues, and when to write them.

A status is written shortly after a change, and then not again for a pause. Each tick writes a few queues, the longest
waiting first. A busy process writes them less often: an admission is worth more than its count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime

from kyu.api.kueue import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, Workload
from kyu.api.meta import Json, Key, Object, key_of
from kyu.controllers.live_view import LiveView
from kyu.engine.state import State
from kyu.engine.stats import Stats
from kyu.plans.queues.status import Numbers

# A status is written within a tick after a change, and again only after the pause.
TICK_SECONDS = 0.1
PAUSE_SECONDS = 1.0
# So few that thousands of queues leave most of the time to admissions.
QUEUES_PER_TICK = 5
# A late tick shows that the process is busy; the next one comes after this many times the delay.
PAUSES_PER_DELAY = 40
# So does a write of a decision that took long to be answered: the status would wait in the same line.
PAUSES_PER_WRITE = 4
LONGEST_TICK_SECONDS = 1.0


class QueueNumbers:
    """The queues whose status is out of date. ``changed`` is called for each queue to write now."""

    def __init__(
        self,
        view: LiveView,
        state: Callable[[], State],
        changed: Callable[[type[Object], Key], None],
        clock: Callable[[], datetime],
        write_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``write_seconds`` returns how long the last write of a decision took."""
        self._write_seconds = write_seconds
        self._view = view
        self._state = state
        self._changed = changed
        self._clock = clock
        # Namespace, LocalQueue and ClusterQueue of quota of Workloads that changed since the last tick.
        self._touched: dict[tuple[str, str, str], None] = {}
        self._waiting: dict[tuple[type[Object], Key], None] = {}
        self._written_at: dict[tuple[type[Object], Key], float] = {}

    def note(self, type_: type[Object], old: Json | None, new: Json | None) -> None:
        """Note the queues whose counts a change may affect."""
        states = [obj for obj in (old, new) if obj is not None]
        if type_ is Workload:
            # Thousands of Workloads change between two ticks, but in few queues; the tick looks those up.
            for obj in states:
                self._touched[queues_of(obj)] = None
        elif type_ is ClusterQueue:
            for obj in states:
                self._note_cluster_queue(key_of(obj).name)
                self._note_cohorts((obj.get("spec") or {}).get("cohortName", ""))
        elif type_ is Cohort:
            for obj in states:
                self._note_cohorts(key_of(obj).name)
                self._note_cohorts((obj.get("spec") or {}).get("parentName", ""))
        elif type_ is LocalQueue:
            for obj in states:
                self._waiting[(LocalQueue, key_of(obj))] = None
                if is_shown_differently(old, new):
                    # Its pending Workloads count in the ClusterQueue, too.
                    self._note_cluster_queue(cluster_queue_name(obj))
        elif type_ in (ResourceFlavor, AdmissionCheck, Topology):
            for queue in self._view.list_json(ClusterQueue.KIND):
                self._waiting[(ClusterQueue, key_of(queue))] = None
        if type_ is ClusterQueue and is_shown_differently(old, new):
            name = states[0]["metadata"]["name"]
            for queue in self._view.list_json(LocalQueue.KIND):
                if cluster_queue_name(queue) == name:
                    self._waiting[(LocalQueue, key_of(queue))] = None

    def _note_touched(self) -> None:
        """Note, for each changed Workload, its LocalQueue, the ClusterQueue behind that, and the one of its quota."""
        cohorts: dict[str, None] = {}
        for namespace, name, holds_quota_of in self._touched:
            key = Key(namespace, name)
            self._waiting[(LocalQueue, key)] = None
            queue = self._view.find_json(LocalQueue.KIND, key)
            if queue is not None:
                self._note_cluster_queue(cluster_queue_name(queue))
            self._note_cluster_queue(holds_quota_of)
            found = self._view.find_json(ClusterQueue.KIND, Key("", holds_quota_of))
            if found is not None:
                cohorts[found["spec"].get("cohortName", "")] = None
        for name in cohorts:
            self._note_cohorts(name)
        self._touched.clear()

    def _note_cluster_queue(self, name: str) -> None:
        if name:
            self._waiting[(ClusterQueue, Key("", name))] = None

    def _note_cohorts(self, name: str) -> None:
        """Note a Cohort and all above it, whose weighted shares change with the usage below."""
        seen: set[str] = set()
        while name and name not in seen:
            seen.add(name)
            cohort = self._view.find_json(Cohort.KIND, Key("", name))
            if cohort is None:
                return
            self._waiting[(Cohort, key_of(cohort))] = None
            name = (cohort.get("spec") or {}).get("parentName", "")

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        pause = TICK_SECONDS
        while True:
            due_at = clock() + pause
            await asyncio.sleep(pause)
            now = clock()
            pause = pause_after(now - due_at, self._write_seconds())
            for queue in self.take_due(now):
                self._changed(*queue)

    def take_due(self, now: float) -> list[tuple[type[Object], Key]]:
        """Return the queues to write in this tick, the longest waiting first."""
        self._note_touched()
        due = [queue for queue in self._waiting if self._written_at.get(queue, -PAUSE_SECONDS) <= now - PAUSE_SECONDS]
        for queue in due[:QUEUES_PER_TICK]:
            del self._waiting[queue]
            self._written_at[queue] = now
        return due[:QUEUES_PER_TICK]

    def of_cluster_queue(self, key: Key) -> Numbers:
        state = self._state()
        return self._numbers(state.stats(key.name)) if state.has_queue(key.name) else Numbers()

    def of_local_queue(self, key: Key) -> Numbers:
        state = self._state()
        consumed = state.consumed_resources(key, self._clock().timestamp())
        return self._numbers(state.local_queue_stats(key), consumed)

    def of_cohort(self, key: Key) -> Numbers:
        state = self._state()
        return self._numbers(state.cohort_stats(key.name)) if state.has_cohort(key.name) else Numbers()

    def _numbers(self, stats: Stats, consumed: Mapping[str, float] | None = None) -> Numbers:
        return Numbers(
            stats.pending,
            stats.reserving,
            stats.admitted,
            {(cell.flavor, cell.resource): usage.reserved for cell, usage in stats.usage.items()},
            {(cell.flavor, cell.resource): usage.admitted for cell, usage in stats.usage.items()},
            stats.weighted_share if self._state().options.fair_sharing else None,
            consumed,
        )


def pause_after(delay: float, write_seconds: float) -> float:
    """Return the seconds until the next tick, after a tick that came this much late and a write that took so long."""
    pause = max(TICK_SECONDS, PAUSES_PER_DELAY * delay, PAUSES_PER_WRITE * write_seconds)
    return min(pause, LONGEST_TICK_SECONDS)


def is_shown_differently(old: Json | None, new: Json | None) -> bool:
    """Return whether related queues show it differently: by its spec or conditions, not by its usage."""
    if old is None or new is None:
        return True
    return old.get("spec") != new.get("spec") or conditions(old) != conditions(new)


def queues_of(workload: Json) -> tuple[str, str, str]:
    """Return the namespace, the LocalQueue, and the ClusterQueue of the Workload's quota."""
    admission = (workload.get("status") or {}).get("admission") or {}
    queue_name = (workload.get("spec") or {}).get("queueName", "")
    return workload["metadata"].get("namespace", ""), queue_name, admission.get("clusterQueue", "")


def cluster_queue_name(local_queue: Json) -> str:
    """Return the name of the ClusterQueue."""
    name: str = (local_queue.get("spec") or {}).get("clusterQueue", "")
    return name


def conditions(queue: Json) -> object:
    return (queue.get("status") or {}).get("conditions")
