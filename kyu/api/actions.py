"""
What a plan may ask the shell to do, and what it may look at.

A plan is a pure function ``plan(view, key, now) -> list[Action]``. The view is read-only; the actions are applied in
order by ``kube/apply.py``, the only place that writes. Bodies are JSON objects or parts of them, never projections.

Used by: plans (make them), kube and controllers (carry them out), tests (compare them).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from kyu.api.config import Configuration
from kyu.api.meta import Json, Key, Kind, Object, Ref

T = TypeVar("T", bound=Object)


class Create(msgspec.Struct, frozen=True):
    """Create the object; if it is there already, that is success."""

    kind: Kind
    body: Json


class Apply(msgspec.Struct, frozen=True):
    """Server-side apply: state the fields that ``manager`` owns; create the object if it is missing."""

    kind: Kind
    body: Json
    manager: str
    subresource: Literal["", "status"] = ""


class Patch(msgspec.Struct, frozen=True):
    """Merge patch. With ``resource_version`` it is refused if the object has changed since."""

    ref: Ref
    patch: Json
    subresource: Literal["", "status"] = ""
    resource_version: str = ""


class Delete(msgspec.Struct, frozen=True):
    """Delete the object; if it is gone already, that is success."""

    ref: Ref
    uid: str = ""
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background"
    grace_seconds: int | None = None


class Bind(msgspec.Struct, frozen=True):
    """Give a pod its node. It can be done once, and only to a pod without gates."""

    ref: Ref
    node: str


class Elsewhere(msgspec.Struct, frozen=True):
    """Do this in another cluster: the MultiKueueCluster of this name."""

    cluster: str
    action: Create | Patch | Delete


class Event(msgspec.Struct, frozen=True):
    """Tell the users of an object what happened to it. Equal events in a short time are sent once, with a count."""

    regarding: Ref
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    uid: str = ""


class WakeAt(msgspec.Struct, frozen=True):
    """Ask for the same key again at this time, unless it is asked before: then that answer counts."""

    at: datetime


Action: TypeAlias = Create | Apply | Patch | Delete | Bind | Elsewhere | Event | WakeAt


class View(Protocol):
    """The objects as last seen. Typed projections for kinds that Kyu knows, JSON for all; and the settings in force."""

    @property
    def configuration(self) -> Configuration: ...

    def get(self, type_: type[T], key: Key) -> T | None: ...

    def list(self, type_: type[T], namespace: str | None = None) -> Sequence[T]: ...

    def find_json(self, kind: Kind, key: Key) -> Json | None: ...

    def list_json(self, kind: Kind, namespace: str | None = None) -> Sequence[Json]: ...

    def owned_by(self, kind: Kind, uid: str) -> Sequence[Json]:
        """Objects of the kind whose controller has this uid."""
        ...
