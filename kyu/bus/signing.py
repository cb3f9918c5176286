"""Ed25519 signatures of messages, with keys as texts that fit in a manifest or on a command line."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


class BadKey(ValueError):
    """The text is no Ed25519 key."""


class Signer:
    """A private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public_key = base64.b64encode(raw).decode()

    def sign(self, message: bytes) -> str:
        return base64.b64encode(self._key.sign(message)).decode()

    def exchange_key(self) -> X25519PrivateKey:
        """Return the X25519 key of the same owner: both are made of the hash of one seed (RFC 8032)."""
        seed = self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        return X25519PrivateKey.from_private_bytes(hashlib.sha512(seed).digest()[:32])


def load_or_make(path: Path) -> Signer:
    """Return the key in the file; without a file, make a key that only its owner can read."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        try:
            return Signer(Ed25519PrivateKey.from_private_bytes(base64.b64decode(path.read_bytes(), validate=True)))
        except (ValueError, binascii.Error) as error:
            raise BadKey(f"{path} holds no Ed25519 key") from error
    key = Ed25519PrivateKey.generate()
    with os.fdopen(descriptor, "wb") as file:
        file.write(base64.b64encode(key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())))
    return Signer(key)


def is_signed(message: bytes, signature: str, public_key: str) -> bool:
    """Return whether the key signed the message; False for an unreadable key or signature."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(base64.b64decode(signature, validate=True), message)
    except (ValueError, binascii.Error, InvalidSignature):
        return False
    return True
