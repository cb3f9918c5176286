"""
The common parts of Kubernetes objects: kind, metadata, conditions, owners, label selectors.

Structs are read-only projections of the stored JSON: they hold the fields that Kyu reads, and are never written back.
Writes are patches and applies (see ``actions.py``), so unknown fields always survive.

Kubernetes: apimachinery meta/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from kyu.api.labels import holds

# A JSON object as it is stored and sent. Only codecs, the server and the kinds read its fields.
Json: TypeAlias = dict[str, Any]


class Kind(msgspec.Struct, frozen=True):
    """The identity of a kind of object, with the parts of its URL."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class Key(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """The namespace and name of an object. Cluster-scoped objects have an empty namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(obj: Json) -> Key:
    """Return the key of a stored object, which always has a name."""
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


class Ref(msgspec.Struct, frozen=True):
    """A reference to one object of any kind."""

    kind: Kind
    key: Key

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.key}"


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The base of all projections: camelCase on the wire, defaults left out, unknown fields ignored.

    JSON values have no cycles, so the garbage collector need not track them (``gc=False``).
    """


class OwnerReference(Wire, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        return next((owner for owner in self.owner_references if owner.controller), None)


class Object(Wire, frozen=True):
    """The base of all top-level projections. Each sets ``KIND``."""

    KIND: ClassVar[Kind]

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> Key:
        return self.metadata.key


class Condition(Wire, frozen=True):
    type: str
    status: Literal["True", "False", "Unknown"] = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


def find_condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: tuple[Condition, ...], type_: str) -> bool:
    condition = find_condition(conditions, type_)
    return condition is not None and condition.status == "True"


class LabelSelectorRequirement(Wire, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether the selector matches the labels. An absent selector matches nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(holds(requirement, labels) for requirement in selector.match_expressions)
