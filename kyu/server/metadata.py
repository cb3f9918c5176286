"""
The fields of ``metadata`` that the server writes (uid, times, generated names), and those of clients that it ignores.

Kubernetes: apiserver/pkg/registry/rest/{create,update,delete}.go.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from kyu.api.meta import Json, Kind
from kyu.server import errors

# No vowels and no digits that look like letters: a random name is never a word.
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
# The digits of a number of 64 bits.
LONGEST_VERSION = 20
LONGEST_PREFIX = 63 - SUFFIX_LENGTH
# Only the server writes these; an update that leaves one out or changes it is not believed.
KEPT = ("creationTimestamp", "deletionTimestamp", "generation", "selfLink")
DOUBLE_OWNERS = (
    ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may"
    " reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
)
CLEARED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


def timestamp(now: datetime) -> str:
    """Return a time to the second, in UTC, as all times in metadata are."""
    return _written(int(now.timestamp()))


@lru_cache(maxsize=16)
def _written(second: int) -> str:
    """Many writes share a second."""
    return f"{datetime.fromtimestamp(second, UTC).isoformat()[:19]}Z"


def check_place(kind: Kind, obj: Json, namespace: str | None, name: str = "") -> None:
    """Reject a body for another object than that of the URL; fill in a namespace that it leaves open."""
    metadata = obj.setdefault("metadata", {})
    if kind.namespaced:
        given = metadata.get("namespace") or namespace
        if given != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    if name:
        given = metadata.get("name")
        if not given:
            text = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
            raise errors.bad_request(text)
        if given != name:
            raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def is_version(text: str) -> bool:
    """Return whether a resourceVersion is one that a server could have given."""
    return text.isascii() and text.isdigit() and len(text) <= LONGEST_VERSION


def prepare_create(obj: Json, now: datetime) -> None:
    """Give the object a new identity. Generate its name where only a prefix is given."""
    metadata: Json = obj["metadata"]
    for field in CLEARED:
        metadata.pop(field, None)
    if metadata.get("generateName") and not metadata.get("name"):
        metadata["name"] = generated_name(metadata["generateName"])
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = timestamp(now)


def new_uid() -> str:
    """Return a random UUID: version 4, variant 1."""
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{_VARIANTS[text[16]]}{text[17:20]}-{text[20:]}"


def generated_name(prefix: str) -> str:
    return prefix[:LONGEST_PREFIX] + "".join(random.choices(SUFFIX_LETTERS, k=SUFFIX_LENGTH))


def prepare_update(new: Json, old: Json) -> None:
    """Keep what only the server writes. A mark of deletion that a client sets itself is for the rules to refuse."""
    after, before = new["metadata"], old["metadata"]
    for field in KEPT:
        if field in before:
            after[field] = before[field]
        elif field != "deletionTimestamp":
            after.pop(field, None)
    for field in ("uid", "deletionGracePeriodSeconds"):
        if not after.get(field) and field in before:
            after[field] = before[field]


def drop_double_owners(obj: Json, when: str = "") -> tuple[str, ...]:
    """Keep each owner once; return the warning about duplicates, if there are some."""
    metadata = obj["metadata"]
    owners = metadata.get("ownerReferences") or ()
    if len(owners) < 2:
        return ()
    kept: dict[bytes, Json] = {}
    dropped: list[str] = []
    for owner in owners:
        text = _encode_sorted(owner)
        if text in kept:
            dropped.append(owner.get("uid", ""))
        else:
            kept[text] = owner
    if not dropped:
        return ()
    metadata["ownerReferences"] = list(kept.values())
    return (f'299 - "{DOUBLE_OWNERS.format(when=when, uids=", ".join(dropped))}"',)


def normalize(obj: Json) -> Json:
    """Metadata in the usual order, without what is empty."""
    metadata = obj["metadata"]
    kept = {name: metadata[name] for name in _ordered(tuple(metadata))}
    if not all(kept.values()):
        # Empty values are dropped; a number that is 0 is not empty.
        kept = {name: value for name, value in kept.items() if value or type(value) in _NUMBERS}
    normalized = {"metadata": kept, **obj}
    normalized["metadata"] = kept
    normalized.pop("kind", None)
    normalized.pop("apiVersion", None)
    return normalized


@lru_cache(maxsize=256)
def _ordered(names: tuple[str, ...]) -> tuple[str, ...]:
    """Most metadata have the same few fields."""
    return tuple(sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)))


_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
_NUMBERS = frozenset({int, float, bool})
_ORDER = ("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
          "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences",
          "finalizers", "managedFields")  # fmt: skip
