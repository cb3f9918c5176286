"""
A Workload's own life, apart from the scheduler's decisions: checks, stops, deadlines, deactivation, requeueing, the
end.

Rules are asked in order; the first that has something to say writes, and the change it makes brings the plan back for
the next. So each rule sees a settled state and none has to know the others.

Kueue: pkg/controller/core/workload_controller.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kyu.api.actions import Action, Delete, Event, Patch, View, WakeAt
from kyu.api.config.config import Configuration
from kyu.api.kueue import RESOURCE_IN_USE_FINALIZER, ClusterQueue, LocalQueue, Workload
from kyu.api.meta import Condition, Key, Ref, find_condition
from kyu.engine import reasons
from kyu.engine.reasons import Untried
from kyu.kinds import metadata, pods, table
from kyu.kinds.conditions import add_seconds
from kyu.plans.pods_of_jobs import has_pods, pods_of_workload
from kyu.plans.queues import activity
from kyu.plans.status import StatusEdit, parse_time, timestamp
from kyu.plans.workload import checks, unadmitted
from kyu.plans.workload.eviction import clear_reservation, evict, release, reset_checks

# How long the deletion of a Workload waits for its job to stop, and how often is looked whether the job is still there.
LONGEST_GOODBYE = timedelta(minutes=1)
GOODBYE_LOOK = timedelta(seconds=5)
GATED_BY = "Admission is gated by: "
# How often the pods of a deleted Workload are looked at.
LOOK_AGAIN = timedelta(seconds=1)


@dataclass(slots=True)
class Life:
    """The input of the rules: the workload, its queues, the view, and the edit that they write to.

    ``is_evicted`` means evicted with the quota not yet given back. The condition stays true while it queues again.
    """

    workload: Workload
    conditions: Mapping[str, Condition]
    local_queue: LocalQueue | None
    cluster_queue: ClusterQueue | None
    view: View
    edit: StatusEdit
    now: datetime
    is_reserved: bool = field(init=False)
    is_admitted: bool = field(init=False)
    is_evicted: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_reserved = self.is_true("QuotaReserved")
        self.is_admitted = self.is_true("Admitted")
        self.is_evicted = self.is_reserved and self.is_true("Evicted")

    @property
    def configuration(self) -> Configuration:
        return self.view.configuration

    def word(self, stop: activity.QueueStop) -> str:
        """Return the reason of QuotaReserved=False."""
        return unadmitted.reason_word(stop.reason, stop.message, self.configuration.gates)

    def condition(self, type_: str) -> Condition | None:
        return self.conditions.get(type_)

    def is_true(self, type_: str) -> bool:
        condition = self.conditions.get(type_)
        return condition is not None and condition.status == "True"

    def written(self, *events: Event) -> list[Action]:
        patch = self.edit.patch(Workload.KIND)
        return [] if patch is None else [patch, *events]

    def event(self, reason: str, message: str, *, warning: bool = False) -> Event:
        ref = Ref(Workload.KIND, self.workload.key)
        return Event(ref, "Warning" if warning else "Normal", reason, message, self.workload.metadata.uid)


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    workload, raw = view.get(Workload, key), view.find_json(Workload.KIND, key)
    if workload is None or raw is None:
        return []
    settings = view.configuration
    if workload.metadata.deletion_timestamp:
        return let_go(view, workload, now)
    conditions = {condition.type: condition for condition in workload.status.conditions}
    if (finished := conditions.get("Finished")) and finished.status == "True":
        return retire(workload, finished, settings, now)
    local_queue = view.get(LocalQueue, Key(key.namespace, workload.spec.queue_name))
    admission = workload.status.admission
    name = admission.cluster_queue if admission else (local_queue.spec.cluster_queue if local_queue else "")
    life = Life(
        workload,
        conditions,
        local_queue,
        view.get(ClusterQueue, Key("", name)) if name else None,
        view,
        StatusEdit(raw, now),
        now,
    )
    if not workload.spec.active:
        return stop_inactive(life)
    wakes: list[Action] = []
    for rule in RULES:
        if not (actions := rule(life)):
            continue
        if any(not isinstance(action, WakeAt) for action in actions):
            return [*actions, *wakes]
        wakes += actions
    return wakes


def let_go(view: View, workload: Workload, now: datetime) -> list[Action]:
    """Release a deleted Workload when its pods have ended: the engine gives the quota back when the object is gone.

    The plan of the job stops it first. A job that has no pods is waited for no longer than a while, because a
    Workload that cannot be deleted would keep its namespace, too.
    """
    since = parse_time(workload.metadata.deletion_timestamp)
    finished = find_condition(workload.status.conditions, "Finished")
    is_finished = finished is not None and finished.status == "True"
    holds_quota = workload.status.admission is not None and workload.metadata.finalizers and not is_finished
    if holds_quota and has_pods(view, workload, now):
        return [WakeAt(now + LOOK_AGAIN)]
    if since is not None and now < since + LONGEST_GOODBYE and runs_a_job(view, workload):
        return [WakeAt(min(now + GOODBYE_LOOK, since + LONGEST_GOODBYE))]
    remaining = [name for name in workload.metadata.finalizers if name != RESOURCE_IN_USE_FINALIZER]
    if len(remaining) == len(workload.metadata.finalizers):
        return []
    ref, patch = Ref(Workload.KIND, workload.key), {"metadata": {"finalizers": remaining}}
    found = pods_of_workload(view, workload) if holds_quota else ()
    stuck = ", ".join(metadata.name_of(pod) for pod in found if pods.is_stuck(pod, now))
    message = f"The quota was given back, but pods did not end with their grace period: {stuck}"
    told = [Event(ref, "Warning", "PodsStuck", message, workload.metadata.uid)] if stuck else []
    return [Patch(ref, patch, resource_version=workload.metadata.resource_version), *told]


def runs_a_job(view: View, workload: Workload) -> bool:
    """Return whether a job holds quota by this Workload and by no other."""
    owner = next((one for one in workload.metadata.owner_references if one.controller), None)
    kind = table.find({"apiVersion": owner.api_version, "kind": owner.kind}) if owner is not None else None
    if owner is None or kind is None or workload.status.admission is None:
        return False
    if kind.framework not in view.configuration.integrations.frameworks:
        return False
    job = view.find_json(kind.kind, Key(workload.metadata.namespace, owner.name))
    is_there = job is not None and metadata.uid_of(job) == owner.uid and not metadata.is_deleted(job)
    return is_there and len(view.owned_by(Workload.KIND, owner.uid)) == 1


def retire(workload: Workload, finished: Condition, settings: Configuration, now: datetime) -> list[Action]:
    policies = settings.object_retention_policies
    keep = policies.workloads.after_finished if policies and policies.workloads else None
    ended = parse_time(finished.last_transition_time)
    if keep is None or ended is None:
        return []
    if now < ended + keep:
        return [WakeAt(ended + keep)]
    ref = Ref(Workload.KIND, workload.key)
    event = Event(ref, "Normal", "Deleted", "Deleted finished workload due to elapsed retention", workload.metadata.uid)
    return [event, Delete(ref, uid=workload.metadata.uid)]


def deactivate_for_cause(life: Life) -> list[Action]:
    """Set active to false for a workload with a deactivation target: a rejected check, too many retries, too long."""
    if life.is_true("DeactivationTarget"):
        return [Patch(Ref(Workload.KIND, life.workload.key), {"spec": {"active": False}})]
    return []


def stop_inactive(life: Life) -> list[Action]:
    """Evict a workload that is not active. It does not queue again."""
    target = life.condition("DeactivationTarget")
    cause = target.reason if target is not None and target.status == "True" else ""
    evicted = life.condition("Evicted")
    if evicted is None or evicted.status != "True" or not evicted.reason.startswith("Deactivated"):
        reason = f"DeactivatedDueTo{cause}" if cause else "Deactivated"
        message = "The workload is deactivated" + (f" due to {target.message}" if cause and target else "")
        evict(life.edit, reason, message, cause=cause, counted_as="Deactivated")
        life.edit.status.pop("requeueState", None)
        life.edit.remove_condition("DeactivationTarget")
        if not life.is_reserved:
            unadmitted.set_no_quota(life.edit, "Deactivated", message, life.configuration.gates)
            life.edit.set_condition("Requeued", "False", reason, message)
        return life.written(life.event(f"EvictedDueTo{reason}", message))
    return release_evicted(life) or expire(life)


def expire(life: Life) -> list[Action]:
    """Delete a deactivated Workload without an owner. For others the plan of the job does this."""
    at = expires_at(life.workload, life.configuration)
    if at is None or life.workload.metadata.owner_references:
        return []
    if life.now < at:
        return [WakeAt(at)]
    event = life.event("Deleted", "Deleted: kept long enough after it was switched off")
    return [event, Delete(Ref(Workload.KIND, life.workload.key), uid=life.workload.metadata.uid)]


def expires_at(workload: Workload, settings: Configuration) -> datetime | None:
    """Return when a Workload that Kueue deactivated is deleted, or None if it is kept."""
    policies = settings.object_retention_policies
    keep = policies.workloads.after_deactivated_by_kueue if policies and policies.workloads else None
    evicted = find_condition(workload.status.conditions, "Evicted")
    if keep is None or workload.spec.active or evicted is None or evicted.status != "True":
        return None
    since = parse_time(evicted.last_transition_time) if evicted.reason.startswith("DeactivatedDueTo") else None
    return since + keep if since is not None else None


def reactivate(life: Life) -> list[Action]:
    requeued = life.condition("Requeued")
    if requeued is None or requeued.status == "True" or not requeued.reason.startswith("Deactivated"):
        return []
    # Kueue flips only the bare reason; a workload that it deactivated itself then never queues again. Kyu flips both.
    life.edit.set_condition("Requeued", "True", "Reactivated", "The workload was reactivated")
    return life.written()


def release_evicted(life: Life) -> list[Action]:
    """Release a Workload that no job owns, once the pods are gone that a deleted job may have left behind.

    For others the plan of the job does this.
    """
    if not life.is_evicted or life.workload.metadata.owner_references:
        return []
    if has_pods(life.view, life.workload, life.now):
        return [WakeAt(life.now + LOOK_AGAIN)]
    release(life.edit, life.workload, life.configuration.gates)
    return life.written()


def leave_with_orphans(life: Life) -> list[Action]:
    """Delete the Workload of a job that was deleted without its pods, once the last of them has ended.

    The deletion took the owner references away, so garbage collection never finds it. The copy of a MultiKueue manager
    carries the label of its job before that job is here.
    """
    workload = life.workload
    labels = workload.metadata.labels
    is_orphan = metadata.JOB_UID in labels and metadata.MULTI_KUEUE_ORIGIN not in labels
    if not life.is_reserved or workload.metadata.owner_references or not is_orphan:
        return []
    if has_pods(life.view, workload, life.now):
        return [WakeAt(life.now + LOOK_AGAIN)]
    event = life.event("Deleted", "Deleted: its job is gone, and no pod is left")
    return [event, Delete(Ref(Workload.KIND, workload.key), uid=workload.metadata.uid)]


def cancel_without_queue(life: Life) -> list[Action]:
    """Cancel a reservation that is not yet an admission when its queues are gone or stopped."""
    if not life.is_reserved or life.is_evicted:
        return []
    stop = activity.why_stopped(life.local_queue, life.cluster_queue, life.workload)
    if stop is None or not stop.cancels_reservation:
        return []
    if not life.is_admitted:
        clear_reservation(life.edit, stop.reason, stop.message, life.configuration.gates)
        return life.written(life.event(life.word(stop), stop.message, warning=True))
    if stop.drains:
        message = f"The {stop.stopped} is stopped"
        evict(life.edit, f"{stop.stopped}Stopped", message)
        return life.written(life.event(f"EvictedDueTo{stop.stopped}Stopped", message))
    return []


def restart_with_queue(life: Life) -> list[Action]:
    requeued = life.condition("Requeued")
    restarted = {"ClusterQueueStopped": "ClusterQueue", "LocalQueueStopped": "LocalQueue"}
    if requeued is None or requeued.status == "True" or requeued.reason not in restarted:
        return []
    if activity.why_stopped(life.local_queue, life.cluster_queue, life.workload) is not None:
        return []
    what = restarted[requeued.reason]
    life.edit.set_condition("Requeued", "True", f"{what}Restarted", f"The {what} was restarted after being stopped")
    return life.written()


def keep_checks_listed(life: Life) -> list[Action]:
    if life.cluster_queue is None:
        return []
    checks.sync(life.edit, life.workload, life.cluster_queue, life.now)
    return life.written()


def follow_checks(life: Life) -> list[Action]:
    """Deactivate a workload with a rejected check, and requeue one whose check asks for a retry."""
    states = life.workload.status.admission_checks
    rejected = [check for check in states if check.state == "Rejected"]
    if rejected and not life.is_true("DeactivationTarget"):
        message = checks.describe(rejected, "Rejected")
        life.edit.set_condition("DeactivationTarget", "True", "AdmissionCheck", message)
        return life.written(life.event("AdmissionCheckRejected", f"Deactivated due to {message}", warning=True))
    retry = [check for check in states if check.state == "Retry"]
    if retry and life.is_reserved and not life.is_evicted:
        message = f"Evicted due to {checks.describe(retry, 'Retry')}"
        checks.delay_requeue(life.edit, retry, life.now)
        evict(life.edit, "AdmissionCheck", message)
        return life.written(life.event("EvictedDueToAdmissionCheck", message))
    if retry and not life.is_reserved:
        # The answer came after the quota was given back, so the next reservation asks again.
        reset_checks(life.edit)
        return life.written()
    return []


def complete_admission(life: Life) -> list[Action]:
    """Admit a workload with reserved quota whose checks are all ready."""
    if not life.is_reserved or life.is_admitted or life.is_evicted or not checks.all_ready(life.workload):
        return []
    admission = life.workload.status.admission
    if admission is None:
        return []
    if any(ps.delayed_topology_request == "Pending" for ps in admission.pod_set_assignments):
        return []
    reserved = life.condition("QuotaReserved")
    since = parse_time(reserved.last_transition_time if reserved else None)
    waited = max(0, int((life.now - since).total_seconds())) if since else 0
    checks.admit(life.edit, life.workload, life.configuration)
    message = f"Admitted by ClusterQueue {admission.cluster_queue}, wait time since reservation was {waited}s"
    return life.written(life.event("Admitted", message))


def time_out_pods(life: Life) -> list[Action]:
    """Evict an admitted workload whose pods do not become ready (again) in time."""
    settings = life.configuration.wait_for_pods_ready
    if settings is None or not life.is_admitted or life.is_evicted or life.is_true("PodsReady"):
        return []
    ready, admitted = life.condition("PodsReady"), life.condition("Admitted")
    recovering = ready is not None and ready.reason == "WaitForRecovery"
    limit = settings.effective_recovery_timeout if recovering else settings.timeout
    start = ready if recovering else admitted
    since = parse_time(start.last_transition_time) if start else None
    if not limit or since is None:
        return []
    if life.now < since + limit:
        return [WakeAt(since + limit)]
    return give_up_on_pods(life, "WaitForRecovery" if recovering else "WaitForStart")


def give_up_on_pods(life: Life, cause: str) -> list[Action]:
    settings = life.configuration.wait_for_pods_ready
    assert settings is not None
    strategy = settings.requeuing_strategy
    state = life.workload.status.requeue_state
    attempt = ((state.count or 0) if state else 0) + 1
    message = f"Exceeded the PodsReady timeout {life.workload.key}"
    if strategy.backoff_limit_count is not None and attempt > strategy.backoff_limit_count:
        limit = "exceeding the maximum number of re-queuing retries"
        life.edit.set_condition("DeactivationTarget", "True", "RequeuingLimitExceeded", limit)
        return life.written()
    delay = min(strategy.backoff_base_seconds * 2 ** (attempt - 1), strategy.backoff_max_seconds)
    known = parse_time(state.requeue_at) if state else None
    again = max(add_seconds(life.now, delay), known or life.now)
    life.edit.status["requeueState"] = {"count": attempt, "requeueAt": timestamp(again)}
    evict(life.edit, "PodsReadyTimeout", message, cause=cause)
    return life.written(life.event("EvictedDueToPodsReadyTimeout", message))


def end_overlong(life: Life) -> list[Action]:
    """Deactivate a workload after its maximum execution time, which counts all its admissions."""
    limit = life.workload.spec.maximum_execution_time_seconds
    admitted = life.condition("Admitted")
    if limit is None or not life.is_admitted or life.is_evicted or admitted is None:
        return []
    since = parse_time(admitted.last_transition_time)
    if since is None or life.is_true("DeactivationTarget"):
        return []
    end = add_seconds(since, limit - (life.workload.status.accumulated_past_execution_time_seconds or 0))
    if life.now < end:
        return [WakeAt(end)]
    cause = "exceeding the maximum execution time"
    life.edit.set_condition("DeactivationTarget", "True", "MaximumExecutionTimeExceeded", cause)
    life.edit.status.pop("accumulatedPastExecutionTimeSeconds", None)
    message = f"The maximum execution time ({limit}s) exceeded"
    return life.written(life.event("MaximumExecutionTimeExceeded", message, warning=True))


def finish_backoff(life: Life) -> list[Action]:
    """Requeue a workload when the delay after its eviction is over."""
    requeued, state = life.condition("Requeued"), life.workload.status.requeue_state
    at = parse_time(state.requeue_at) if state else None
    held = requeued is not None and requeued.status != "True"
    if life.is_reserved or (not held and at is None):
        return []
    if held and requeued is not None and requeued.reason not in ("PodsReadyTimeout", "AdmissionCheck"):
        return []
    if at is not None and life.now < at:
        return [WakeAt(at)]
    if held:
        life.edit.set_condition("Requeued", "True", "BackoffFinished", "The workload backoff was finished")
    if at is not None:
        life.edit.status["requeueState"].pop("requeueAt", None)
    return life.written()


def say_why_not_queued(life: Life) -> list[Action]:
    """Report why a workload cannot queue. The scheduler reports about those that do."""
    if life.is_reserved:
        return []
    if gated_by := life.workload.metadata.annotations.get(metadata.ADMISSION_GATED_BY):
        unadmitted.set_no_quota(life.edit, "AdmissionGated", f"{GATED_BY}{gated_by}", life.configuration.gates)
        checks.await_pods(life.edit, life.workload, life.configuration)
        return life.written(life.event("AdmissionGated", f"Workload admission is gated by: {gated_by}"))
    told = life.condition("QuotaReserved")
    if told is not None and told.message.startswith(GATED_BY):
        cleared = "AdmissionGatedBy cleared, waiting for quota reservation"
        unadmitted.set_no_quota(life.edit, "PendingEvaluation", cleared, life.configuration.gates)
        return life.written(life.event("AdmissionGateCleared", "Admission gate cleared, workload is now admissible"))
    stop = activity.why_stopped(life.local_queue, life.cluster_queue, life.workload)
    if stop is None:
        gates = life.configuration.gates
        is_told_at_once = told is None and gates.enabled(unadmitted.GATE) and gates.enabled(unadmitted.AT_ONCE)
        if is_told_at_once or (told is not None and activity.is_told_by_stop(told.reason, told.message)):
            # The scheduler may find no need to look at it soon: equals of it that came first do not fit.
            unadmitted.set_no_quota(life.edit, *reasons.render(Untried()), life.configuration.gates)
        return life.written()
    unadmitted.set_no_quota(life.edit, stop.reason, stop.message, life.configuration.gates)
    checks.await_pods(life.edit, life.workload, life.configuration)
    return life.written(life.event(life.word(stop), stop.message, warning=True))


# In the order of Kueue: quota whose checks are all ready becomes an admission, even if a queue was stopped meanwhile.
RULES: tuple[Callable[[Life], list[Action]], ...] = (
    deactivate_for_cause,
    reactivate,
    leave_with_orphans,
    release_evicted,
    restart_with_queue,
    keep_checks_listed,
    complete_admission,
    follow_checks,
    cancel_without_queue,
    time_out_pods,
    end_overlong,
    finish_backoff,
    say_why_not_queued,
)
