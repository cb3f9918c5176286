"""
What a cycle decides, as values: who gets quota, who is preempted for whom, who is evicted, who waits and why.

Called by: cycle.py (makes them), plans/admission.py (writes them), cli/decide.py (shows them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from kyu.api.meta import Key
from kyu.engine.reasons import PreemptionReason, Reason
from kyu.engine.workload import AssignedPodSet


class Admit(NamedTuple):
    """The workload gets quota; it is admitted for good when its checks are ready."""

    key: Key
    cluster_queue: str
    pod_sets: tuple[AssignedPodSet, ...]
    checks: tuple[str, ...] = ()
    """Admission checks that apply to the assigned flavors."""
    second_pass: bool = False
    """It had quota already: this is its place on the nodes, found later or found anew."""
    replaces: Key | None = None
    """The slice of the same job that ends now."""

    @property
    def is_complete(self) -> bool:
        """Nothing more to wait for: no checks, no place to be chosen later."""
        return not self.checks and not any(pod_set.delayed for pod_set in self.pod_sets)


class Preempt(NamedTuple):
    """The victim is evicted so that the preemptor fits."""

    victim: Key
    preemptor: Key
    reason: PreemptionReason
    preemptor_uid: str
    cluster_queue: str
    """Of the preemptor."""
    path: str
    """Of the preemptor's queue in the tree, from the root."""
    victim_path: str


class Evict(NamedTuple):
    """The workload loses its quota for a reason of its own."""

    key: Key
    reason: Literal["NodeFailures", "FlavorMigration"]
    nodes: tuple[str, ...] = ()
    """The nodes for which no replacement was found."""


class Wait(NamedTuple):
    """The workload was looked at and has to wait."""

    key: Key
    cluster_queue: str
    reason: Reason
    parked: bool
    """It is not tried again until something changes."""


Decision: TypeAlias = Admit | Preempt | Evict | Wait


@dataclass(slots=True)
class Cycle:
    """The decisions of one cycle, or of all cycles until nothing more was to decide; in order."""

    decisions: list[Decision] = field(default_factory=list)
    cycles: int = 0
    blocked: bool = False
    """Nothing is admitted until the pods of admitted workloads are ready."""

    def admitted(self) -> Iterator[Admit]:
        return (decision for decision in self.decisions if isinstance(decision, Admit))

    def preempted(self) -> Iterator[Preempt]:
        return (decision for decision in self.decisions if isinstance(decision, Preempt))

    def evicted(self) -> Iterator[Evict]:
        return (decision for decision in self.decisions if isinstance(decision, Evict))

    def waiting(self) -> Iterator[Wait]:
        return (decision for decision in self.decisions if isinstance(decision, Wait))
