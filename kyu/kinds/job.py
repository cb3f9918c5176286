"""
batch/v1 Job: one pod set of min(parallelism, completions) pods.

A Job may be admitted with fewer pods than it asks for (partial admission), and gives back the quota of pods that will
not run again while others still do. Its pods are made by the Job controller.

Kueue: pkg/controller/jobs/job
"""

from __future__ import annotations

from collections.abc import Iterator

from kyu.api.errors import FieldError, forbidden, invalid
from kyu.api.meta import Json, Kind
from kyu.kinds import conditions, fields, metadata, templates
from kyu.kinds.kind import Finished, JobKind, Slot, finished_by
from kyu.kinds.templates import PodSetInfo, PodSetTemplate, RankLabels, TemplateConflict
from kyu.kinds.validation import IMMUTABLE, annotation_field, positive

JOB = Kind("batch", "v1", "Job", "jobs")
INDEX = "batch.kubernetes.io/job-completion-index"
RANKS = RankLabels(index_label=INDEX)
TEMPLATE: fields.Path = ("spec", "template")
# Written to the template by the API server, so they are no wish of the user.
CONTROLLER_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")


class BatchJob(JobKind):
    kinds = (JOB,)
    framework = "batch/job"
    own_manager = "kubernetes.io/job-controller"
    may_be_elastic = True

    def slots(self, obj: Json) -> list[Slot]:
        return [Slot("main", TEMPLATE, pods_at_once(obj), self.min_count(obj), RANKS)]

    def template(self, obj: Json, slot: Slot) -> Json:
        return templates.without_labels(fields.json_at(obj, slot.template), CONTROLLER_LABELS)

    def min_count(self, obj: Json) -> int | None:
        return positive(metadata.annotations_of(obj).get(metadata.JOB_MIN_PARALLELISM, ""))

    def with_suspend(self, obj: Json, *, suspend: bool) -> Json:
        obj = super().with_suspend(obj, suspend=suspend)
        if not suspend and metadata.STOPPING in metadata.annotations_of(obj):
            kept = {key: value for key, value in metadata.annotations_of(obj).items() if key != metadata.STOPPING}
            obj = fields.with_value(obj, ("metadata", "annotations"), kept)
        return obj

    def with_info(self, obj: Json, slot: Slot, info: PodSetInfo) -> Json | TemplateConflict:
        result = super().with_info(obj, slot, info)
        if isinstance(result, TemplateConflict) or slot.min_count is None:
            return result
        return with_parallelism(result, info.count)

    def with_original(self, obj: Json, slot: Slot, original: PodSetTemplate) -> Json:
        present = metadata.labels_of(fields.json_at(obj, slot.template))
        obj = super().with_original(obj, slot, original)
        for key in CONTROLLER_LABELS:
            if key in present:
                obj = fields.with_value(obj, (*TEMPLATE, "metadata", "labels", key), present[key])
        return with_parallelism(obj, original.count) if slot.min_count is not None else obj

    def reset_patch(self, obj: Json) -> Json:
        """Remove the start time: the API server freezes the template of a Job that has one."""
        return {"startTime": None} if fields.value_at(obj, ("status", "startTime")) else {}

    def for_worker(self, obj: Json) -> Json:
        """Return the Job without the selector and labels that the API server has added to find its pods."""
        copied = super().for_worker(obj)
        template = templates.without_labels(fields.json_at(copied, TEMPLATE), CONTROLLER_LABELS)
        copied = fields.with_value(copied, TEMPLATE, template)
        copied["spec"].pop("selector", None)
        return copied

    def forget_patch(self, obj: Json) -> Json:
        """Remove the counts of running pods. Counts of pods that are over cannot get smaller, so they stay."""
        status = fields.json_at(obj, ("status",))
        return {name: None for name in ("active", "ready", "terminating") if name in status}

    def is_active(self, obj: Json) -> bool:
        """Return whether pods run, or the Job controller has not yet seen that the Job is suspended."""
        if any(fields.int_at(obj, ("status", key)) > 0 for key in ("active", "terminating")):
            return True
        lags = self.is_suspended(obj) and is_seen_started(obj) and self.finished(obj) is None
        return lags and not self.is_managed_elsewhere(obj)

    def start_is_seen(self, obj: Json) -> bool:
        """Return whether the Job controller has seen that the Job is not suspended.

        Until then the condition Suspended and the count of active pods are those of before the start.
        """
        return self.is_managed_elsewhere(obj) or self.is_suspended(obj) or suspended_condition(obj) != "True"

    def is_untouched(self, obj: Json) -> bool:
        if self.is_managed_elsewhere(obj) or self.is_suspended(obj):
            return False
        return not suspended_condition(obj) and not fields.text_at(obj, ("status", "startTime"))

    def pods_ready(self, obj: Json) -> bool:
        uncounted = fields.value_at(obj, ("status", "uncountedTerminatedPods", "succeeded"))
        done = fields.int_at(obj, ("status", "succeeded")) + (len(uncounted) if isinstance(uncounted, list) else 0)
        return done + fields.int_at(obj, ("status", "ready")) >= pods_at_once(obj)

    def reclaimable_pods(self, obj: Json) -> dict[str, int]:
        """Return the number of pods beyond the remaining completions, which will not be started again."""
        parallelism = fields.int_at(obj, ("spec", "parallelism"), 1)
        terminal = done_indexes(obj) if is_indexed(obj) else fields.int_at(obj, ("status", "succeeded"))
        if parallelism <= 1 or terminal == 0:
            return {}
        remaining = max(0, fields.int_at(obj, ("spec", "completions"), parallelism) - terminal)
        return {"main": parallelism - remaining} if remaining < parallelism else {}

    def finished(self, obj: Json) -> Finished | None:
        return finished_by(obj, "Complete")

    def own_errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        return [*partial_admission_errors(obj, old), *elastic_topology_errors(obj)]


def pods_at_once(obj: Json) -> int:
    parallelism = fields.int_at(obj, ("spec", "parallelism"), 1)
    return min(parallelism, fields.int_at(obj, ("spec", "completions"), parallelism))


def is_seen_started(obj: Json) -> bool:
    """Return whether the last status of the Job controller is that of a Job that is not suspended.

    A Job that it never saw suspended has no such condition, but a start time.
    """
    suspended = suspended_condition(obj)
    return suspended == "False" or (not suspended and bool(fields.text_at(obj, ("status", "startTime"))))


def suspended_condition(obj: Json) -> str:
    return str((conditions.find(obj, "Suspended") or {}).get("status") or "")


def is_indexed(obj: Json) -> bool:
    return fields.text_at(obj, ("spec", "completionMode")) == "Indexed"


def done_indexes(obj: Json) -> int:
    """Return how many indexes of an Indexed Job have succeeded or failed. No index has done both."""
    over = (fields.text_at(obj, ("status", key)) for key in ("completedIndexes", "failedIndexes"))
    return sum(len(indexes) for text in over for indexes in index_ranges(text))


def index_ranges(text: str) -> Iterator[range]:
    """Yield the ranges of ``0,3-5``: 0 to 0, 3 to 5."""
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        yield range(int(first), int(last or first) + 1)


def with_parallelism(obj: Json, count: int) -> Json:
    obj = fields.with_value(obj, ("spec", "parallelism"), count)
    if metadata.annotations_of(obj).get(metadata.JOB_COMPLETIONS_EQUAL_PARALLELISM) == "true":
        obj = fields.with_value(obj, ("spec", "completions"), count)
    return obj


def partial_admission_errors(obj: Json, old: Json | None) -> Iterator[FieldError]:
    text = metadata.annotations_of(obj).get(metadata.JOB_MIN_PARALLELISM)
    equal = metadata.annotations_of(obj).get(metadata.JOB_COMPLETIONS_EQUAL_PARALLELISM)
    field = annotation_field(metadata.JOB_MIN_PARALLELISM)
    equal_field = annotation_field(metadata.JOB_COMPLETIONS_EQUAL_PARALLELISM)
    # Only when it is written: a job that was admitted with the fewest pods has exactly so many from then on.
    if text is not None and (old is None or text != metadata.annotations_of(old).get(metadata.JOB_MIN_PARALLELISM)):
        value = positive(text)
        if value is None or value >= pods_at_once(obj):
            yield invalid(field, text, f"must be a number from 1 to {pods_at_once(obj) - 1}")
        if metadata.is_elastic(obj):
            yield forbidden(field, "an elastic job is not admitted in part")
    if equal == "true":
        if not is_indexed(obj):
            yield invalid(equal_field, equal, "goes with completionMode Indexed only")
        if fields.value_at(obj, ("spec", "completions")) != fields.int_at(obj, ("spec", "parallelism"), 1):
            yield invalid(equal_field, equal, "needs completions and parallelism to be the same number")
    elif equal not in (None, "false"):
        yield invalid(equal_field, equal, "must be true or false")
    if old is not None:
        yield from frozen_errors(obj, old, equal_field)


def frozen_errors(obj: Json, old: Json, equal_field: str) -> Iterator[FieldError]:
    """Yield changes that a running Job refuses."""
    if any(fields.value_at(o, ("spec", "suspend")) is True for o in (obj, old)):
        return
    key = metadata.JOB_COMPLETIONS_EQUAL_PARALLELISM
    if metadata.annotations_of(obj).get(key) != metadata.annotations_of(old).get(key):
        yield forbidden(equal_field, IMMUTABLE)
    if metadata.JOB_MIN_PARALLELISM not in metadata.annotations_of(obj):
        return
    before, after = (fields.value_at(o, ("spec", "parallelism")) for o in (old, obj))
    if before != after:
        yield forbidden("spec.parallelism", "cannot change while a partly admitted job runs")


def elastic_topology_errors(obj: Json) -> Iterator[FieldError]:
    asked = metadata.annotations_of(fields.json_at(obj, TEMPLATE))
    for key in (metadata.REQUIRED_TOPOLOGY, metadata.PREFERRED_TOPOLOGY):
        if metadata.is_elastic(obj) and key in asked:
            field = f"spec.template.{annotation_field(key)}"
            yield forbidden(field, "an elastic job may only ask for an unconstrained topology")
