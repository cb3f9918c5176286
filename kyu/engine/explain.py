"""
Why a workload waits, in full: its place in the queue, what each flavor says, who holds what it lacks, what would help.

The answer comes from the functions that the cycle itself uses, asked now, so it cannot disagree with it.

Called by: cli/why.py, and those who only need the reason (controllers, cli/decide.py). Calls: nomination.py, quota.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from kyu.api.meta import Key
from kyu.engine import nomination, quota, turn
from kyu.engine.asks import Ask
from kyu.engine.flavors import Mode
from kyu.engine.quota import Cell, FlavorResource
from kyu.engine.reasons import (
    NO_FIT_SEVERITY,
    BackingOff,
    Bypassed,
    ExceedsQuota,
    InsufficientQuota,
    NoFit,
    PodSetReasons,
    QueueMissing,
    QueueStopped,
    Reason,
    Skipped,
    Suspended,
    Untried,
    WaitsForPreempted,
)
from kyu.engine.state import State
from kyu.engine.tree import Queue, queues_of

# Of those ahead, and of those who hold what is lacking, so many are named.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who has what is lacking."""

    key: Key
    cluster_queue: str
    priority: int
    amount: int
    enough: bool
    """If it ended now, the workload would fit as far as this shortage goes."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A flavor and resource of which the workload wants more than it can get, with the numbers around it."""

    pod_set: str
    flavor: str
    resource: str
    requested: int
    free: int
    """What the queue could get now, its own and borrowed."""
    own: int
    """The queue's own quota."""
    used: int
    """By the queue."""
    most: int
    """What the queue could use at the very most, if nobody else used anything."""
    holders: tuple[Holder, ...] = ()
    """The largest first."""
    other_holders: int = 0
    """How many more there are."""

    @property
    def is_final(self) -> bool:
        """No waiting will help."""
        return self.requested > self.most


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to 'why is it pending?'."""

    position: int | None
    """How many are before it in the queue; None if it is in no queue."""
    reason: Reason
    pod_sets: tuple[PodSetReasons, ...] = ()
    """What each flavor lacks, by pod set."""
    hint: str = ""
    path: tuple[str, ...] = ()
    """The ClusterQueue, and the cohorts above it."""
    length: int = 0
    """How many wait in the queue."""
    ahead: tuple[Key, ...] = ()
    """The first of those before it."""
    is_strict: bool = False
    """Nobody overtakes: while the first of the queue waits, all do."""
    shortages: tuple[Shortage, ...] = ()


def why(state: State, key: Key, now: datetime) -> Explanation | None:
    """Why the workload waits, as of now; None if it does not wait."""
    state.begin(now.timestamp())
    ask = state.waiting.asks.get(key)
    if ask is None:
        return None
    queue = state.waiting.find_queue(ask)
    if queue is None or not queue.active:
        path = () if queue is None else path_of(queue)
        return Explanation(None, why_waiting(state, ask), hint=HINTS["queue"], path=path)
    order = [other.key for other in queue.line.waiting()]
    position = order.index(key)
    reason, pod_sets, hint = look(state, queue, ask, now)
    return Explanation(
        position,
        reason,
        pod_sets,
        HINTS[hint],
        path_of(queue),
        len(order),
        tuple(order[: min(position, NAMED)]),
        queue.strict,
        tuple(find_shortages(state, queue, pod_sets)),
    )


def look(state: State, queue: Queue, ask: Ask, now: datetime) -> tuple[Reason, tuple[PodSetReasons, ...], str]:
    """What a cycle would say to the workload by itself: the reason, what each flavor lacks, and the word of a hint."""
    if not ask.special.may_queue(now.timestamp()):
        return BackingOff(ask.special.requeue_at), (), "backoff"
    problem = turn.why_not_nominated(state, queue, ask)
    if problem is not None:
        return problem, (), "workload"
    with state.forest.scope():
        found = nomination.nominate(state, queue, ask)
    reasons = found.assignment.reasons
    if found.assignment.mode == Mode.NO_FIT:
        word = found.assignment.word
        return NoFit(word, reasons), reasons, word
    if found.assignment.mode == Mode.PREEMPT and not found.targets:
        return NoFit("WaitingForQuota", reasons), reasons, "WaitingForQuota"
    if found.assignment.mode == Mode.PREEMPT:
        return WaitsForPreempted(len(found.targets), reasons), reasons, "preemption"
    return Untried(), reasons, "turn"


def path_of(queue: Queue) -> tuple[str, ...]:
    """The queue and the cohorts above it, each once: by mistake, a cohort may be above itself."""
    cohorts: list[str] = []
    for cohort in queue.ancestors():
        if cohort.name in cohorts:
            break
        cohorts.append(cohort.name)
    return (queue.name, *cohorts)


def find_shortages(state: State, queue: Queue, pod_sets: tuple[PodSetReasons, ...]) -> Iterator[Shortage]:
    for pod_set in pod_sets:
        for reason in pod_set.reasons:
            match reason:
                case InsufficientQuota(flavor, resource, requested, _):
                    wanted = requested
                case ExceedsQuota(flavor, resource, considered, requested, _):
                    wanted = considered + requested
                case _:
                    continue
            yield measure(state, queue, pod_set.pod_set, queue.cell(FlavorResource(flavor, resource)), wanted)


def measure(state: State, queue: Queue, pod_set: str, cell: Cell, wanted: int) -> Shortage:
    found = list(find_holders(state, queue, cell, wanted))
    largest = heapq.nlargest(NAMED, found, key=lambda holder: (holder.amount, holder.key))
    return Shortage(
        pod_set,
        cell.key.flavor,
        cell.key.resource,
        requested=wanted,
        free=max(0, quota.available(cell)),
        own=cell.nominal,
        used=cell.usage,
        most=cell.potential,
        holders=tuple(largest),
        other_holders=len(found) - len(largest),
    )


def find_holders(state: State, queue: Queue, cell: Cell, wanted: int) -> Iterator[Holder]:
    """All in the tree who hold some of it, each with whether its end alone would do."""
    for other in queues_of(state.hierarchy.find_root(queue)):
        for _, holding in other.holdings:
            amount = sum(charge for charged, charge in holding.charges if charged.key == cell.key)
            if amount <= 0:
                continue
            with quota.without(holding.charges):
                enough = quota.fits(cell, wanted)
            yield Holder(holding.key, other.name, holding.priority, amount, enough)


HINTS = {
    "queue": "check the LocalQueue, the ClusterQueue that it leads to, and that queue's conditions",
    "backoff": "it is queued again by itself",
    "workload": "change the workload or the namespace; it is tried again then",
    "preemption": "it starts when those that it preempts have stopped",
    "turn": "it fits now, and starts when its turn comes",
    "TopologyPlacementFailed": "ask for a wider topology level, or wait until nodes are free",
    "WaitingForQuota": "it is tried again when quota becomes free",
    "ExceedsMaxQuota": "it can never fit: ask for less, or raise the quota or the borrowing limit",
    "NoMatchingFlavor": "no flavor of the queue suits it: compare its selectors, tolerations and resources",
}
assert all(word in HINTS for word in NO_FIT_SEVERITY)


def why_waiting(state: State, ask: Ask) -> Reason:
    """Why it waits as far as that is known without asking again."""
    queue = state.waiting.find_queue(ask)
    if queue is not None:
        if not queue.active:
            return Suspended(queue.name)
        reason = queue.line.find_reason(ask)
        if isinstance(reason, Bypassed) and not state.is_selected(queue, ask):
            # Peers are parked together from whatever namespace; this one will not be helped by what they wait for.
            return turn.why_not_nominated(state, queue, ask) or reason
        # What has become free since the last cycle nobody has taken yet.
        return Untried() if isinstance(reason, Skipped) and state.has_wakes else reason
    record = state.waiting.local_queues.get(ask.local_queue)
    if record is None or not record.cluster_queue:
        return QueueMissing("LocalQueue", ask.local_queue.name)
    if record.stopped:
        return QueueStopped("LocalQueue", ask.local_queue.name)
    return QueueMissing("ClusterQueue", record.cluster_queue)
