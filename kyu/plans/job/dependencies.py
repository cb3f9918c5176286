"""
Jobs that start after others: `kyu submit --after`.

Such a job carries Kueue's admission gate until all jobs that it names have succeeded; then the gate is removed. If one
of them failed or does not exist, the job keeps waiting, with an event.

Kueue: the annotation kueue.x-k8s.io/admission-gated-by.
"""

from __future__ import annotations

from datetime import datetime

from kyu.api.actions import Action, Event, Patch, View
from kyu.api.meta import Json, Key, Ref
from kyu.kinds import metadata, table
from kyu.kinds.job import JOB


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    job = view.find_json(JOB, key)
    if job is None or metadata.DEPENDENCY_GATE not in gates(job):
        return []
    kind = table.find_kind(JOB)
    assert kind is not None
    for name in metadata.jobs_before(job):
        before = view.find_json(JOB, Key(key.namespace, name))
        done = kind.finished(before) if before is not None else None
        if before is None:
            return [event(job, key, f"waits for job {name}, which does not exist")]
        if done is None:
            return []
        if not done.success:
            return [event(job, key, f"waits for job {name}, which failed: {done.message}")]
    rest = [gate for gate in gates(job) if gate != metadata.DEPENDENCY_GATE]
    annotations = {metadata.ADMISSION_GATED_BY: ",".join(rest) or None}
    return [Patch(Ref(JOB, key), {"metadata": {"annotations": annotations}})]


def gates(job: Json) -> list[str]:
    listed = metadata.annotations_of(job).get(metadata.ADMISSION_GATED_BY, "")
    return [gate for gate in listed.split(",") if gate]


def event(job: Json, key: Key, message: str) -> Event:
    return Event(Ref(JOB, key), "Warning", "DependencyNotSatisfied", message, job["metadata"].get("uid", ""))
