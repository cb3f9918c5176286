"""
Events in both group versions: ``v1`` and ``events.k8s.io/v1`` have different names for the same fields.

Events are stored as ``v1``.

Kubernetes: pkg/apis/events/v1/conversion.go, pkg/apis/core/validation/events.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label_key
from kyu.server.validation.checks import IMMUTABLE, objections

# The name of ``v1`` in the conversion.
STORED_VERSION: Final = "core/v1"
# events.k8s.io/v1 -> v1
RENAMED: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
TYPES: Final = ("Normal", "Warning")
MAX_NAME: Final = 128
MAX_MESSAGE: Final = 1024
REPORTERS: Final = ("reportingComponent", "reportingInstance")
# The immutable fields of an events.k8s.io/v1 Event, in the order of the errors.
FIXED: Final = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type",
    "eventTime", "action", "related", "reportingController", "reportingInstance",
)  # fmt: skip
RENAMED_BACK: Final = {old: new for new, old in RENAMED.items()}


def convert(event: Json, source: str, target: str) -> Json:
    """Convert an Event. Empty reporters are left out in events.k8s.io/v1, and never in v1."""
    if source != STORED_VERSION:
        return {**dict.fromkeys(REPORTERS, ""), **as_core_event(event)}
    return {RENAMED_BACK.get(name, name): value for name, value in event.items() if value or name not in REPORTERS}


def as_core_event(event: Json) -> Json:
    """Return an Event of either group version with the field names of v1."""
    return {RENAMED.get(name, name): value for name, value in event.items()}


def validate_event(event: Json) -> Iterator[FieldError]:
    """Validate a v1 Event: with an eventTime, it must have a reporter."""
    yield from _place_faults(event)
    if event.get("eventTime"):
        yield from _report_faults(event, "reportingComponent")


def validate_new_event(event: Json) -> Iterator[FieldError]:
    """Validate an events.k8s.io/v1 Event. The errors have the field names of v1."""
    yield from _place_faults(event)
    if event.get("eventTime"):
        yield from _report_faults(event, "reportingController")
    else:
        yield fields.required("eventTime")
    if event.get("type") not in TYPES:
        yield fields.invalid("type", "", f"has invalid value: {event.get('type', '')}")
    for name in ("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount", "deprecatedSource"):
        if event.get(name):
            yield fields.invalid(RENAMED[name], "", "needs to be unset")
    yield from _series_faults(event)


def validate_new_event_update(new: Json, old: Json) -> Iterator[FieldError]:
    """Validate an update: only the series may change."""
    yield from _place_faults(new)
    if new.get("eventTime"):
        yield from _report_faults(new, "reportingController")
        yield from _series_faults(new)
    for name in FIXED:
        given = RENAMED_BACK.get(name, name)
        if new.get(given) != old.get(given):
            yield fields.invalid(name, new.get(given), IMMUTABLE)


def _series_faults(event: Json) -> Iterator[FieldError]:
    series = event.get("series")
    if series is not None and series.get("count", 0) < 2:
        yield fields.invalid("series.count", "", "should be at least 2")
    if series is not None and not series.get("lastObservedTime"):
        yield fields.required("series.lastObservedTime")


def _place_faults(event: Json) -> Iterator[FieldError]:
    involved = (event.get("involvedObject") or event.get("regarding") or {}).get("namespace", "")
    namespace = (event.get("metadata") or {}).get("namespace", "")
    if involved != namespace and not (not involved and namespace == "default"):
        yield fields.invalid("involvedObject.namespace", involved, "does not match event.namespace")


def _report_faults(event: Json, controller: str) -> Iterator[FieldError]:
    name = event.get(controller) or ""
    if not name:
        yield fields.required(controller)
    yield from objections(controller, name, label_key)
    for part in ("reportingInstance", "action", "reason"):
        if not event.get(part):
            yield fields.required(part)
        elif len(event[part]) > MAX_NAME:
            yield fields.invalid(part, "", f"can have at most {MAX_NAME} characters")
    if len(event.get("message") or event.get("note") or "") > MAX_MESSAGE:
        yield fields.invalid("message", "", f"can have at most {MAX_MESSAGE} characters")
