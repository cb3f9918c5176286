"""
Two values that a write goes through: the Attempt that admission may change or refuse, and what was Written in the end.

Made by: server/writes.py. Read by: server/admission.py and whom it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from kyu.api.meta import Json
from kyu.server.exchange import User
from kyu.server.records import Record
from kyu.server.registry import Resource


class Attempt(msgspec.Struct, frozen=True):
    """A write that is about to happen, for those who may object. ``old`` is None for a create."""

    resource: Resource
    user: User
    subresource: str
    new: Json
    old: Json | None


# Changes the new object, or raises. Called after defaults and before validation.
Admission = Callable[[Attempt], None]


class Written(msgspec.Struct, frozen=True):
    record: Record
    warnings: tuple[str, ...] = ()
    created: bool = False
    done: asyncio.Future[None] | None = None
    # The whole object, which is shared with watchers in the same process: nobody may change it.
    obj: Json | None = None
