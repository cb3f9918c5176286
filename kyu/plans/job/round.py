"""
The input of the rules for a job, and the steps that several rules take: stop, wind down, restore.

Called by: plans/job/lifecycle.py, plans/job/creation.py, plans/job/changes.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kyu.api.actions import Action, Event, Patch, View, WakeAt
from kyu.api.clusters.kubestellar import PLACED_WORKLOAD
from kyu.api.kueue import RESOURCE_IN_USE_FINALIZER, Workload
from kyu.api.meta import Json, Ref, is_true
from kyu.kinds import metadata
from kyu.kinds.pod_group import Incomplete
from kyu.kinds.templates import PodSetTemplate
from kyu.plans.job import injection
from kyu.plans.job.slices import Slices
from kyu.plans.job.unit import PodGroupUnit, Unit
from kyu.plans.status import StatusEdit

# How often a job that ends is looked at, beside the changes of the job itself.
LOOK_AGAIN = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class JobRound:
    """The input of the rules: the job, its Workload (or none yet), and their surroundings."""

    unit: Unit
    workload: Workload | None
    raw: Json | None
    namespace: str
    view: View
    now: datetime
    slices: Slices | None = None
    """The Workloads of an elastic job; the current one is the workload above."""

    @property
    def is_admitted(self) -> bool:
        return self.workload is not None and is_true(self.workload.status.conditions, "Admitted")

    @property
    def is_evicted(self) -> bool:
        """Evicted, with the quota not yet given back."""
        if self.workload is None:
            return False
        conditions = self.workload.status.conditions
        return is_true(conditions, "Evicted") and is_true(conditions, "QuotaReserved")

    def has_same_pods(self, pod_sets: Sequence[PodSetTemplate]) -> bool:
        """Return whether the Workload has the pod sets of the job. A prebuilt one may lack what servers fill in."""
        if not metadata.identifier(self.unit.head, metadata.PREBUILT_WORKLOAD):
            placed = injection.is_placed(self.unit.head, self.raw)
            return injection.same_pods(pod_sets, self.raw or {}, placed=placed)
        compare = injection.same_roles if isinstance(self.unit, PodGroupUnit) else injection.same_containers
        return compare(pod_sets, self.raw or {})

    def edit(self) -> StatusEdit:
        assert self.raw is not None
        return StatusEdit(self.raw, self.now)


def stop(this: JobRound, reason: str) -> list[Action]:
    """Stop the job with an event, if it is not stopped."""
    stopping = this.unit.stop(reason)
    # Pods that are deleted are each told so.
    is_told = any(isinstance(action, Event) for action in stopping)
    return stopping if is_told or not stopping else [*stopping, this.unit.event("Stopped", reason)]


def wind_down(this: JobRound, reason: str) -> list[Action] | None:
    """Stop it and, when its pods have ended, take back what its admission wrote. None when all of that is done.

    Only the Workload knows what its templates were before, so this comes before that goes.
    """
    if not this.unit.start_is_seen():
        return look_again(this)
    if stopping := stop(this, reason):
        return stopping
    return look_again(this) if this.unit.is_active() else restore(this) or None


def restore(this: JobRound) -> list[Action]:
    """Restore the templates from before the admission, if they were changed."""
    pod_sets = this.unit.pod_sets()
    if injection.is_placed(this.unit.head, this.raw):
        unmark = Patch(this.unit.ref, {"metadata": {"annotations": {PLACED_WORKLOAD: None}}})
        return [*this.unit.restore(injection.originals(this.raw or {})), unmark]
    if isinstance(pod_sets, Incomplete) or not injection.is_injected(pod_sets):
        return []
    return this.unit.restore(injection.originals(this.raw or {}))


def look_again(this: JobRound) -> list[Action]:
    """Plan again in a while: the last pod of a job may go without a change of the job."""
    return [WakeAt(this.now + LOOK_AGAIN)]


def release_finalizer(workload: Workload | None) -> list[Action]:
    """Remove the finalizer of a finished Workload, which holds no quota."""
    if workload is None or RESOURCE_IN_USE_FINALIZER not in workload.metadata.finalizers:
        return []
    kept = [name for name in workload.metadata.finalizers if name != RESOURCE_IN_USE_FINALIZER]
    return [Patch(Ref(Workload.KIND, workload.key), {"metadata": {"finalizers": kept}})]


def written(edit: StatusEdit) -> list[Action]:
    patch = edit.patch(Workload.KIND)
    return [] if patch is None else [patch]
