"""
Validation of the CEL rules in a schema of a CustomResourceDefinition.

Kubernetes: apiextensions-apiserver/pkg/apis/apiextensions/validation, apiserver/schema/cel
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.schema import cel
from kyu.server.validation.checks import one_of

RULES: Final = "x-kubernetes-validations"
REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
STEP: Final = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]")
NO_FIELD: Final = "does not refer to a valid field"


class PathError(Exception):
    """A path that leads to no field of a schema."""


def field_at(raw: Json, path: str, *, allows_brackets: bool = True) -> Json:
    """Return the schema of a field, by ``.spec.size`` or ``.spec['size']``."""
    position = 0
    while position < len(path):
        if path[position] == "[" and not allows_brackets:
            raise PathError("array notation is not allowed")
        step = STEP.match(path, position)
        if step is None:
            rest = re.match(r"[^.\[\]]*", path[position:])
            raise PathError(f"expected [ or . but got: {rest.group() if rest else ''}")
        name = step[1] or step[2]
        additional = raw.get("additionalProperties")
        child = (raw.get("properties") or {}).get(name, additional if isinstance(additional, dict) else None)
        if child is None:
            raise PathError(NO_FIELD)
        raw, position = child, step.end()
    return raw


def word_faults(raw: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of the rules of one schema that show without compiling them."""
    for index, rule in enumerate(raw.get(RULES) or ()):
        where = f"{path}.{RULES}[{index}]"
        yield from _text_faults(rule, where)
        if rule.get("messageExpression") and not rule["messageExpression"].strip():
            detail = "messageExpression must be non-empty if specified"
            yield fields.required(f"{where}.messageExpression", detail)
        yield from one_of(f"{where}.reason", rule.get("reason"), REASONS)
        if rule.get("fieldPath"):
            yield from _field_path_faults(raw, rule["fieldPath"], f"{where}.fieldPath")


def _text_faults(rule: Json, path: str) -> Iterator[FieldError]:
    source, message = rule.get("rule") or "", rule.get("message") or ""
    if not source.strip():
        yield fields.required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield fields.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield fields.invalid(f"{path}.message", message, "must not contain line breaks")
    elif "\n" in source.strip() and not message:
        yield fields.required(f"{path}.message", "message must be specified if rule contains line breaks")


def _field_path_faults(raw: Json, value: str, path: str) -> Iterator[FieldError]:
    if not value.strip():
        yield fields.invalid(path, value, "must be non-empty if specified")
    if "\n" in value:
        yield fields.invalid(path, value, "must not contain line breaks")
    try:
        field_at(raw, value)
    except PathError:
        yield fields.invalid(path, value, "must be a valid path")


def compile_faults(raw: Json, path: str, uncorrelated: str = "") -> Iterator[FieldError]:
    """Yield the errors of the rules at and below a schema. Below ``uncorrelated``, values have no old value."""
    for index, rule in enumerate(raw.get(RULES) or ()):
        # In a rule, a string with a format may be a time or bytes, so its type is not checked.
        kind = "" if raw.get("format") and raw.get("type") == "string" else raw.get("type", "")
        yield from _compile(rule, kind, f"{path}.{RULES}[{index}]", uncorrelated)
    below = uncorrelated or (path if raw.get("x-kubernetes-map-type") == "atomic" else "")
    for name, child in (raw.get("properties") or {}).items():
        yield from compile_faults(child, f"{path}.properties[{name}]", below)
    if isinstance(raw.get("additionalProperties"), dict):
        yield from compile_faults(raw["additionalProperties"], f"{path}.additionalProperties", uncorrelated)
    if isinstance(raw.get("items"), dict):
        is_correlated = raw.get("x-kubernetes-list-type") == "map"
        yield from compile_faults(raw["items"], f"{path}.items", uncorrelated or ("" if is_correlated else path))


def _compile(rule: Json, kind: str, path: str, uncorrelated: str) -> Iterator[FieldError]:
    source, expression = rule["rule"], rule.get("messageExpression") or ""
    if cel.IS_AVAILABLE:
        for name, error in cel.compile_errors(rule, kind):
            yield _refused(rule, f"{path}.{name}", error)
    uses_old = re.search(r"\boldSelf\b", source) is not None
    if uses_old and uncorrelated:
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
        yield fields.invalid(f"{path}.rule", source, detail)
    if not uses_old and not re.search(r"\boldSelf\b", expression) and rule.get("optionalOldSelf") is not None:
        detail = "may not be set if oldSelf is not used in rule"
        yield fields.invalid(f"{path}.optionalOldSelf", rule["optionalOldSelf"], detail)


def _refused(rule: Json, path: str, detail: str) -> FieldError:
    """Return an error with the whole rule, as JSON that is safe in HTML."""
    shown = {
        "Rule": rule["rule"],
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    text = json.dumps(shown, separators=(",", ":"), ensure_ascii=False)
    for letter in "&<>":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return fields.broken_rule(path, f"{text}: {detail}")
