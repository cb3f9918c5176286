"""
The webhook of jobs: sets the queue, suspends and gates a new job, and rejects invalid ones.

Embedded mode and `kyu decide` use it. On a cluster without webhooks, job/lifecycle.py stops jobs that are not admitted.

Kueue: pkg/controller/jobframework/base_webhook.go and the webhook of each kind
"""

from __future__ import annotations

from dataclasses import dataclass

from kyu.api.actions import View
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.pools import POOL_TOLERATION
from kyu.kinds import metadata, table
from kyu.plans.job.managed import context_of

# Labels of placement, which admission sets and users cannot.
PLACED_BY_ADMISSION = ("kubestellar.io/cluster", "mcc.kubestellar.io/cluster")


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
    return WebhookResult(changed, tuple(kind.validate(changed, old, context)))


def not_run_here(obj: Json, old: Json | None) -> list[FieldError]:
    """Return the fields of a new or changed job that only the operator of its kind honours."""
    kind = table.find(obj)
    if kind is None or kind.is_managed_elsewhere(obj):
        return []
    before = kind.stand_in_errors(old) if old is not None else []
    return [error for error in kind.stand_in_errors(obj) if error not in before]


def assigned_by_hand(obj: Json, old: Json | None) -> list[FieldError]:
    """Return errors of placement by a user: a toleration for one pool, or a label for one cluster."""
    before = set(marks(old)) if old is not None else set()
    return [
        FieldError("Forbidden", field, value, "is set by admission, and cannot be chosen by hand")
        for field, value in marks(obj)
        if (field, value) not in before
    ]


def marks(obj: Json) -> list[tuple[str, str]]:
    found = [
        (f"metadata.labels[{name}]", value)
        for name, value in metadata.labels_of(obj).items()
        if name in PLACED_BY_ADMISSION
    ]
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
