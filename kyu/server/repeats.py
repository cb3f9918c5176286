"""
A memory of writes: what was decided about one is decided about the next in the same words.

Batch work is made of equal things: arrays of jobs, pods of one template, conditions that say the same of a thousand
objects. Where the text of a write tells all that is to be decided, the text is the question, and the last answers are
kept. Only a yes is an answer: whatever is refused, warned about or changed on its way is looked at anew each time. The
parts of an answer are shared by all objects that have them, and nobody may change them.

Called by: server/new_objects.py, server/status_writes.py. Kept with the Rules of one version of a custom kind, which
are made anew with each change of its definition.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from kyu.api.meta import Json
from kyu.server.managed_sets import FieldSet

Question = TypeVar("Question")
Answer = TypeVar("Answer")

# Of one generation of answers, of which there are two.
KEPT_ANSWERS: Final = 256
KEPT_BYTES: Final = 2**19
# What is longer is kept by nobody: it would take the place of many others.
LONGEST_QUESTION: Final = 2**16


class Memory(Generic[Question, Answer]):
    """The last answers by their questions. One that nobody asks for during a whole generation is forgotten."""

    def __init__(self) -> None:
        self._young: dict[Question, tuple[Answer, int]] = {}
        self._old: dict[Question, tuple[Answer, int]] = {}
        self._bytes = 0

    def find(self, question: Question) -> Answer | None:
        found = self._young.get(question)
        if found is None:
            found = self._old.pop(question, None)
            if found is None:
                return None
            self.keep(question, *found)
        return found[0]

    def keep(self, question: Question, answer: Answer, size: int) -> None:
        """``size`` is how many bytes the question has; the answer has a few times as many."""
        if size > LONGEST_QUESTION:
            return
        self._bytes += size
        if len(self._young) >= KEPT_ANSWERS or self._bytes > KEPT_BYTES:
            self._old, self._young, self._bytes = self._young, {}, size
        self._young[question] = answer, size


class Texts:
    """Which texts have come before."""

    def __init__(self) -> None:
        self._memory: Memory[bytes, bool] = Memory()

    def is_known(self, text: bytes) -> bool:
        """Whether it has come before; from now on it has."""
        if self._memory.find(text) is not None:
            return True
        self._memory.keep(text, True, len(text))
        return False


class AcceptedSpec(msgspec.Struct, frozen=True):
    """A spec as it was stored, with its defaults, and the set of fields that its writer owns by it."""

    spec: Json
    owned: FieldSet
