"""
Usage over time, read from the quotas of the engine whenever a job starts or stops.

Called by: simulation/virtual_time.py (notes changes), simulation/report.py (reads).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kyu.engine.quota.amounts import FlavorResource
from kyu.engine.state import State


@dataclass(slots=True)
class UsageSeries:
    """A value that changes at moments, and its integral over time."""

    times: list[float] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    integral: float = 0.0
    highest: int = 0

    def note(self, value: int, now: float) -> None:
        """Note the value from a moment on."""
        if self.values:
            if value == self.values[-1]:
                return
            self.integral += self.values[-1] * (now - self.times[-1])
            if self.times[-1] == now:
                self.values[-1] = value
                self.highest = max(self.highest, value)
                return
        self.times.append(now)
        self.values.append(value)
        self.highest = max(self.highest, value)

    def close(self, now: float) -> None:
        """Add the time until the end."""
        if self.values:
            self.integral += self.values[-1] * (now - self.times[-1])

    def sampled(self, begin: float, end: float, points: int) -> list[float]:
        """Return the mean value in each of so many equal spans of time."""
        width = (end - begin) / points if end > begin else 1.0
        found = [0.0] * points
        for index, (start, value) in enumerate(zip(self.times, self.values, strict=True)):
            stop = self.times[index + 1] if index + 1 < len(self.times) else end
            if value:
                _spread(found, (start - begin) / width, (stop - begin) / width, value)
        return found


def _spread(found: list[float], start: float, stop: float, value: int) -> None:
    """Add a value that held between two places, which are counted in spans."""
    start, stop = max(0.0, start), min(float(len(found)), stop)
    index = int(start)
    while index < len(found) and index < stop:
        found[index] += value * (min(stop, index + 1) - max(start, index))
        index += 1


@dataclass(slots=True)
class UsageRecord:
    """The usage of each ClusterQueue by flavor and resource, and the number of pending workloads."""

    state: State
    series: dict[tuple[str, FlavorResource], UsageSeries] = field(default_factory=dict)
    pending: UsageSeries = field(default_factory=UsageSeries)

    def note(self, cluster_queue: str, now: float) -> None:
        """Note the usage of a ClusterQueue after a job has started or stopped there."""
        for key, used in self.state.usage_in(cluster_queue):
            known = self.series.get((cluster_queue, key))
            if known is None:
                known = self.series[cluster_queue, key] = UsageSeries()
            known.note(used, now)

    def note_pending(self, count: int, now: float) -> None:
        """Note the number of pending workloads."""
        self.pending.note(count, now)

    def close(self, now: float) -> None:
        """Add the time until the end to every series."""
        self.pending.close(now)
        for series in self.series.values():
            series.close(now)
