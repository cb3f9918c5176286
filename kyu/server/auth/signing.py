"""
Signed tokens: JSON Web Tokens with an elliptic key of this server.

The key is a file of the data folder, made when the first token is. The claims of a token say what kind of token it is.
"""

from __future__ import annotations

import base64
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from kyu.server.auth import tls
from kyu.server.exchange import encode

KEY_FILE: Final = "service-account.key"
LONGEST_TOKEN: Final = 8192
KEPT_CLAIMS: Final = 4096
COORDINATE_BYTES: Final = 32
ClaimsOf = TypeVar("ClaimsOf", bound=msgspec.Struct)


class TokenSigner:
    """Signs claims, and reads those that it has signed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / KEY_FILE
        self._claims: dict[str, Any] = {}

    def sign(self, claims: bytes) -> str:
        signed = f"{self._header}.{_base64(claims)}"
        first, second = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = first.to_bytes(COORDINATE_BYTES) + second.to_bytes(COORDINATE_BYTES)
        return f"{signed}.{_base64(signature)}"

    def read(self, token: str, type_: type[ClaimsOf]) -> ClaimsOf | None:
        """Return the claims of a token that this server has signed; None if they are others."""
        content = self._claims.get(token)
        if content is None:
            content = self._verified(token)
        try:
            return msgspec.convert(content, type_) if content is not None else None
        except msgspec.ValidationError:
            return None

    def _verified(self, token: str) -> Any:
        header, _, rest = token.partition(".")
        content, _, signature = rest.partition(".")
        # The header is compared, not read: a token cannot choose how it is checked.
        if len(token) > LONGEST_TOKEN or not self._path.exists() or header != self._header:
            return None
        try:
            raw = _bytes(signature)
            pair = int.from_bytes(raw[:COORDINATE_BYTES]), int.from_bytes(raw[COORDINATE_BYTES:])
            signed = f"{header}.{content}".encode()
            self._key.public_key().verify(utils.encode_dss_signature(*pair), signed, ec.ECDSA(hashes.SHA256()))
            claims = msgspec.json.decode(_bytes(content))
        except (ValueError, InvalidSignature, msgspec.MsgspecError):
            return None
        if len(self._claims) >= KEPT_CLAIMS:
            self._claims.clear()
        self._claims[token] = claims
        return claims

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        if not self._path.exists():
            made = ec.generate_private_key(ec.SECP256R1())
            form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            tls.write_private(self._path, made.private_bytes(serialization.Encoding.PEM, form, plain))
        key = serialization.load_pem_private_key(self._path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey), f"{self._path} holds no elliptic key"
        return key

    @cached_property
    def _header(self) -> str:
        public = self._key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = hashes.Hash(hashes.SHA256())
        digest.update(public)
        return _base64(encode({"alg": "ES256", "kid": _base64(digest.finalize())}))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
