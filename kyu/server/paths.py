"""
The path of a request: first its words (Path), then the resource and object that they stand for (Target).
"""

from __future__ import annotations

import msgspec

from kyu.server.registry import Resource


class Target(msgspec.Struct, frozen=True):
    """The words of a path. No name is the collection; namespace None is all of them, or a cluster-scoped kind."""

    resource: Resource
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace or "", self.name


class Path(msgspec.Struct, frozen=True):
    """The words of a path, before anyone looked whether there is such a resource."""

    group: str
    version: str
    namespace: str | None = None
    plural: str = ""
    name: str = ""
    subresource: str = ""
