"""
A structural schema: one immutable node per place in an object, whatever the schema was written for.

Two sources give the same nodes: the OpenAPI v3 schema of a CustomResourceDefinition, and the published schemas of the
built-in kinds, which refer to each other by name. Children are made when they are first asked for, so a recursive type
is no special case and a kind costs nothing until an object of it arrives.

Read by: schema.py (prune, defaults, validation), strategic.py (merge keys), managed_*.py (list types).
Kubernetes: apiextensions-apiserver/pkg/apiserver/schema, kube-openapi.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, TypeVar

from kyu.api.meta import Json

Made = TypeVar("Made")

REF_PREFIX: Final = "#/components/schemas/"
NOTHING: Final = MappingProxyType[str, Any]({})


class Missing:
    """The default of a field that has none; ``None`` is a value of its own."""

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()


class Definitions:
    """Named schemas that refer to each other, and how the fields of each disappear when they are empty."""

    def __init__(self, raw: Mapping[str, Json], shapes: Mapping[str, Mapping[str, str]] = NOTHING) -> None:
        self.raw = raw
        self.shapes = shapes
        self._nodes: dict[str, Schema] = {}

    def node(self, name: str) -> Schema:
        """The schema of that name; the same node each time."""
        if name not in self._nodes:
            self._nodes[name] = Schema({"$ref": REF_PREFIX + name}, self)
        return self._nodes[name]


NO_DEFINITIONS: Final = Definitions(NOTHING)


class Schema:
    """One node. Everything about the value itself is read once; the children are lazy."""

    def __init__(self, raw: Json, definitions: Definitions = NO_DEFINITIONS) -> None:
        self.definitions = definitions
        self.name, self.raw = resolved(raw, definitions)
        source = self.raw
        self.type: str = source.get("type", "")
        self.format: str = source.get("format", "")
        self.nullable = bool(source.get("nullable"))
        self.default: Any = source.get("default", MISSING)
        self.preserves_unknown = bool(source.get("x-kubernetes-preserve-unknown-fields"))
        self.is_embedded = bool(source.get("x-kubernetes-embedded-resource"))
        self.is_int_or_string = bool(source.get("x-kubernetes-int-or-string")) or self.format == "int-or-string"
        self.list_type: str = source.get("x-kubernetes-list-type", "atomic")
        # Every item has an owner of its own.
        self.is_shared_list = self.list_type in ("map", "set")
        self.list_map_keys: tuple[str, ...] = tuple(source.get("x-kubernetes-list-map-keys", ()))
        self.is_atomic_map = source.get("x-kubernetes-map-type") == "atomic"
        self.patch_strategies = frozenset(source.get("x-kubernetes-patch-strategy", "").split(",")) - {""}
        self.patch_merge_key: str = source.get("x-kubernetes-patch-merge-key", "")
        self.required: tuple[str, ...] = tuple(source.get("required", ()))
        self.rules: tuple[Json, ...] = tuple(source.get("x-kubernetes-validations", ()))
        # What others have made of this node, by the function that makes it.
        self._made: dict[object, Any] = {}
        # What schema_fast.py has compiled, by the question that it answers.
        self.validators: dict[object, Any] = {}
        # What managed_fields.py knows of maps at this place, by their names.
        self.named: dict[tuple[str, ...], Any] = {}
        # The same of the items of a list, by the text that names them.
        self.elements: dict[str, str] = {}

    @cached_property
    def properties(self) -> Mapping[str, Schema]:
        raw = self.raw.get("properties", NOTHING)
        return {name: Schema(value, self.definitions) for name, value in raw.items()}

    @cached_property
    def items(self) -> Schema | None:
        raw = self.raw.get("items")
        return Schema(raw, self.definitions) if raw is not None else None

    @cached_property
    def additional(self) -> Schema | None:
        """The schema of the values of a map; None for a struct."""
        raw = self.raw.get("additionalProperties")
        if raw is None or raw is False:
            return None
        return Schema({} if raw is True else raw, self.definitions)

    @cached_property
    def shape(self) -> Mapping[str, str]:
        """How each field of a built-in type is written when it is empty; see schema_typed.py."""
        return self.definitions.shapes.get(self.name, NOTHING)

    @cached_property
    def sorted_keys(self) -> tuple[str, ...]:
        """The keys of a list map in the order in which sets of fields name them."""
        return tuple(sorted(self.list_map_keys))

    @cached_property
    def single_key(self) -> str:
        """The key of a list map that has only one."""
        is_single = self.list_type == "map" and len(self.list_map_keys) == 1
        return self.list_map_keys[0] if is_single else ""

    @cached_property
    def has_defaults(self) -> bool:
        return self.default is not MISSING or any(child.has_defaults for child in self.children)

    @cached_property
    def has_rules(self) -> bool:
        return bool(self.rules) or any(child.has_rules for child in self.children)

    @cached_property
    def has_list_rules(self) -> bool:
        """Somewhere below is a list whose items must differ."""
        return self.is_shared_list or any(child.has_list_rules for child in self.children)

    @cached_property
    def all_but_status(self) -> frozenset[str]:
        """The top-level fields that a write of the status leaves alone."""
        return frozenset(self.properties) - {"status"}

    @cached_property
    def defaulted(self) -> Mapping[str, Schema]:
        """The fields of a struct with defaults at or below them."""
        return {name: child for name, child in self.properties.items() if child.has_defaults}

    @cached_property
    def ruled(self) -> Mapping[str, Schema]:
        """The fields of a struct with rules at or below them."""
        return {name: child for name, child in self.properties.items() if child.has_rules}

    @cached_property
    def listed(self) -> Mapping[str, Schema]:
        """The fields of a struct with lists at or below them whose items must differ."""
        return {name: child for name, child in self.properties.items() if child.has_list_rules}

    @property
    def children(self) -> tuple[Schema, ...]:
        found = list(self.properties.values())
        found += [child for child in (self.items, self.additional) if child is not None]
        return tuple(found)

    def child(self, name: str) -> Schema | None:
        """The schema of one field of a struct or map, None if the field is unknown."""
        return self.properties.get(name) or self.additional

    def kept(self, make: Callable[[Schema], Made]) -> Made:
        """What a function makes of this node. It is made once, and goes with the node."""
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made

    def __repr__(self) -> str:
        return f"Schema({self.name or self.type or 'any'})"


def resolved(raw: Json, definitions: Definitions) -> tuple[str, Json]:
    """The name of a referred schema and its content, with what stands beside the reference laid over it."""
    reference: str | None = raw.get("$ref")
    if reference is None:
        parts = raw.get("allOf", ())
        if len(parts) != 1 or "$ref" not in parts[0]:
            return "", raw
        reference = str(parts[0]["$ref"])
    name = reference.removeprefix(REF_PREFIX)
    beside = {key: value for key, value in raw.items() if key not in ("$ref", "allOf")}
    return name, {**definitions.raw.get(name, {}), **beside}
