"""
The built-in kinds as Resources, and the reviews, which are kinds without objects.

A row of builtin.py says what is special about a kind; here it gets the form that the verbs work with.

Called by: server/api.py. Calls: server/builtin.py.
"""

from __future__ import annotations

from datetime import datetime

from kyu.api.errors import FieldError
from kyu.api.meta import Json, Kind
from kyu.server import builtin, builtin_metadata, crd, managed, reviews, schema_typed
from kyu.server.builtin import BuiltinKind
from kyu.server.options import Propagation
from kyu.server.registry import Resource, Subresource


def built_in() -> list[Resource]:
    return [_resource(row) for row in builtin.KINDS] + [_review(kind) for kind in reviews.KINDS]


def _resource(row: BuiltinKind) -> Resource:
    kind = row.kind
    return Resource(
        kind=kind,
        singular=row.singular,
        list_kind=row.list_kind,
        schema=row.schema,
        rules=BuiltInRules(row),
        verbs=row.verbs,
        short_names=row.short_names,
        categories=row.categories,
        subresources={each.name: _subresource(kind, each) for each in row.subresources},
        field_labels=row.field_labels,
        stored_version=row.stored_version or kind.version,
        stored_as=row.stored_as,
        convert=row.convert,
        warning=row.warning,
        deprecation=row.deprecation,
    )


def _subresource(kind: Kind, row: builtin.Subresource) -> Subresource:
    spoken = Kind(*row.body, "") if row.body is not None else kind
    return Subresource(row.name, spoken, row.verbs)


def _review(kind: Kind) -> Resource:
    row = BuiltinKind(kind)
    return Resource(
        kind=kind,
        singular=kind.kind.lower(),
        list_kind="",
        schema=row.schema,
        rules=BuiltInRules(row),
        verbs=("create",),
        stored_version=kind.version,
    )


class BuiltInRules:
    """The Rules of a row."""

    def __init__(self, row: BuiltinKind) -> None:
        self._row = row
        self.creates_on_update = row.creates_on_update
        self.allows_unconditional_update = row.allows_unconditional_update
        self.has_generation = row.has_generation
        self.counts_deletion = row.has_generation and row.kind != crd.KIND
        self.default_propagation: Propagation | None = "Orphan" if row.default_propagation == "Orphan" else None
        self.answers_deleted_object = row.answers_deleted_object
        self._is_pod = row.kind.plural == "pods" and not row.kind.group
        self.shows_mark_before_going = self._is_pod
        self._is_namespace = row.kind.plural == "namespaces" and not row.kind.group

    def read(self, body: Json, stored: Json | None = None) -> tuple[Json, list[str]]:
        obj, unknown = schema_typed.decode(self._row.schema, body, self._row.kind.kind)
        if (body.get("metadata") or {}).get("managedFields") == []:
            # No entries are a wish to forget them; other empty lists are as good as none.
            obj["metadata"]["managedFields"] = []
        return obj, unknown

    def default(self, obj: Json, stored: Json | None = None) -> None:
        builtin.default(self._row, obj)

    def prepare_create(self, obj: Json) -> None:
        builtin.prepare_create(self._row, obj)

    def prepare_update(self, new: Json, old: Json, subresource: str) -> None:
        match subresource:
            case "status":
                builtin.prepare_status(self._row, new, old)
            case "finalize":
                finalizers = (new.get("spec") or {}).get("finalizers") or []
                new["spec"] = {**(old.get("spec") or {}), "finalizers": finalizers}
                if not finalizers:
                    del new["spec"]["finalizers"]
                new["status"] = old.get("status") or {}
            case _:
                builtin.prepare_update(self._row, new, old)

    def validate_create(self, obj: Json, known: Json | None = None) -> list[FieldError]:
        kind = self._row.kind
        found = builtin_metadata.validate_metadata(obj, namespaced=kind.namespaced, name_rule=self._row.name_rule)
        return found + builtin.validate_create(self._row, obj)

    def validate_update(self, new: Json, old: Json, subresource: str) -> list[FieldError]:
        found = builtin_metadata.validate_metadata_update(new, old, builtin.looks(self._row, subresource))
        if subresource == "status":
            return found + builtin.validate_status(self._row, new, old)
        return found + builtin.validate_update(self._row, new, old)

    def warnings(self, new: Json, old: Json | None) -> list[str]:
        return list(self._row.warn(new, old))

    def resets(self, subresource: str) -> frozenset[str]:
        if not self._row.has_status:
            return frozenset()
        # Metadata of built-in kinds are written by way of the status, too.
        return managed.resets_of(self._row.schema, subresource) - {"metadata"}

    def is_finally_deleted(self, obj: Json) -> bool:
        metadata = obj["metadata"]
        if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
            return False
        if self._is_namespace:
            return not (obj.get("spec") or {}).get("finalizers")
        return not metadata.get("deletionGracePeriodSeconds")

    def grace_seconds(self, obj: Json, asked: int | None) -> int:
        """A Pod that nobody runs, or that has ended, needs no time."""
        if not self._is_pod:
            return 0
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        if asked is not None:
            return asked if asked >= 0 else 1
        granted: int = spec.get("terminationGracePeriodSeconds", 30)
        return granted

    def prepare_delete(self, obj: Json, now: datetime) -> None:
        if self._row.kind == crd.KIND:
            del obj["metadata"]["deletionGracePeriodSeconds"]
            finalizers = obj["metadata"].get("finalizers") or []
            obj["metadata"]["finalizers"] = [*finalizers, crd.CLEANUP_FINALIZER]
            status = obj.get("status") or {}
            conditions = [*(status.get("conditions") or ()), crd.terminating_condition(now)]
            obj["status"] = {**status, "conditions": conditions}
        if self._is_namespace:
            obj["metadata"].pop("deletionGracePeriodSeconds", None)
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
