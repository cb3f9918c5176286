"""
Tokens of ServiceAccounts: signed claims that name an account, and an object that they end with.

The key that signs them is a file of the data folder, made when the first token is. A token is valid until its time
is over, and as long as its account and its object exist; so it needs no record of its own.

Kubernetes: pkg/serviceaccount/{claims,jwt,openidmetadata}.go.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from kyu.api.meta import Json, Key
from kyu.server import errors
from kyu.server.auth import tls
from kyu.server.auth.auth import AUTHENTICATED
from kyu.server.exchange import User, encode
from kyu.server.representations import decode
from kyu.server.storage.store import Store

ISSUER: Final = "https://kubernetes.default.svc"
PREFIX: Final = "system:serviceaccount:"
GROUP: Final = "system:serviceaccounts"
KEY_FILE: Final = "service-account.key"
# The kinds of objects that a token may end with, and where they are stored.
BOUND_KINDS: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
# A token is valid for so long after the deletion of its object has begun.
LEEWAY: Final = timedelta(seconds=60)
LONGEST_TOKEN: Final = 8192
KEPT_CLAIMS: Final = 4096
COORDINATE_BYTES: Final = 32


class _Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    uid: str = ""


class _Bound(msgspec.Struct, frozen=True, omit_defaults=True):
    """The claims of Kubernetes itself."""

    namespace: str
    serviceaccount: _Reference
    pod: _Reference | None = None
    secret: _Reference | None = None
    node: _Reference | None = None


class Claims(msgspec.Struct, frozen=True):
    """The content of a token."""

    sub: str
    aud: tuple[str, ...]
    exp: int
    nbf: int
    iat: int
    jti: str
    bound: _Bound = msgspec.field(name="kubernetes.io")
    iss: str = ISSUER


@dataclass(frozen=True, slots=True)
class BoundObject:
    """The object that a token ends with."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Account:
    """The ServiceAccount that a token names, as a user, with the audiences of the token."""

    user: User
    audiences: tuple[str, ...]
    extra: Json


class AccountTokens:
    """Signs and reads the tokens of ServiceAccounts."""

    def __init__(self, folder: Path, store: Store, clock: Callable[[], datetime]) -> None:
        self._path = folder / KEY_FILE
        self._store = store
        self._clock = clock
        self._claims: dict[str, Claims] = {}

    def sign(
        self, namespace: str, account: Json, audiences: tuple[str, ...], seconds: int, bound: BoundObject | None
    ) -> tuple[str, datetime]:
        """Return a new token of the account, and the time at which it ends."""
        now = self._clock().replace(microsecond=0)
        ends = now + timedelta(seconds=seconds)
        meta = account["metadata"]
        references = {bound.kind.lower(): _Reference(bound.name, bound.uid)} if bound is not None else {}
        claims = Claims(
            f"{PREFIX}{namespace}:{meta['name']}",
            audiences or (ISSUER,),
            int(ends.timestamp()),
            int(now.timestamp()),
            int(now.timestamp()),
            str(uuid.uuid4()),
            _Bound(namespace, _Reference(meta["name"], meta["uid"]), **references),
        )
        signed = f"{self._header}.{_base64(encode(claims))}"
        first, second = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = first.to_bytes(COORDINATE_BYTES) + second.to_bytes(COORDINATE_BYTES)
        return f"{signed}.{_base64(signature)}", ends

    def authenticate(self, token: str) -> User:
        """Return the user of a token for this server, or raise a 401."""
        account = self.find(token)
        if account is None or ISSUER not in account.audiences:
            raise errors.unauthorized()
        return account.user

    def find(self, token: str) -> Account | None:
        """Return the account of a token, whatever its audience; None if the token is not valid now."""
        claims = self._claims.get(token) or self._read(token)
        if claims is None or not claims.nbf <= self._clock().timestamp() < claims.exp or not self._lives(claims):
            return None
        bound = claims.bound
        groups = (*groups_of(bound.namespace), AUTHENTICATED)
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims.jti}"]}
        if bound.pod is not None:
            extra["authentication.kubernetes.io/pod-name"] = [bound.pod.name]
            extra["authentication.kubernetes.io/pod-uid"] = [bound.pod.uid]
        return Account(User(claims.sub, groups, bound.serviceaccount.uid), claims.aud, extra)

    def _read(self, token: str) -> Claims | None:
        """Return the claims of a token that this server has signed."""
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
            claims = msgspec.json.decode(_bytes(content), type=Claims)
        except (ValueError, InvalidSignature, msgspec.MsgspecError):
            return None
        if len(self._claims) >= KEPT_CLAIMS:
            self._claims.clear()
        self._claims[token] = claims
        return claims

    def _lives(self, claims: Claims) -> bool:
        """Return whether the account and the object of the token exist, and are the same as then."""
        bound = claims.bound
        wanted = [("serviceaccounts", bound.namespace, bound.serviceaccount)]
        wanted += [
            (storage, "" if kind == "Node" else bound.namespace, reference)
            for kind, storage in BOUND_KINDS.items()
            if (reference := getattr(bound, kind.lower())) is not None
        ]
        return all(self._exists(*each) for each in wanted)

    def _exists(self, storage: str, namespace: str, reference: _Reference) -> bool:
        record = self._store.latest(storage, namespace, reference.name)
        if record is None or record.uid != reference.uid:
            return False
        if not record.is_ending:
            return True
        ending = datetime.fromisoformat(decode(record.value)["metadata"]["deletionTimestamp"])
        return self._clock() < ending + LEEWAY

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


def account_of(user: str) -> Key | None:
    """Return the ServiceAccount that a user name stands for; None for all other users."""
    namespace, colon, name = user.removeprefix(PREFIX).partition(":")
    return Key(namespace, name) if user.startswith(PREFIX) and colon and namespace and name else None


def groups_of(namespace: str) -> tuple[str, ...]:
    """Return the groups of the ServiceAccounts of a namespace."""
    return GROUP, f"{GROUP}:{namespace}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
