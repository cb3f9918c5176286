"""
The Job controller of embedded mode: a batch Job → its pods, its status, its end.

Each round counts the pods (job_tally.py), asks whether the Job is over (job_rules.py), and then makes or
deletes pods until as many run as should. The status is written before anything that depends on it; names of pods
follow from the Job and a number, so a round that is repeated makes no second pod.

Kubernetes: pkg/controller/job/job_controller.go
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kyu.api.actions import Action, Create, Delete, Event, Patch, View, WakeAt
from kyu.api.core import Pod
from kyu.api.labels import TASK
from kyu.api.meta import Json, Key, Ref, key_of
from kyu.kinds import arrays, conditions, fields, metadata, pods
from kyu.kinds.job import INDEX, JOB
from kyu.plans.pods import job_rules as rules
from kyu.plans.pods import job_tally as tallies
from kyu.plans.pods.job_rules import Failure, Success
from kyu.plans.pods.job_tally import FINALIZER, PodTally

OWN_MANAGER = "kubernetes.io/job-controller"
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
# The letters of generated names: none that make a word or look like another.
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
LONGEST_POD_NAME = 63
# A Job with thousands of pods gets them in rounds, so that other keys have their turn.
MOST_CREATED = 500


@dataclass(slots=True)
class PodsRound:
    """One look at one Job, and what follows from it."""

    job: Json
    tally: PodTally
    now: datetime
    created: list[Json] = field(default_factory=list)
    deleted: list[Json] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    wake_at: datetime | None = None

    @property
    def ref(self) -> Ref:
        return job_ref(self.job)

    def tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        uid = metadata.uid_of(self.job)
        self.events.append(Event(self.ref, "Warning" if warning else "Normal", reason, message, uid))

    def wake(self, at: datetime | None) -> None:
        if at is not None and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    job = view.find_json(JOB, key)
    if job is None or fields.text_at(job, ("spec", "managedBy")) not in ("", OWN_MANAGER):
        return []
    its_pods = view.owned_by(Pod.KIND, metadata.uid_of(job))
    if metadata.is_deleted(job):
        return [release(pod) for pod in its_pods if FINALIZER in tallies.finalizers(pod)]
    if conditions.is_true(job, "Complete") or conditions.is_true(job, "Failed"):
        return plan_finished(job, its_pods, now)
    round_ = PodsRound(job, tallies.tally(job, its_pods, rules.judge(job)), now)
    outcome = rules.find_outcome(job, round_.tally, now)
    if outcome is not None or is_suspended(job):
        round_.deleted = list(round_.tally.active)
    else:
        match_parallelism(round_, its_pods)
        round_.wake(rules.active_deadline(job))
    return actions(round_, outcome)


def plan_orphan(view: View, key: Key, now: datetime) -> list[Action]:
    """Release a pod whose Job is gone. The key is that of the pod."""
    pod = view.find_json(Pod.KIND, key)
    if pod is None or FINALIZER not in tallies.finalizers(pod):
        return []
    owner = next((o for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), None)
    if owner is not None and owner.get("kind") == "Job":
        job = view.find_json(JOB, Key(key.namespace, owner["name"]))
        if job is not None and metadata.uid_of(job) == owner["uid"]:
            return []
    return [release(pod)]


def plan_finished(job: Json, its_pods: Sequence[Json], now: datetime) -> list[Action]:
    """Release the pods of a finished Job, and delete the Job after its time to live."""
    result: list[Action] = [release(pod) for pod in its_pods if FINALIZER in tallies.finalizers(pod)]
    seconds = fields.value_at(job, ("spec", "ttlSecondsAfterFinished"))
    ended = next(c for c in fields.list_at(job, ("status", "conditions")) if is_end(c))
    if isinstance(seconds, int):
        expires = conditions.add_seconds(conditions.parse_timestamp(ended["lastTransitionTime"]), seconds)
        if now < expires:
            result.append(WakeAt(expires))
        else:
            result.append(Delete(job_ref(job), metadata.uid_of(job)))
    return result


def is_end(condition: Json) -> bool:
    return condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"


def is_suspended(job: Json) -> bool:
    return fields.value_at(job, ("spec", "suspend")) is True


# Pods ---------------------------------------------------------------------------------------------------------------


def match_parallelism(round_: PodsRound, its_pods: Sequence[Json]) -> None:
    """Make or delete pods until as many run as the Job wants."""
    job, tally = round_.job, round_.tally
    surplus = surplus_indexes(tally)
    doomed = {metadata.uid_of(pod) for pod in surplus}
    active = [pod for pod in tally.active if metadata.uid_of(pod) not in doomed]
    wanted = wanted_pods(job, tally, len(active))
    if len(active) > wanted:
        surplus += sorted(active, key=pods.deletion_order)[: len(active) - wanted]
    round_.deleted = surplus
    waiting = len(tally.terminating) if fields.text_at(job, ("spec", "podReplacementPolicy")) == "Failed" else 0
    missing = min(wanted - len(active) - waiting, MOST_CREATED)
    if missing <= 0:
        return
    if tally.indexed:
        create_indexed(round_, its_pods, missing)
    else:
        create_numbered(round_, its_pods, missing)


def wanted_pods(job: Json, tally: PodTally, active: int) -> int:
    parallelism = fields.int_at(job, ("spec", "parallelism"), 1)
    if tally.completions is None:
        # Once a pod of a work queue has succeeded, the others finish and none is added.
        return min(parallelism, active) if tally.succeeded else parallelism
    return min(parallelism, tally.completions - tally.succeeded - len(tally.failed_indexes))


def surplus_indexes(tally: PodTally) -> list[Json]:
    """Return pods of indexes that are done, not wanted any more, or taken by another pod."""
    if not tally.indexed:
        return []
    seen = tally.completed_indexes | tally.failed_indexes
    surplus = []
    for pod in tally.active:
        index = tallies.index_of(pod)
        if index is None or index in seen or index >= (tally.completions or 0):
            surplus.append(pod)
        else:
            seen.add(index)
    return surplus


def create_numbered(round_: PodsRound, its_pods: Sequence[Json], count: int) -> None:
    tally = round_.tally
    end = rules.back_off_end(tally.failures, tally.successes)
    if end is not None and end > round_.now:
        round_.wake(end)
        return
    taken = names(its_pods)
    number = tally.succeeded + tally.failed
    while len(round_.created) < count:
        name = pod_name(round_.job, "", number)
        number += 1
        if name not in taken:
            round_.created.append(make_pod(round_.job, name, {}, {}, {}))


def create_indexed(round_: PodsRound, its_pods: Sequence[Json], count: int) -> None:
    job, tally = round_.job, round_.tally
    per_index = rules.per_index_limit(job) is not None
    end_by_index = rules.back_off_by_index(tally.failures) if per_index else {}
    end_of_all = None if per_index else rules.back_off_end(tally.failures, tally.successes)
    busy = {tallies.index_of(pod) for pod in tally.active} | tally.completed_indexes | tally.failed_indexes
    if fields.text_at(job, ("spec", "podReplacementPolicy")) == "Failed":
        busy |= {tallies.index_of(pod) for pod in tally.terminating}
    taken = names(its_pods)
    array = arrays.of_job(job)
    failed_by_index = {tallies.index_of(pod): rules.failures_of_index(pod) for pod in tally.failures}
    for index in range(tally.completions or 0):
        if len(round_.created) == count:
            return
        if index in busy:
            continue
        end = end_by_index.get(index, end_of_all)
        if end is not None and end > round_.now:
            round_.wake(end)
            continue
        name = next(n for number in itertools.count() if (n := pod_name(job, f"{index}-", number)) not in taken)
        annotations = {INDEX: str(index)}
        if array is not None:
            annotations[TASK] = str(array.task(index))
        if per_index:
            annotations[rules.FAILURE_COUNT] = str(failed_by_index.get(index, 0))
        labels = {INDEX: str(index)}
        round_.created.append(make_pod(job, name, labels, annotations, {"JOB_COMPLETION_INDEX": str(index)}))


def names(its_pods: Sequence[Json]) -> set[str]:
    return {metadata.name_of(pod) for pod in its_pods}


def pod_name(job: Json, middle: str, number: int) -> str:
    """Return the name of the pod of this number: it looks generated, and is the same each time."""
    digest = int.from_bytes(hashlib.sha256(f"{metadata.uid_of(job)}/{middle}{number}".encode()).digest()[:8])
    suffix = ""
    for _ in range(SUFFIX_LENGTH):
        digest, position = divmod(digest, len(LETTERS))
        suffix += LETTERS[position]
    tail = f"-{middle}{suffix}"
    return metadata.name_of(job)[: LONGEST_POD_NAME - len(tail)] + tail


def make_pod(job: Json, name: str, labels: Json, annotations: Json, env: dict[str, str]) -> Json:
    template = fields.json_at(job, ("spec", "template"))
    job_name, uid = metadata.name_of(job), metadata.uid_of(job)
    known = {CONTROLLER_UID: uid, JOB_NAME: job_name, "controller-uid": uid, "job-name": job_name}
    index = annotations.get(INDEX)
    blueprint = pods.Blueprint(
        name=name,
        role="main",
        index=int(index or 0),
        template=template,
        labels={**known, **labels},
        annotations=annotations,
        env=env,
        hostname=f"{job_name}-{index}"[:LONGEST_POD_NAME] if index is not None else "",
    )
    pod = blueprint.to_pod(job)
    pod["metadata"]["finalizers"] = [FINALIZER]
    return pod


# Writes -------------------------------------------------------------------------------------------------------------


def actions(round_: PodsRound, outcome: Success | Failure | None) -> list[Action]:
    """Return the writes of a round, the status first, since the others rely on it."""
    tally = round_.tally
    counts_deleted = outcome is not None
    result: list[Action] = []
    if patch := status_patch(round_, outcome):
        version = fields.text_at(round_.job, ("metadata", "resourceVersion"))
        result.append(Patch(round_.ref, {"status": patch}, "status", version))
    result += [release(pod) for pod in tally.releases]
    for pod in round_.deleted:
        # A pod that goes because it is not wanted must not count as failed.
        if not counts_deleted and FINALIZER in tallies.finalizers(pod):
            result.append(release(pod))
        result.append(Delete(pod_ref(pod), metadata.uid_of(pod)))
        round_.tell("SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
    for pod in round_.created:
        result.append(Create(Pod.KIND, pod))
        round_.tell("SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
    result += round_.events
    if round_.wake_at is not None:
        result.append(WakeAt(round_.wake_at))
    return result


def status_patch(round_: PodsRound, outcome: Success | Failure | None) -> Json:
    job, tally = round_.job, round_.tally
    doomed = {metadata.uid_of(pod) for pod in round_.deleted}
    staying = [pod for pod in tally.active if metadata.uid_of(pod) not in doomed]
    present = fields.json_at(job, ("status",))
    counters = tallies.status_of(tally, len(staying) + len(round_.created), sum(map(pods.is_ready, staying)))
    status: Json = {**present, **counters}
    listed = fields.list_at(job, ("status", "conditions"))
    listed = with_suspended(round_, listed, status) if outcome is None else listed
    if outcome is not None:
        is_over = not (tally.active or tally.terminating or tally.has_uncounted)
        listed = with_outcome(round_, listed, outcome, is_over=is_over, status=status)
    if listed:
        status["conditions"] = listed
    return fields.merge_patch(present, without_nulls(status))


def with_suspended(round_: PodsRound, listed: list[Json], status: Json) -> list[Json]:
    now = round_.now
    was_suspended = conditions.is_true(round_.job, "Suspended")
    if is_suspended(round_.job):
        status["startTime"] = None
        if was_suspended:
            return listed
        round_.tell("Suspended", "Job suspended")
        return conditions.with_condition(
            listed, "Suspended", "True", reason="JobSuspended", message="Job suspended", now=now
        )
    if not status.get("startTime"):
        status["startTime"] = conditions.timestamp(now)
        if seconds := fields.int_at(round_.job, ("spec", "activeDeadlineSeconds")):
            round_.wake(conditions.add_seconds(now, seconds))
    if not was_suspended:
        return listed
    round_.tell("Resumed", "Job resumed")
    return conditions.with_condition(listed, "Suspended", "False", reason="JobResumed", message="Job resumed", now=now)


def with_outcome(
    round_: PodsRound, listed: list[Json], outcome: Success | Failure, *, is_over: bool, status: Json
) -> list[Json]:
    """Return the conditions with the decision, and when the pods have ended, with the end."""
    now, words = round_.now, {"reason": outcome.reason, "message": outcome.message}
    match outcome:
        case Success():
            decided, end = "SuccessCriteriaMet", "Complete"
        case Failure():
            decided, end = "FailureTarget", "Failed"
    if not conditions.is_true(round_.job, decided):
        listed = conditions.with_condition(listed, decided, "True", **words, now=now)
    if not is_over:
        return listed
    # A Job that is stopped loses its start; its last pod may succeed all the same.
    status["startTime"] = status.get("startTime") or conditions.timestamp(now)
    if isinstance(outcome, Success):
        status["completionTime"] = conditions.timestamp(now)
        round_.tell("Completed", "Job completed")
    else:
        round_.tell(outcome.reason, outcome.message, warning=True)
    return conditions.with_condition(listed, end, "True", **words, now=now)


def without_nulls(document: Json) -> Json:
    """Return the document without null fields, as it is stored."""
    return {
        key: without_nulls(value) if isinstance(value, dict) else value
        for key, value in document.items()
        if value is not None
    }


def release(pod: Json) -> Patch:
    kept = [name for name in tallies.finalizers(pod) if name != FINALIZER]
    return Patch(pod_ref(pod), {"metadata": {"finalizers": kept or None}})


def pod_ref(pod: Json) -> Ref:
    return Ref(Pod.KIND, key_of(pod))


def job_ref(job: Json) -> Ref:
    return Ref(JOB, key_of(job))
