"""
The generated facts of the built-in kinds, one file per group version, read when the first of its kinds is asked for.

Written by generate.py; read by builtin.py (schemas), openapi.py (documents) and protobuf.py (field numbers).
"""

from __future__ import annotations

import zlib
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from kyu.api.meta import Json
from kyu.server.schema_node import Definitions, Schema

DATA: Final = Path(__file__).parent / "data"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."


class GroupVersionData:
    """All schemas that the kinds of one group version are made of."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.definitions = Definitions(content["schemas"], content["shapes"])
        # Per type: field number -> (JSON name, type).
        self.wire: dict[str, dict[str, tuple[str, str]]] = content["wire"]

    @cached_property
    def name_by_kind(self) -> dict[tuple[str, str, str], str]:
        """Group, version and kind -> the name of the schema."""
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
    """The metadata of every object, custom ones too."""
    return load("coordination.k8s.io", "v1").definitions.node(f"{META}ObjectMeta")
