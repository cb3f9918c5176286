"""
An independent simulator of one machine with equal processors, as an oracle: first come first served, and EASY.

It shares no code with the engine. At equal times, jobs that reach their limit end first and together, then jobs arrive,
then other jobs end, one at a time.
"""

from __future__ import annotations

import heapq
from random import Random
from typing import NamedTuple


class MachineJob(NamedTuple):
    """A job of the machine: seconds and processors."""

    submitted: int
    runtime: int
    processors: int
    limit: int


def random_jobs(seed: int, count: int, processors: int) -> list[MachineJob]:
    """Return jobs that keep a machine busy, many with equal times and sizes."""
    random, time, jobs = Random(seed), 0, list[MachineJob]()
    for _ in range(count):
        time += random.choice((0, 0, 1, 5, 20, 60))
        runtime = random.choice((1, 10, 10, 60, 120, 600))
        size = min(processors, random.choice((1, 1, 2, 3, 4, 8, 16, processors)))
        jobs.append(MachineJob(time, runtime, size, runtime * random.choice((1, 1, 2, 5))))
    return jobs


def as_swf(jobs: list[MachineJob]) -> str:
    """Return the jobs as a log in the Standard Workload Format."""
    lines = ["; Version: 2.2", "; Computer: a small one"]
    for number, job in enumerate(jobs, start=1):
        lines.append(
            f"{number} {job.submitted} -1 {job.runtime} {job.processors} -1 -1 {job.processors} {job.limit} -1 1 "
            f"{number % 3} -1 -1 -1 -1 -1 -1"
        )
    return "\n".join(lines) + "\n"


def waits(jobs: list[MachineJob], processors: int, *, backfill: bool) -> list[int]:
    """Return the wait of each job."""
    free, started = processors, list[int | None]([None] * len(jobs))
    queue, ends = list[int](), list[tuple[int, bool, int, int]]()
    arrived = starts = 0

    def start(index: int, now: int) -> None:
        nonlocal free, starts
        free -= jobs[index].processors
        started[index] = now
        starts += 1
        heapq.heappush(ends, (now + jobs[index].runtime, jobs[index].runtime < jobs[index].limit, starts, index))

    def decide(now: int) -> None:
        while queue and jobs[queue[0]].processors <= free:
            start(queue.pop(0), now)
        if not (queue and backfill):
            return
        head, available, shadow = jobs[queue[0]], free, now
        expected = sorted((max(now, (started[i] or 0) + jobs[i].limit), jobs[i].processors) for *_, i in ends)
        for end, size in expected:
            if end > shadow and available >= head.processors:
                break
            available, shadow = available + size, end
        extra = available - head.processors
        for index in queue[1:]:
            job = jobs[index]
            if job.processors > free:
                continue
            if now + job.limit > shadow:
                if job.processors > extra:
                    continue
                extra -= job.processors
            queue.remove(index)
            start(index, now)

    while arrived < len(jobs) or ends:
        if arrived < len(jobs) and (not ends or (jobs[arrived].submitted, False) < ends[0][:2]):
            now = jobs[arrived].submitted
            queue.append(arrived)
            arrived += 1
        else:
            now, early, _, index = heapq.heappop(ends)
            free += jobs[index].processors
            if not early and ends and ends[0][:2] == (now, False):
                continue
        decide(now)
    return [begin - job.submitted for begin, job in zip(started, jobs, strict=True) if begin is not None]
