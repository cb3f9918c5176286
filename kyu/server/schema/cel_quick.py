"""
A quick yes for simple CEL rules: a subset of CEL, compiled to Python expressions on JSON.

The CEL library takes far longer for the conversion of an object than most rules need, and most rules pass at their
first operand: ``!has(self.minCount) || …``. So fields, ``has``, ``size``, comparisons of scalars, ``!``, ``&&``,
``||``, ``all`` and ``exists`` are compiled. Only a yes counts: for any other result, and any other rule, the library
evaluates the rule.

CEL: the language definition, "Evaluation".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

# (value, old value) -> True for a yes, anything else for no answer. May raise one of UNSURE.
Program: TypeAlias = Callable[[Any, Any], Any]

TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'[^'\\]*'|\"[^\"\\]*\")|(?P<number>\d+(?![\w.]))|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\|\||&&|[=!<>]=|[!<>()\[\],.]))"
)
CONSTANTS: Final[Mapping[str, str]] = {"true": "True", "false": "False"}
ORDERS: Final = ("<", "<=", ">", ">=")
PLAIN: Final = frozenset({str, int, bool})
MAX_DEPTH: Final = 50
# An expression that begins with ``has``.
BEGINS_WITH_HAS: Final = re.compile(r"(?:\(|not |equal\()*has\(")


class Unsure(Exception):
    """The rule, or a value of the object, is outside of the subset."""


# The exceptions of a program without an answer. An absent field raises one of Python's own.
UNSURE: Final = (Unsure, KeyError, TypeError, AttributeError)


class Piece(NamedTuple):
    """A part of the Python expression. ``is_truth`` means that it is always a boolean.

    If it is a conjunction or disjunction, it has a ``word`` and ``parts``.
    """

    text: str
    is_truth: bool = False
    word: Literal["and", "or", ""] = ""
    parts: tuple[Piece, ...] = ()

    @property
    def truth(self) -> str:
        return self.text if self.is_truth else f"truth({self.text})"


def compile_rule(source: str) -> Program | None:
    """Compile a rule; return None if it is outside of the subset."""
    try:
        text = _CelParser(source).parse().text
    except Unsure:
        return None
    # The names of the rule are quoted or prefixed, so the expression reaches only the functions below.
    program: Program = eval(f"lambda v_self, v_oldSelf: {text}", {"__builtins__": {}, **FUNCTIONS})
    return program


def is_certainly_true(program: Program, value: Any, old: Any) -> bool:
    try:
        return program(value, old) is True
    except UNSURE:
        return False


class _CelParser:
    """A parser with one method for each level of precedence."""

    def __init__(self, source: str) -> None:
        self._tokens = _tokens(source)
        self._next = 0
        self._variables = ["self", "oldSelf"]
        self._depth = 0

    def parse(self) -> Piece:
        piece = self._either()
        if self._next < len(self._tokens):
            raise Unsure
        return piece

    def _take(self, *signs: str) -> str:
        """Return the next token if it is one of these, else an empty text."""
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

    def _either(self) -> Piece:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unsure
        parts = [self._both()]
        while self._take("||"):
            parts.append(self._both())
        self._depth -= 1
        return _joined("or", parts)

    def _both(self) -> Piece:
        parts = [self._comparison()]
        while self._take("&&"):
            parts.append(self._comparison())
        return _joined("and", parts)

    def _comparison(self) -> Piece:
        left = self._unary()
        sign = self._take("==", "!=", "in", *ORDERS)
        if not sign:
            return left
        right = self._unary()
        match sign:
            case "==":
                return Piece(f"equal({left.text}, {right.text})", is_truth=True)
            case "!=":
                return Piece(f"(not equal({left.text}, {right.text}))", is_truth=True)
            case "in":
                return Piece(f"contains({right.text}, {left.text})", is_truth=True)
        return Piece(f"(number({left.text}) {sign} number({right.text}))", is_truth=True)

    def _unary(self) -> Piece:
        signs = 0
        while self._take("!"):
            signs += 1
        piece = self._member()
        for _ in range(signs):
            piece = _negated(piece)
        return piece

    def _member(self) -> Piece:
        piece = self._primary()
        while self._take("."):
            piece = self._selected(piece, self._name())
        return piece

    def _selected(self, base: Piece, name: str) -> Piece:
        if not self._take("("):
            return _field(base, name)
        if name == "size":
            self._expect(")")
            return Piece(f"size({base.text})")
        if name not in ("all", "exists"):
            raise Unsure
        self._variables.append(self._name())
        variable = f"v_{self._variables[-1]}"
        self._expect(",")
        test = self._either()
        self._expect(")")
        self._variables.pop()
        function = "all" if name == "all" else "any"
        return Piece(f"{function}({test.truth} for {variable} in items({base.text}))", is_truth=True)

    def _primary(self) -> Piece:
        token = self._any()
        if token == "(":
            piece = self._either()
            self._expect(")")
            return piece
        if token == "[":
            return self._list()
        if token[0] in "'\"":
            return Piece(repr(token[1:-1]))
        if token.isdigit():
            return Piece(str(int(token)))
        if token in CONSTANTS:
            return Piece(CONSTANTS[token], is_truth=True)
        if token == "has" and self._take("("):
            return self._has()
        if token not in self._variables:
            raise Unsure
        return Piece(f"v_{token}")

    def _list(self) -> Piece:
        items = [self._unary().text]
        while self._take(","):
            items.append(self._unary().text)
        self._expect("]")
        return Piece(f"[{', '.join(items)}]")

    def _has(self) -> Piece:
        base, name = self._primary(), ""
        while self._take("."):
            base, name = (_field(base, name) if name else base), self._name()
        self._expect(")")
        if not name:
            raise Unsure
        return Piece(f"has({base.text}, {name!r})", is_truth=True)


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


def _joined(word: Literal["and", "or"], parts: list[Piece]) -> Piece:
    """Join operands. In CEL, one operand of && or || may make up for an error of another; here that is no answer.

    The order does not matter for a yes, so operands that walk a list come last.
    """
    if len(parts) == 1:
        return parts[0]
    parts = [each for part in parts for each in (part.parts if part.word == word else (part,))]
    parts.sort(key=_walks if word == "and" else _walks_or_reads)
    return Piece("(" + f" {word} ".join(part.truth for part in parts) + ")", True, word, tuple(parts))


def _negated(piece: Piece) -> Piece:
    """Negate. A negated conjunction becomes a disjunction, as most rules begin with one."""
    if piece.word == "and":
        return _joined("or", [_negated(part) for part in piece.parts])
    return Piece(f"(not {piece.truth})", is_truth=True)


def _walks(piece: Piece) -> bool:
    return "any(" in piece.text or "all(" in piece.text


def _walks_or_reads(piece: Piece) -> bool:
    """Return whether an operand walks a list, or reads a field without ``has``: it comes last."""
    return _walks(piece) or not BEGINS_WITH_HAS.match(piece.text)


def _field(base: Piece, name: str) -> Piece:
    """Select a field. A missing field raises, and so does any operation on null."""
    if not base.text.startswith("v_"):
        raise Unsure
    return Piece(f"{base.text}[{name!r}]")


# The functions of an expression.


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Unsure


def _number(value: Any) -> int:
    if type(value) is int:
        return value
    raise Unsure


def _items(value: Any) -> list[Any]:
    if type(value) is list:
        return value
    raise Unsure


def _has(value: Any, name: str) -> bool:
    if type(value) is dict:
        if name not in value:
            return False
        if value[name] is not None:
            return True
    raise Unsure


def _size(value: Any) -> int:
    if type(value) not in (str, list, dict):
        raise Unsure
    return len(value)


def _equal(left: Any, right: Any) -> bool:
    """Compare scalars of one type. Other values are equal only if they are identical."""
    kind = type(left)
    if kind is type(right) and kind in PLAIN:
        return bool(left == right)
    if left is right and left is not None:
        return True
    raise Unsure


def _contains(items: Any, item: Any) -> bool:
    return any(_equal(each, item) for each in _items(items))


FUNCTIONS: Final[Mapping[str, Any]] = {
    "truth": _truth, "number": _number, "items": _items, "has": _has, "size": _size, "equal": _equal,
    "contains": _contains, "all": all, "any": any,
}  # fmt: skip
