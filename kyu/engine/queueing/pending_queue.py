"""
The pending workloads of one ClusterQueue, and its next head.

Equivalence classes (``engine/queueing/pending_workload.py``) stand in the order of their first workload, and become
inadmissible together. A mark in the order says how far the heads have come since the last wake-up: every class up to
the mark is inadmissible. So skipping a hundred classes moves one mark, and a wake-up only removes the mark.

Called by: engine/tree.py; through the ClusterQueue engine/pending_workloads.py (push, remove),
engine/state.py (wake), engine/cycle.py (head, inadmissible), engine/explain.py (order).
Kueue: pkg/cache/queue/cluster_queue.go
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from kyu.api.meta import Key
from kyu.engine.queueing.inadmissible import WaitingList, WakeIndex
from kyu.engine.queueing.pending_workload import EquivalenceClass, PendingGroup, PendingWorkload, Place, WakeCondition
from kyu.engine.quota.amounts import BOUNDLESS, FlavorResource, QuotaNode
from kyu.engine.quota.obtainable import ObtainableQuota
from kyu.engine.reasons import BackingOff, NoFit, Reason

# Returns the past usage of a workload's LocalQueue. Under admission fair sharing, it comes before priority and time.
PastUsage: TypeAlias = Callable[[PendingWorkload], float]


def rank(workload: PendingWorkload) -> tuple[int, float, str]:
    """Return the place of a workload: higher priority, then earlier, then by UID."""
    return (-workload.priority, workload.time, workload.uid)


def _boundless(quota: QuotaNode, priority: int) -> int:
    return BOUNDLESS


class BackfillMemory:
    """The classes that found no room behind a reservation, for as long as nothing has been released."""

    __slots__ = ("behind", "released", "tried")

    def __init__(self) -> None:
        self.behind: PendingWorkload | None = None
        self.released = -1
        self.tried: set[EquivalenceClass | None] = set()

    def recall(self, head: PendingWorkload | None, released: int) -> set[EquivalenceClass | None]:
        """Return the classes that need not be tried again; none if the head is new or quota was released."""
        if self.behind is not head or self.released != released:
            self.behind, self.released = head, released
            self.tried.clear()
        return self.tried


class PendingQueue:
    """The pending workloads of a ClusterQueue in order: those to be tried, and the inadmissible ones."""

    __slots__ = (
        "again",
        "backfill",
        "classes_by_identity",
        "grown",
        "held",
        "inadmissible_ahead",
        "nominations",
        "obtainable",
        "passed",
        "past_usage",
        "pending_preemptor",
        "places",
        "preemptor",
        "preemptor_identity",
        "preemptor_inadmissible_at",
        "reasons",
        "retries",
        "scanning",
        "size",
        "strict",
        "wake_index",
        "wakes",
    )

    def __init__(self) -> None:
        self.strict = False
        self.backfill = BackfillMemory()
        self.past_usage: PastUsage | None = None
        self.obtainable: ObtainableQuota = _boundless
        self.classes_by_identity: dict[object, EquivalenceClass] = {}
        self.places: list[Place] = []
        self.reasons: dict[Key, Reason] = {}
        """Reasons of workloads without an equivalence class; the others share theirs."""
        self.held: dict[Key, PendingWorkload] = {}
        """Workloads that are inadmissible one by one: backoff, wrong namespace, failed checks."""
        self.pending_preemptor: PendingWorkload | None = None
        """The workload that preempted others and waits until they have gone. It comes before all others."""
        self.preemptor_identity: object = None
        """The identity of the equivalence class of the pending preemptor."""
        self.preemptor_inadmissible_at = 0
        self.preemptor: PendingWorkload | None = None
        """The workload that preempted others last; in a strict queue it is not a pending preemptor."""
        self.wakes = 1
        self.passed: Place | None = None
        """The mark: the classes up to this place are inadmissible."""
        self.again: list[Place] = []
        """Classes that came to a place before the mark after it had passed there."""
        self.size = 0
        self.inadmissible_ahead = False
        """Some classes after the mark are inadmissible too."""
        self.retries: set[EquivalenceClass] = set()
        """Classes to try after the next wake-up: their wake conditions are not known, or were met."""
        self.scanning: set[EquivalenceClass] = set()
        """Classes with wake conditions that may need several cycles to become inadmissible again."""
        self.nominations: dict[PendingWorkload, Any] = {}
        """The last nominations of heads (``engine/cycle.py``), which hold as long as their quotas do not change."""
        self.wake_index = WakeIndex()
        self.grown: set[FlavorResource] = set()
        """Flavors and resources of which quota was released since the wake conditions were last checked."""

    # Coming and going

    def push(self, workload: PendingWorkload, *, identity: object) -> bool:
        """
        Queue a workload. Workloads with an equal ``identity`` are equivalent.

        Return False if it only joins a class behind its first workload, so that no head has changed.
        """
        if not self.size:
            self.wake()
        self.size += 1
        inadmissible = (
            self.pending_preemptor is not None
            and self.preemptor_identity == identity
            and self.preemptor_inadmissible_at == self.wakes
        )
        return self._join(workload, identity, inadmissible=inadmissible) or self.past_usage is not None

    def _join(self, workload: PendingWorkload, identity: object, *, inadmissible: bool) -> bool:
        """Add a workload to its class, and return whether it is the first of it."""
        equivalents = self.classes_by_identity.get(identity)
        if equivalents is None:
            equivalents = self.classes_by_identity[identity] = EquivalenceClass(identity, workload.priority)
            self.retries.add(equivalents)
            if inadmissible:
                equivalents.inadmissible_at = self.wakes
                self.inadmissible_ahead = True
        equivalents.add(workload)
        if equivalents.size > 1 and equivalents.first is not workload:
            return False
        self._stand(equivalents, workload)
        return True

    def hold(self, workload: PendingWorkload) -> None:
        """Keep a workload inadmissible by itself until the next wake-up that lets it in."""
        self.held[workload.key] = workload
        self.size += 1

    def remove(self, workload: PendingWorkload) -> None:
        """Remove a workload that was admitted, deleted or deactivated."""
        self.size -= 1
        self.reasons.pop(workload.key, None)
        self.nominations.pop(workload, None)
        if self.preemptor is workload:
            self.preemptor = None
        if workload.equivalents is not None:
            self._part(workload, workload.equivalents)
        elif self.pending_preemptor is workload:
            self.pending_preemptor = None
        else:
            del self.held[workload.key]

    def _part(self, workload: PendingWorkload, equivalents: EquivalenceClass) -> None:
        was_first = equivalents.first is workload
        equivalents.remove(workload)
        if not was_first:
            return
        first = equivalents.first
        if first is not None:
            self._stand(equivalents, first)
            return
        self._leave(equivalents)
        del self.classes_by_identity[equivalents.identity]
        self.retries.discard(equivalents)
        self.scanning.discard(equivalents)
        equivalents.wait_for(None)

    def make_pending_preemptor(self, workload: PendingWorkload) -> None:
        """Put a workload before all others. The previous pending preemptor goes back to its class."""
        if self.pending_preemptor is workload:
            return
        previous, identity, inadmissible = (
            self.pending_preemptor,
            self.preemptor_identity,
            self.preemptor_inadmissible_at == self.wakes,
        )
        assert workload.equivalents is not None
        self.preemptor_identity = workload.equivalents.identity
        self._part(workload, workload.equivalents)
        self.pending_preemptor = workload
        self.preemptor_inadmissible_at = 0
        if previous is not None:
            self._join(previous, identity, inadmissible=inadmissible)

    def _stand(self, equivalents: EquivalenceClass, first: PendingWorkload) -> None:
        """Give a class the place of its new first workload. A class that was inadmissible stays inadmissible."""
        old, where = equivalents.place, (*rank(first), equivalents)
        if old is not None and self.passed is None and self._stand_in(old, where):
            self._move_conditions(equivalents)
            return
        inadmissible = old is not None and self.is_inadmissible(equivalents)
        if old is not None:
            self._leave(equivalents)
        equivalents.place = where
        insort(self.places, where)
        if inadmissible:
            equivalents.inadmissible_at = self.wakes
            self.inadmissible_ahead = True
        elif self.passed is not None and not self.passed < where and equivalents.inadmissible_at != self.wakes:
            equivalents.again = True
            insort(self.again, where)
        self._move_conditions(equivalents)

    def _move_conditions(self, equivalents: EquivalenceClass) -> None:
        if equivalents.wake_conditions:
            self._index(equivalents, [(c.quota, c.amount) for c in equivalents.wake_conditions])

    def _stand_in(self, old: Place, where: Place) -> bool:
        """Replace a place in the order, if no other class stands between the old and the new one."""
        places, index = self.places, bisect_left(self.places, old)
        if (index and not places[index - 1] < where) or not (index + 1 == len(places) or where < places[index + 1]):
            return False
        places[index] = where[3].place = where
        return True

    def _leave(self, equivalents: EquivalenceClass) -> None:
        where = equivalents.place
        assert where is not None
        equivalents.place = None
        del self.places[bisect_left(self.places, where)]
        if equivalents.again:
            equivalents.again = False
            del self.again[bisect_left(self.again, where)]

    # Heads

    @property
    def has_pending_preemptor(self) -> bool:
        """The pending preemptor is the next head."""
        return self.pending_preemptor is not None and self.preemptor_inadmissible_at != self.wakes

    def is_inadmissible(self, equivalents: EquivalenceClass) -> bool:
        """Return whether a class is inadmissible until the next wake-up."""
        if equivalents.inadmissible_at == self.wakes:
            return True
        assert equivalents.place is not None
        return self.passed is not None and not equivalents.again and not self.passed < equivalents.place

    def head(self) -> PendingWorkload | None:
        """Return the next head; None if all workloads are inadmissible."""
        if self.past_usage is not None:
            return self._head_by_usage(self.past_usage)
        if self.has_pending_preemptor:
            return self.pending_preemptor
        equivalents = self.next_class()
        return None if equivalents is None else equivalents.first

    def next_class(self) -> EquivalenceClass | None:
        """Return the class of the next head, without regard to the pending preemptor."""
        places, wakes = self.places, self.wakes
        index = 0 if self.passed is None else bisect_right(places, self.passed)
        while index < len(places) and places[index][3].inadmissible_at == wakes:
            index += 1
        following = places[index] if index < len(places) else None
        if self.again and (following is None or self.again[0] < following):
            following = self.again[0]
        return None if following is None else following[3]

    def _head_by_usage(self, past_usage: PastUsage) -> PendingWorkload | None:
        best: tuple[float, bool, tuple[int, float, str]] | None = None
        head = None
        for workload, pending_preemptor in self._active_firsts():
            own = (past_usage(workload), not pending_preemptor, rank(workload))
            if best is None or own < best:
                best, head = own, workload
        return head

    def _active_firsts(self) -> Iterator[tuple[PendingWorkload, bool]]:
        if self.pending_preemptor is not None and self.preemptor_inadmissible_at != self.wakes:
            yield self.pending_preemptor, True
        for _, _, _, equivalents in self.places:
            first = equivalents.first
            if first is not None and not self.is_inadmissible(equivalents):
                yield first, False

    def mark_inadmissible(self, workload: PendingWorkload) -> None:
        """Make a workload and its class inadmissible until the next wake-up."""
        equivalents = workload.equivalents
        if self.pending_preemptor is workload:
            self.preemptor_inadmissible_at = self.wakes
            equivalents = self.classes_by_identity.get(self.preemptor_identity)
        if equivalents is not None and not self.is_inadmissible(equivalents):
            self._pass(equivalents)

    def _pass(self, equivalents: EquivalenceClass) -> None:
        where = equivalents.place
        assert where is not None
        if equivalents.again:
            equivalents.again = False
            del self.again[bisect_left(self.again, where)]
        elif self.past_usage is None and not self.again and equivalents is self.next_class():
            self.passed = where
        else:
            self.inadmissible_ahead = True
        equivalents.inadmissible_at = self.wakes

    def mark_inadmissible_alone(self, workload: PendingWorkload) -> None:
        """Make a workload inadmissible without its class."""
        self.remove(workload)
        self.hold(workload)

    def wake(self, grown: Iterable[FlavorResource] | None = ()) -> None:
        """
        Make all classes admissible again, after quota was released, or after anything may have changed (None).

        The caller lets in workloads that are inadmissible one by one. An empty queue is woken by its first workload.
        """
        self.wakes += 1
        self.passed = None
        self.inadmissible_ahead = False
        if self.again:
            self._forget_newcomers()
        if grown is None:
            self._forget_wake_conditions()
        else:
            self.grown.update(grown)

    def _forget_newcomers(self) -> None:
        for where in self.again:
            where[3].again = False
        self.again.clear()

    # Wake conditions

    def wait_for(
        self, equivalents: EquivalenceClass, amounts: list[tuple[QuotaNode, int]] | None, *, scans: bool | None = None
    ) -> None:
        """Remember the quota that an inadmissible class waits for; None if that is not known."""
        if amounts is None:
            self.try_again(equivalents)
            return
        if amounts and isinstance(equivalents.reason, NoFit) and equivalents.reason.word == "WaitingForQuota":
            # The reason follows from the quotas, and there may be a million classes.
            equivalents.reason = None
        if scans:
            self.scanning.add(equivalents)
        self.retries.discard(equivalents)
        if equivalents.wake_conditions is not None and amounts == [
            (condition.quota, condition.amount) for condition in equivalents.wake_conditions
        ]:
            return
        self._index(equivalents, amounts)

    def _index(self, equivalents: EquivalenceClass, amounts: list[tuple[QuotaNode, int]]) -> None:
        place = equivalents.place
        assert place is not None
        wake_conditions = tuple([WakeCondition(amount, equivalents, quota, place) for quota, amount in amounts])
        equivalents.wait_for(wake_conditions)
        self.wake_index.add(wake_conditions)

    def _forget_wake_conditions(self) -> None:
        """Forget all wake conditions, after quotas or flavors have changed."""
        self.backfill.tried.clear()
        self.nominations.clear()
        self.wake_index = WakeIndex()
        self.retries = set(self.classes_by_identity.values())
        self.scanning.clear()
        for equivalents in self.retries:
            equivalents.wait_for(None)

    @property
    def may_have_news(self) -> bool:
        """Some class may be worth a retry, or a preemptor is pending."""
        return bool(self.retries or self.grown or self.has_pending_preemptor)

    @property
    def some_had_turns(self) -> bool:
        """Some class became inadmissible since the last wake-up."""
        return self.passed is not None or self.inadmissible_ahead

    def take_grown(self) -> list[WaitingList]:
        """Return the lists of wake conditions of which enough quota may have been released since the last call."""
        if not self.grown:
            return []
        found = self.wake_index.grown_lists(self.grown)
        self.grown.clear()
        return found

    def turns_before(self, equivalents: EquivalenceClass) -> int:
        """Return how many classes are tried before a class."""
        where = equivalents.place
        assert where is not None
        if equivalents.again:
            return bisect_left(self.again, where)
        start = 0 if self.passed is None else bisect_right(self.places, self.passed)
        end = bisect_left(self.places, where)
        turns = end - start + len(self.again)
        if self.inadmissible_ahead:
            turns -= sum(equivalents.inadmissible_at == self.wakes for _, _, _, equivalents in self.places[start:end])
        return turns

    def skip(self, turns: int) -> None:
        """Make so many classes inadmissible without trying them, since the answer could not have changed."""
        for _ in range(turns if self.inadmissible_ahead or self.again else 0):
            equivalents = self.next_class()
            if equivalents is not None:
                self._pass(equivalents)
        if not (self.inadmissible_ahead or self.again):
            start = 0 if self.passed is None else bisect_right(self.places, self.passed)
            end = min(start + turns, len(self.places))
            if end > start:
                self.passed = self.places[end - 1]

    def skip_all(self) -> None:
        """Make all classes inadmissible without trying them."""
        if self.again:
            self._forget_newcomers()
        if self.places:
            self.passed = self.places[-1]

    def try_again(self, equivalents: EquivalenceClass) -> None:
        """Try a class again, whatever it waits for."""
        equivalents.wait_for(None)
        self.scanning.discard(equivalents)
        self.retries.add(equivalents)

    # Looking

    def firsts(self) -> list[PendingWorkload]:
        """Return the first workload of each class."""
        found = (equivalents.first for _, _, _, equivalents in self.places)
        return [workload for workload in found if workload is not None]

    def note_reason(self, workload: PendingWorkload, reason: Reason) -> None:
        """Remember why a workload waits, for all of its class."""
        if workload.equivalents is not None:
            workload.equivalents.reason = reason
        else:
            self.reasons[workload.key] = reason

    def find_reason(self, workload: PendingWorkload) -> Reason | None:
        """Return the reason why a workload waits, which it may share with its class; None if it is not kept."""
        if workload.equivalents is not None:
            return workload.equivalents.reason
        return self.reasons.get(workload.key) or BackingOff(workload.rare.requeue_at)

    def left(self) -> list[PendingWorkload]:
        """Return the workloads that are still to be tried, in order."""
        return sorted((workload for workload in self._members(inadmissible=False)), key=rank)

    def inadmissible(self) -> list[PendingWorkload]:
        """Return the workloads that are inadmissible until a wake-up, in order."""
        return sorted([*self._members(inadmissible=True), *self.held.values()], key=rank)

    def waiting(self) -> list[PendingWorkload]:
        """Return all workloads, in order."""
        return sorted(
            [*self._members(inadmissible=False), *self._members(inadmissible=True), *self.held.values()], key=rank
        )

    def groups(self) -> Iterator[PendingGroup]:
        """Yield the workloads by request shape, one group for each class."""
        if (preemptor := self.pending_preemptor) is not None:
            yield PendingGroup(preemptor.shape, 1, inadmissible=self.preemptor_inadmissible_at == self.wakes)
        for _, _, _, equivalents in self.places:
            if equivalents.first is not None:
                shape, inadmissible = equivalents.first.shape, self.is_inadmissible(equivalents)
                yield PendingGroup(shape, equivalents.size, inadmissible=inadmissible)
        for workload in self.held.values():
            yield PendingGroup(workload.shape, 1, inadmissible=True)

    def _members(self, *, inadmissible: bool) -> Iterator[PendingWorkload]:
        if self.pending_preemptor is not None and (self.preemptor_inadmissible_at == self.wakes) == inadmissible:
            yield self.pending_preemptor
        for _, _, _, equivalents in self.places:
            if self.is_inadmissible(equivalents) == inadmissible:
                yield from equivalents.waiting()
