"""
Tokens of Unix users: what a local account gets when it asks the socket of the server.

The kernel tells the socket which account asks. The token names the account and its groups as they are at that moment.
It ends after a few minutes, and commands ask for another one; so a change of groups or accounts takes effect soon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from kyu.api.accounting import UNIX_PREFIX
from kyu.server.auth.auth import AUTHENTICATED, MASTERS
from kyu.server.auth.signing import TokenSigner
from kyu.server.exchange import User, encode

SECONDS: Final = 600


class UnixClaims(msgspec.Struct, frozen=True):
    """The content of a token. Tokens of ServiceAccounts have other fields."""

    sub: str
    groups: tuple[str, ...]
    exp: int
    unix_uid: int


@dataclass(frozen=True, slots=True)
class UnixAccount:
    """A local account, and the names of its groups."""

    uid: int
    name: str
    groups: tuple[str, ...]

    @property
    def user(self) -> User:
        """The account as a user of the API. Root has all rights of the machine, so it has all rights here."""
        groups = (MASTERS,) if self.uid == 0 else tuple(f"{UNIX_PREFIX}{group}" for group in self.groups)
        return User(f"{UNIX_PREFIX}{self.name}", (*groups, AUTHENTICATED), str(self.uid))


class UnixTokens:
    """Signs and reads the tokens of Unix users."""

    def __init__(self, signer: TokenSigner, clock: Callable[[], datetime]) -> None:
        self._signer = signer
        self._clock = clock

    def sign(self, account: UnixAccount) -> tuple[str, datetime]:
        """Return a new token, and the time at which it ends."""
        ends = self._clock().replace(microsecond=0) + timedelta(seconds=SECONDS)
        user = account.user
        claims = UnixClaims(user.name, user.groups, int(ends.timestamp()), account.uid)
        return self._signer.sign(encode(claims)), ends

    def find(self, token: str) -> User | None:
        """Return the user of a token that is valid now."""
        claims = self._signer.read(token, UnixClaims)
        if claims is None or claims.exp <= self._clock().timestamp():
            return None
        return User(claims.sub, claims.groups, str(claims.unix_uid))
