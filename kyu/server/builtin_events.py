"""
The two faces of an Event: the same object is ``v1`` with an involvedObject and ``events.k8s.io/v1`` with a regarding.

Events are stored in their older form; the newer group shows them with other names for the same fields.

Called by: builtin.py, as the conversion of the newer kind. Kubernetes: pkg/apis/events/v1/conversion.go
"""

from __future__ import annotations

from typing import Final

from kyu.api.meta import Json

# The version under which the older form is known to the conversion.
STORED_VERSION: Final = "core/v1"
# newer name -> older name
RENAMED: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
RENAMED_BACK: Final = {old: new for new, old in RENAMED.items()}


def convert(event: Json, source: str, target: str) -> Json:
    names = RENAMED_BACK if source == STORED_VERSION else RENAMED
    return {names.get(name, name): value for name, value in event.items()}
