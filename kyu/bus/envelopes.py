"""
Requests between a control plane and the runner of a pool, sealed: who asks, for which pool, when, and only once.

The signature is over the exact bytes of the body, together with the pool's name, so nothing has to be written in one
fixed form. A request is good for a minute and for one use; answers are sealed by the runner in the same way.

Called by: pools/pods.py (asks), pools/runner.py (answers).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any, Literal, TypeAlias

import msgspec

from kyu.api.meta import Json
from kyu.bus import signing

LONGEST_BYTES = 900_000
GOOD_FOR_SECONDS = 60.0
MOST_REMEMBERED = 100_000

Verb: TypeAlias = Literal["create", "status", "stop", "remove", "logs"]


class Sealed(msgspec.Struct, frozen=True):
    body: str
    key: str
    signature: str


class Letter(msgspec.Struct, frozen=True):
    """What is in an envelope. An answer repeats the nonce of its request."""

    verb: Verb
    issued: float
    nonce: str
    content: dict[str, Any] = {}
    error: str = ""


class NotOpened(Exception):
    """The envelope is not what it should be; the message says why, without what is in it."""


def subject_of(nats_subject: str, pool: str) -> str:
    """Where the runner of a pool listens: beside the subject of the announcements."""
    return f"{nats_subject.removesuffix('.resources')}.run.{pool}"


def new_letter(verb: Verb, content: Json, now: float) -> Letter:
    return Letter(verb, now, secrets.token_hex(16), content)


def seal(letter: Letter, pool: str, signer: signing.Signer) -> bytes:
    body = msgspec.json.encode(letter)
    signature = signer.sign(_signed(pool, body))
    sealed = msgspec.json.encode(Sealed(body.decode(), signer.public_key, signature))
    if len(sealed) > LONGEST_BYTES:
        raise NotOpened(f"{len(sealed)} bytes are too much for one message")
    return sealed


def unseal(payload: bytes, pool: str, allowed: Collection[str] | None) -> Letter:
    """The letter of someone on the list; without a list, of anyone who signed it."""
    try:
        sealed = msgspec.json.decode(payload, type=Sealed)
        letter = msgspec.json.decode(sealed.body, type=Letter)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotOpened("it cannot be read") from error
    if allowed is not None and sealed.key not in allowed:
        raise NotOpened("its sender is not on the list of those who may send")
    if not signing.is_signed(_signed(pool, sealed.body.encode()), sealed.signature, sealed.key):
        raise NotOpened("its signature is not good")
    return letter


class Once:
    """Remembers requests for as long as they are good, and lets each pass once."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def check(self, letter: Letter, now: float) -> None:
        if abs(now - letter.issued) > GOOD_FOR_SECONDS:
            raise NotOpened("it is too old, or the clocks differ")
        if letter.nonce in self._seen:
            raise NotOpened("it was seen before")
        while self._seen and next(iter(self._seen.values())) < now - 2 * GOOD_FOR_SECONDS:
            del self._seen[next(iter(self._seen))]
        if len(self._seen) >= MOST_REMEMBERED:
            raise NotOpened("there are too many requests")
        self._seen[letter.nonce] = now


def _signed(pool: str, body: bytes) -> bytes:
    return pool.encode() + b"\0" + body
