"""
CEL rules of a schema: ``x-kubernetes-validations``.

A rule sees the value at its place as ``self``. A transition rule also reads the old value as ``oldSelf``; it runs on
updates only, and only if a field that it reads has changed. Rules are compiled when the first object arrives. They do
not run again on a value that did not change. Most rules pass without the library: see cel_quick.py.

The only file that imports the CEL library. Kubernetes: apiextensions-apiserver/pkg/apiserver/schema/cel
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api import quantity
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.schema import cel_quick
from kyu.server.schema.checks import items_by_key, key_of
from kyu.server.schema.node import MISSING, Schema

# On a platform without a build of the library, rules are not evaluated.
IS_AVAILABLE: Final = find_spec("cel_expr_python") is not None
cel: Any = import_module("cel_expr_python.cel") if IS_AVAILABLE else None
EXTENSIONS: Final = ("ExtStrings", "ExtMath", "ExtOptional", "ExtBindings")

# CEL keywords that a rule cannot use as field names: it writes __namespace__.
RESERVED: Final = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
# A list with the old value, or an empty one: an optional oldSelf is made of it.
OLD_VALUES: Final = "oldValues"
OPTIONAL_OLD: Final = "cel.bind(oldSelf, oldValues.size() == 0 ? optional.none() : optional.of(oldValues[0]), {rule})"
# Kubernetes words this error differently.
NO_FIELDS: Final = re.compile(r"expression of type ('\w+') cannot be the operand of a select operation")
PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class RuleError(Exception):
    """A rule that does not compile."""


@dataclass(frozen=True, slots=True)
class CelRule:
    source: str
    program: Any
    quick: cel_quick.Program | None
    message: str
    message_program: Any
    reason: str
    field_path: str
    # A transition rule: it runs only if there is an old value.
    needs_old: bool
    # It names a field that CEL sees in another form than JSON.
    needs_types: bool
    # The fields of the new value that it reads; an empty path is all of it.
    reads: tuple[tuple[str, ...], ...]


@cache
def environment(kind: str = "") -> Any:
    """Return the environment for rules on values of a type.

    Numbers have no type: Kubernetes compares integers with fractions, which the checker of the library rejects.
    """
    type_ = {"string": cel.Type.STRING, "boolean": cel.Type.BOOL}.get(kind, cel.Type.DYN)
    variables = {"self": type_, "oldSelf": type_, OLD_VALUES: cel.Type.List(type_)}
    extensions = [_extension(name) for name in EXTENSIONS]
    return cel.NewEnv(variables=variables, extensions=[*extensions, _library()])


def _extension(name: str) -> Any:
    module = import_module(f"cel_expr_python.ext.ext_{name.removeprefix('Ext').lower()}")
    return getattr(module, name)()


def _library() -> Any:
    """Return the functions that Kubernetes adds to CEL, as far as batch kinds use them."""
    any_, text, truth, number = cel.Type.DYN, cel.Type.STRING, cel.Type.BOOL, cel.Type.DOUBLE

    def function(name: str, implementation: Any, result: Any, *parameters: Any, is_member: bool = True) -> Any:
        overload = cel.Overload(f"kubernetes_{name}", result, parameters, is_member, implementation)
        return cel.FunctionDecl(name, [overload])

    functions = [
        function("isSorted", lambda items: list(items) == sorted(items), truth, any_),
        function("sum", sum, any_, any_),
        function("min", min, any_, any_),
        function("max", max, any_, any_),
        function("find", _find, text, text, text),
        function("findAll", lambda value, pattern: [m[0] for m in re.finditer(pattern, value)], any_, text, text),
        function("isQuantity", _is_quantity, truth, text, is_member=False),
        # A quantity is a number here, which suffices for comparisons.
        function("quantity", lambda value: float(quantity.parse(value).nanos), number, text, is_member=False),
        function("isGreaterThan", lambda left, right: left > right, truth, number, number),
        function("isLessThan", lambda left, right: left < right, truth, number, number),
        function("compareTo", lambda left, right: (left > right) - (left < right), cel.Type.INT, number, number),
        function("sign", lambda value: (value > 0) - (value < 0), cel.Type.INT, number),
    ]
    return cel.CelExtension("kubernetes", functions)


def _find(value: str, pattern: str) -> str:
    match = re.search(pattern, value)
    return match[0] if match else ""


def _is_quantity(value: str) -> bool:
    try:
        quantity.parse(value)
    except quantity.QuantityError:
        return False
    return True


def compile_rule(raw: Json, special: frozenset[str] = frozenset()) -> CelRule:
    """Compile a rule. ``special`` are the fields below it that CEL sees in another form."""
    source, expression = raw.get("rule", ""), raw.get("messageExpression", "")
    is_old_optional = bool(raw.get("optionalOldSelf"))
    program = _compile(OPTIONAL_OLD.format(rule=source) if is_old_optional else source)
    message_program = _compile(expression) if expression else None
    needs_old = bool(re.search(r"\boldSelf\b", source)) and not is_old_optional
    needs_types = not special.isdisjoint(re.findall(r"\w+", f"{source} {expression}"))
    quick = None if needs_types or is_old_optional else cel_quick.compile_rule(source)
    return CelRule(
        source, program, quick, raw.get("message", ""), message_program, raw.get("reason", ""),
        raw.get("fieldPath", ""), needs_old, needs_types, reads_of(source),
    )  # fmt: skip


def _compile(source: str, kind: str = "") -> Any:
    try:
        return environment(kind).compile(source)
    except RuntimeError as error:
        text = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise RuleError(NO_FIELDS.sub(r"type \1 does not support field selection", text)) from None


def compile_errors(raw: Json, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a rule that do not compile for values of a type, with the reason."""
    source, expression = raw["rule"], raw.get("messageExpression", "")
    try:
        program = _compile(OPTIONAL_OLD.format(rule=source) if raw.get("optionalOldSelf") else source, kind)
        if program.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
            yield "rule", "cel expression must evaluate to a bool"
    except RuleError as error:
        yield "rule", f"compilation failed: {error}"
    try:
        if expression and _compile(expression, kind).return_type() not in (cel.Type.STRING, cel.Type.DYN):
            yield "messageExpression", "messageExpression must evaluate to a string"
    except RuleError as error:
        yield "messageExpression", f"messageExpression compilation failed: {error}"


def reads_of(source: str) -> tuple[tuple[str, ...], ...]:
    """Return the fields that a rule reads. A lone ``self`` reads everything, which is the empty path."""
    found = set()
    for path, call in re.findall(r"\bself((?:\.[A-Za-z_]\w*)*)(\s*\(?)", source):
        names = path.split(".")[1:]
        found.add(tuple(names[:-1] if "(" in call and names else names))
    return tuple(sorted(found)) if not any("__" in name for path in found for name in path) else ((),)


def due(rules: tuple[CelRule, ...], value: Any, old: Any) -> list[CelRule]:
    """Return the rules that must be evaluated: they do not pass quickly, or they are about a change that happened."""
    has_old = old is not MISSING and old is not None
    return [
        rule
        for rule in rules
        if (has_old or not rule.needs_old)
        and (rule.quick is None or not cel_quick.is_certainly_true(rule.quick, value, old))
        and (not rule.needs_old or any(_at(value, path) != _at(old, path) for path in rule.reads))
    ]


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def rules_of(schema: Schema) -> tuple[CelRule, ...]:
    """Return the compiled rules of one node."""
    return schema.cached(_compiled_rules)


def _compiled_rules(schema: Schema) -> tuple[CelRule, ...]:
    special = special_names(schema)
    return tuple(compile_rule(raw, special) for raw in schema.rules)


def check_rules(schema: Schema, value: Any, old: Any, path: str, found: list[FieldError]) -> None:
    """Evaluate all rules at and below a value. ``old`` is MISSING where there is no old value."""
    if not IS_AVAILABLE or not schema.has_rules or value is None:
        return
    if value is old or (old is not MISSING and value == old):
        return
    if schema.rules:
        _run(schema, value, old, path, found)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, child in _ruled(schema, value).items():
            if name in value:
                check_rules(child, value[name], before.get(name, MISSING), f"{path}.{name}" if path else name, found)
    elif isinstance(value, list) and schema.items is not None and schema.items.has_rules:
        known = items_by_key(schema, old)
        for index, item in enumerate(value):
            before_item = known.get(key_of(schema, item), MISSING) if known else MISSING
            check_rules(schema.items, item, before_item, f"{path}[{index}]", found)


def _ruled(schema: Schema, value: Json) -> Mapping[str, Schema]:
    """Return the fields of a value with rules below them."""
    inner = schema.additional
    if inner is None or not inner.has_rules:
        return schema.ruled
    return {**{name: inner for name in value if name not in schema.properties}, **schema.ruled}


def _run(schema: Schema, value: Any, old: Any, path: str, found: list[FieldError]) -> None:
    rules = due(rules_of(schema), value, old)
    if not rules:
        return
    has_old = old is not MISSING and old is not None
    plain = _activation(value, [old] if has_old else [])
    typed = None
    for rule in rules:
        activation = plain
        if rule.needs_types:
            if typed is None:
                typed = _activation(cel_value(schema, value), [cel_value(schema, old)] if has_old else [])
            activation = typed
        result = rule.program.eval(activation)
        if result.type() == cel.Type.ERROR:
            found.append(_failure(rule, value, path, f"rule evaluation error: {result.value()}"))
        elif result.value() is not True:
            found.append(_failure(rule, value, path, _message(rule, activation)))


def _activation(value: Any, before: list[Any]) -> Any:
    """Return the variables of a rule. The rules of a node share them, because the conversion of JSON is expensive."""
    data = {"self": value, OLD_VALUES: before, **({"oldSelf": before[0]} if before else {})}
    return environment().Activation(data)


def _message(rule: CelRule, activation: Any) -> str:
    if rule.message_program is not None:
        result = rule.message_program.eval(activation)
        text = result.value() if result.type() == cel.Type.STRING else ""
        if text and text.strip() and "\n" not in text:
            return str(text).strip()
    return rule.message or f"failed rule: {rule.source.strip()}"


def _failure(rule: CelRule, value: Any, path: str, message: str) -> FieldError:
    where = (path + rule.field_path).lstrip(".") if rule.field_path else path or "<nil>"
    match rule.reason:
        case "FieldValueForbidden":
            return fields.forbidden(where, message)
        case "FieldValueRequired":
            return fields.required(where, message)
        case "FieldValueDuplicate":
            return fields.duplicate(where, value)
    if isinstance(value, dict | list):
        return fields.broken_rule(where, message)
    return fields.invalid(where, value, message)


def cel_value(schema: Schema, value: Any) -> Any:
    """Return a value as CEL sees it: with escaped names, and doubles for values of type number.

    Times stay strings, because the library accepts no Python value as a timestamp. A rule writes timestamp(self.at).
    """
    if not special_names(schema):
        return value
    if isinstance(value, dict):
        if schema.properties:
            known = [(name, schema.properties[name], item) for name, item in value.items() if name in schema.properties]
            return {escaped(name): cel_value(child, item) for name, child, item in known}
        inner = schema.additional
        return {name: cel_value(inner, item) for name, item in value.items()} if inner is not None else value
    if isinstance(value, list):
        return [cel_value(schema.items, item) for item in value] if schema.items is not None else value
    if schema.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and schema.format == "byte":
        return b64decode(value)
    return value


def special_names(schema: Schema) -> frozenset[str]:
    """Return the words with which a rule names a value that CEL sees in another form.

    ``self`` is the value itself, or an element of it.
    """
    return schema.cached(_special_names)


def _special_names(schema: Schema) -> frozenset[str]:
    found = {"self"} if schema.type == "number" or schema.format == "byte" else set[str]()
    for element in (schema.items, schema.additional):
        if element is not None:
            found |= special_names(element)
    for name, child in schema.properties.items():
        inner = special_names(child)
        if "self" in inner or escaped(name) != name:
            found.add(escaped(name))
        found |= inner - {"self"}
    return frozenset(found)


@cache
def escaped(name: str) -> str:
    if name in RESERVED:
        return f"__{name}__"
    result = name.replace("__", ESCAPES["__"])
    for character in ".-/":
        result = result.replace(character, ESCAPES[character])
    return result if PLAIN_NAME.fullmatch(result) else name
