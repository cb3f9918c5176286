"""
Writes of a status that came before in the same words, to an object that was the same but for its name.

The new status and its owners depend on the text of the write, on who wrote it, and on the object: its parts, its
annotations, and who owned what. Names, uids and versions play no part. So all of the former is the question, and the
answer is the next object without what is its own. Which time an entry of the owners gets, that of the write or the one
that it had, belongs to the answer. Where nobody asks more of the times of conditions than their order, the question
has the order only, and the answer says where the times go: the same conditions are written in every second.

Called by: server/status_writes.py. Kubernetes has nothing like it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from kyu.api.meta import Json
from kyu.server import bodies, managed_entries, times_apart
from kyu.server.exchange import encode
from kyu.server.managed_entries import Entry
from kyu.server.options import WriteOptions
from kyu.server.records import Record
from kyu.server.repeats import Memory
from kyu.server.times_apart import Apart


class Question(NamedTuple):
    """All that the outcome of a write depends on."""

    type: str
    status: bytes
    manager: str
    force: bool
    parts: tuple[tuple[str, bytes], ...]
    """The object before, without its metadata and its status."""
    old: bytes
    """Its status; nothing if it has none."""
    order: tuple[int, ...]
    """How the times of both statuses follow each other."""
    known: bytes
    """Its annotations and owners."""

    @property
    def size(self) -> int:
        return len(self.status) + len(self.old) + len(self.known) + sum(len(text) for _, text in self.parts)


_decode = msgspec.json.Decoder().decode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_OWNER_TIME = re.compile(rb'"time":"([^"]*)"')


class NextStatus(msgspec.Struct):
    """The object after a write, without its metadata: nobody may change its parts. Of its owners, all but the time."""

    parts: Json
    # The status without its times, and which of those that the question has in order stands where.
    words: bytes
    places: tuple[int, ...]
    # Each with the place of the entry before whose time it keeps, None if it has the time of the write.
    owners: tuple[tuple[Json, int | None], ...]
    # The times of the last object, which has the parts above.
    moments: list[bytes]


class Before(NamedTuple):
    """The object that a status is written to, as far as the write depends on it."""

    metadata: dict[str, msgspec.Raw]
    question: Question
    # The times in both statuses, the earliest first.
    moments: list[bytes]
    # Those of the owners.
    times: tuple[str, ...]


def before(record: Record, type_: str, status: Apart, options: WriteOptions) -> Before | None:
    """None if nobody owns the fields of the object. Where the status has no times, those of the object are words."""
    parts = _decode_parts(record.value)
    metadata = _decode_parts(parts.pop("metadata"))
    owners = metadata.get("managedFields")
    if owners is None:
        return None
    held = _OWNER_TIME.split(bytes(owners))
    known = times_apart.MARK.join((bytes(metadata.get("annotations", b"")), *held[::2]))
    text = bytes(parts.pop("status", b""))
    old = times_apart.apart(text) if status.times else Apart(text)
    moments, order = times_apart.order(old.times + status.times)
    rest = tuple((name, bytes(part)) for name, part in parts.items())
    question = Question(type_, status.words, options.manager, bool(options.force), rest, old.words, order, known)
    return Before(metadata, question, moments, tuple(time.decode() for time in held[1::2]))


def repeated(before: Before, answer: NextStatus, now: str) -> Json:
    """The object after the write."""
    if answer.moments != before.moments:
        # Objects of the same second share their status.
        text = times_apart.together(answer.words, answer.places, before.moments)
        answer.parts = {**answer.parts, "status": _decode(text)}
        answer.moments = before.moments
    owners = [{**entry, "time": now if kept is None else before.times[kept]} for entry, kept in answer.owners]
    owners.sort(key=_order)
    metadata = {name: owners if name == "managedFields" else _decode(raw) for name, raw in before.metadata.items()}
    return {"metadata": metadata, **answer.parts}


def _order(entry: Json) -> tuple[str, ...]:
    """That of ``Entry.order``."""
    return entry["operation"], entry["time"], entry["manager"], entry["apiVersion"], entry.get("subresource", "")


def remember(memory: Memory[Question, NextStatus], before: Before, after: Json, now: str) -> None:
    """Keep what a write has led to."""
    answer = _learned(before, after, now)
    if answer is not None:
        memory.keep(before.question, answer, before.question.size)


def _learned(before: Before, after: Json, now: str) -> NextStatus | None:
    """The answer, from the object after the write; None if that does not show where a time is from."""
    owners = _owners(before, after, now)
    parts = {name: value for name, value in after.items() if name not in ("kind", "apiVersion", "metadata")}
    text = encode(parts["status"])
    status = times_apart.apart(text) if before.moments else Apart(text)
    if owners is None or not set(status.times) <= set(before.moments):
        return None
    places = tuple(map(before.moments.index, status.times))
    return NextStatus(parts, status.words, places, owners, before.moments)


def _owners(before: Before, after: Json, now: str) -> tuple[tuple[Json, int | None], ...] | None:
    """Each with the place of the one before whose time it has."""
    entries = managed_entries.decode(after)
    earlier = managed_entries.decode({"metadata": {"managedFields": _decode(before.metadata["managedFields"])}})
    if len(entries) >= managed_entries.MAX_UPDATE_ENTRIES or before.times != tuple(each.time for each in earlier):
        # Some may have been put together, or have no time.
        return None
    owners: list[tuple[Json, int | None]] = []
    for entry, raw in zip(entries, after["metadata"]["managedFields"], strict=True):
        place = next((at for at, old in enumerate(earlier) if old.is_by_same_writer(entry)), None)
        if _is_by(before.question, entry):
            is_kept = place is not None and earlier[place].time == entry.time
            if is_kept == (entry.time == now):
                # Both, or neither.
                return None
            place = place if is_kept else None
        elif place is None:
            return None
        owners.append((raw, place))
    owned = encode([entry.fields for entry in entries])
    # A time that is the name of an item would be that of another object.
    return None if any(moment in owned for moment in before.moments) else tuple(owners)


def _is_by(question: Question, entry: Entry) -> bool:
    """Whether it is the entry of who writes; all others keep their time."""
    operation = "Apply" if question.type == bodies.APPLY_PATCH else "Update"
    return (entry.manager, entry.operation, entry.subresource) == (question.manager, operation, "status")
