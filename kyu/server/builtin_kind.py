"""
A built-in kind as a row of the table in builtin.py: what discovery shows of it, and what is special about its objects.

A row names the functions that fill in, prepare and check an object; a kind without one for a step needs none. What all
built-in kinds have in common is done here, so that a row is the Rules of its kind (see rules.py).

Called by: builtin.py, scale.py; to others it is known as Rules. Kubernetes: pkg/registry/*/strategy.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, Literal, TypeAlias

from kyu.api.errors import FieldError
from kyu.api.meta import Json, Kind
from kyu.server import builtin_metadata, managed, schema_typed
from kyu.server.builtin_data import load
from kyu.server.builtin_metadata import THOROUGH, USUAL, Looks
from kyu.server.builtin_names import NameRule, name_is_subdomain
from kyu.server.options import Propagation
from kyu.server.patch import carry_over, clone
from kyu.server.registry import ALL_VERBS, Converter, Resource, Subresource
from kyu.server.schema_node import Schema
from kyu.server.selectors import FieldLabels

# Of an object, and of a new one and the old one.
Change: TypeAlias = Callable[[Json], None]
ChangeFromOld: TypeAlias = Callable[[Json, Json], None]
Check: TypeAlias = Callable[[Json], Iterable[FieldError]]
CheckUpdate: TypeAlias = Callable[[Json, Json], Iterable[FieldError]]
Warn: TypeAlias = Callable[[Json, Json | None], Iterable[str]]
# What raises metadata.generation. A kind without generations counts nothing.
Counted: TypeAlias = Literal["spec", "annotations", "deletion"]

COUNTED: Final[tuple[Counted, ...]] = ("spec", "deletion")
METADATA_ONLY: Final = FieldLabels()


def nothing(obj: Json) -> None:
    """For steps in which a kind does nothing."""


def nothing_from_old(new: Json, old: Json) -> None:
    """For steps in which a kind does nothing."""


def nothing_on_delete(obj: Json, now: datetime) -> None:
    """For kinds of which a deletion is only marked."""


def no_grace(obj: Json, asked: int | None) -> int:
    """For kinds that need no time to end."""
    return 0


def no_faults(obj: Json) -> tuple[()]:
    return ()


def no_faults_of_change(new: Json, old: Json) -> tuple[()]:
    return ()


def no_warnings(obj: Json, old: Json | None) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class BuiltinKind:
    """One row."""

    kind: Kind
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    generation: tuple[Counted, ...] = ()
    # A PUT to a name that is not there creates the object.
    creates_on_update: bool = False
    # A PUT without a resourceVersion replaces whatever is there.
    allows_unconditional_update: bool = True
    default_propagation: Propagation | None = None
    name_rule: NameRule = name_is_subdomain
    field_labels: FieldLabels = METADATA_ONLY
    # How often Kubernetes looks at the metadata of an update, and of one by way of the status.
    looks: Looks = THOROUGH
    status_looks: Looks = USUAL
    # Parts of the metadata that are not written by way of the status.
    status_keeps: tuple[str, ...] = ()
    # A new object may bring its status.
    brings_status: bool = False
    fill: Change = nothing
    on_create: Change = nothing
    on_update: ChangeFromOld = nothing_from_old
    on_status: ChangeFromOld = nothing_from_old
    on_finalize: ChangeFromOld = nothing_from_old
    on_delete: Callable[[Json, datetime], None] = nothing_on_delete
    grace: Callable[[Json, int | None], int] = no_grace
    check: Check = no_faults
    # If it is not given, an update is checked like a new object.
    check_update: CheckUpdate | None = None
    check_status: CheckUpdate = no_faults_of_change
    warn: Warn = no_warnings
    # Sent with every write, and with every answer.
    warning: str = ""
    deprecation: str = ""
    # DELETE answers the object even if it is gone.
    answers_deleted_object: bool = False
    # Watches see the object with the mark of its deletion before they see it go.
    shows_mark_before_going: bool = False
    # Another kind under whose name the objects are stored, the version that stands for it, and the way there and back.
    stored_as: str = ""
    stored_version: str = ""
    convert: Converter | None = None

    @cached_property
    def schema(self) -> Schema:
        return load(self.kind.group, self.kind.version).schema(self.kind.group, self.kind.version, self.kind.kind)

    @cached_property
    def has_status(self) -> bool:
        return any(each.name == "status" for each in self.subresources)

    @property
    def counts_deletion(self) -> bool:
        return "deletion" in self.generation

    def resource(self) -> Resource:
        return Resource(
            kind=self.kind,
            singular=self.kind.kind.lower(),
            list_kind=f"{self.kind.kind}List",
            schema=self.schema,
            rules=self,
            verbs=self.verbs,
            short_names=self.short_names,
            categories=self.categories,
            subresources={each.name: each for each in self.subresources},
            field_labels=self.field_labels,
            stored_version=self.stored_version or self.kind.version,
            stored_as=self.stored_as,
            convert=self.convert,
            warning=self.warning,
            deprecation=self.deprecation,
        )

    # The Rules.

    def read(self, body: Json, stored: Json | None = None) -> tuple[Json, list[str]]:
        obj, unknown = schema_typed.decode(self.schema, body, self.kind.kind)
        if (body.get("metadata") or {}).get("managedFields") == []:
            # No entries are a wish to forget them; other empty lists are as good as none.
            obj["metadata"]["managedFields"] = []
        return obj, unknown

    def default(self, obj: Json, stored: Json | None = None) -> None:
        self.fill(obj)

    def prepare_create(self, obj: Json) -> None:
        if self.has_status and not self.brings_status:
            # Nothing has happened to the object: of its status there is what cannot be left out, and that empty.
            unborn = managed.unborn(self.schema)
            obj.pop("status", None)
            if "status" in unborn:
                obj["status"] = clone(unborn["status"])
        if self.generation:
            obj["metadata"]["generation"] = 1
        self.on_create(obj)

    def prepare_update(self, new: Json, old: Json, subresource: str) -> None:
        """On the main path the status stays; on that of the status, all but the status and the metadata."""
        match subresource:
            case "status":
                for name in {*new, *old} - {"status", "metadata", "kind", "apiVersion"}:
                    carry_over(name, old, new)
                for name in self.status_keeps:
                    carry_over(name, old["metadata"], new["metadata"])
                self.on_status(new, old)
            case "finalize":
                self.on_finalize(new, old)
            case _:
                if self.has_status:
                    carry_over("status", old, new)
                self.on_update(new, old)
                if self.generation:
                    generation = old["metadata"].get("generation", 0)
                    new["metadata"]["generation"] = generation + self._has_changed(new, old)

    def _has_changed(self, new: Json, old: Json) -> bool:
        if new.get("spec") != old.get("spec"):
            return True
        after, before = (each["metadata"].get("annotations") or {} for each in (new, old))
        return "annotations" in self.generation and after != before

    def validate_create(self, obj: Json, known: Json | None = None) -> list[FieldError]:
        namespaced = self.kind.namespaced
        found = builtin_metadata.validate_metadata(obj, namespaced=namespaced, name_rule=self.name_rule)
        return [*found, *builtin_metadata.validate_plain_finalizers(obj), *self.check(obj)]

    def validate_update(self, new: Json, old: Json, subresource: str) -> list[FieldError]:
        if subresource == "status":
            found = builtin_metadata.validate_metadata_update(new, old, self.status_looks)
            return [*found, *self.check_status(new, old)]
        found = builtin_metadata.validate_metadata_update(new, old, self.looks)
        return [*found, *(self.check(new) if self.check_update is None else self.check_update(new, old))]

    def warnings(self, new: Json, old: Json | None) -> list[str]:
        return list(self.warn(new, old))

    def resets(self, subresource: str) -> frozenset[str]:
        if not self.has_status:
            return frozenset()
        # Metadata of built-in kinds are written by way of the status, too.
        return managed.resets_of(self.schema, subresource) - {"metadata"}

    def is_finally_deleted(self, obj: Json) -> bool:
        """Namespaces have finalizers in their spec besides those that all objects can have."""
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        is_held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds") or spec.get("finalizers")
        return bool(metadata.get("deletionTimestamp")) and not is_held

    def grace_seconds(self, obj: Json, asked: int | None) -> int:
        return self.grace(obj, asked)

    def prepare_delete(self, obj: Json, now: datetime) -> None:
        self.on_delete(obj, now)
