"""
A quick yes for rules in CEL: the plain part of the language, run in Python on the JSON as it is.

Handing an object to the CEL library costs far more than most rules do, and nearly all rules pass at their first word:
``!has(self.minCount) || …``. So fields, ``has``, ``size``, comparisons of plain values, ``!``, ``&&``, ``||``, ``all``
and ``exists`` are run here. Only a yes counts: whatever else comes out, or cannot be said here, is left to the library.

Called by: cel.py. CEL: the language definition, "Evaluation".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Variables: TypeAlias = dict[str, Any]
Program: TypeAlias = Callable[[Variables], Any]

TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'[^'\\]*'|\"[^\"\\]*\")|(?P<number>\d+(?![\w.]))|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\|\||&&|[=!<>]=|[!<>()\[\],.]))"
)
CONSTANTS: Final[Mapping[str, bool]] = {"true": True, "false": False}
PLAIN: Final = (str, int, bool)
COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


class Unsure(Exception):
    """The library has to say: the rule, or what it found in the object, is beyond the plain part."""


def compile_rule(source: str) -> Program | None:
    """None if the rule has more than the plain part."""
    try:
        return _Parser(source).parse()
    except Unsure:
        return None


def is_surely_true(program: Program, value: Any, old: Any) -> bool:
    try:
        return program({"self": value, "oldSelf": old}) is True
    except Unsure:
        return False


class _Parser:
    """One method for each level of precedence; each returns a function of the variables."""

    def __init__(self, source: str) -> None:
        self._tokens = _tokens(source)
        self._next = 0

    def parse(self) -> Program:
        program = self._either()
        if self._next < len(self._tokens):
            raise Unsure
        return program

    def _take(self, *signs: str) -> str:
        """The next token if it is one of these, else nothing."""
        if self._next < len(self._tokens) and self._tokens[self._next] in signs:
            self._next += 1
            return self._tokens[self._next - 1]
        return ""

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise Unsure

    def _any(self) -> str:
        if self._next == len(self._tokens):
            raise Unsure
        self._next += 1
        return self._tokens[self._next - 1]

    def _name(self) -> str:
        name = self._any()
        if not name.isidentifier() or name in CONSTANTS:
            raise Unsure
        return name

    def _either(self) -> Program:
        program = self._both()
        while self._take("||"):
            program = _either(program, self._both())
        return program

    def _both(self) -> Program:
        program = self._comparison()
        while self._take("&&"):
            program = _both(program, self._comparison())
        return program

    def _comparison(self) -> Program:
        left = self._unary()
        sign = self._take("==", "!=", "in", *COMPARISONS)
        if not sign:
            return left
        right = self._unary()
        match sign:
            case "==":
                return lambda variables: _equal(left(variables), right(variables))
            case "!=":
                return lambda variables: not _equal(left(variables), right(variables))
            case "in":
                return lambda variables: _contains(right(variables), left(variables))
        compare = COMPARISONS[sign]
        return lambda variables: compare(_number(left(variables)), _number(right(variables)))

    def _unary(self) -> Program:
        if not self._take("!"):
            return self._member()
        inner = self._unary()
        return lambda variables: not _truth(inner(variables))

    def _member(self) -> Program:
        program = self._primary()
        while self._take("."):
            program = self._selected(program, self._name())
        return program

    def _selected(self, base: Program, name: str) -> Program:
        if not self._take("("):
            return lambda variables: _field(base(variables), name)
        if name == "size":
            self._expect(")")
            return lambda variables: _size(base(variables))
        if name not in ("all", "exists"):
            raise Unsure
        variable = self._name()
        self._expect(",")
        test = self._either()
        self._expect(")")
        return _every(base, variable, test) if name == "all" else _some(base, variable, test)

    def _primary(self) -> Program:
        token = self._any()
        if token == "(":
            program = self._either()
            self._expect(")")
            return program
        if token == "[":
            return self._list()
        if token[0] in "'\"":
            return _constant(token[1:-1])
        if token.isdigit():
            return _constant(int(token))
        if token in CONSTANTS:
            return _constant(CONSTANTS[token])
        if token == "has" and self._take("("):
            return self._has()
        if not token.isidentifier() or token in ("null", "in"):
            raise Unsure
        return lambda variables: _variable(variables, token)

    def _list(self) -> Program:
        items = [self._unary()]
        while self._take(","):
            items.append(self._unary())
        self._expect("]")
        return lambda variables: [item(variables) for item in items]

    def _has(self) -> Program:
        base, name = self._primary(), ""
        while self._take("."):
            base, name = (self._selected(base, name) if name else base), self._name()
        self._expect(")")
        if not name:
            raise Unsure
        return lambda variables: _has(base(variables), name)


def _tokens(source: str) -> list[str]:
    found: list[str] = []
    position = 0
    text = source.rstrip()
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise Unsure
        found.append(match[match.lastgroup or 0])
        position = match.end()
    return found


# What the parts mean. In CEL a fault on one side of && and || can be made good by the other; here it is left open.


def _constant(value: Any) -> Program:
    return lambda variables: value


def _either(left: Program, right: Program) -> Program:
    return lambda variables: _truth(left(variables)) or _truth(right(variables))


def _both(left: Program, right: Program) -> Program:
    return lambda variables: _truth(left(variables)) and _truth(right(variables))


def _every(base: Program, variable: str, test: Program) -> Program:
    return lambda variables: all(_truth(test({**variables, variable: item})) for item in _typed(base(variables), list))


def _some(base: Program, variable: str, test: Program) -> Program:
    return lambda variables: any(_truth(test({**variables, variable: item})) for item in _typed(base(variables), list))


def _typed(value: Any, type_: type) -> Any:
    if type(value) is not type_:
        raise Unsure
    return value


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Unsure


def _number(value: Any) -> int:
    return int(_typed(value, int))


def _variable(variables: Variables, name: str) -> Any:
    if name not in variables:
        raise Unsure
    return variables[name]


def _field(value: Any, name: str) -> Any:
    found = _typed(value, dict).get(name)
    if found is None:
        raise Unsure
    return found


def _has(value: Any, name: str) -> bool:
    fields = _typed(value, dict)
    if name not in fields:
        return False
    if fields[name] is None:
        raise Unsure
    return True


def _size(value: Any) -> int:
    if type(value) not in (str, list, dict):
        raise Unsure
    return len(value)


def _equal(left: Any, right: Any) -> bool:
    """Plain values of one type; of others only that something is equal to itself."""
    if left is right:
        return True
    if type(left) is not type(right) or type(left) not in PLAIN:
        raise Unsure
    return bool(left == right)


def _contains(items: Any, item: Any) -> bool:
    return any(_equal(each, item) for each in _typed(items, list))
