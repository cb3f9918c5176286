"""
The decisions of a cycle, as values: admissions, preemptions, evictions, and workloads that wait.

Called by: engine/commit.py and engine/cycle.py (make them), plans/workload/admission.py (writes them),
cli/admin/decide.py (shows them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from kyu.api.meta import Key
from kyu.engine.reasons import PreemptionReason, Reason
from kyu.engine.workloads import AssignedPodSet


class Admit(NamedTuple):
    """The workload gets quota. It is admitted when its checks are ready."""

    key: Key
    cluster_queue: str
    pod_sets: tuple[AssignedPodSet, ...]
    checks: tuple[str, ...] = ()
    """Admission checks that apply to the assigned flavors."""
    second_pass: bool = False
    """The workload had quota already; this decision places it, or moves it to other nodes."""
    replaces: Key | None = None
    """The slice of the same job that ends now."""

    @property
    def is_complete(self) -> bool:
        """The workload is admitted at once: it has no checks and no delayed placement."""
        return not self.checks and not any(pod_set.delayed for pod_set in self.pod_sets)


class Preempt(NamedTuple):
    """The workload is evicted so that the preemptor fits."""

    victim: Key
    preemptor: Key
    reason: PreemptionReason
    preemptor_uid: str
    cluster_queue: str
    """The ClusterQueue of the preemptor."""
    path: str
    """The path of the preemptor's ClusterQueue, from the root of its tree."""
    victim_path: str


class Evict(NamedTuple):
    """The workload is evicted without a preemptor."""

    key: Key
    reason: Literal["NodeFailures", "FlavorMigration"]
    nodes: tuple[str, ...] = ()
    """The nodes for which no replacement was found."""


class Wait(NamedTuple):
    """The workload was tried and has to wait."""

    key: Key
    cluster_queue: str
    reason: Reason
    inadmissible: bool
    """The workload is not tried again until a change wakes its queue."""


Decision: TypeAlias = Admit | Preempt | Evict | Wait


@dataclass(slots=True)
class Cycle:
    """The decisions of one cycle, or of all cycles until the state is stable, in order."""

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
