"""
Why a workload waits, in full: its place in the queue, and what each flavor says, asked now.

The answer comes from the functions that the cycle itself uses, so it cannot disagree with it.

Called by: server/visibility.py and cli through the functions given by app.py. Calls: nomination.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kyu.api.meta import Key
from kyu.engine import nomination, turn
from kyu.engine.flavors import Mode
from kyu.engine.reasons import (
    NO_FIT_SEVERITY,
    BackingOff,
    NoFit,
    PodSetReasons,
    QueueMissing,
    QueueStopped,
    Reason,
    Suspended,
    Untried,
    WaitsForPreempted,
)
from kyu.engine.state import State
from kyu.engine.workload import Ask


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to 'why is it pending?'."""

    position: int | None
    """How many are before it in the queue; None if it is in no queue."""
    reason: Reason
    pod_sets: tuple[PodSetReasons, ...] = ()
    """What each flavor lacks, by pod set."""
    hint: str = ""


def why(state: State, key: Key, now: datetime) -> Explanation | None:
    """Why the workload waits, as of now; None if it does not wait."""
    state.begin(now.timestamp())
    ask = state.waiting.asks.get(key)
    if ask is None:
        return None
    queue = state.waiting.find_queue(ask)
    if queue is None or not queue.active:
        return Explanation(None, why_waiting(state, ask), hint=HINTS["queue"])
    order = [other.key for other in queue.line.waiting()]
    position = order.index(key)
    if not ask.special.may_queue(now.timestamp()):
        return Explanation(position, BackingOff(ask.special.requeue_at), hint=HINTS["backoff"])
    problem = turn.why_not_nominated(state, queue, ask)
    if problem is not None:
        return Explanation(position, problem, hint=HINTS["workload"])
    with state.forest.scope():
        found = nomination.nominate(state, queue, ask)
    reasons = found.assignment.reasons
    if found.assignment.mode == Mode.NO_FIT:
        word = found.assignment.word
        return Explanation(position, NoFit(word, reasons), reasons, HINTS[word])
    if found.assignment.mode == Mode.PREEMPT and not found.targets:
        return Explanation(position, NoFit("WaitingForQuota", reasons), reasons, HINTS["WaitingForQuota"])
    if found.assignment.mode == Mode.PREEMPT:
        waits = WaitsForPreempted(len(found.targets), reasons)
        return Explanation(position, waits, reasons, HINTS["preemption"])
    return Explanation(position, Untried(), reasons, HINTS["turn"])


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
        return queue.line.find_reason(ask, identity=state.waiting.identity(queue, ask))
    record = state.waiting.local_queues.get(Key(ask.key.namespace, ask.local_queue))
    if record is None or not record.cluster_queue:
        return QueueMissing("LocalQueue", ask.local_queue)
    if record.stopped:
        return QueueStopped("LocalQueue", ask.local_queue)
    return QueueMissing("ClusterQueue", record.cluster_queue)
