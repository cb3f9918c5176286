"""
The state of an attempt, read off its objects, their Workload and their pods.

The job says how it ended; its Workload says why it waits, whether it was preempted and when it was admitted. That holds
for Kyu and for Kueue, since both write the same Workloads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kyu.api.actions import View
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.api.workflows import StepState
from kyu.kinds import conditions, fields, metadata, pod_group, pods
from kyu.kinds.job import JOB, BatchJob
from kyu.kinds.kind import Finished, JobKind
from kyu.kinds.pod import POD
from kyu.plans import pods_of_jobs

# A Workload with one of these reasons is over, although its job never ran.
NEVER_STARTED = ("FailedToStart", "OutOfSync")
TIME_LIMIT = "DeactivatedDueToMaximumExecutionTimeExceeded"
LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of an attempt, with its reason. ``admitted_at`` is the time of the last admission."""

    state: StepState
    reason: str = ""
    message: str = ""
    admitted_at: str = ""


def find(view: View, kind: JobKind, objects: Sequence[Json], group: str) -> Progress:
    """Return the state of an attempt. ``group`` is the name of the pod group, if it is one."""
    workload = workload_of_group(view, objects[0], group) if kind.kind == POD else workload_of(view, objects[0])
    admitted_at = time_of(workload, "Admitted")
    end = finished(view, kind, objects)
    if end is not None:
        why = end.message or ("finished" if end.success else "failed")
        if not end.success:
            why += exit_codes(view, kind, objects)
        return Progress("Succeeded" if end.success else "Failed", "", cut(why), admitted_at)
    if workload is not None and (over := ended_by_queue(workload)) is not None:
        return over
    if workload is not None and not conditions.is_true(workload, "Admitted"):
        return waiting(workload)
    if is_running(view, kind, objects):
        return Progress("Running", admitted_at=admitted_at)
    if workload is None:
        return Progress("Queued", "NoWorkload", "its Workload is not there yet")
    return Progress("Admitted", admitted_at=admitted_at)


def finished(view: View, kind: JobKind, objects: Sequence[Json]) -> Finished | None:
    """Return the end of the job. A kind that runs through a Job ends with that, whatever its operator says."""
    if kind.kind == POD:
        return pod_group.finished([pod for pod in objects if not metadata.is_deleted(pod)])
    if kind.queued_as == "its jobs":
        for child in view.owned_by(JOB, metadata.uid_of(objects[0])):
            if (end := BatchJob().finished(child)) is not None:
                return end
    return kind.finished(objects[0])


def is_running(view: View, kind: JobKind, objects: Sequence[Json]) -> bool:
    if kind.kind == POD:
        return any(pods.phase(pod) == "Running" for pod in objects)
    if kind.queued_as == "its jobs":
        return any(BatchJob().is_active(child) for child in view.owned_by(JOB, metadata.uid_of(objects[0])))
    return kind.is_active(objects[0]) and not kind.is_suspended(objects[0])


def workload_of(view: View, obj: Json) -> Json | None:
    """Return the Workload of a job, or of the Job that it runs through."""
    uid = metadata.uid_of(obj)
    found = view.owned_by(Workload.KIND, uid)
    for child in () if found else view.owned_by(JOB, uid):
        found = view.owned_by(Workload.KIND, metadata.uid_of(child))
        if found:
            break
    # An elastic job has several; the newest counts.
    return max(found, key=lambda one: fields.text_at(one, ("metadata", "creationTimestamp")), default=None)


def workload_of_group(view: View, pod: Json, group: str) -> Json | None:
    return view.find_json(Workload.KIND, Key(fields.text_at(pod, ("metadata", "namespace")), group))


def may_run_again(view: View, kind: JobKind, group: Key) -> bool:
    """Return whether the Pods of a group that are gone are to be made again: a preemption deletes them."""
    if kind.kind != POD:
        return False
    workload = view.find_json(Workload.KIND, group)
    return workload is not None and not conditions.is_true(workload, "Finished") and ended_by_queue(workload) is None


def ended_by_queue(workload: Json) -> Progress | None:
    """Return the end of a job that its queue gave up: it cannot start, or it ran too long."""
    finished = conditions.find(workload, "Finished") or {}
    if finished.get("status") == "True" and finished.get("reason") in NEVER_STARTED:
        return Progress("Failed", str(finished["reason"]), cut(conditions.message(workload, "Finished")))
    evicted = conditions.find(workload, "Evicted") or {}
    reason = str(evicted.get("reason") or "")
    if evicted.get("status") == "True" and reason.startswith("DeactivatedDueTo"):
        short = "TimeLimit" if reason == TIME_LIMIT else reason.removeprefix("DeactivatedDueTo")
        return Progress("Failed", short, cut(conditions.message(workload, "Evicted")), time_of(workload, "Admitted"))
    return None


def waiting(workload: Json) -> Progress:
    """Return why the Workload waits."""
    reserved = conditions.find(workload, "QuotaReserved") or {}
    evicted = conditions.find(workload, "Evicted") or {}
    if evicted.get("status") == "True" and reserved.get("status") != "True":
        why = cut(conditions.message(workload, "Evicted"))
        if evicted.get("reason") == "Preempted":
            return Progress("Preempted", "Preempted", why)
        return Progress("Queued", str(evicted.get("reason") or "Evicted"), why)
    if reserved.get("status") == "True":
        return Progress("Queued", "AdmissionChecks", "quota is reserved, admission checks are not ready")
    why = conditions.message(workload, "QuotaReserved") or "not considered yet"
    return Progress("Queued", str(reserved.get("reason") or "Pending"), cut(why))


def time_of(workload: Json | None, type_: str) -> str:
    found = conditions.find(workload, type_) if workload is not None else None
    if found is None or found.get("status") != "True":
        return ""
    return str(found.get("lastTransitionTime") or "")


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"


# Outputs.


def pods_of(view: View, kind: JobKind, objects: Sequence[Json]) -> list[Json]:
    """Return the pods of an attempt, by name."""
    found = list(objects) if kind.kind == POD else list(pods_of_jobs.pods_below(view, metadata.uid_of(objects[0])))
    return sorted(found, key=metadata.name_of)


def output(view: View, kind: JobKind, objects: Sequence[Json]) -> str | None:
    """Return the termination message of the first pod that left one; None if a pod is not seen to have ended."""
    found = pods_of(view, kind, objects)
    for pod in found:
        if pods.phase(pod) == "Succeeded" and (text := termination_message(pod)):
            return text
    return None if any(not pods.is_terminal(pod) for pod in found) else ""


def termination_message(pod: Json) -> str:
    for message in messages(pod):
        if message.strip():
            return message.strip()
    return ""


def messages(pod: Json) -> Iterator[str]:
    for status in fields.list_at(pod, ("status", "containerStatuses")):
        yield fields.text_at(status, ("state", "terminated", "message"))


def exit_codes(view: View, kind: JobKind, objects: Sequence[Json]) -> str:
    """Return the exit code of the first failed pod, and what it left in its termination log, for a message."""
    for pod in pods_of(view, kind, objects):
        if (code := pods.exit_code(pod)) is not None:
            left = termination_message(pod)
            return f" (exit code {code}{': ' + left if left else ''})"
    return ""
