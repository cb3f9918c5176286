"""
Writes kyu/server/data: what is to know of the built-in kinds, from the published sources of Kubernetes.

Two sources are read, and only names and numbers are taken from them, no sentences. The OpenAPI v3 documents give the
schemas: types, list types and keys, patch strategies, defaults. The Go types give what OpenAPI does not tell: how a
field is written when it is empty, and its number in protobuf.

Run by hand when a new Kubernetes version is wanted; the folders are those of the Go modules k8s.io/kubernetes,
k8s.io/api, k8s.io/apimachinery and k8s.io/apiextensions-apiserver:
``python -m kyu.server.generate KUBERNETES API APIMACHINERY APIEXTENSIONS``
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from kyu.api.meta import Json

DATA: Final = Path(__file__).parent / "data"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
# The group versions that are served, with the folder of their Go types in k8s.io/api.
GROUP_VERSIONS: Final = {
    "api__v1": "core/v1",
    "apis__admissionregistration.k8s.io__v1": "admissionregistration/v1",
    "apis__apiextensions.k8s.io__v1": "",
    "apis__apps__v1": "apps/v1",
    "apis__authentication.k8s.io__v1": "authentication/v1",
    "apis__authorization.k8s.io__v1": "authorization/v1",
    "apis__autoscaling__v1": "autoscaling/v1",
    "apis__autoscaling__v2": "autoscaling/v2",
    "apis__batch__v1": "batch/v1",
    "apis__coordination.k8s.io__v1": "coordination/v1",
    "apis__discovery.k8s.io__v1": "discovery/v1",
    "apis__events.k8s.io__v1": "events/v1",
    "apis__networking.k8s.io__v1": "networking/v1",
    "apis__node.k8s.io__v1": "node/v1",
    "apis__policy__v1": "policy/v1",
    "apis__rbac.authorization.k8s.io__v1": "rbac/v1",
    "apis__resource.k8s.io__v1": "resource/v1",
    "apis__scheduling.k8s.io__v1": "scheduling/v1",
    "apis__storage.k8s.io__v1": "storage/v1",
}
# Go types with a form of their own in JSON, by the name that schema/typed.py and decode/protobuf.py know.
SPECIAL: Final = {
    "metav1.Time": "time",
    "metav1.MicroTime": "microtime",
    "metav1.Duration": "duration",
    "metav1.FieldsV1": "raw",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intorstring",
    "runtime.RawExtension": "raw",
    "apiextensions.JSON": "raw",
}
SCALARS: Final = {
    "string": "string", "bool": "bool", "int": "int", "int32": "int", "int64": "int", "uint32": "int",
    "uint64": "int", "float64": "double", "types.UID": "string", "types.NodeName": "string",
}  # fmt: skip
FIELD: Final = re.compile(r'^\t(?:(\w+)\s+)?([^\s`]+)\s+`json:"([^"]*)"(?:.*?protobuf:"([^"]*)")?')


@dataclass
class GoField:
    """One field of a Go struct: an empty JSON name is a struct whose fields stand in the outer one."""

    name: str
    type: str
    options: set[str]
    number: int


@dataclass
class Package:
    """One folder of Go types; the prefix is that of their names in OpenAPI."""

    prefix: str
    structs: dict[str, list[GoField]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)


class Types:
    """All Go types that were read, by their names in OpenAPI."""

    def __init__(self) -> None:
        self._packages: dict[str, Package] = {}

    def read(self, word: str, prefix: str, folder: Path) -> None:
        """``word`` is how the types of other packages call this one."""
        package = self._packages[word] = Package(prefix)
        for path in sorted(folder.glob("*.go")):
            if not path.name.endswith("_test.go") and not path.name.startswith(("zz_", "generated")):
                _read_file(path.read_text(), package)

    def tables(self) -> Iterator[tuple[str, dict[str, str], dict[str, list[str]]]]:
        """Per struct: its name, how empty fields are written, and its fields by number."""
        for word, package in self._packages.items():
            for name, fields in package.structs.items():
                yield package.prefix + name, self._shape(word, fields), self._wire(word, fields)

    def _shape(self, word: str, fields: list[GoField]) -> dict[str, str]:
        shape: dict[str, str] = {}
        for each in fields:
            if not each.name:
                inner = self._struct(word, each.type)
                shape.update(self._shape(*inner) if inner else {})
            elif code := self._code(word, each):
                shape[each.name] = code
        return shape

    def _code(self, word: str, each: GoField) -> str:
        kind = self.resolve(word, each.type)
        if "omitzero" in each.options or (kind.startswith("*") and "omitempty" in each.options):
            return "z" if "omitzero" in each.options and not kind.startswith("*") else ""
        if kind.startswith(("*", "[]", "map:")) or kind in ("time", "microtime", "raw", "bytes"):
            return "o" if "omitempty" in each.options and kind not in ("time", "microtime") else "n"
        if kind in ("string", "int", "bool", "double"):
            return "o" if "omitempty" in each.options else {"string": "e", "bool": "b"}.get(kind, "i")
        return {"quantity": "q", "intorstring": "i", "duration": "d"}.get(kind, "s")

    def _wire(self, word: str, fields: list[GoField]) -> dict[str, list[str]]:
        return {
            str(each.number): [each.name, self.resolve(word, each.type).lstrip("*")] for each in fields if each.number
        }

    def _struct(self, word: str, name: str) -> tuple[str, list[GoField]] | None:
        word, name = self._split(word, name.lstrip("*"))
        package = self._packages.get(word)
        return (word, package.structs[name]) if package and name in package.structs else None

    def resolve(self, word: str, type_: str) -> str:
        """Return a Go type as one of: a scalar, a special form, ``[]X``, ``map:X``, ``*X``, or the name of a struct."""
        if type_.startswith("*"):
            return "*" + self.resolve(word, type_[1:]).lstrip("*")
        if type_ == "[]byte":
            return "bytes"
        if type_.startswith("[]"):
            return "[]" + self.resolve(word, type_[2:]).lstrip("*")
        if type_.startswith("map["):
            return "map:" + self.resolve(word, type_.split("]", 1)[1]).lstrip("*")
        if type_ in SCALARS:
            return SCALARS[type_]
        word, name = self._split(word, type_)
        if special := SPECIAL.get(f"{word}.{name}"):
            return special
        package = self._packages.get(word)
        if package and name in package.aliases:
            inner = self.resolve(word, package.aliases[name])
            # A named list is a message of its own on the wire.
            return f"list:{inner[2:]}" if inner.startswith("[]") and name == "ExtraValue" else inner
        return (package.prefix if package else "") + name

    def _split(self, word: str, name: str) -> tuple[str, str]:
        if "." not in name:
            return word, name
        other, _, plain = name.rpartition(".")
        return {"v1": "core", "corev1": "core", "apiv1": "core", "api": "core"}.get(other, other), plain


def _read_file(text: str, package: Package) -> None:
    struct: list[GoField] | None = None
    for line in text.splitlines():
        if match := re.match(r"^type (\w+) struct \{", line):
            struct = package.structs[match[1]] = []
        elif line.startswith("}"):
            struct = None
        elif struct is None:
            if match := re.match(r"^type (\w+) (?!struct|interface|func)([^\s=]+)$", line):
                package.aliases[match[1]] = match[2]
        elif match := FIELD.match(line):
            name, *options = match[3].split(",")
            number = int(match[4].split(",")[1]) if match[4] else 0
            if name != "-" and not (not name and match[2].endswith("TypeMeta")):
                struct.append(GoField(name, match[2], set(options), number))


def plain(value: Any) -> Any:
    """Return a schema without its descriptions."""
    if isinstance(value, dict):
        # A property may be called "description" itself: then its value is a schema, not a text.
        return {k: plain(v) for k, v in value.items() if k != "description" or not isinstance(v, str)}
    return [plain(item) for item in value] if isinstance(value, list) else value


def read_types(api: Path, apimachinery: Path, apiextensions: Path) -> Types:
    types = Types()
    for folder in filter(None, GROUP_VERSIONS.values()):
        group, version = folder.split("/")
        word = group if version == "v1" else f"{group}{version}"
        types.read(word, f"io.k8s.api.{group}.{version}.", api / folder)
    types.read("metav1", META, apimachinery / "pkg/apis/meta/v1")
    prefix = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
    types.read("apiextensions", prefix, apiextensions / "pkg/apis/apiextensions/v1")
    return types


def main(kubernetes: Path, api: Path, apimachinery: Path, apiextensions: Path) -> None:
    types = read_types(api, apimachinery, apiextensions)
    tables = {name: (shape, wire) for name, shape, wire in types.tables()}
    DATA.mkdir(exist_ok=True)
    for stem in GROUP_VERSIONS:
        document = msgspec.json.decode((kubernetes / f"api/openapi-spec/v3/{stem}_openapi.json").read_bytes())
        schemas: Json = plain(document["components"]["schemas"])
        content = {
            "schemas": schemas,
            "shapes": {name: tables[name][0] for name in schemas if name in tables and tables[name][0]},
            "wire": {name: wire for name, (_, wire) in tables.items() if _is_reachable(name, schemas)},
        }
        packed = zlib.compress(msgspec.json.encode(content, order="sorted"), 9)
        group_version = stem.removeprefix("apis__").removeprefix("api__").replace("__", "_")
        (DATA / f"{group_version}.json.z").write_bytes(packed)
        print(f"{group_version}: {len(schemas)} schemas, {len(packed)} bytes")


def _is_reachable(name: str, schemas: Json) -> bool:
    """Return whether a schema is in the document, itself or as a struct whose fields stand in an outer one."""
    return name in schemas or name.rpartition(".")[0] in {known.rpartition(".")[0] for known in schemas}


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
