"""
Signatures of messages: who sent this? Ed25519 keys, as texts that fit in a manifest or on a command line.

Called by: controllers/pools.py (checks announcements), pools/publisher.py and pools/runner.py, pools/pods.py.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
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


def load_or_make(path: Path) -> Signer:
    """The key in the file; the first time, a new one that only its owner can read."""
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
    """Whether the owner of the key signed the message. A key or signature that cannot be read has signed nothing."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(base64.b64decode(signature, validate=True), message)
    except (ValueError, binascii.Error, InvalidSignature):
        return False
    return True
