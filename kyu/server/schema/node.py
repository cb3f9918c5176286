"""
A structural schema: one node for each place in an object.

Two sources give the same nodes: the OpenAPI v3 schema of a CustomResourceDefinition, and the published schemas of the
built-in kinds, which refer to each other by name. Children are made on first use. So a schema may be recursive, and an
unused kind costs nothing.

Kubernetes: apiextensions-apiserver/pkg/apiserver/schema, kube-openapi.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, TypeVar

from kyu.api.meta import Json

Result = TypeVar("Result")

REF_PREFIX: Final = "#/components/schemas/"
NOTHING: Final = MappingProxyType[str, Any]({})


class NoDefault:
    """The default of a field without a default, where ``None`` would be the default null."""

    def __bool__(self) -> bool:
        return False


MISSING: Final = NoDefault()


class SchemaDefinitions:
    """Named schemas that refer to each other, with the way in which empty fields of each are encoded."""

    def __init__(self, raw: Mapping[str, Json], shapes: Mapping[str, Mapping[str, str]] = NOTHING) -> None:
        self.raw = raw
        self.shapes = shapes
        self._nodes: dict[str, Schema] = {}

    def node(self, name: str) -> Schema:
        """Return the schema of that name, always the same node."""
        if name not in self._nodes:
            self._nodes[name] = Schema({"$ref": REF_PREFIX + name}, self)
        return self._nodes[name]


NO_DEFINITIONS: Final = SchemaDefinitions(NOTHING)


class Schema:
    """A node of a schema. Its children are lazy."""

    def __init__(self, raw: Json, definitions: SchemaDefinitions = NO_DEFINITIONS) -> None:
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
        self.is_shared_list = self.list_type in ("map", "set")
        self.list_map_keys: tuple[str, ...] = tuple(source.get("x-kubernetes-list-map-keys", ()))
        self.is_atomic_map = source.get("x-kubernetes-map-type") == "atomic"
        self.patch_strategies = frozenset(source.get("x-kubernetes-patch-strategy", "").split(",")) - {""}
        self.patch_merge_key: str = source.get("x-kubernetes-patch-merge-key", "")
        self.required: tuple[str, ...] = tuple(source.get("required", ()))
        self.rules: tuple[Json, ...] = tuple(source.get("x-kubernetes-validations", ()))
        # Results of ``cached``, by the function that computed them.
        self._cached: dict[object, Any] = {}
        # The validators of fast.py, by the question that they answer.
        self.validators: dict[object, Any] = {}
        # The NamedFields of server/fieldmanager/fields.py, by the names of a map.
        self.named: dict[tuple[str, ...], Any] = {}
        # The path elements of list items, by the string that is their only key.
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
        """The encoding of each empty field of a built-in type; see typed.py."""
        return self.definitions.shapes.get(self.name, NOTHING)

    @cached_property
    def sorted_keys(self) -> tuple[str, ...]:
        """The keys of a list map, sorted as in path elements."""
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
        """Whether a list at or below this node has items that must differ."""
        return self.is_shared_list or any(child.has_list_rules for child in self.children)

    @cached_property
    def all_but_status(self) -> frozenset[str]:
        """The top-level fields that a write of the status ignores."""
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
        """Return the schema of a field of a struct or map, None if the field is unknown."""
        return self.properties.get(name) or self.additional

    def cached(self, compute: Callable[[Schema], Result]) -> Result:
        """Return the result of a function of this node, computed once."""
        if compute not in self._cached:
            self._cached[compute] = compute(self)
        result: Result = self._cached[compute]
        return result

    def __repr__(self) -> str:
        return f"Schema({self.name or self.type or 'any'})"


def resolved(raw: Json, definitions: SchemaDefinitions) -> tuple[str, Json]:
    """Return the name and the content of a schema. The keys beside a reference override those of its target."""
    reference: str | None = raw.get("$ref")
    if reference is None:
        parts = raw.get("allOf", ())
        if len(parts) != 1 or "$ref" not in parts[0]:
            return "", raw
        reference = str(parts[0]["$ref"])
    name = reference.removeprefix(REF_PREFIX)
    beside = {key: value for key, value in raw.items() if key not in ("$ref", "allOf")}
    return name, {**definitions.raw.get(name, {}), **beside}
