"""
Signed and encrypted requests between a control plane and the runner of a pool.

The body is encrypted to the key of the recipient, where that is known, since all subscribers of the subject receive it.
The signature covers the exact bytes of the body and the name of the pool. A request is valid for a minute and for one
use. Answers are encrypted and signed by the runner in the same way.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from kyu.api.meta import Json
from kyu.bus import sealing, signing

LONGEST_BYTES = 900_000
GOOD_FOR_SECONDS = 60.0
MOST_REMEMBERED = 100_000

Verb: TypeAlias = Literal["create", "status", "stop", "remove", "logs"]


class Sealed(msgspec.Struct, frozen=True):
    body: str
    key: str
    signature: str
    encrypted: bool = False


class Letter(msgspec.Struct, frozen=True):
    """The content of an envelope. An answer repeats the nonce of its request."""

    verb: Verb
    issued: float
    nonce: str
    content: dict[str, Any] = {}
    error: str = ""


class NotOpened(Exception):
    """The envelope is invalid; the message says why, without its content."""


def subject_of(nats_subject: str, pool: str) -> str:
    """Return the subject of a pool's runner, beside that of the announcements."""
    return f"{nats_subject.removesuffix('.resources')}.run.{pool}"


def new_letter(verb: Verb, content: Json, now: float) -> Letter:
    return Letter(verb, now, secrets.token_hex(16), content)


class Opened(NamedTuple):
    """A letter, and the key of its sender."""

    letter: Letter
    sender: str


def seal(letter: Letter, pool: str, signer: signing.Signer, to: str = "") -> bytes:
    """Sign a letter, and encrypt it to the key of the recipient if that is given."""
    body = msgspec.json.encode(letter)
    if to:
        try:
            body = sealing.encrypt(body, to, _context(pool, signer.public_key))
        except signing.BadKey as error:
            raise NotOpened(f"the key of its recipient is not usable: {error}") from error
    signature = signer.sign(_signed(pool, body))
    sealed = msgspec.json.encode(Sealed(body.decode(), signer.public_key, signature, encrypted=bool(to)))
    if len(sealed) > LONGEST_BYTES:
        raise NotOpened(f"{len(sealed)} bytes are too much for one message")
    return sealed


def unseal(payload: bytes, pool: str, allowed: Collection[str] | None, own: signing.Signer) -> Opened:
    """Return the letter if its key is in the list; without a list, if its signature is good."""
    try:
        sealed = msgspec.json.decode(payload, type=Sealed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotOpened("it cannot be read") from error
    if allowed is not None and sealed.key not in allowed:
        raise NotOpened("its sender is not in the list of allowed keys")
    if not signing.is_signed(_signed(pool, sealed.body.encode()), sealed.signature, sealed.key):
        raise NotOpened("its signature is not good")
    try:
        body = sealed.body.encode()
        if sealed.encrypted:
            body = sealing.decrypt(body, own, _context(pool, sealed.key))
        return Opened(msgspec.json.decode(body, type=Letter), sealed.key)
    except sealing.NotDecrypted as error:
        raise NotOpened(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotOpened("it cannot be read") from error


class Once:
    """A filter that accepts each request once, and remembers nonces while requests are valid."""

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


def _context(pool: str, sender: str) -> bytes:
    """Return what an encrypted body is bound to: another sender cannot sign it as its own."""
    return f"{pool}\0{sender}".encode()


def _signed(pool: str, body: bytes) -> bytes:
    return pool.encode() + b"\0" + body
