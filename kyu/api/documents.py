"""
YAML and JSON text to JSON values, with the meaning that Kubernetes gives to YAML.

``kubectl`` reads YAML 1.1 as Go's library does: ``no`` and ``off`` are false, ``010`` is eight, but dates and
``12:30:00`` stay texts. Only the types of JSON exist. PyYAML's own rules differ in all of these, so only its parser is
used, and the values are built here from its events. There is no recursion, and depth and size are bounded, so that no
text can exhaust the process.

Kubernetes: sigs.k8s.io/yaml
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import yaml

MAX_DEPTH: Final = 200
MAX_VALUES: Final = 5_000_000
# Aliases may repeat their anchors, but not so often that a small text becomes a huge object.
MAX_ALIASED: Final = 100_000

_BOOLEANS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NULLS = {"", "~", "null", "Null", "NULL"}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_INTEGER = re.compile(r"([-+]?)(0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)|(?P<dec>[0-9]+))")
_BASES = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_NOT_NUMBERS = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"}
_STRING_TAG = "tag:yaml.org,2002:str"
_TAGS = {None, "!", *(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))}


class DocumentError(ValueError):
    """The text is not YAML or JSON. Lines and documents are counted from 1."""

    def __init__(self, detail: str, document: int, line: int) -> None:
        super().__init__(f"document {document}, line {line}: {detail}")
        self.detail = detail
        self.document = document
        self.line = line


class Document(msgspec.Struct, frozen=True):
    """One document of a text, and the line on which it begins."""

    value: Any
    number: int
    line: int


def parse(text: str) -> list[Document]:
    """Parse all documents of the text that are not empty. Raises ``DocumentError``."""
    if text.lstrip()[:1] == "{":
        try:
            return [Document(msgspec.json.decode(text), 1, 1)]
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            pass  # several values, or YAML in braces; the YAML parser reports the line of an error
    return [document for document in _Builder().documents(text) if document.value is not None]


def render(values: Iterable[Any]) -> str:
    """Render the values as YAML documents in the given order, so that ``parse`` gives them back."""
    return yaml.dump_all(
        values, Dumper=_ManifestDumper, sort_keys=False, width=120, allow_unicode=True, explicit_start=True
    )


class _ManifestDumper(yaml.CSafeDumper):
    """A dumper that repeats equal values instead of using aliases, and quotes texts that have another type without."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        looks_like = None if text.lstrip("+-") in _NOT_NUMBERS else _resolve(text)
        return self.represent_scalar(_STRING_TAG, text, style=None if looks_like == text else '"')


_ManifestDumper.add_representer(str, _ManifestDumper.represent_text)


def line_of(text: str, number: int, path: str) -> int:
    """Return the line of a field such as ``spec.groups[1].name``, or of its nearest parent that exists."""
    builder = _Builder(wanted=tuple(re.findall(r"[^.\[\]]+", path)))
    try:
        for document in builder.documents(text):
            if document.number == number:
                return builder.found_line or document.line
    except DocumentError:
        pass
    return 1


class _Frame:
    """A mapping or list under construction. ``size`` counts its values, ``merged`` has the entries from ``<<``."""

    __slots__ = ("anchor", "key", "key_line", "merged", "size", "value")

    def __init__(self, value: Any, anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: str | None = None
        self.key_line = 0
        self.size = 1
        self.merged: set[str] = set()


class _Builder:
    """A builder of values from events. With ``wanted`` it also records the line on which that path was last matched."""

    def __init__(self, wanted: tuple[str, ...] = ()) -> None:
        self.wanted = wanted
        self.number = 0
        self.line = 1
        self.first_line = 0
        self._begin()

    def documents(self, text: str) -> Iterator[Document]:
        # libyaml refuses these characters only in some positions. A byte order mark is allowed at the start.
        try:
            yield from self._documents(yaml.parse(text.removeprefix("\ufeff"), Loader=yaml.CSafeLoader))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else self.line
            raise DocumentError(error.problem or "not YAML", max(self.number, 1), line) from None
        except (yaml.YAMLError, UnicodeError) as error:
            raise DocumentError(f"not text: {error}".splitlines()[0], max(self.number, 1), self.line) from None

    def _documents(self, events: Iterator[yaml.Event]) -> Iterator[Document]:
        for event in events:
            assert event.start_mark is not None
            self.line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                self.number += 1
                self._begin()
            elif isinstance(event, yaml.DocumentEndEvent):
                yield Document(self.root, self.number, self.first_line)
            elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                self.first_line = self.first_line or self.line
                self._take(event)

    def _begin(self) -> None:
        self.root: Any = None
        self.first_line = 0
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.total = 0
        self.aliased = 0
        self.found_line = 0
        self.found_depth = 0

    def _take(self, event: yaml.Event) -> None:
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._alias(event.anchor or "")
            case yaml.ScalarEvent():
                self._scalar(event)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if event.tag not in _TAGS:
            raise self._error(f"the tag {event.tag} has no meaning in JSON")
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
            raise self._error("a key must be a text, not a mapping or a list")
        if len(self.stack) >= MAX_DEPTH:
            raise self._error(f"nested more than {MAX_DEPTH} levels deep")
        self._mark()
        self.stack.append(_Frame({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor))

    def _close(self) -> None:
        frame = self.stack.pop()
        if frame.anchor is not None:
            self.anchors[frame.anchor] = (frame.value, frame.size)
        self._put(frame.value, frame.size)

    def _alias(self, anchor: str) -> None:
        if anchor not in self.anchors:
            raise self._error(f"the alias *{anchor} names nothing that is complete")
        value, size = self.anchors[anchor]
        self.aliased += size
        if self.aliased > MAX_ALIASED:
            raise self._error("aliases repeat too much")
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
            self._key(value)
        else:
            self._mark()
            self._put(value, size)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if event.tag not in _TAGS:
            raise self._error(f"the tag {event.tag} has no meaning in JSON")
        is_text = not event.implicit[0] and event.tag in (None, "!", _STRING_TAG)
        if not is_text and event.value.lstrip("+-") in _NOT_NUMBERS:
            raise self._error(f"{event.value} is not a number that JSON has")
        value = event.value if is_text else _resolve(event.value)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1)
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
            self._key(value)
        else:
            self._mark()
            self._put(value, 1)

    def _key(self, value: Any) -> None:
        frame = self.stack[-1]
        if value is None or isinstance(value, dict | list):
            raise self._error("a key must be a text, a number or a boolean")
        if isinstance(value, bool):
            value = str(value).lower()
        key = value if isinstance(value, str) else f"{value}"
        if key in frame.value and key not in frame.merged:
            raise self._error(f"the key {key!r} occurs twice")
        frame.merged.discard(key)
        frame.key, frame.key_line = key, self.line

    def _put(self, value: Any, size: int) -> None:
        self.total += 1
        if self.total > MAX_VALUES:
            raise self._error("too large")
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        frame.size += size
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key == "<<" and isinstance(value, dict | list):
            self._merge(frame, value)
        else:
            frame.value[frame.key] = value
        frame.key = None

    def _merge(self, frame: _Frame, value: Any) -> None:
        """Merge the entries of another mapping (``<<``) that are not set already."""
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise self._error("'<<' needs a mapping or a list of mappings")
            added = {key: item for key, item in source.items() if key not in frame.value}
            frame.value.update(added)
            frame.merged.update(added)

    def _mark(self) -> None:
        """Record the line if the value that begins here is on the wanted path."""
        depth = len(self.stack)
        if not self.wanted or depth <= self.found_depth or depth > len(self.wanted):
            return
        steps = [frame.key if isinstance(frame.value, dict) else str(len(frame.value)) for frame in self.stack]
        if steps == list(self.wanted[:depth]):
            frame = self.stack[-1]
            self.found_depth = depth
            self.found_line = frame.key_line if isinstance(frame.value, dict) else self.line

    def _error(self, detail: str) -> DocumentError:
        return DocumentError(detail, max(self.number, 1), self.line)


def _resolve(text: str) -> Any:
    """Resolve a value that was written without quotes."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    return _number(text) if text[0] in "+-.0123456789" else text


def _number(text: str) -> Any:
    """Parse an integer or a decimal number, or return the text if it is neither."""
    plain = text.replace("_", "")
    if match := _INTEGER.fullmatch(plain):
        base = next(name for name, digits in match.groupdict().items() if digits is not None)
        if len(match[base]) > MAX_DEPTH:
            return text
        value = int(match[base], _BASES[base]) * (-1 if match[1] == "-" else 1)
        return value if -(2**63) <= value < 2**64 else float(value)
    if not _FLOAT.fullmatch(plain):
        return text
    number = float(plain)
    if math.isinf(number):
        return text
    return int(number) if number.is_integer() and abs(number) < 1e21 else number
