"""
Messages of pools on NATS: parsed from bytes to an Announcement, or refused with a reason.

A message is one JSON object. The three fields of today's publishers are enough; newer ones may add a sequence number, a
time, their period, free capacity, and a signature. A message that cannot be parsed changes nothing.

A label without a value has an empty one. ``parse_label`` and ``parse_taint`` drop labels and taints that Kubernetes
would refuse, so that one bad label does not cost the whole pool.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from kyu.api import names, quantity
from kyu.api.core import Taint
from kyu.api.quantity import QuantityError, QuantityValue

LONGEST_MESSAGE_BYTES = 64 * 1024
MOST_QUOTAS = 64
MOST_WORDS = 64
# A message with a time is accepted for this long, which also allows for clocks that differ.
LONGEST_AGE_SECONDS = 300.0

Refusal: TypeAlias = Literal[
    "TooLarge",
    "Malformed",
    "BadPoolName",
    "BadQuota",
    "Replayed",
    "Outdated",
    "Foreign",
    "BadSignature",
    "TooManyPools",
    "TooFast",
]
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class Announcement(msgspec.Struct, frozen=True):
    """A message as published. Unknown fields are ignored."""

    quotas: dict[str, QuantityValue]
    labels: list[str] = []
    taints: list[str] = []
    schema: int = 1
    pool: str = ""
    seq: int | None = None
    ts: float | None = None
    period: float | None = None
    free: dict[str, QuantityValue] = {}
    runs: bool = False
    signature: str = ""


class Refused(msgspec.Struct, frozen=True):
    reason: Refusal
    detail: str = ""


class Seen(msgspec.Struct, frozen=True):
    """The sequence number and time of a pool's last message, to detect replays."""

    seq: int | None = None
    ts: float | None = None


_decoder = msgspec.json.Decoder(Announcement)


def parse(pool: str, payload: bytes) -> Announcement | Refused:
    """Parse a message that was published under the name of this pool."""
    if len(payload) > LONGEST_MESSAGE_BYTES:
        return Refused("TooLarge", f"{len(payload)} bytes")
    if reason := names.why_not_dns_subdomain(pool):
        return Refused("BadPoolName", reason)
    try:
        announcement = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Refused("Malformed", str(error)[:200])
    if announcement.pool and announcement.pool != pool:
        return Refused("Foreign", "the message names another pool than its subject")
    if len(announcement.quotas) > MOST_QUOTAS or max(len(announcement.labels), len(announcement.taints)) > MOST_WORDS:
        return Refused("TooLarge", "too many quotas, labels or taints")
    if problem := _bad_quota(announcement.quotas):
        return Refused("BadQuota", problem)
    return announcement


def _bad_quota(quotas: dict[str, QuantityValue]) -> str:
    for name, value in quotas.items():
        if reason := names.why_not_qualified_name(name):
            return f"resource name {reason}"
        try:
            if quantity.parse(value).nanos < 0:
                return f"{name} is negative"
        except QuantityError as error:
            return str(error)[:200]
    return ""


def why_replayed(announcement: Announcement, seen: Seen, now: float) -> Refused | None:
    """Return why the message is a replay, or None. Sequence numbers and times only grow; messages without them always
    pass.
    """
    if announcement.ts is not None and abs(now - announcement.ts) > LONGEST_AGE_SECONDS:
        return Refused("Outdated", "its time differs too much from this machine's clock")
    if announcement.seq is not None and seen.seq is not None and announcement.seq <= seen.seq:
        return Refused("Replayed", "its sequence number was seen before")
    if announcement.ts is not None and seen.ts is not None and announcement.ts < seen.ts:
        return Refused("Replayed", "a newer message was seen before")
    return None


def canonical_quotas(announcement: Announcement) -> dict[str, str]:
    """Return the quotas as canonical texts, so that 1024Mi and 1Gi are equal."""
    return {name: str(quantity.parse(value)) for name, value in sorted(announcement.quotas.items())}


def parse_label(text: str) -> tuple[str, str] | None:
    """Parse ``key=value`` or ``key``. Return None if Kubernetes would refuse it."""
    key, _, value = text.partition("=")
    if names.why_not_qualified_name(key) or names.why_not_label_value(value):
        return None
    return key, value


def parse_taint(text: str) -> Taint | None:
    """Parse ``key=value:Effect``, with value and effect optional. Return None if Kubernetes would refuse it."""
    word, _, effect = text.partition(":")
    label = parse_label(word)
    if label is None or (effect and effect not in EFFECTS):
        return None
    return Taint(label[0], effect or "NoSchedule", label[1])


def signed_part(body: dict[str, object], pool: str) -> bytes:
    """Return the bytes that a signature covers: the message in canonical form, and the name of the pool."""
    unsigned = {name: value for name, value in body.items() if name != "signature"}
    return msgspec.json.encode([pool, unsigned], order="sorted")
