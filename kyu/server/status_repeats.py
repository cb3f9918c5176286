"""
Writes of a status that came before in the same words, to an object that was the same but for its name.

The new status and its owners depend on the text of the write, on who wrote it, and on the object: its parts, its
annotations, and who owned what. Names, uids, versions and times play no part. So all of the former is the question, and
the answer is the next object without what is its own. Which time an entry of the owners gets, that of the write or the
one that it had, belongs to the answer.

Called by: server/status_writes.py. Kubernetes has nothing like it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from kyu.api.meta import Json
from kyu.server import bodies, managed_entries
from kyu.server.exchange import encode
from kyu.server.forms import decode
from kyu.server.managed_entries import Entry
from kyu.server.options import WriteOptions
from kyu.server.records import Record
from kyu.server.repeats import Memory

# All objects are stored like this; what follows the metadata is the rest of the object.
START: Final = b'{"metadata":'


class Question(NamedTuple):
    """All that the outcome of a write depends on."""

    type: str
    status: bytes
    manager: str
    force: bool
    rest: bytes
    """The object before, without its metadata."""
    known: bytes
    """Its annotations and owners."""

    @property
    def size(self) -> int:
        return len(self.status) + len(self.rest) + len(self.known)


class _Head(msgspec.Struct):
    metadata: msgspec.Raw


_decode_head = msgspec.json.Decoder(_Head).decode


class NextStatus(msgspec.Struct, frozen=True):
    """The object after a write, without its metadata: nobody may change it. Of its owners, all but the time."""

    parts: Json
    # Each with the place of the entry before whose time it keeps, None if it has the time of the write.
    owners: tuple[tuple[Entry, int | None], ...]


class Before(NamedTuple):
    """The object that a status is written to, as far as the write depends on it."""

    record: Record
    metadata: Json
    owners: list[Entry]
    question: Question


def before(record: Record, type_: str, status: bytes, options: WriteOptions) -> Before | None:
    """None if nobody owns the fields of the object."""
    raw = _decode_head(record.value).metadata
    metadata = decode(raw)
    owners = managed_entries.decode({"metadata": metadata})
    if not owners or not record.value.startswith(START):
        return None
    held = [(each.manager, each.operation, each.api_version, each.subresource, each.fields) for each in owners]
    known = encode((metadata.get("annotations"), held))
    rest = record.value[len(START) + len(raw) :]
    return Before(record, metadata, owners, Question(type_, status, options.manager, bool(options.force), rest, known))


def repeated(before: Before, answer: NextStatus, now: str) -> Json:
    """The object after the write."""
    entries = [
        Entry(each.manager, each.operation, each.api_version, each.subresource, _time(before, kept, now), each.fields)
        for each, kept in answer.owners
    ]
    metadata = {**before.metadata, "managedFields": managed_entries.encoded(entries)}
    return {"metadata": metadata, **answer.parts}


def _time(before: Before, kept: int | None, now: str) -> str:
    return now if kept is None else before.owners[kept].time


def remember(memory: Memory[Question, NextStatus], before: Before, after: Json, now: str) -> None:
    """Keep what a write has led to."""
    answer = _learned(before, after, now)
    if answer is not None:
        memory.keep(before.question, answer, before.question.size)


def _learned(before: Before, after: Json, now: str) -> NextStatus | None:
    """The answer, from the object after the write; None if that does not show where a time is from."""
    entries = managed_entries.decode(after)
    if len(entries) >= managed_entries.MAX_UPDATE_ENTRIES:
        # Some may have been put together.
        return None
    owners = []
    for entry in entries:
        place = next((at for at, old in enumerate(before.owners) if old.is_by_same_writer(entry)), None)
        if _is_by(before.question, entry):
            is_kept = place is not None and before.owners[place].time == entry.time
            if is_kept == (entry.time == now):
                # Both, or neither.
                return None
            place = place if is_kept else None
        elif place is None:
            return None
        owners.append((entry, place))
    parts = {name: value for name, value in after.items() if name not in ("kind", "apiVersion", "metadata")}
    return NextStatus(parts, tuple(owners))


def _is_by(question: Question, entry: Entry) -> bool:
    """Whether it is the entry of who writes; all others keep their time."""
    operation = "Apply" if question.type == bodies.APPLY_PATCH else "Update"
    return (entry.manager, entry.operation, entry.subresource) == (question.manager, operation, "status")
