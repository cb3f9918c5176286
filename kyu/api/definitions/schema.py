"""
From a Struct to the OpenAPI schema of a CustomResourceDefinition.

The type of a field gives the shape, ``Field`` annotations the bounds, and ``RULES`` of a Struct its CEL rules. The
string below a field in the source is its description. Kubernetes' own kinds keep their unknown fields, since Kyu reads
only a part of them.

Kubernetes: structural schemas, apiextensions/v1
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from kyu.api import core
from kyu.api.fields import LABEL_KEY, Field, Rule
from kyu.api.meta import Condition, Json, LabelSelector, LabelSelectorRequirement, ObjectMeta, Wire

QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
QUANTITY: Json = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": QUANTITY_PATTERN,
    "x-kubernetes-int-or-string": True,
}
_TEXT: Json = {"type": "string"}
_TEXTS: Json = {"type": "object", "additionalProperties": _TEXT}
# Core kinds with complete projections.
_COMPLETE = {core.Taint, core.Toleration}
_QUANTITY_TYPES = {str, int, float}
_PRIMITIVES: Mapping[object, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}

_CONDITION: Json = {
    "type": "object",
    "description": "One aspect of the state of the object.",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": {
            "type": "string",
            "format": "date-time",
            "description": "When the status of the condition last changed.",
        },
        "message": {"type": "string", "maxLength": 32768, "description": "Message for people. It may be empty."},
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "Generation of the object that the condition was computed from.",
        },
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            "description": "The reason of the last change, as one CamelCase word for programs.",
        },
        "status": {
            "type": "string",
            "enum": ["True", "False", "Unknown"],
            "description": "Whether the condition holds.",
        },
        "type": {
            "type": "string",
            "maxLength": 316,
            "pattern": LABEL_KEY,
            "description": "Name of the condition.",
        },
    },
}
_SELECTOR_REQUIREMENT: Json = {
    "type": "object",
    "description": "A condition on one label.",
    "required": ["key", "operator"],
    "properties": {
        "key": {"type": "string", "description": "Key of the label."},
        "operator": {"type": "string", "description": "In, NotIn, Exists or DoesNotExist."},
        "values": {
            "type": "array",
            "items": _TEXT,
            "x-kubernetes-list-type": "atomic",
            "description": "Values for In and NotIn.",
        },
    },
}
_SELECTOR: Json = {
    "type": "object",
    "description": "Objects with matching labels. An empty selector matches all.",
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "matchLabels": {**_TEXTS, "description": "Labels that must have these values."},
        "matchExpressions": {
            "type": "array",
            "items": _SELECTOR_REQUIREMENT,
            "x-kubernetes-list-type": "atomic",
            "description": "Further conditions, all of which must hold.",
        },
    },
}
_TEMPLATE_METADATA: Json = {
    "type": "object",
    "properties": {
        "annotations": {**_TEXTS, "description": "Annotations of the pods."},
        "finalizers": {"type": "array", "items": _TEXT, "description": "Finalizers of the pods."},
        "labels": {**_TEXTS, "description": "Labels of the pods."},
        "name": {"type": "string", "description": "Not used."},
        "namespace": {"type": "string", "description": "Not used."},
    },
}
# Kubernetes fixes the schemas of the meta kinds, in more detail than Kyu reads.
_FIXED: Mapping[type, Json] = {
    Condition: _CONDITION,
    LabelSelector: _SELECTOR,
    LabelSelectorRequirement: _SELECTOR_REQUIREMENT,
    ObjectMeta: _TEMPLATE_METADATA,
}


@cache
def schema_of(type_: type[Wire]) -> Json:
    """Return the schema of a Struct, with properties in alphabetical order. It is shared: copy it before a change."""
    if type_ in _FIXED:
        return _FIXED[type_]
    hints, notes = get_type_hints(type_, include_extras=True), field_descriptions(type_)
    properties, required = {}, []
    for field in msgspec.structs.fields(type_):
        schema, is_required = _field_schema(hints[field.name])
        if notes.get(field.name):
            schema = {**schema, "description": notes[field.name]}
        properties[field.encode_name] = schema
        if is_required or field.required:
            required.append(field.encode_name)
    schema = {"type": "object", "properties": dict(sorted(properties.items()))}
    if required:
        schema["required"] = sorted(required)
    if description := class_description(type_):
        schema["description"] = description
    if type_.__module__ == core.__name__ and type_ not in _COMPLETE:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if rules := getattr(type_, "RULES", ()):
        schema["x-kubernetes-validations"] = [_rule(rule) for rule in rules]
    return schema


def _field_schema(hint: Any) -> tuple[Json, bool]:
    """Return the schema of a field, and whether an annotation requires it."""
    bare, bounds = _unwrap(hint)
    schema = _type_schema(bare)
    for bound in bounds:
        schema = _bounded(schema, bound)
    return schema, any(bound.required for bound in bounds)


def _unwrap(hint: Any) -> tuple[Any, list[Field]]:
    """Return the type without annotations and None, and the bounds: inner ones first, so that outer ones win."""
    if get_origin(hint) is Annotated:
        bare, bounds = _unwrap(hint.__origin__)
        return bare, [*bounds, *(item for item in hint.__metadata__ if isinstance(item, Field))]
    if get_origin(hint) in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        if len(options) == 1:
            return _unwrap(options[0])
        literals = [value for option in options for value in get_args(option) if get_origin(option) is Literal]
        return (Literal[tuple(literals)] if literals else frozenset(options)), []
    return hint, []


def _type_schema(bare: Any) -> Json:
    if bare == _QUANTITY_TYPES:
        return dict(QUANTITY)
    if bare in _PRIMITIVES:
        return {"type": _PRIMITIVES[bare]}
    if get_origin(bare) is Literal:
        return {"type": "string", "enum": list(get_args(bare))}
    if get_origin(bare) is tuple:
        return {"type": "array", "items": _field_schema(get_args(bare)[0])[0]}
    if get_origin(bare) is dict:
        item = get_args(bare)[1]
        if item is Any:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "additionalProperties": _field_schema(item)[0]}
    if isinstance(bare, type) and issubclass(bare, Wire):
        return dict(schema_of(bare))
    raise AssertionError(f"no schema for {bare}")


def _bounded(schema: Json, bound: Field) -> Json:
    words = {
        "minimum": bound.minimum,
        "minLength": bound.min_length,
        "maxLength": bound.max_length,
        "minItems": bound.min_items,
        "maxItems": bound.max_items,
        "maxProperties": bound.max_properties,
        "pattern": bound.pattern or None,
        "format": bound.format or None,
        "x-kubernetes-list-type": bound.list_type or None,
        "x-kubernetes-list-map-keys": list(bound.list_keys) or None,
        "x-kubernetes-map-type": bound.map_type or None,
    }
    schema = {**schema, **{word: value for word, value in words.items() if value is not None}}
    if bound.default is not msgspec.UNSET:
        schema["default"] = bound.default
    if bound.rules:
        schema["x-kubernetes-validations"] = [_rule(rule) for rule in bound.rules]
    if bound.items is not None:
        inside = "items" if schema["type"] == "array" else "additionalProperties"
        schema[inside] = _bounded(schema[inside], bound.items)
    return schema


def _rule(rule: Rule) -> Json:
    return {"rule": rule.rule, "message": rule.message}


def class_description(type_: type) -> str:
    """Return the docstring of the class itself, never an inherited or generated one."""
    return inspect.cleandoc(type_.__doc__) if "__doc__" in vars(type_) and type_.__doc__ else ""


def field_descriptions(type_: type) -> dict[str, str]:
    """Return the descriptions of the fields of the class, and of its base classes."""
    notes: dict[str, str] = {}
    for base in reversed(type_.__mro__):
        notes.update(_module_descriptions(base.__module__).get(base.__name__, {}))
    return notes


@cache
def _module_descriptions(module: str) -> Mapping[str, Mapping[str, str]]:
    if not module.startswith("kyu."):
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: _class_descriptions(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _class_descriptions(node: ast.ClassDef) -> Mapping[str, str]:
    notes = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            notes[statement.target.id] = inspect.cleandoc(following.value.value)
    return notes
