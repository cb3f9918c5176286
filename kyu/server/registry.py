"""
The registry of served resources: every resource in every version, by its path.

A Resource is one version of one kind, with all that the verbs need to know of it: names, schema, subresources, columns,
and how an object gets from the stored version to this one and back. Built-in kinds are there from the start; those of
CustomResourceDefinitions come and go as their definitions do.

Filled by: server/builtin/table.py, through server/api.py, and server/background/definitions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from kyu.api.meta import Json, Kind
from kyu.server.fieldmanager.manager import FieldManager
from kyu.server.rules import Rules
from kyu.server.schema.node import Schema
from kyu.server.selectors import FieldLabels

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
READ_WRITE = ("get", "patch", "update")
# (object, from version, to version) -> object
Converter = Callable[[Json, str, str], Json]


@dataclass(frozen=True, slots=True)
class Subresource:
    name: str
    verbs: tuple[str, ...]
    # The kind of its body, where that is not the kind of the object.
    body: Kind | None = None


SCALE = Subresource("scale", READ_WRITE, Kind("autoscaling", "v1", "Scale", ""))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``. Priority 0 is always shown, others with ``-o wide``."""

    name: str
    type: str
    path: str
    description: str = ""
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The paths in a custom kind of the fields that the scale subresource shows."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


@dataclass(frozen=True)
class Resource:
    kind: Kind
    singular: str
    list_kind: str
    schema: Schema
    rules: Rules
    verbs: tuple[str, ...] = ALL_VERBS
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    scale: ScalePaths | None = None
    field_labels: FieldLabels = field(default_factory=FieldLabels)
    stored_version: str = ""
    # The storage of another kind, if this one shows the same objects.
    stored_as: str = ""
    convert: Converter | None = None
    is_custom: bool = False
    # Sent as a Warning header with every answer of a deprecated version.
    deprecation: str = ""
    # Sent with every write.
    warning: str = ""

    @cached_property
    def storage(self) -> str:
        """The name under which all versions of the kind are stored."""
        return self.stored_as or storage_name(self.kind.group, self.kind.plural)

    @cached_property
    def api_version(self) -> str:
        return self.kind.api_version

    @cached_property
    def prefix(self) -> bytes:
        """The beginning of an object in JSON, up to its first own field."""
        return f'{{"kind":"{self.kind.kind}","apiVersion":"{self.kind.api_version}",'.encode()

    @cached_property
    def needs_conversion(self) -> bool:
        return self.convert is not None and self.stored_version != self.kind.version

    def writer(self, manager: str, now: datetime, subresource: str = "") -> FieldManager:
        """Return the manager that owns the fields written to an object, through a subresource if there is one."""
        return FieldManager(manager, self.api_version, now, subresource, self.rules.resets(subresource))


def storage_name(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


class Registry:
    """The resources by group, version and plural; groups in the order in which they were added."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[str, Resource]]] = {}
        self._by_storage: dict[str, Resource] = {}
        # Counts every change of what is served; what is made from the registry can be kept until it moves.
        self.edition = 0

    def add(self, resources: Iterable[Resource]) -> None:
        for resource in resources:
            kind = resource.kind
            versions = self._by_group.setdefault(kind.group, {})
            versions.setdefault(kind.version, {})[kind.plural] = resource
            if kind.version == resource.stored_version or resource.storage not in self._by_storage:
                self._by_storage[resource.storage] = resource
        self.edition += 1

    def remove(self, group: str, plural: str) -> None:
        versions = self._by_group.get(group, {})
        for version in list(versions):
            versions[version].pop(plural, None)
            if not versions[version]:
                del versions[version]
        if not versions:
            self._by_group.pop(group, None)
        self._by_storage.pop(storage_name(group, plural), None)
        self.edition += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_group.get(group, {}).get(version, {}).get(plural)

    def stored(self, storage: str) -> Resource | None:
        """Return the resource in the version that is stored."""
        return self._by_storage.get(storage)

    def find_kind(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        resources = self._by_group.get(group, {}).get(version, {}).values()
        return next((r for r in resources if r.kind.kind == kind), None)

    def groups(self) -> list[str]:
        return list(self._by_group)

    def is_built_in(self, group: str) -> bool:
        """Return whether the group has kinds that no definition brings."""
        versions = self._by_group.get(group, {}).values()
        return any(not resource.is_custom for resources in versions for resource in resources.values())

    def versions(self, group: str) -> list[str]:
        """Return the versions in order of preference: v1 before v1beta2 before v1beta1 before v1alpha1."""
        return sorted(self._by_group.get(group, {}), key=_preference)

    def resources(self, group: str, version: str) -> list[Resource]:
        return list(self._by_group.get(group, {}).get(version, {}).values())


def _preference(version: str) -> tuple[int, int, int, str]:
    """Kubernetes: apimachinery/pkg/version, the order of kube-like versions; others come last, by name."""
    digits, stage, minor = "", 0, ""
    rest = version.removeprefix("v")
    for name, rank in (("alpha", 2), ("beta", 1)):
        if name in rest:
            digits, _, minor = rest.partition(name)
            stage = rank
            break
    else:
        digits = rest
    numbers = f"{digits}{minor or 0}"
    if not version.startswith("v") or not digits or not (numbers.isascii() and numbers.isdigit()):
        return 3, 0, 0, version
    return stage, -int(digits), -int(minor or 0), version
