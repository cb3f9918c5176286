"""
What happens to a job before it is stored: it gets its queue, its suspension, its gates; and what is refused.

Embedded mode, and `kyu decide`. On a cluster Kyu has no webhooks: there plans/job.py stops what runs without leave.

Called by: embedded.py, plans/rehearsal.py.
Kueue: pkg/controller/jobframework/base_webhook.go and the webhook of each kind
"""

from __future__ import annotations

from dataclasses import dataclass

from kyu.api.actions import View
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.pools import POOL_TOLERATION
from kyu.kinds import metadata, table
from kyu.plans.managed import context_of
from kyu.plans.pods import is_managed_elsewhere

# Where a pod runs is decided by admission, never by who submits it.
PLACED_BY_ADMISSION = ("kubestellar.io/cluster", "mcc.kubestellar.io/cluster")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The object as it is to be stored, and all that is wrong with it."""

    obj: Json
    errors: tuple[FieldError, ...] = ()


def admit(view: View, obj: Json, old: Json | None) -> Verdict:
    """Objects that are no jobs, or not queued by us, pass unchanged."""
    kind = table.find(obj)
    if kind is None:
        return Verdict(obj)
    context = context_of(view, kind, obj)
    if context is None:
        return Verdict(obj)
    # What is queued through its pods hands its labels on to them, also when they change.
    changed = kind.defaults(obj, context) if old is None or kind.queued_as == "its pods" else obj
    return Verdict(changed, tuple(kind.validate(changed, old, context)))


def not_run_here(obj: Json, old: Json | None) -> list[FieldError]:
    """What a new or changed job asks for that only its operator can do, and Kyu in its place cannot."""
    kind = table.find(obj)
    if kind is None or is_managed_elsewhere(kind, obj):
        return []
    before = kind.stand_in_errors(old) if old is not None else []
    return [error for error in kind.stand_in_errors(obj) if error not in before]


def assigned_by_hand(obj: Json, old: Json | None) -> list[FieldError]:
    """Marks of placement that a user may not write: a toleration for one pool, a label for one cluster."""
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
