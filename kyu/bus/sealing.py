"""
Encryption of messages to the owner of a signing key, so that other subscribers of a subject cannot read them.

The recipient is named by its Ed25519 key, which an administrator lists already. X25519 works on the same curve, so that
key also agrees on secrets: each message has a new key, from an ephemeral X25519 key, HKDF and ChaCha20-Poly1305.

RFC 7748 section 4.1 (the map between the curves), libsodium crypto_sign_ed25519_pk_to_curve25519 and crypto_box_seal.
"""

from __future__ import annotations

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kyu.bus.signing import BadKey, Signer

PRIME = 2**255 - 19
KEY_BYTES = 32
NONCE_BYTES = 12
PURPOSE = b"kyu pool message"


class NotDecrypted(ValueError):
    """The message is for another key, or was changed."""


def encrypt(message: bytes, public_key: str, context: bytes) -> bytes:
    """Return the message as text that only the owner of the Ed25519 key can read, with the same context."""
    recipient = exchange_key(public_key)
    ephemeral = X25519PrivateKey.generate()
    shown = raw_bytes(ephemeral.public_key())
    try:
        shared = ephemeral.exchange(recipient)
    except ValueError as error:
        raise BadKey("the key agrees on no secret") from error
    nonce = os.urandom(NONCE_BYTES)
    cipher = ChaCha20Poly1305(derive(shared, shown + raw_bytes(recipient)))
    return base64.b64encode(shown + nonce + cipher.encrypt(nonce, message, context))


def decrypt(text: bytes, signer: Signer, context: bytes) -> bytes:
    """Return the message if it was encrypted to the key of the signer, in this context."""
    own = signer.exchange_key()
    try:
        body = base64.b64decode(text, validate=True)
        shown, nonce = body[:KEY_BYTES], body[KEY_BYTES : KEY_BYTES + NONCE_BYTES]
        shared = own.exchange(X25519PublicKey.from_public_bytes(shown))
        cipher = ChaCha20Poly1305(derive(shared, shown + raw_bytes(own.public_key())))
        return cipher.decrypt(nonce, body[KEY_BYTES + NONCE_BYTES :], context)
    except (ValueError, binascii.Error, InvalidTag) as error:
        raise NotDecrypted("it is for another key, or was changed") from error


def exchange_key(public_key: str) -> X25519PublicKey:
    """Return the point of an Ed25519 key on the curve of X25519: u = (1 + y) / (1 - y)."""
    try:
        raw = base64.b64decode(public_key, validate=True)
    except (ValueError, binascii.Error) as error:
        raise BadKey("the key is no base64") from error
    if len(raw) != KEY_BYTES:
        raise BadKey("the key has not 32 bytes")
    y = int.from_bytes(raw, "little") & ((1 << 255) - 1)
    u = (1 + y) * pow(1 - y, PRIME - 2, PRIME) % PRIME
    return X25519PublicKey.from_public_bytes(u.to_bytes(KEY_BYTES, "little"))


def derive(shared: bytes, keys: bytes) -> bytes:
    return HKDF(SHA256(), length=KEY_BYTES, salt=None, info=PURPOSE + keys).derive(shared)


def raw_bytes(key: X25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)
