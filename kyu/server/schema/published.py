"""
The generated data of the built-in kinds: schemas and the field numbers of protobuf, one file per group version.

Written by server/generate.py. A file is read when one of its kinds is needed.
"""

from __future__ import annotations

import zlib
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from kyu.api.meta import Json
from kyu.server.schema.node import Schema, SchemaDefinitions

DATA: Final = Path(__file__).parent.parent / "data"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."


class GroupVersionData:
    """The schemas of one group version."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.definitions = SchemaDefinitions(content["schemas"], content["shapes"])
        # Per type: field number -> (JSON name, type).
        self.wire: dict[str, dict[str, tuple[str, str]]] = content["wire"]

    @cached_property
    def name_by_kind(self) -> dict[tuple[str, str, str], str]:
        """(group, version, kind) -> the name of the schema."""
        return {
            (entry["group"], entry["version"], entry["kind"]): name
            for name, raw in self.definitions.raw.items()
            for entry in raw.get("x-kubernetes-group-version-kind", ())
        }

    def schema(self, group: str, version: str, kind: str) -> Schema:
        return self.definitions.node(self.name_by_kind[group, version, kind])


def file_of(group: str, version: str) -> Path:
    return DATA / f"{group}_{version}.json.z" if group else DATA / f"{version}.json.z"


def is_known(group: str, version: str) -> bool:
    return file_of(group, version).exists()


@cache
def load(group: str, version: str) -> GroupVersionData:
    content: Json = msgspec.json.decode(zlib.decompress(file_of(group, version).read_bytes()))
    return GroupVersionData(content)


@cache
def object_meta() -> Schema:
    """Return the schema of the metadata of every object, custom ones too."""
    return load("coordination.k8s.io", "v1").definitions.node(f"{META}ObjectMeta")
