"""
The rules of a kind: how a body is read, which fields are filled in, and which objects are refused.

The verbs are the same for all kinds; this is the interface through which kinds differ. Built-in kinds implement it in
terms of the rows of server/builtin/table.py, custom kinds in terms of their schema.

Implemented by: server/builtin/kind.py, server/crd/custom.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.options import Propagation


class Rules(Protocol):
    # A PUT without a resourceVersion replaces whatever is there.
    @property
    def allows_unconditional_update(self) -> bool: ...

    # A PUT of an object that is missing creates it.
    @property
    def creates_on_update(self) -> bool: ...

    # The mark of a deletion raises metadata.generation, as a change of the spec does.
    @property
    def counts_deletion(self) -> bool: ...

    def read(self, body: Json, stored: Json | None = None) -> tuple[Json, list[str]]:
        """Return the body in the form of the kind, and the paths of unknown fields. Raises TypeMismatch.

        Parts that the body shares with the stored object need not be looked at: they have that form.
        """

    def default(self, obj: Json, stored: Json | None = None) -> None:
        """Set defaults, except in parts that are shared with the stored object."""

    def prepare_create(self, obj: Json) -> None:
        """Drop what a new object cannot have, set what only the server sets."""

    def prepare_update(self, new: Json, old: Json, subresource: str) -> None:
        """Take back what this path does not write, raise the generation."""

    def validate_create(self, obj: Json) -> list[FieldError]: ...

    def validate_update(self, new: Json, old: Json, subresource: str) -> list[FieldError]: ...

    def warnings(self, new: Json, old: Json | None) -> list[str]:
        """Return warnings about an accepted object; ``old`` is None for a create."""

    def resets(self, subresource: str) -> frozenset[str]:
        """Return the top-level fields that a path does not write, and that have no owner through it."""

    def is_finally_deleted(self, obj: Json) -> bool:
        """Return whether the object is marked for deletion and nothing holds it any more."""

    # How it is deleted.

    # The policy of a DELETE that names none.
    @property
    def default_propagation(self) -> Propagation | None: ...

    def grace_seconds(self, obj: Json, asked: int | None) -> int:
        """Return how long the object stays after it was marked; 0 for kinds that need no time to end."""

    def prepare_delete(self, obj: Json, now: datetime) -> None:
        """Change what the mark of a deletion changes, besides the mark."""

    # DELETE answers the object even if it is gone.
    @property
    def answers_deleted_object(self) -> bool: ...

    # Watches see the object with the mark of its deletion before they see it go.
    @property
    def shows_mark_before_going(self) -> bool: ...
