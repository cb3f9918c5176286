"""
Who asks: a bearer token to a user.

Tokens are long and random, and only their hash is kept: in Secrets of a type of their own, in a namespace that only
administrators can read. So users come and go through the API, while the server runs, and are part of a backup.

Called by: server/http.py for each request; kyu/cli/users.py makes the Secrets.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.exchange import ANONYMOUS, User
from kyu.server.forms import decode
from kyu.server.store import Change, Record, Store

Authenticate = Callable[[str], User]

NAMESPACE = "kyu-system"
SECRET_TYPE = "kyu.dev/token"
AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"


def new_token() -> str:
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    # The token has 256 random bits: one round of a plain hash cannot be undone, and salt would add nothing.
    return hashlib.sha256(token.encode()).hexdigest()


def token_secret(user: str, groups: tuple[str, ...], token: str) -> Json:
    """The Secret that lets the user in."""
    data = {"user": user, "groups": ",".join(groups), "sha256": token_hash(token)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"token-{user}", "namespace": NAMESPACE, "labels": {"kyu.dev/user": user}},
        "type": SECRET_TYPE,
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


class Tokens:
    """The users by the hash of their token, as the Secrets say at this moment."""

    def __init__(self, store: Store) -> None:
        self._users: dict[str, User] = {}
        self._hash_by_secret: dict[str, str] = {}
        for record in store.objects("secrets", NAMESPACE):
            self._add(record)
        store.listen(self._heard)

    def authenticate(self, authorization: str) -> User:
        """No token is the anonymous user; a wrong one is refused."""
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        user = self._users.get(token_hash(token.strip())) if scheme.lower() == "bearer" else None
        if user is None:
            raise errors.unauthorized()
        return user

    def knows(self, token: str) -> bool:
        return token_hash(token) in self._users

    def _heard(self, change: Change) -> None:
        record = change.record
        if record.resource != "secrets" or record.namespace != NAMESPACE:
            return
        if (known := self._hash_by_secret.pop(record.name, None)) is not None:
            self._users.pop(known, None)
        if change.type != "DELETED":
            self._add(record)

    def _add(self, record: Record) -> None:
        secret = decode(record.value)
        if secret.get("type") != SECRET_TYPE:
            return
        data = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
        groups = tuple(group for group in data.get("groups", "").split(",") if group)
        self._hash_by_secret[record.name] = data.get("sha256", "")
        self._users[data.get("sha256", "")] = User(data.get("user", ""), (*groups, AUTHENTICATED), record.uid)
