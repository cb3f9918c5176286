"""The request that the admission chain changes or rejects, and the result of a write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from kyu.api.meta import Json
from kyu.server.exchange import User
from kyu.server.registry import Resource
from kyu.server.storage.records import Record


class AdmissionRequest(msgspec.Struct, frozen=True):
    """A write before it is validated and stored. ``old`` is None for a create."""

    resource: Resource
    user: User
    subresource: str
    new: Json
    old: Json | None


# Changes the new object, or raises. Called after defaults and before validation.
Admit = Callable[[AdmissionRequest], None]


class Written(msgspec.Struct, frozen=True):
    record: Record
    warnings: tuple[str, ...] = ()
    created: bool = False
    done: asyncio.Future[None] | None = None
    # Shared with watchers in the same process: must not be changed.
    obj: Json | None = None
