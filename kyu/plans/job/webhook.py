"""
The webhook of jobs: sets the queue, suspends and gates a new job, and rejects invalid ones.

Embedded mode and `kyu decide` use it. On a cluster without webhooks, job/lifecycle.py stops jobs that are not admitted.

Kueue: pkg/controller/jobframework/base_webhook.go and the webhook of each kind
"""

from __future__ import annotations

from dataclasses import dataclass

from kyu.api.actions import View
from kyu.api.clusters import kubestellar
from kyu.api.clusters.kubestellar import CLUSTER_LABELS, WANTED_CLUSTER
from kyu.api.errors import FieldError
from kyu.api.kueue import Workload
from kyu.api.meta import Json
from kyu.api.pools import POOL_TOLERATION
from kyu.kinds import conditions, fields, metadata, shape, table
from kyu.plans.job import managed
from kyu.plans.job.managed import context_of

# The verb on localqueues that allows to set the label of a cluster.
PLACE = "place"


@dataclass(frozen=True, slots=True)
class WebhookResult:
    """The object as it is to be stored, and all that is wrong with it."""

    obj: Json
    errors: tuple[FieldError, ...] = ()


def admit(view: View, obj: Json, old: Json | None) -> WebhookResult:
    """Return the object with its defaults, and its errors. Objects that are not queued pass unchanged."""
    kind = table.find(obj)
    if kind is None:
        return WebhookResult(obj)
    context = context_of(view, kind, obj)
    if context is None:
        return WebhookResult(obj)
    # Kinds that are queued through their pods copy their labels to them, also when they change.
    changed = kind.defaults(obj, context) if old is None or kind.queued_as == "its pods" else obj
    if old is None and not may_be_placed(view, changed, old):
        changed = with_wish(changed, old)
    return WebhookResult(changed, tuple(kind.validate(changed, old, context)))


def shape_errors(obj: Json) -> list[FieldError]:
    """Return the pod templates that are no templates: the schemas of custom kinds leave them open."""
    kind = table.find(obj)
    try:
        problem = shape.why_not_object(obj, kind.slots(obj)) if kind is not None else ""
    except fields.Misshapen as error:
        problem = str(error)
    place, _, detail = problem.partition(": ")
    return [FieldError("Invalid", place, detail=detail)] if problem else []


def not_run_here(obj: Json, old: Json | None) -> list[FieldError]:
    """Return the fields of a new or changed job that only the operator of its kind honours."""
    kind = table.find(obj)
    if kind is None or kind.is_managed_elsewhere(obj):
        return []
    before = kind.stand_in_errors(old) if old is not None else []
    return [error for error in kind.stand_in_errors(obj) if error not in before]


def assigned_by_hand(obj: Json, old: Json | None) -> list[FieldError]:
    """Return errors of placement by a user: a toleration for one pool."""
    before = set(pools_of(old)) if old is not None else set()
    return [
        FieldError("Forbidden", field, value, "is set by admission, and cannot be chosen by hand")
        for field, value in pools_of(obj)
        if (field, value) not in before
    ]


def pools_of(obj: Json) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    kind = table.find(obj)
    for slot in kind.slots(obj) if kind else ():
        assert kind is not None
        spec = kind.template(obj, slot).get("spec") or {}
        found += [
            (f"{slot.name}.spec.tolerations", str(toleration.get("value", "")))
            for toleration in spec.get("tolerations") or ()
            if toleration.get("key") == POOL_TOLERATION
        ]
    return found


def with_wish(obj: Json, old: Json | None) -> Json:
    """Turn the label of a cluster into a wish, an annotation. The object keeps the label that is stored.

    The label itself makes KubeStellar send the object, so it may come after quota is reserved only.
    """
    stored = metadata.labels_of(old) if old is not None else {}
    given = metadata.labels_of(obj)
    if all(given.get(name) == stored.get(name) for name in CLUSTER_LABELS):
        return obj
    labels = {name: value for name, value in given.items() if name not in CLUSTER_LABELS}
    labels |= {name: stored[name] for name in CLUSTER_LABELS if name in stored}
    changed = fields.with_value(obj, ("metadata", "labels"), labels)
    wish = next((given[name] for name in CLUSTER_LABELS if name in given and given[name] != stored.get(name)), "")
    return fields.with_value(changed, ("metadata", "annotations", WANTED_CLUSTER), wish) if wish else changed


def may_be_placed(view: View, obj: Json, old: Json | None) -> bool:
    """Return whether a user with the right to it may set the label of a cluster now.

    A job of a queue that KubeStellar serves must hold quota. Other objects are copies that KubeStellar itself creates,
    or are not queued here.
    """
    if not any(name in metadata.labels_of(obj) for name in CLUSTER_LABELS):
        # It is taken back.
        return True
    namespace = str(obj["metadata"].get("namespace") or "")
    if metadata.queue_name(obj) not in managed.queues_with_check(view, namespace, kubestellar.CONTROLLER):
        return True
    if old is None:
        return False
    return any(conditions.is_true(one, "QuotaReserved") for one in view.owned_by(Workload.KIND, metadata.uid_of(old)))
