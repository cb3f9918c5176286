"""
Manifests to JSON objects, and JSON objects to the typed projections that the rest of Kyu reads.

``read`` parses the text of a file into objects. Each keeps its position, and Lists are replaced by their items.
``decode`` returns the typed projection of one object; older versions are converted first, and unknown fields are
ignored. All errors are ``DecodeError`` and name file, document, line and field.

``KINDS`` is the registry of kinds.
Kubernetes: kubectl's reading of manifests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from kyu.api import convert, core, documents, kueue
from kyu.api.meta import Json, Key, Object

T = TypeVar("T", bound=Object)

# All kinds with a projection, under their current apiVersion.
KINDS: Mapping[tuple[str, str], type[Object]] = {
    (type_.KIND.api_version, type_.KIND.kind): type_ for type_ in (*kueue.KINDS, *core.KINDS)
}
MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")

_AT = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
_GOT = re.compile(r"got `(\w+)`")
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_JSON_TYPES: dict[type, str] = {
    str: "str", bool: "bool", int: "int", float: "float", dict: "object", list: "array", type(None): "null"
}  # fmt: skip


class DecodeError(ValueError):
    """A text or object cannot be decoded. The known parts of the position come first: ``queues.yaml: document 2, line
    14: spec.…``.
    """

    def __init__(self, detail: str, *, field: str = "", source: str = "", document: int = 0, line: int = 0) -> None:
        where = [f"document {document}"] if document else []
        where += [f"line {line}"] if line else []
        super().__init__(": ".join(part for part in (source, ", ".join(where), field, detail) if part))
        self.detail = detail
        self.field = field
        self.source = source
        self.document = document
        self.line = line


class Manifest(msgspec.Struct, frozen=True):
    """One object of a file. ``item`` is its path in the List that held it, such as ``items[2]``."""

    object: Json
    source: str
    document: int
    text: str
    item: str = ""

    @property
    def api_version(self) -> str:
        return str(self.object["apiVersion"])

    @property
    def kind(self) -> str:
        return str(self.object["kind"])

    @property
    def key(self) -> Key:
        metadata = self.object.get("metadata") or {}
        return Key(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))

    def fault(self, detail: str, field: str = "") -> DecodeError:
        """Build an error at this object, or at one of its fields."""
        path = ".".join(part for part in (self.item, field) if part)
        line = documents.line_of(self.text, self.document, path)
        return DecodeError(detail, field=field, source=self.source, document=self.document, line=line)

    def decode(self) -> Object:
        try:
            return decode(self.object)
        except DecodeError as error:
            raise self.fault(error.detail, error.field) from None


def read(text: str, source: str = "") -> list[Manifest]:
    """Parse all objects of a YAML or JSON text, in order. Lists are replaced by their items."""
    try:
        parsed = documents.parse(text)
    except documents.DocumentError as error:
        raise DecodeError(error.detail, source=source, document=error.document, line=error.line) from None
    return [manifest for document in parsed for manifest in _manifests(document, text, source)]


def _manifests(document: documents.Document, text: str, source: str) -> Iterator[Manifest]:
    whole = Manifest(_object(document.value, text, source, document, ""), source, document.number, text)
    if not (whole.kind.endswith("List") and isinstance(whole.object.get("items"), list)):
        yield whole
        return
    for index, item in enumerate(whole.object["items"]):
        place = f"items[{index}]"
        if isinstance(item, dict):
            item = _with_type_of_list(item, whole.object)
        yield Manifest(_object(item, text, source, document, place), source, document.number, text, place)


def _with_type_of_list(item: Json, whole: Json) -> Json:
    """Give an item of a typed list, such as ClusterQueueList, its apiVersion and kind if it has none."""
    if whole["kind"] == "List" or "kind" in item:
        return item
    return {"apiVersion": whole["apiVersion"], "kind": whole["kind"].removesuffix("List"), **item}


def _object(value: Any, text: str, source: str, document: documents.Document, item: str) -> Json:
    def fault(detail: str, field: str = "") -> DecodeError:
        path = ".".join(part for part in (item, field) if part)
        line = documents.line_of(text, document.number, path)
        return DecodeError(detail, field=path, source=source, document=document.number, line=line)

    if not isinstance(value, dict):
        raise fault(f"expected an object with apiVersion and kind, got {_json_type(value)}")
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str) or not value[field]:
            raise fault("must be set to a text", field)
    if not isinstance(value.get("metadata", {}), dict | None):
        raise fault("expected an object", "metadata")
    return value


def find_type(api_version: str, kind: str) -> type[Object] | None:
    """Return the projection of a kind, also under its older versions."""
    return KINDS.get((convert.current_api_version(api_version, kind), kind))


def decode(object_: Json) -> Object:
    """Decode an object of a known kind. Raises ``DecodeError`` with the field."""
    api_version, kind = object_.get("apiVersion"), object_.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise DecodeError("must be set to a text", field="kind" if isinstance(api_version, str) else "apiVersion")
    type_ = find_type(api_version, kind)
    if type_ is None:
        raise DecodeError(f"no kind {kind!r} is known in {api_version!r}", field="kind")
    return decode_as(type_, object_)


def decode_as(type_: type[T], object_: Json) -> T:
    """Decode an object whose kind is known already; see ``decode``."""
    try:
        return msgspec.convert(object_, type_) if _is_current(object_, type_) else _decode_older(type_, object_)
    except msgspec.ValidationError:
        pass
    # Null means absent, and few objects have nulls: remove them only when decoding failed.
    tidy = without_nulls(object_)
    try:
        return msgspec.convert(tidy, type_) if _is_current(tidy, type_) else _decode_older(type_, tidy)
    except msgspec.ValidationError as error:
        raise _decode_error(str(error), tidy) from None


def _is_current(object_: Json, type_: type[Object]) -> bool:
    return "apiVersion" not in object_ or object_["apiVersion"] == type_.KIND.api_version


def _decode_older(type_: type[T], object_: Json) -> T:
    try:
        return msgspec.convert(convert.convert(object_, type_.KIND.api_version), type_)
    except convert.ConversionError as error:
        raise DecodeError(error.detail, field=error.field) from None


def without_nulls(value: Any) -> Any:
    """Return the value without members that are null. Null elements of lists stay."""
    # Encoding is fast, and most objects hold no null at all.
    return _prune_nulls(value) if b"null" in msgspec.json.encode(value) else value


def _prune_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _prune_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_prune_nulls(item) for item in value]
    return value


def _decode_error(message: str, object_: Json) -> DecodeError:
    match = _AT.fullmatch(message)
    assert match is not None
    what, path = match["what"], (match["path"] or "").removeprefix("$").removeprefix(".")
    if missing := _MISSING.fullmatch(what):
        return DecodeError("must be set", field=f"{path}.{missing[1]}".removeprefix("."))
    if path.endswith("[...]") and (got := _GOT.search(what)):
        path = _name_the_key(object_, path.removesuffix("[...]"), got[1])
    return DecodeError(what[:1].lower() + what[1:].replace("`", ""), field=path)


def _name_the_key(object_: Json, path: str, got: str) -> str:
    """Add to the path the key of the wrong mapping entry, which msgspec does not report."""
    node: Any = object_
    for step in re.findall(r"[^.\[\]]+", path):
        node = node[int(step)] if isinstance(node, list) else node.get(step, {})
    key = next((key for key, value in node.items() if _json_type(value) == got), "...")
    return f"{path}.{key}"


def _json_type(value: Any) -> str:
    return _JSON_TYPES.get(type(value), "value")
