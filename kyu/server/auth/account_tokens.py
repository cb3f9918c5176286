"""
Tokens of ServiceAccounts: signed claims that name an account, and an object that they end with.

A token is valid until its time is over, and as long as its account and its object exist; so it needs no record of its
own.

Kubernetes: pkg/serviceaccount/{claims,jwt,openidmetadata}.go.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from kyu.api.meta import Json, Key
from kyu.server.auth.auth import AUTHENTICATED
from kyu.server.auth.signing import TokenSigner
from kyu.server.exchange import User, encode
from kyu.server.representations import decode
from kyu.server.storage.store import Store

ISSUER: Final = "https://kubernetes.default.svc"
PREFIX: Final = "system:serviceaccount:"
GROUP: Final = "system:serviceaccounts"
# The kinds of objects that a token may end with, and where they are stored.
BOUND_KINDS: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
# A token is valid for so long after the deletion of its object has begun.
LEEWAY: Final = timedelta(seconds=60)


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

    def __init__(self, signer: TokenSigner, store: Store, clock: Callable[[], datetime]) -> None:
        self._signer = signer
        self._store = store
        self._clock = clock

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
        return self._signer.sign(encode(claims)), ends

    def find(self, token: str) -> Account | None:
        """Return the account of a token, whatever its audience; None if the token is not valid now."""
        claims = self._signer.read(token, Claims)
        if claims is None or not claims.nbf <= self._clock().timestamp() < claims.exp or not self._lives(claims):
            return None
        bound = claims.bound
        groups = (*groups_of(bound.namespace), AUTHENTICATED)
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims.jti}"]}
        if bound.pod is not None:
            extra["authentication.kubernetes.io/pod-name"] = [bound.pod.name]
            extra["authentication.kubernetes.io/pod-uid"] = [bound.pod.uid]
        return Account(User(claims.sub, groups, bound.serviceaccount.uid), claims.aud, extra)

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


def account_of(user: str) -> Key | None:
    """Return the ServiceAccount that a user name stands for; None for all other users."""
    namespace, colon, name = user.removeprefix(PREFIX).partition(":")
    return Key(namespace, name) if user.startswith(PREFIX) and colon and namespace and name else None


def groups_of(namespace: str) -> tuple[str, ...]:
    """Return the groups of the ServiceAccounts of a namespace."""
    return GROUP, f"{GROUP}:{namespace}"
