"""
A built-in kind: one row of the table in table.py, which is also the Rules of the kind (see server/rules.py).

A row names the functions that default, prepare and validate an object. The steps that all built-in kinds share are
here.

Kubernetes: pkg/registry/*/strategy.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, Literal, TypeAlias

from kyu.api.errors import FieldError
from kyu.api.meta import Json, Kind
from kyu.server.fieldmanager import manager
from kyu.server.json_values import carry_over, clone
from kyu.server.options import Propagation
from kyu.server.registry import ALL_VERBS, Converter, Resource, Subresource
from kyu.server.schema import typed
from kyu.server.schema.node import Schema
from kyu.server.schema.published import load
from kyu.server.selectors import FieldLabels
from kyu.server.validation import metadata as builtin_metadata
from kyu.server.validation.metadata import THOROUGH, USUAL, RepeatedChecks
from kyu.server.validation.object_names import NameRule, name_is_subdomain

# The arguments are the object, or the new object and the old one.
Change: TypeAlias = Callable[[Json], None]
ChangeFromOld: TypeAlias = Callable[[Json, Json], None]
Check: TypeAlias = Callable[[Json], Iterable[FieldError]]
CheckUpdate: TypeAlias = Callable[[Json, Json], Iterable[FieldError]]
Warn: TypeAlias = Callable[[Json, Json | None], Iterable[str]]
# The changes that increment metadata.generation.
Counted: TypeAlias = Literal["spec", "annotations", "deletion"]

COUNTED: Final[tuple[Counted, ...]] = ("spec", "deletion")
METADATA_ONLY: Final = FieldLabels()


def nothing(obj: Json) -> None:
    """Do nothing, for a kind without this step."""


def nothing_from_old(new: Json, old: Json) -> None:
    """Do nothing, for a kind without this step."""


def nothing_on_delete(obj: Json, now: datetime) -> None:
    """Do nothing, for a kind without this step."""


def no_grace(obj: Json, asked: int | None) -> int:
    """Return 0, for a kind that is deleted at once."""
    return 0


def no_faults(obj: Json) -> tuple[()]:
    return ()


def no_faults_of_change(new: Json, old: Json) -> tuple[()]:
    return ()


def no_warnings(obj: Json, old: Json | None) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class BuiltinKind:
    """A row of the table of built-in kinds."""

    kind: Kind
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    generation: tuple[Counted, ...] = ()
    # A PUT creates an object that does not exist.
    creates_on_update: bool = False
    # A PUT without a resourceVersion replaces the object.
    allows_unconditional_update: bool = True
    default_propagation: Propagation | None = None
    name_rule: NameRule = name_is_subdomain
    field_labels: FieldLabels = METADATA_ONLY
    # The checks of the metadata in an update of the object, and of its status.
    metadata_checks: RepeatedChecks = THOROUGH
    status_metadata_checks: RepeatedChecks = USUAL
    # Metadata that an update of the status ignores.
    status_keeps: tuple[str, ...] = ()
    # A new object keeps the status of its body.
    keeps_new_status: bool = False
    fill: Change = nothing
    on_create: Change = nothing
    on_update: ChangeFromOld = nothing_from_old
    on_status: ChangeFromOld = nothing_from_old
    on_finalize: ChangeFromOld = nothing_from_old
    on_delete: Callable[[Json, datetime], None] = nothing_on_delete
    grace: Callable[[Json, int | None], int] = no_grace
    check: Check = no_faults
    # Without it, an update is validated like a new object.
    check_update: CheckUpdate | None = None
    check_status: CheckUpdate = no_faults_of_change
    warn: Warn = no_warnings
    # Sent with every write, and with every answer.
    warning: str = ""
    deprecation: str = ""
    # DELETE answers the object even if it is gone.
    answers_deleted_object: bool = False
    # Watchers see the object with its deletionTimestamp before they see it deleted.
    shows_mark_before_going: bool = False
    # The kind as which the objects are stored, its version, and the conversion.
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

    def read(self, body: Json, stored: Json | None = None) -> tuple[Json, list[str]]:
        obj, unknown = typed.decode(self.schema, body, self.kind.kind)
        if (body.get("metadata") or {}).get("managedFields") == []:
            # An empty list stops the tracking of fields. Other empty lists count as absent.
            obj["metadata"]["managedFields"] = []
        return obj, unknown

    def default(self, obj: Json, stored: Json | None = None) -> None:
        self.fill(obj)

    def prepare_create(self, obj: Json) -> None:
        if self.has_status and not self.keeps_new_status:
            # A new object has the fields of the status that cannot be left out, empty.
            empty = manager.empty_object(self.schema)
            obj.pop("status", None)
            if "status" in empty:
                obj["status"] = clone(empty["status"])
        if self.generation:
            obj["metadata"]["generation"] = 1
        self.on_create(obj)

    def prepare_update(self, new: Json, old: Json, subresource: str) -> None:
        """Keep the fields that this path does not write: the status, or all but the status and the metadata."""
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

    def validate_create(self, obj: Json) -> list[FieldError]:
        namespaced = self.kind.namespaced
        found = builtin_metadata.validate_metadata(obj, namespaced=namespaced, name_rule=self.name_rule)
        return [*found, *builtin_metadata.validate_plain_finalizers(obj), *self.check(obj)]

    def validate_update(self, new: Json, old: Json, subresource: str) -> list[FieldError]:
        if subresource == "status":
            found = builtin_metadata.validate_metadata_update(new, old, self.status_metadata_checks)
            return [*found, *self.check_status(new, old)]
        found = builtin_metadata.validate_metadata_update(new, old, self.metadata_checks)
        return [*found, *(self.check(new) if self.check_update is None else self.check_update(new, old))]

    def warnings(self, new: Json, old: Json | None) -> list[str]:
        return list(self.warn(new, old))

    def resets(self, subresource: str) -> frozenset[str]:
        if not self.has_status:
            return frozenset()
        # Unlike a custom object, a built-in one has its metadata written by an update of the status.
        return manager.resets_of(self.schema, subresource) - {"metadata"}

    def is_finally_deleted(self, obj: Json) -> bool:
        """Return whether nothing holds the object any more. Namespaces have finalizers in their spec, too."""
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        is_held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds") or spec.get("finalizers")
        return bool(metadata.get("deletionTimestamp")) and not is_held

    def grace_seconds(self, obj: Json, asked: int | None) -> int:
        return self.grace(obj, asked)

    def prepare_delete(self, obj: Json, now: datetime) -> None:
        self.on_delete(obj, now)
