"""
The report of a comparison: how many decisions were the same, and each disagreement with both sides of it.

Called by: shadow/comparison.py (fills it), controllers/shadow.py (serves it), cli/admin/shadow.py (shows it).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from kyu.api.meta import Key

Decision: TypeAlias = Literal["admission", "preemption"]
Disagreement: TypeAlias = Literal[
    "WouldAdmit", "WouldWait", "OtherFlavors", "OtherNodes", "WouldPreempt", "WouldNotPreempt"
]
MEANINGS: dict[Disagreement, str] = {
    "WouldAdmit": "Kyu would admit the workload; the other scheduler leaves it pending",
    "WouldWait": "the other scheduler admitted the workload; Kyu would leave it pending",
    "OtherFlavors": "both admit the workload, with other flavors or another number of pods",
    "OtherNodes": "both admit the workload in the same flavors, at other nodes",
    "WouldPreempt": "Kyu would preempt for the workload; the other scheduler does not",
    "WouldNotPreempt": "the other scheduler preempted the workload; Kyu would not",
}
# The path at which a shadow shows its report, and of the right to read it.
PATH = "/shadow"
# Disagreements that are kept with their words. Counts go on beyond it.
MOST_KEPT = 1000


@dataclass(slots=True)
class Found:
    """One disagreement about one workload."""

    type: Disagreement
    workload: Key
    cluster_queue: str
    theirs: str
    """The decision of the other scheduler."""
    ours: str
    """The decision that Kyu would make, and its reason."""
    at: float
    """Seconds since 1970."""
    ended_at: float | None = None
    """The time at which the other scheduler decided the same after all, or the workload ended."""


@dataclass(slots=True)
class ShadowReport:
    """The results of a comparison so far."""

    since: float
    same: Counter[Decision] = field(default_factory=Counter)
    otherwise: Counter[Disagreement] = field(default_factory=Counter)
    delays: list[float] = field(default_factory=list)
    """Seconds by which the other scheduler decided later, since they were last taken."""
    found: dict[tuple[Key, Disagreement], Found] = field(default_factory=dict)

    def agree(self, decision: Decision, seconds: float) -> None:
        """Count a decision that both make; the other scheduler made it this much later."""
        self.same[decision] += 1
        self.delays.append(max(0.0, seconds))

    def add(self, one: Found) -> None:
        """Count a disagreement. The latest one of a workload and type is kept."""
        self.otherwise[one.type] += 1
        self.found.pop((one.workload, one.type), None)
        self.found[one.workload, one.type] = one
        if len(self.found) > MOST_KEPT:
            del self.found[next(iter(self.found))]

    def end(self, workload: Key, type_: Disagreement, at: float) -> None:
        """Note that a disagreement is over."""
        one = self.found.get((workload, type_))
        if one is not None and one.ended_at is None:
            one.ended_at = at

    def take_delays(self) -> list[float]:
        """Return the delays since the last call."""
        taken, self.delays = self.delays, []
        return taken

    def open(self) -> Counter[Disagreement]:
        """Return the disagreements that go on, by type."""
        return Counter(one.type for one in self.found.values() if one.ended_at is None)

    def as_json(self) -> dict[str, Any]:
        return {
            "since": self.since,
            "same": dict(self.same),
            "otherwise": dict(self.otherwise),
            "disagreements": [
                {
                    "type": one.type,
                    "namespace": one.workload.namespace,
                    "workload": one.workload.name,
                    "clusterQueue": one.cluster_queue,
                    "theirs": one.theirs,
                    "ours": one.ours,
                    "at": one.at,
                    "endedAt": one.ended_at,
                }
                for one in self.found.values()
            ],
        }
