"""
Jobs that start after others: `kyu submit --after`.

Such a job carries Kueue's admission gate until all jobs that it names have ended as asked; then the gate is removed. If
that cannot happen any more, the job keeps waiting, with an event. A singleton waits for other Jobs of its generateName.

Kueue: the annotation kueue.x-k8s.io/admission-gated-by.
"""

from __future__ import annotations

from datetime import datetime

from kyu.api.actions import Action, Event, Patch, View
from kyu.api.meta import Json, Key, Ref
from kyu.kinds import job_order, metadata, table
from kyu.kinds.job import JOB
from kyu.kinds.job_order import Dependency
from kyu.kinds.kind import Finished


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    job = view.find_json(JOB, key)
    if job is None or not is_held(job):
        return []
    for dependency in job_order.dependencies(job):
        before = view.find_json(JOB, Key(key.namespace, dependency.job))
        held = why_held(dependency, before)
        if held is not None:
            return [event(job, key, held)] if held else []
    if job_order.is_singleton(job) and has_rival(view, job, key):
        return []
    rest = [gate for gate in gates(job) if gate != metadata.DEPENDENCY_GATE]
    annotations = {metadata.ADMISSION_GATED_BY: ",".join(rest) or None}
    return [Patch(Ref(JOB, key), {"metadata": {"annotations": annotations}})]


def why_held(dependency: Dependency, before: Json | None) -> str | None:
    """Return None if the dependency holds, a message if it never will, and an empty text if it may."""
    name = dependency.job
    if before is None:
        return None if dependency.condition == "any" else f"waits for job {name}, which does not exist"
    done = end_of(before)
    if done is None:
        return ""
    if dependency.condition == "ok" and not done.success:
        return f"waits for job {name}, which failed: {done.message}"
    if dependency.condition == "notok" and done.success:
        return f"waits for job {name} to fail, and it succeeded"
    return None


def has_rival(view: View, job: Json, key: Key) -> bool:
    """Return whether another Job of the same prefix runs or may run, or waits and was created before."""
    prefix = job_order.prefix_of(job)
    return any(
        (not is_held(other) or job_order.comes_before(other, job))
        for other in view.list_json(JOB, key.namespace)
        if job_order.prefix_of(other) == prefix and metadata.uid_of(other) != metadata.uid_of(job) and not end_of(other)
    )


def end_of(job: Json) -> Finished | None:
    kind = table.find_kind(JOB)
    assert kind is not None
    return kind.finished(job)


def is_held(job: Json) -> bool:
    """Return whether the gate of its dependencies holds the Job."""
    return metadata.DEPENDENCY_GATE in gates(job)


def gates(job: Json) -> list[str]:
    listed = metadata.annotations_of(job).get(metadata.ADMISSION_GATED_BY, "")
    return [gate for gate in listed.split(",") if gate]


def event(job: Json, key: Key, message: str) -> Event:
    return Event(Ref(JOB, key), "Warning", "DependencyNotSatisfied", message, job["metadata"].get("uid", ""))
