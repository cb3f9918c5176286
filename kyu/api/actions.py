"""
The actions of a plan, and the view that it reads.

A plan is a pure function ``plan(view, key, now) -> list[Action]``. The view is read-only. ``kube/apply.py`` applies the
actions in order; nothing else writes. Bodies are JSON objects or parts of them, never projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from kyu.api.config.config import Configuration
from kyu.api.meta import Json, Key, Kind, Object, Ref

T = TypeVar("T", bound=Object)


class Create(msgspec.Struct, frozen=True):
    """Create the object. An object that exists already counts as success.

    With ``reports_refusal``, an object that the server refuses becomes a RefusedObject of that name in the view, and
    the actions that follow are run.
    """

    kind: Kind
    body: Json
    reports_refusal: str = ""


class Apply(msgspec.Struct, frozen=True):
    """Apply, on the server side, the fields that ``manager`` owns. The object is created if it is missing."""

    kind: Kind
    body: Json
    manager: str
    subresource: Literal["", "status"] = ""


class Patch(msgspec.Struct, frozen=True):
    """Merge a patch into the object. With ``resource_version`` the patch is refused if the object has changed since."""

    ref: Ref
    patch: Json
    subresource: Literal["", "status"] = ""
    resource_version: str = ""


class Delete(msgspec.Struct, frozen=True):
    """Delete the object. An object that is gone already counts as success."""

    ref: Ref
    uid: str = ""
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background"
    grace_seconds: int | None = None


class Bind(msgspec.Struct, frozen=True):
    """Bind a pod to a node. A pod is bound once, and only without scheduling gates."""

    ref: Ref
    node: str


class Elsewhere(msgspec.Struct, frozen=True):
    """Run an action in a worker cluster: the MultiKueueCluster of this name."""

    cluster: str
    action: Create | Patch | Delete


class Event(msgspec.Struct, frozen=True):
    """Record an event about an object. Equal events in a short time are sent once, with a count."""

    regarding: Ref
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    uid: str = ""


class WakeAt(msgspec.Struct, frozen=True):
    """Plan the same key again at this time. An earlier plan of the key replaces the request."""

    at: datetime


Action: TypeAlias = Create | Apply | Patch | Delete | Bind | Elsewhere | Event | WakeAt


class View(Protocol):
    """The objects as last seen, and the configuration in force. Kinds that Kyu knows have typed projections; all have
    JSON.
    """

    @property
    def configuration(self) -> Configuration: ...

    def get(self, type_: type[T], key: Key) -> T | None: ...

    def list(self, type_: type[T], namespace: str | None = None) -> Sequence[T]: ...

    def find_json(self, kind: Kind, key: Key) -> Json | None: ...

    def list_json(self, kind: Kind, namespace: str | None = None) -> Sequence[Json]: ...

    def owned_by(self, kind: Kind, uid: str) -> Sequence[Json]:
        """Return the objects of the kind whose controller has this uid."""
        ...
