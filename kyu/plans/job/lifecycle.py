"""
A job and its Workload, for every kind: create, start, stop, finish.

The job stays suspended until its Workload is admitted; then it gets the node selectors and tolerations of its flavors
and starts. When the Workload is evicted, the job is stopped, and the quota is released once no pod of it is active.
Rules are asked in order; one whose turn it is answers with actions, or with none to wait, and ends the round. The
change that it makes, or waits for, brings the plan back.

Kueue: pkg/controller/jobframework/reconciler.go
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from kyu.api.actions import Action, Delete, Event, Patch, View, WakeAt
from kyu.api.clusters.kubestellar import CLUSTER_LABEL
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Ref, find_condition, is_true, key_of
from kyu.engine.workloads import WAITING_FOR_REPLACEMENT_PODS
from kyu.kinds import metadata, pod_group
from kyu.kinds import pod as plain_pod
from kyu.kinds.job import JOB
from kyu.kinds.kind import JobKind, MissingReference
from kyu.kinds.templates import Mismatch, TemplateConflict
from kyu.plans.job import injection, serving, slices
from kyu.plans.job.changes import follow_changes
from kyu.plans.job.creation import create, join_group, take_prebuilt
from kyu.plans.job.managed import context_of, find_managed_owner
from kyu.plans.job.round import JobRound, look_again, release_finalizer, restore, stop, wind_down, written
from kyu.plans.job.unit import JobUnit, PodGroupUnit, Unit, pod_ref, release_pods, resolve
from kyu.plans.pods_of_jobs import controller_reference
from kyu.plans.status import StatusEdit, parse_time
from kyu.plans.workload.eviction import release
from kyu.plans.workload.lifecycle import expires_at

# How long the stop of an evicted job waits for the first word of the job's controller about its start.
UNTOUCHED = timedelta(seconds=3)


def plan(kind: JobKind, view: View, key: Key, now: datetime) -> list[Action]:
    """Plan for a job object. Kinds that are queued through their pods or Jobs have no Workload of their own."""
    obj = view.find_json(kind.kind, key)
    if obj is None or kind.queued_as == "its jobs":
        return []
    if kind.kind == plain_pod.POD and is_queued_otherwise(obj):
        return []
    around = context_of(view, kind, obj)
    if around is not None and around.owner_is_managed and kind.queued_as == "itself":
        return hold_child(kind, view, obj)
    if around is None or not kind.is_managed(obj, around):
        return []
    if kind.queued_as == "its pods":
        return serving.plan(kind, view, obj, now)
    unit = resolve(view, kind, obj, now)
    if isinstance(unit, MissingReference):
        return []
    return plan_unit(unit, key.namespace, view, now)


def hold_child(kind: JobKind, view: View, obj: Json) -> list[Action]:
    """Suspend a job that a queued job made, while that one is not admitted. It has no Workload of its own."""
    owner = find_managed_owner(view, obj)
    if owner is None or kind.stops_by_deletion or kind.is_suspended(obj) or kind.finished(obj) is not None:
        return []
    workload = open_workload(view, metadata.uid_of(owner))
    if workload is not None:
        conditions = workload.status.conditions
        if metadata.is_elastic(obj) or metadata.is_elastic(owner):
            # Between two slices none may be admitted, and the pods run on.
            if not is_true(conditions, "Evicted"):
                return []
        elif is_true(conditions, "Admitted"):
            return []
    ref, version = Ref(kind.kind, key_of(obj)), str(obj["metadata"].get("resourceVersion", ""))
    told = Event(ref, "Normal", "Suspended", "Kueue managed child job suspended", metadata.uid_of(obj))
    return [Patch(ref, kind.suspend_patch(obj), resource_version=version), told]


def open_workload(view: View, uid: str) -> Workload | None:
    """Return the newest Workload of a job that is not finished."""
    found = [view.get(Workload, key_of(raw)) for raw in view.owned_by(Workload.KIND, uid)]
    left = [one for one in found if one is not None and not is_true(one.status.conditions, "Finished")]
    return max(left, key=lambda one: one.metadata.creation_timestamp or "", default=None)


def plan_group(view: View, key: Key, now: datetime) -> list[Action]:
    """Plan for the pods of one group name."""
    members = view.list_json(plain_pod.POD, key.namespace)
    mine = tuple(pod for pod in members if pod_group.name(pod) == key.name and is_group_member(pod))
    if not mine or "pod" not in view.configuration.integrations.frameworks:
        return []
    if is_taken(view, key, mine):
        return refuse_group(key, mine)
    return plan_unit(PodGroupUnit(key.name, key.namespace, mine, now), key.namespace, view, now)


def is_taken(view: View, key: Key, members: Sequence[Json]) -> bool:
    """Return whether the name of the group is that of a Workload which is no group's."""
    raw = view.find_json(Workload.KIND, key)
    if raw is None or not view.configuration.gates.enabled("PodIntegrationValidateGroupOwner"):
        return False
    if metadata.annotations_of(raw).get(metadata.IS_GROUP_WORKLOAD) == "true":
        return False
    is_prebuilt = all(metadata.identifier(pod, metadata.PREBUILT_WORKLOAD) == key.name for pod in members)
    return not is_prebuilt or controller_reference(raw) is not None


def refuse_group(key: Key, members: Sequence[Json]) -> list[Action]:
    """Leave the pods at their gates, and the Workload to its owner."""
    head = min(members, key=pod_group.age)
    message = (
        f'A Workload named "{key.name}" already exists but is not a pod group workload; '
        "this pod group cannot be admitted"
    )
    told = Event(pod_ref(head), "Warning", "WorkloadNameConflict", message, metadata.uid_of(head))
    return [told, *release_pods(members, finished=False)]


def is_queued_otherwise(pod: Json) -> bool:
    """Return whether the pod is queued with its group, or not at all."""
    return bool(pod_group.name(pod)) or serving.awaits_its_group(pod) or not is_queued_pod(pod)


def is_queued_pod(pod: Json) -> bool:
    """Return whether the pod was queued when it was created.

    With manageJobsWithoutQueueName every new pod is. A pod that ran before the setting was switched on is left alone.
    """
    return bool(metadata.queue_name(pod)) or is_group_member(pod)


def is_group_member(pod: Json) -> bool:
    return metadata.labels_of(pod).get(metadata.MANAGED) == "true" or plain_pod.has_queued_parent(pod)


def plan_unit(unit: Unit, namespace: str, view: View, now: datetime) -> list[Action]:
    keys = unit.workloads(view)
    sliced = slices.find(view, keys) if is_sliced(unit, view) else None
    if sliced is None:
        wanted = next((key for key in keys if key.name == unit.workload_name()), keys[0] if keys else None)
        surplus = [key for key in keys if key != wanted]
    else:
        wanted = sliced.current
        surplus = [*sliced.surplus, *([sliced.larger] if sliced.larger and unit.finished() else [])]
    this = JobRound(
        unit,
        view.get(Workload, wanted) if wanted else None,
        view.find_json(Workload.KIND, wanted) if wanted else None,
        namespace,
        view,
        now,
        sliced,
    )
    actions: list[Action] = []
    if sliced is None:
        actions += [Delete(Ref(Workload.KIND, key)) for key in surplus]
    else:
        actions += slices.end_surplus(view, surplus, now)
    if sliced is not None and wanted is not None:
        actions += slices.end_replaced(view, sliced.replaced, wanted, now)
    actions += unit.upkeep(None if this.raw is None else injection.originals(this.raw))
    if actions:
        return actions
    for rule in RULES:
        answer = rule(this)
        if answer is not None:
            return answer
    return []


def is_sliced(unit: Unit, view: View) -> bool:
    return isinstance(unit, JobUnit) and unit.kind.kind == JOB and slices.is_sliced(unit.head, view.configuration)


def finish(this: JobRound) -> list[Action] | None:
    done = this.unit.finished()
    if done is None:
        return None
    workload = this.workload
    if workload is None or is_true(workload.status.conditions, "Finished"):
        return release_finalizer(workload)
    edit = this.edit()
    edit.set_condition("Finished", "True", "Succeeded" if done.success else "Failed", done.message)
    event = this.unit.event("FinishedWorkload", f"Workload '{workload.key}' is declared finished")
    return [*written(edit), event]


def leave_deleted(this: JobRound) -> list[Action] | None:
    """Delete the Workload of a job that is being deleted, once its pods have ended."""
    if not this.unit.is_deleted():
        return None
    if isinstance(this.unit, PodGroupUnit) and this.unit.is_serving():
        # New pods take the place of those that go, with the same Workload.
        return []
    if this.workload is None or this.workload.metadata.deletion_timestamp:
        return []
    if this.unit.is_active():
        return look_again(this)
    return [Delete(Ref(Workload.KIND, this.workload.key))]


def leave_with_workload(this: JobRound) -> list[Action] | None:
    """Stop the job of a deleted Workload. A new Workload follows when the old one is gone."""
    assert this.workload is not None
    if not this.workload.metadata.deletion_timestamp:
        return None
    ending = wind_down(this, "Workload is deleted")
    if ending is not None or this.workload.status.admission is None:
        # Without quota nothing holds it.
        return ending or []
    return release_finalizer(this.workload)


def finished_without_job(this: JobRound) -> list[Action] | None:
    """Stop the job if its Workload finished for a reason of its own: it could not start, or was replaced."""
    assert this.workload is not None
    if not is_true(this.workload.status.conditions, "Finished"):
        return None
    return stop(this, "The workload is finished")


def await_replacements(this: JobRound) -> list[Action] | None:
    """Hold a group out of the queue while pods that failed or were deleted are not replaced."""
    assert this.workload is not None
    edit = this.edit()
    waits = edit.condition(WAITING_FOR_REPLACEMENT_PODS)
    if this.unit.is_short_of_pods(this.workload):
        evicted = edit.condition("Evicted")
        if evicted is not None and evicted.get("status") == "True":
            edit.set_condition(WAITING_FOR_REPLACEMENT_PODS, "True", evicted["reason"], evicted["message"])
        elif waits is None or waits.get("status") != "True":
            edit.set_condition(WAITING_FOR_REPLACEMENT_PODS, "True", "PodsFailed", "Some Failed pods need replacement")
    elif waits is not None:
        edit.set_condition(WAITING_FOR_REPLACEMENT_PODS, "False", "PodsReady", "No pods need replacement")
    return written(edit) or None


def stop_evicted(this: JobRound) -> list[Action] | None:
    workload = this.workload
    assert workload is not None
    if not this.is_evicted:
        return None
    evicted = find_condition(workload.status.conditions, "Evicted")
    reason = evicted.message if evicted else ""
    evicted_at = parse_time(evicted.last_transition_time) if evicted else None
    is_new = evicted_at is not None and this.now < evicted_at + UNTOUCHED
    if not this.unit.start_is_seen() or (is_new and this.unit.is_untouched()):
        # A controller that is about to make pods would make them after the quota was given back.
        return look_again(this)
    if stopping := stop(this, reason):
        return stopping
    if this.unit.is_active():
        return look_again(this)
    edit = this.edit()
    release(edit, workload, this.view.configuration.gates)
    return [*this.unit.restore(injection.originals(this.raw or {})), *written(edit), *tell_stuck(this)]


def tell_stuck(this: JobRound) -> list[Action]:
    if not (names := this.unit.stuck_pods()):
        return []
    message = f"The quota was given back, but pods did not end with their grace period: {', '.join(names)}"
    return [this.unit.event("PodsStuck", message, warning=True)]


def take_back(this: JobRound) -> list[Action] | None:
    """Restore the templates of a stopped job that still carry the additions of an admission."""
    if this.is_admitted or not this.unit.is_suspended() or this.unit.is_active():
        return None
    if CLUSTER_LABEL in metadata.labels_of(this.unit.head):
        # Its copy in another cluster has them too; plans/clusters/kubestellar.py takes the label first.
        return None
    return restore(this) or None


def expire(this: JobRound) -> list[Action] | None:
    """Delete a job whose Workload Kueue deactivated, after the time in the settings."""
    assert this.workload is not None
    at = expires_at(this.workload, this.view.configuration)
    if at is None or this.unit.is_active() or not this.unit.is_suspended():
        return None
    if this.now < at:
        return [WakeAt(at)]
    return [this.unit.event("Deleted", "Deleted job: deactivation retention period expired"), *this.unit.remove()]


def hold_back(this: JobRound) -> list[Action] | None:
    """Suspend a job that is not admitted, even if a user unsuspended it."""
    if this.is_admitted:
        return None
    if this.slices is not None and this.workload is not None and slices.takes_over(this.workload):
        return []
    return stop(this, "Not admitted by cluster queue")


def start(this: JobRound) -> list[Action] | None:
    workload = this.workload
    assert workload is not None
    if not this.unit.is_suspended():
        return None
    infos = injection.pod_set_infos(this.view, workload, this.unit.queue_name)
    starting = this.unit.start(infos)
    if isinstance(starting, TemplateConflict | Mismatch):
        edit = this.edit()
        edit.set_condition("Finished", "True", "FailedToStart", str(starting))
        return [*written(edit), this.unit.event("FailedToStart", str(starting), warning=True)]
    admission = workload.status.admission
    name = admission.cluster_queue if admission else ""
    return [*starting, this.unit.event("Started", f"Admitted by clusterQueue {name}")]


def report(this: JobRound) -> list[Action] | None:
    """Report whether the pods of a running job are ready, and which of them will not run again."""
    edit = this.edit()
    if this.slices is None or this.slices.larger is None:
        # Pods that wait for more quota are no trouble of those that run.
        note_pods_ready(edit, ready=this.unit.pods_ready())
    if this.view.configuration.gates.enabled("ReclaimablePods"):
        note_reclaimable(edit, this)
    return written(edit)


def note_reclaimable(edit: StatusEdit, this: JobRound) -> None:
    """Write how many pods will not run again. Unless the job shrinks, the number only grows."""
    assert this.workload is not None
    known = {item["name"]: item["count"] for item in edit.read("reclaimablePods") or ()}
    sizes = {pod_set.name: pod_set.count for pod_set in this.workload.spec.pod_sets}
    found = this.unit.reclaimable_pods()
    least = {} if this.slices is not None else known
    counts = {name: max(found.get(name, 0), least.get(name, 0)) for name in sorted({*found, *known})}
    reclaimable = {name: min(count, sizes.get(name, count)) for name, count in counts.items() if count}
    if reclaimable != known:
        edit.status["reclaimablePods"] = [{"name": name, "count": count} for name, count in reclaimable.items()]


def note_pods_ready(edit: StatusEdit, *, ready: bool) -> None:
    """Set the condition PodsReady. Admission wrote it for the first start."""
    condition = edit.condition("PodsReady")
    was_ready = condition is not None and condition.get("status") == "True"
    reason = condition.get("reason") if condition is not None else ""
    if ready:
        recovered = (was_ready and reason == "Recovered") or reason == "WaitForRecovery"
        words = "All pods reached readiness and the workload is running"
        edit.set_condition("PodsReady", "True", "Recovered" if recovered else "Started", words)
    elif was_ready or reason == "WaitForRecovery":
        edit.set_condition("PodsReady", "False", "WaitForRecovery", "At least one pod has failed, waiting for recovery")


RULES: tuple[Callable[[JobRound], list[Action] | None], ...] = (
    finish,
    leave_deleted,
    create,
    take_prebuilt,
    join_group,
    leave_with_workload,
    finished_without_job,
    await_replacements,
    stop_evicted,
    take_back,
    follow_changes,
    expire,
    hold_back,
    start,
    report,
)
