"""
The engine in virtual time: a clock that jumps from one arrival or end of a job to the next.

The scheduler is the one that runs live, on the same state. There is no second accounting: usage is read from the
engine's own quotas. Events are processed one at a time, except that jobs which reach their limit at the same time end
together. At equal times these come first, then arrivals in the order of the load, then other ends. An admitted job
starts at once and runs to its end. A preempted job stops at once, queues again, and starts anew.
Admission checks are taken as passed.

Called by: cli/admin/simulate.py. Calls: engine/schedule.py, simulation/usage.py.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import Final

from kyu.api.meta import Key
from kyu.api.workloads import Workload
from kyu.engine import explain, reasons
from kyu.engine.decisions import Admit, Cycle, Evict, Preempt
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from kyu.engine.what_if.trial import requeue_time
from kyu.simulation.jobs import START, SimulatedJob, WorkloadFactory
from kyu.simulation.load import SimulatedLoad
from kyu.simulation.usage import UsageRecord

# The most rounds of preemption at one moment, because ClusterQueues can preempt each other for ever.
MOST_ROUNDS: Final = 20


@dataclass(slots=True, eq=False)
class JobRun:
    """A job of a simulation, and what became of it. Times are seconds since the start of the load."""

    job: SimulatedJob
    local_queue: Key
    cluster_queue: str = ""
    first_start: float | None = None
    last_start: float | None = None
    end: float | None = None
    preemptions: int = 0
    lost: float = 0.0
    """Seconds of work that preemptions threw away."""
    reason: str = ""
    """The reason why the job waits at the end of the simulation."""

    @property
    def wait(self) -> float | None:
        """The seconds from the arrival to the first start."""
        return None if self.first_start is None else self.first_start - self.job.submitted


@dataclass(slots=True)
class SimulationResult:
    """The jobs of a simulation in order of arrival, and the usage over time."""

    runs: list[JobRun]
    usage: UsageRecord
    end: float = 0.0
    """The second of the last event."""
    events: int = 0
    endless: int = 0
    """The number of moments at which ClusterQueues preempted each other in a circle."""


@dataclass(slots=True)
class Simulation:
    """A load on the engine, in virtual time."""

    state: State
    load: SimulatedLoad
    until: float = inf
    now: float = 0.0
    result: SimulationResult = field(init=False)
    _runs: dict[Key, JobRun] = field(default_factory=dict)
    _ends: list[tuple[float, bool, int, Key]] = field(default_factory=list)
    """A heap of ends: the time, whether that is before the limit, the number of the start, the job."""
    _started: dict[Key, int] = field(default_factory=dict)
    """By job: the number of its current start. The ends of earlier starts no longer count."""
    _starts: int = 0
    _factory: WorkloadFactory = field(default_factory=WorkloadFactory)

    def __post_init__(self) -> None:
        self.result = SimulationResult([], UsageRecord(self.state))

    def run(self) -> SimulationResult:
        """Run the load to its end, or until the time that is given."""
        arriving = self.load.jobs
        index, count = 0, len(arriving)
        while index < count or self._ends:
            arrival = arriving[index][0].submitted if index < count else inf
            end = self._ends[0][:2] if self._ends else (inf, True)
            if min(arrival, end[0]) > self.until:
                self.now = self.until
                break
            if (arrival, False) < end:
                self.now = arrival
                job, queue = arriving[index]
                self._submit(job, queue, index)
                index += 1
            elif not self._end_next():
                continue
            self.result.events += 1
            self._decide()
        self._conclude()
        return self.result

    def _submit(self, job: SimulatedJob, queue: Key, number: int) -> None:
        workload = self._factory.make(job, queue, number)
        run = self._runs[workload.key] = JobRun(job, queue)
        self.result.runs.append(run)
        self.state.put(workload)

    def _end_next(self) -> bool:
        """End the next job, with all that reach their limit at the same time; return whether any was still running."""
        found = False
        while True:
            self.now, early, number, key = heapq.heappop(self._ends)
            if self._started.get(key) == number:
                self._finish(key)
                found = True
            if early or not self._ends or self._ends[0][:2] != (self.now, False):
                return found

    def _finish(self, key: Key) -> None:
        run = self._runs[key]
        run.end = self.now
        del self._started[key]
        self.state.delete(Workload.KIND, key)
        self.result.usage.note(run.cluster_queue, self.now)

    def _decide(self) -> None:
        """Let the scheduler decide until no preempted job queues again at this moment."""
        moment = START + timedelta(seconds=self.now)
        for _ in range(MOST_ROUNDS):
            if not self._carry_out(schedule(self.state, moment)):
                break
        else:
            self.result.endless += 1
        self.result.usage.note_pending(self.state.pending_count(), self.now)

    def _carry_out(self, cycle: Cycle) -> bool:
        """Start and stop jobs as decided, and return whether some job queues again."""
        leaving: list[tuple[Key, float | None]] = []
        for decision in cycle.decisions:
            if isinstance(decision, Admit):
                if not decision.second_pass:
                    self._start(decision)
            elif isinstance(decision, Preempt):
                leaving.append((decision.victim, requeue_time(self.state, decision, self._moment)))
            elif isinstance(decision, Evict):
                leaving.append((decision.key, None))
        for key, queued_at in leaving:
            self._stop(key)
            self.state.release(key, queued_at=queued_at)
            self.result.usage.note(self._runs[key].cluster_queue, self.now)
        return bool(leaving)

    @property
    def _moment(self) -> float:
        return START.timestamp() + self.now

    def _start(self, admit: Admit) -> None:
        run = self._runs[admit.key]
        self.state.confirm(admit.key)
        run.cluster_queue, run.last_start = admit.cluster_queue, self.now
        if run.first_start is None:
            run.first_start = self.now
        self._starts += 1
        self._started[admit.key] = self._starts
        end, job = self.now + run.job.run_seconds, run.job
        early = job.limit is None or job.runtime < job.limit
        heapq.heappush(self._ends, (end, early, self._starts, admit.key))
        self.result.usage.note(admit.cluster_queue, self.now)

    def _stop(self, key: Key) -> None:
        run = self._runs[key]
        if self._started.pop(key, None) is not None and run.last_start is not None:
            run.preemptions += 1
            run.lost += self.now - run.last_start

    def _conclude(self) -> None:
        self.result.end = self.now
        self.result.usage.close(self.now)
        for workload in self.state.all_pending():
            word, message = reasons.render(explain.why_waiting(self.state, workload))
            self._runs[workload.key].reason = f"{word}: {message}"
