"""
The expected starts of pending workloads: the queue is run forward in time, with run times of the past.

There are two runs. In the first, every workload that holds quota ends after the median of the past run times of its
LocalQueue that are longer than it has already run; in the second, after their 90th percentile. So all workloads of a
run are short or long together, which is cautious: users and loads err in the same direction. Without enough past run
times, a workload runs to its declared maximum execution time; without that, it never ends. The scheduler decides after
each end. No workload arrives in a run, so jobs that arrive and come first make the start later.

Called by: cli/batch/expected_starts.py. Calls: engine/what_if/trial.py.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from kyu.api.meta import Key
from kyu.engine.state import State
from kyu.engine.what_if.trial import StateTrial
from kyu.engine.workloads import ReservedWorkload

LEAST_HISTORY: Final = 5
"""The fewest past run times of a LocalQueue that are used."""
MOST_ENDS: Final = 1_000
"""The most ends of workloads in a run. What has not started then has no estimate."""
MEDIAN: Final = 0.5
MOST: Final = 0.9


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """The forecast of one pending workload, in seconds since 1970. None: no estimate."""

    median: float | None
    most: float | None
    """The start if run times are long: their 90th percentile."""


@dataclass(frozen=True, slots=True)
class PastRunTimes:
    """The past run times of each LocalQueue in seconds, sorted."""

    by_queue: Mapping[Key, Sequence[float]]

    def expected(self, reserved: ReservedWorkload, elapsed: float, share: float) -> float:
        """Return the run time that such a share of longer ones does not exceed; infinite if it is not known."""
        limit = inf if reserved.limit is None else float(reserved.limit)
        known = self.by_queue.get(reserved.local_queue, ())
        first = bisect_right(known, elapsed)
        longer = len(known) - first
        if len(known) < LEAST_HISTORY or not longer:
            return limit
        return min(limit, known[first + min(longer - 1, int(share * longer))])


def expected_starts(state: State, now: float, past: PastRunTimes) -> dict[Key, ExpectedStart]:
    """Return the expected start of each pending workload. The state belongs to the caller alone."""
    waiting = [workload.key for workload in state.all_pending()]
    median, most = (run_forward(state, now, past, share) for share in (MEDIAN, MOST))
    return {key: expected_start(median.get(key), most.get(key)) for key in waiting}


def expected_start(median: float | None, most: float | None) -> ExpectedStart:
    """Return the two starts in order, because longer run times may let a workload pass another."""
    return ExpectedStart(median, most if most is None or median is None else max(median, most))


def run_forward(state: State, now: float, past: PastRunTimes, share: float) -> dict[Key, float]:
    """Return when workloads are admitted in one run."""
    starts: dict[Key, float] = {}
    with StateTrial(state, now) as trial:
        trial.stop_evicted()
        ends: list[tuple[float, str, ReservedWorkload]] = []
        for reserved in state.all_reserved():
            # An admission of this moment, or one whose time is not known, has not run yet.
            began = min(reserved.reserved_at, now)
            ends.append((max(now, began + past.expected(reserved, now - began, share)), reserved.uid, reserved))
        heapq.heapify(ends)
        told = 0
        for _ in range(MOST_ENDS):
            trial.run()
            for admit in trial.admitted[told:]:
                starts.setdefault(admit.key, trial.now)
                held = state.reserved.by_key.get(admit.key)
                if held is not None:
                    heapq.heappush(ends, (trial.now + past.expected(held, 0.0, share), held.uid, held))
            told = len(trial.admitted)
            if not state.pending_count() or not _end_next(trial, ends):
                break
    return starts


def _end_next(trial: StateTrial, ends: list[tuple[float, str, ReservedWorkload]]) -> bool:
    """End the next workload that still holds its quota; return False if no end is known."""
    while ends and ends[0][0] < inf:
        time, _, reserved = heapq.heappop(ends)
        if trial.state.reserved.by_key.get(reserved.key) is reserved:
            trial.now = max(trial.now, time)
            trial.end(reserved)
            return True
    return False
