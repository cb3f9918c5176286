"""
The tally of the pods of a batch Job: which run, which are over, and each counted exactly once.

A pod is counted when it is over or deleted. Until then it carries a finalizer, so it cannot vanish
uncounted. Counting takes two writes of the status: first the pod's uid is noted as uncounted, then, once the finalizer
is off, the uid becomes one more in the counter. A crash between any two writes loses and doubles nothing.

Kubernetes: pkg/controller/job, trackJobStatusAndRemoveFinalizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kyu.api.meta import Json
from kyu.kinds import fields, metadata, pods
from kyu.kinds.job import INDEX, index_ranges

FINALIZER = "batch.kubernetes.io/job-tracking"
# The rest waits for the next round, so that the status stays small.
MOST_UNCOUNTED = 500

# How the end of a pod is taken: as usual, not at all, as the end of its index, or as the end of the Job.
Judgement = Literal["Count", "Ignore", "FailIndex", "FailJob"]


@dataclass(slots=True)
class PodTally:
    indexed: bool
    completions: int | None
    active: list[Json] = field(default_factory=list)
    terminating: list[Json] = field(default_factory=list)
    # The counters of the status, and the uids that are on their way there.
    counted_succeeded: int = 0
    counted_failed: int = 0
    uncounted_succeeded: list[str] = field(default_factory=list)
    uncounted_failed: list[str] = field(default_factory=list)
    completed_indexes: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    # Pods whose finalizer may go once the status is written.
    releases: list[Json] = field(default_factory=list)
    # Pods that failed and are counted, with those of earlier rounds that still exist.
    failures: list[Json] = field(default_factory=list)
    successes: list[Json] = field(default_factory=list)
    failing_pod: Json | None = None

    @property
    def succeeded(self) -> int:
        if self.indexed:
            return len(self.completed_indexes)
        return self.counted_succeeded + len(self.uncounted_succeeded)

    @property
    def failed(self) -> int:
        return self.counted_failed + len(self.uncounted_failed)

    @property
    def has_uncounted(self) -> bool:
        return bool(self.uncounted_succeeded or self.uncounted_failed)


def tally(job: Json, its_pods: Sequence[Json], judge: Callable[[Json], Judgement]) -> PodTally:
    result = start(job)
    fold(result, job, its_pods)
    replaces_terminating = fields.text_at(job, ("spec", "podReplacementPolicy")) != "Failed"
    noted = {*result.uncounted_succeeded, *result.uncounted_failed}
    for pod in its_pods:
        sort_in(result, pod)
        if FINALIZER not in finalizers(pod):
            continue
        is_over = pods.is_terminal(pod) or (metadata.is_deleted(pod) and replaces_terminating)
        if metadata.uid_of(pod) in noted:
            result.releases.append(pod)
        elif is_over and len(noted) < MOST_UNCOUNTED and count(result, pod, judge):
            noted.add(metadata.uid_of(pod))
    return result


def start(job: Json) -> PodTally:
    completions = fields.value_at(job, ("spec", "completions"))
    return PodTally(
        indexed=fields.text_at(job, ("spec", "completionMode")) == "Indexed",
        completions=completions if isinstance(completions, int) else None,
        counted_succeeded=fields.int_at(job, ("status", "succeeded")),
        counted_failed=fields.int_at(job, ("status", "failed")),
        completed_indexes=parse_indexes(fields.text_at(job, ("status", "completedIndexes"))),
        failed_indexes=parse_indexes(fields.text_at(job, ("status", "failedIndexes"))),
    )


def fold(result: PodTally, job: Json, its_pods: Sequence[Json]) -> None:
    """Move uids from the uncounted list to the counters if their pods have lost the finalizer."""
    held = {metadata.uid_of(pod) for pod in its_pods if FINALIZER in finalizers(pod)}
    noted = fields.json_at(job, ("status", "uncountedTerminatedPods"))
    result.uncounted_succeeded = [u for u in noted.get("succeeded") or () if u in held]
    result.uncounted_failed = [u for u in noted.get("failed") or () if u in held]
    result.counted_succeeded += len(noted.get("succeeded") or ()) - len(result.uncounted_succeeded)
    result.counted_failed += len(noted.get("failed") or ()) - len(result.uncounted_failed)


def sort_in(result: PodTally, pod: Json) -> None:
    match pods.phase(pod):
        case "Succeeded":
            result.successes.append(pod)
        case "Failed":
            result.failures.append(pod)
        case _ if metadata.is_deleted(pod):
            result.terminating.append(pod)
        case _:
            result.active.append(pod)


def count(result: PodTally, pod: Json, judge: Callable[[Json], Judgement]) -> bool:
    """Take note of a pod that is over. False if it is not counted at all."""
    result.releases.append(pod)
    index = index_of(pod)
    if pods.phase(pod) == "Succeeded":
        if result.indexed and not is_wanted(result, index):
            return False
        result.uncounted_succeeded.append(metadata.uid_of(pod))
        if index is not None:
            result.completed_indexes.add(index)
        return True
    judgement = judge(pod)
    if judgement == "Ignore":
        return False
    if judgement == "FailJob":
        result.failing_pod = pod
    if judgement == "FailIndex" and index is not None:
        result.failed_indexes.add(index)
    result.uncounted_failed.append(metadata.uid_of(pod))
    return True


def is_wanted(result: PodTally, index: int | None) -> bool:
    return index is not None and index < (result.completions or 0) and index not in result.completed_indexes


def status_of(result: PodTally, active: int, ready: int) -> Json:
    """Return the counters of the status. ``active`` and ``ready`` include the changes of this round."""
    status: Json = {
        "active": active or None,
        "ready": ready,
        "terminating": len(result.terminating),
        "succeeded": (len(result.completed_indexes) if result.indexed else result.counted_succeeded) or None,
        "failed": result.counted_failed or None,
        "uncountedTerminatedPods": {
            "succeeded": result.uncounted_succeeded or None,
            "failed": result.uncounted_failed or None,
        },
    }
    if result.indexed:
        status["completedIndexes"] = render_indexes(result.completed_indexes) or None
        status["failedIndexes"] = render_indexes(result.failed_indexes) or None
    return status


def finalizers(obj: Json) -> list[str]:
    return list((obj.get("metadata") or {}).get("finalizers") or ())


def index_of(pod: Json) -> int | None:
    text = fields.text_at(pod, ("metadata", "annotations", INDEX))
    return int(text) if text.isascii() and text.isdigit() else None


def parse_indexes(text: str) -> set[int]:
    """Parse ``0,3-5`` to 0, 3, 4, 5."""
    return {index for indexes in index_ranges(text) for index in indexes}


def render_indexes(indexes: Iterable[int]) -> str:
    """Render 0, 3, 4, 5 as ``0,3-5``."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1][1:] = [index]
        else:
            runs.append([index])
    return ",".join("-".join(map(str, run)) for run in runs)
