"""
Label and field selectors: the texts of ``?labelSelector=`` and ``?fieldSelector=`` as tests on objects.

A selector is a list of requirements that must all hold. A text that cannot be read is a 400 with the words of the
parser of Kubernetes, because users see them in kubectl. ``FieldLabels`` says which fields a kind can be selected by.

Kubernetes: apimachinery/pkg/labels, apimachinery/pkg/fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kyu.api import errors as fields
from kyu.api.labels import holds
from kyu.api.meta import Json
from kyu.api.names import label_key, label_value
from kyu.server import errors

Getter: TypeAlias = Callable[[Json], str]
BINARY: Final = {"=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", ">": "Gt", "<": "Lt"}
MOST_REQUIREMENTS: Final = 64
MOST_VALUES: Final = 1_000
EXPECTED_OPERATORS: Final = "in, notin, =, ==, !=, gt, lt"
TOKEN: Final = re.compile(r"\s*(?:(==|!=|[=!<>(),])|([^=!<>(),\s]+))")


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LabelQuery:
    """The label selector of a list or watch."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        return all(holds(requirement, labels or {}) for requirement in self.requirements)


def parse_labels(text: str) -> LabelQuery:
    parser = _SelectorParser(text)
    requirements: list[Requirement] = []
    try:
        while parser.peek():
            requirements.append(_requirement(parser))
            _check_number(len(requirements))
            separator = parser.take()
            if separator == "," and (not parser.peek() or (parser.is_symbol() and parser.peek() != "!")):
                raise _Unreadable(f"found '{parser.peek()}', expected: identifier after ','")
            if separator not in ("", ","):
                raise _Unreadable(f"found '{separator}', expected: ',' or 'end of string'")
    except _Unreadable as error:
        raise errors.bad_request(str(error)) from None
    return LabelQuery(tuple(requirements))


def _check_number(requirements: int) -> None:
    """Raise 400 if a selector has too many requirements: each is tried on every object, and on every change."""
    if requirements > MOST_REQUIREMENTS:
        raise errors.bad_request(f"a selector has at most {MOST_REQUIREMENTS} requirements")


class _Unreadable(Exception):
    pass


class _SelectorParser:
    """The tokens of a selector, one at a time; the empty text is the end."""

    def __init__(self, text: str) -> None:
        self._tokens = [(match[1] or match[2], bool(match[1])) for match in TOKEN.finditer(text)]
        self._next = 0

    def peek(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def is_symbol(self) -> bool:
        return self._next < len(self._tokens) and self._tokens[self._next][1]

    def check_values(self) -> None:
        """Raise if many values follow, also equal ones: each token takes time."""
        if len(self._tokens) - self._next > 2 * (MOST_VALUES + MOST_REQUIREMENTS):
            raise _Unreadable(f"a selector has at most {MOST_VALUES} values for a label")

    def take(self) -> str:
        token = self.peek()
        self._next += 1
        return token


def _requirement(parser: _SelectorParser) -> Requirement:
    if parser.is_symbol() and parser.peek() != "!":
        raise _Unreadable(f"found '{parser.peek()}', expected: !, identifier, or 'end of string'")
    try:
        return _unwrapped_requirement(parser)
    except _Unreadable as error:
        raise _Unreadable(f"unable to parse requirement: {error}") from None


def _unwrapped_requirement(parser: _SelectorParser) -> Requirement:
    is_absent = parser.peek() == "!"
    if is_absent:
        parser.take()
    if parser.is_symbol() or not parser.peek():
        raise _Unreadable(f"found '{parser.peek()}', expected: identifier")
    key = parser.take()
    if objections := label_key(key):
        raise _Unreadable(str(fields.invalid("<nil>", key, "; ".join(objections))))
    if is_absent or parser.peek() in ("", ","):
        return Requirement(key, "DoesNotExist" if is_absent else "Exists")
    sign = parser.take()
    operator = BINARY.get(sign)
    if operator is None:
        raise _Unreadable(f"found '{sign}', expected: {EXPECTED_OPERATORS}")
    values = _values(parser) if sign in ("in", "notin") else {_exact_value(parser)}
    return _checked(key, operator, sorted(values))


def _checked(key: str, operator: str, values: list[str]) -> Requirement:
    for index, value in enumerate(values):
        if operator in ("Gt", "Lt") and not re.fullmatch(r"[+-]?\d+", value):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _Unreadable(str(fields.invalid(f"values[{index}]", value, detail)))
        if objections := label_value(value):
            raise _Unreadable(str(fields.invalid(f"values[{index}][{key}]", value, "; ".join(objections))))
    return Requirement(key, operator, frozenset(values))


def _exact_value(parser: _SelectorParser) -> str:
    if parser.peek() in ("", ","):
        return ""
    if parser.is_symbol():
        raise _Unreadable(f"found '{parser.peek()}', expected: identifier")
    return parser.take()


def _values(parser: _SelectorParser) -> set[str]:
    """Parse a list in parentheses; nothing between two commas is the empty value."""
    if parser.peek() != "(":
        raise _Unreadable(f"found '{parser.peek()}' expected: '('")
    parser.take()
    parser.check_values()
    values: set[str] = set()
    is_expected = True
    while parser.peek() != ")":
        if parser.peek() == ",":
            if is_expected:
                values.add("")
            is_expected = True
        elif not is_expected:
            raise _Unreadable(f"found '{parser.peek()}', expected: ',' or ')'")
        elif parser.is_symbol() or not parser.peek():
            raise _Unreadable(f"found '{parser.peek()}', expected: ',', ')' or identifier")
        else:
            values.add(parser.peek())
            is_expected = False
        parser.take()
    parser.take()
    return values | {""} if is_expected else values


def at(path: str, absent: str = "") -> Getter:
    """Return the value at a dotted path as text."""
    parts = path.split(".")

    def getter(obj: Json) -> str:
        value: object = obj
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return absent
        return str(value).lower() if isinstance(value, bool) else str(value)

    return getter


METADATA: Final[dict[str, Getter]] = {name: at(name) for name in ("metadata.name", "metadata.namespace")}


@dataclass(frozen=True, slots=True)
class FieldLabels:
    """The fields that objects of a kind can be selected by, and how all others are refused."""

    getters: Mapping[str, Getter] = field(default_factory=dict)
    refusal: str = '"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    # Some kinds without namespaces do not know what one is.
    knows_namespace: bool = True

    def find(self, name: str) -> Getter:
        getter = METADATA.get(name) or self.getters.get(name)
        if name == "metadata.namespace" and not self.knows_namespace:
            getter = None
        if getter is None:
            raise errors.bad_request(self.refusal.format(name=name))
        return getter


PLAIN_REFUSAL: Final = "field label not supported: {name}"


def custom_labels(paths: tuple[str, ...], *, namespaced: bool) -> FieldLabels:
    """Return the field labels of a custom kind: its ``selectableFields``, given as ``.spec.color``."""
    getters = {path.lstrip("."): at(path.lstrip(".")) for path in paths}
    return FieldLabels(getters, PLAIN_REFUSAL, knows_namespace=namespaced)


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Each term: how to read the field, the value, and whether it must be that or must not."""

    terms: tuple[tuple[Getter, str, bool], ...]
    # The terms as they were written, for storage that can answer them from an index.
    equal: Mapping[str, str] = field(default_factory=dict)

    def matches(self, obj: Json) -> bool:
        return all((getter(obj) == value) is wanted for getter, value, wanted in self.terms)


def parse_fields(text: str, labels: FieldLabels) -> FieldSelector:
    terms: list[tuple[Getter, str, bool]] = []
    equal: dict[str, str] = {}
    parts = re.findall(r"(?:\\.|[^,])+", text)
    _check_number(len(parts))
    for part in sorted(parts):
        match = re.fullmatch(r"(.*?)(!=|==|=)(.*)", part, re.DOTALL)
        if match is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        value = _unescaped(match[3])
        terms.append((labels.find(match[1]), value, match[2] != "!="))
        if match[2] != "!=":
            equal[match[1]] = value
    return FieldSelector(tuple(terms), equal)


def _unescaped(text: str) -> str:
    if bad := re.search(r"\\(?![\\,=])", text):
        raise errors.bad_request(
            f"invalid field selector: invalid escape sequence: {text[bad.start() : bad.start() + 2]}"
        )
    plain = re.sub(r"\\[\\,=]", "", text)
    if bad := re.search(r"[,=]", plain):
        raise errors.bad_request(f"invalid field selector: unescaped character in value: {ord(bad[0])}")
    return re.sub(r"\\([\\,=])", r"\1", text)
