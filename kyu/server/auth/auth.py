"""
Authentication: a bearer token to a user.

The Secrets that hold the hashes of tokens are described in server/auth/tokens.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from kyu.server import errors
from kyu.server.auth.tokens import NAMESPACE, NEVER, SECRET_TYPE, is_account_token, read_secret, token_hash
from kyu.server.exchange import ANONYMOUS, User
from kyu.server.representations import decode
from kyu.server.storage.records import Change, Record
from kyu.server.storage.store import Store

Authenticate = Callable[[str], User]

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"


# Headers that are remembered with their user.
KEPT_HEADERS = 1024
LONGEST_KEPT_HEADER = 256
# Wrong tokens that one address may send at once, and per second from then on.
FAILURES_AT_ONCE = 20
FAILURES_PER_SECOND = 0.5
KEPT_ADDRESSES = 4096


@dataclass(frozen=True, slots=True)
class _Login:
    """A user, and the time in seconds at which the token ends."""

    user: User
    expires: float


class Tokens:
    """The users by the hash of their token, as the Secrets are at this moment.

    ``authenticate_account`` returns the user of a token of a ServiceAccount, or raises.
    """

    def __init__(self, store: Store, clock: Callable[[], datetime], authenticate_account: Authenticate) -> None:
        self._clock = clock
        self._authenticate_account = authenticate_account
        self._logins: dict[str, _Login] = {}
        self._hashes_by_secret: dict[str, list[str]] = {}
        self._login_by_header: dict[str, _Login] = {}
        for record in store.objects("secrets", NAMESPACE):
            self._add(record)
        store.listen(self._heard, "secrets")

    def authenticate(self, authorization: str) -> User:
        """Return the user of a header. No token is the anonymous user; a wrong or expired one is refused."""
        if not authorization:
            return ANONYMOUS
        login = self._login_by_header.get(authorization)
        if login is None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() == "bearer" and is_account_token(token):
                return self._authenticate_account(token.strip())
            login = self._find(authorization)
        if login.expires != NEVER and login.expires <= self._clock().timestamp():
            raise errors.unauthorized()
        return login.user

    def _find(self, authorization: str) -> _Login:
        scheme, _, token = authorization.partition(" ")
        login = self._logins.get(token_hash(token.strip())) if scheme.lower() == "bearer" else None
        if login is None:
            raise errors.unauthorized()
        if len(authorization) <= LONGEST_KEPT_HEADER:
            if len(self._login_by_header) >= KEPT_HEADERS:
                self._login_by_header.clear()
            self._login_by_header[authorization] = login
        return login

    def knows(self, token: str) -> bool:
        return self.find(token) is not None

    def find(self, token: str) -> User | None:
        """Return the user of a token that is valid now."""
        login = self._logins.get(token_hash(token))
        return login.user if login is not None and login.expires > self._clock().timestamp() else None

    def _heard(self, change: Change) -> None:
        record = change.record
        if record.namespace != NAMESPACE:
            return
        self._login_by_header.clear()
        for known in self._hashes_by_secret.pop(record.name, ()):
            self._logins.pop(known, None)
        if change.type != "DELETED":
            self._add(record)

    def _add(self, record: Record) -> None:
        secret = decode(record.value)
        if secret.get("type") != SECRET_TYPE:
            return
        credentials = read_secret(secret)
        user = User(credentials.user, (*credentials.groups, AUTHENTICATED), record.uid)
        self._hashes_by_secret[record.name] = [each.sha256 for each in credentials.tokens]
        for each in credentials.tokens:
            self._logins[each.sha256] = _Login(user, each.expires)


class FailedLogins:
    """The wrong tokens of each address: a bucket that fills slowly.

    A valid token is always let in, so that one user cannot lock out others behind the same address.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}

    def check(self, address: str) -> None:
        """Count a wrong token; raise 429 if the address has sent too many."""
        now = time.monotonic()
        tokens, since = self._buckets.pop(address, (float(FAILURES_AT_ONCE), now))
        left = min(float(FAILURES_AT_ONCE), tokens + (now - since) * FAILURES_PER_SECOND) - 1
        if len(self._buckets) >= KEPT_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[address] = max(left, -1.0), now
        if left < 0:
            text = "too many requests with a wrong token came from this address"
            raise errors.too_many_requests(text, retry_after_seconds=int(1 / FAILURES_PER_SECOND))
