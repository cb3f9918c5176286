"""
Who asks: a bearer token to a user.

Called by: server/http.py for each request. The Secrets that say who is let in are described in server/tokens.py.
"""

from __future__ import annotations

from collections.abc import Callable

from kyu.server import errors
from kyu.server.exchange import ANONYMOUS, User
from kyu.server.forms import decode
from kyu.server.records import Change, Record
from kyu.server.store import Store
from kyu.server.tokens import NAMESPACE, SECRET_TYPE, read_secret, token_hash

Authenticate = Callable[[str], User]

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"


# How many headers are remembered with their user.
KEPT_HEADERS = 1024


class Tokens:
    """The users by the hash of their token, as the Secrets say at this moment."""

    def __init__(self, store: Store) -> None:
        self._users: dict[str, User] = {}
        self._hash_by_secret: dict[str, str] = {}
        self._user_by_header: dict[str, User] = {}
        for record in store.objects("secrets", NAMESPACE):
            self._add(record)
        store.listen(self._heard, "secrets")

    def authenticate(self, authorization: str) -> User:
        """No token is the anonymous user; a wrong one is refused."""
        if not authorization:
            return ANONYMOUS
        known = self._user_by_header.get(authorization)
        if known is not None:
            return known
        scheme, _, token = authorization.partition(" ")
        user = self._users.get(token_hash(token.strip())) if scheme.lower() == "bearer" else None
        if user is None:
            raise errors.unauthorized()
        if len(self._user_by_header) >= KEPT_HEADERS:
            self._user_by_header.clear()
        self._user_by_header[authorization] = user
        return user

    def knows(self, token: str) -> bool:
        return token_hash(token) in self._users

    def _heard(self, change: Change) -> None:
        record = change.record
        if record.namespace != NAMESPACE:
            return
        self._user_by_header.clear()
        if (known := self._hash_by_secret.pop(record.name, None)) is not None:
            self._users.pop(known, None)
        if change.type != "DELETED":
            self._add(record)

    def _add(self, record: Record) -> None:
        secret = decode(record.value)
        if secret.get("type") != SECRET_TYPE:
            return
        data = read_secret(secret)
        groups = tuple(group for group in data.get("groups", "").split(",") if group)
        self._hash_by_secret[record.name] = data.get("sha256", "")
        self._users[data.get("sha256", "")] = User(data.get("user", ""), (*groups, AUTHENTICATED), record.uid)
