"""
Reject work that would run outside the queues, for users without the right to that.

On a shared machine quota holds only if every pod is charged to it. A user needs the verb ``bypass`` on ``localqueues``
to run a job or a pod without a queue; administrators have it. Work of all others gets the LocalQueue ``default`` of its
namespace, if there is one, and is refused otherwise. An owner reference to a queued job would exempt an object from
queueing, so such a user may not write one either.

Called by: kyu/embedded.py. On a cluster Kueue's own rule holds: manageJobsWithoutQueueName.
"""

from __future__ import annotations

from kyu.api.actions import View
from kyu.api.errors import FieldError, forbidden
from kyu.api.meta import Json
from kyu.kinds import fields, metadata, table
from kyu.kinds.pod import POD
from kyu.kinds.validation import annotation_field, label_field
from kyu.plans import pods_of_jobs
from kyu.plans.job import managed

BYPASS = "bypass"
OWNERS = "metadata.ownerReferences"
TEMPLATE_LABELS: fields.Path = ("spec", "template", "metadata", "labels")


def find_errors(view: View, obj: Json, old: Json | None) -> list[FieldError]:
    """Return why a new or changed object would run outside the queues. Admission has set its defaults before."""
    if pods_of_jobs.kind_of(obj) is None or not managed.is_managed_namespace(view, namespace_of(obj)):
        return []
    if errors := [*owner_errors(obj, old), *mark_errors(obj, old)]:
        return errors
    if is_queued(view, obj) or (old is not None and runs_as_before(obj, old)):
        return []
    remedy = (
        f"set it to a LocalQueue of namespace {namespace_of(obj)}, or let an administrator make one named default; "
        f"running outside the queues needs the right to {BYPASS} localqueues"
    )
    return [forbidden(label_field(metadata.QUEUE_NAME), remedy)]


def owner_errors(obj: Json, old: Json | None) -> list[FieldError]:
    """Reject a controller that the user adds or removes. Controllers in this process write their own."""
    before = controlling_job(old) if old is not None else None
    after = controlling_job(obj)
    if before == after:
        return []
    named = after or before or {}
    return [forbidden(OWNERS, f"only the controller of {named.get('kind')} {named.get('name')} may set or remove it")]


def mark_errors(obj: Json, old: Json | None) -> list[FieldError]:
    """Reject a change of the annotation that ties a pod to its Workload after the job between them is gone."""
    if old is None or pods_of_jobs.kind_of(obj) != POD:
        return []
    before, after = (metadata.annotations_of(side).get(metadata.WORKLOAD) for side in (old, obj))
    if before == after:
        return []
    return [forbidden(annotation_field(metadata.WORKLOAD), "is set by admission")]


def controlling_job(obj: Json) -> Json | None:
    """Return the controller reference if it names a kind of job. A driver pod may own its executors."""
    reference = pods_of_jobs.controller_reference(obj)
    kind = pods_of_jobs.kind_of(reference) if reference is not None else None
    return None if kind is None or kind == POD else reference


def is_queued(view: View, obj: Json) -> bool:
    """Return whether the object is queued, or all that it makes is."""
    kind = table.find(obj)
    if kind is None:
        return bool(fields.json_at(obj, TEMPLATE_LABELS).get(metadata.QUEUE_NAME)) or managed.is_queued(view, obj)
    if kind.queued_as == "its jobs" and kind.queue_name(obj):
        return True
    return managed.is_queued(view, obj)


def runs_as_before(obj: Json, old: Json) -> bool:
    """Return whether a change leaves the object outside the queues as an administrator put it there."""
    same_queue = metadata.queue_name(obj) == metadata.queue_name(old)
    return same_queue and obj.get("spec") == old.get("spec")


def namespace_of(obj: Json) -> str:
    return fields.text_at(obj, ("metadata", "namespace"))
