"""The answers above 500 that Kubernetes gives, too. All others are faults of the server."""

from __future__ import annotations

import re

# Kubernetes: a version of one object is parsed in the storage, whose errors have no code.
_VERSION = r"resourceVersion: Invalid value: .*: strconv.ParseUint"
OF_KUBERNETES = {
    # A custom kind without the field that its scale subresource shows.
    "GET": (_VERSION, r"the spec replicas field \S+ does not exist"),
    "POST": (r"resourceVersion should not be set on objects to be created",),
    "PUT": (r"strconv.ParseUint: parsing",),
    # Kubernetes: fieldmanager/structuredmerge.go wraps what the type converter says in plain errors.
    "PATCH": (
        r"failed to create typed patch object \(",
        r"strconv.ParseUint: parsing",
        # Kubernetes: strategicpatch/patch.go, errors without a code.
        r"does not contain declared merge key",
    ),
    "DELETE": (),
}  # fmt: skip
# Said on purpose: not served here (501), a full disk (503), and a version that has not come yet (504).
ON_PURPOSE = {501, 503, 504}


def is_fault(method: str, code: int, text: str) -> bool:
    """Return whether an answer is a 5xx that Kubernetes would not give."""
    if code < 500 or code in ON_PURPOSE:
        return False
    flat = " ".join(text.split())
    return not any(re.search(pattern, flat) for pattern in OF_KUBERNETES.get(method, ()))
