"""
Tokens and the Secrets that hold their hashes.

A token is long and random, and only its hash is kept: in a Secret of a type of its own, in a namespace that only
administrators can read. So users come and go through the API, while the server runs, and are part of a backup. A Secret
has a second token while a rotation is going on: the old one, which ends soon.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

from kyu.api.meta import Json

NAMESPACE = "kyu-system"
SECRET_TYPE = "kyu.dev/token"
USER_LABEL = "kyu.dev/user"
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Token:
    """The hash of a token, and the time in seconds at which it ends."""

    sha256: str
    expires: float = NEVER


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """A user as a Secret describes it: the newest token comes first."""

    user: str
    groups: tuple[str, ...]
    tokens: tuple[Token, ...]


def new_token() -> str:
    return secrets.token_urlsafe(32)


def is_account_token(token: str) -> bool:
    """Return whether a token has the form of signed claims of a ServiceAccount. Tokens of users have no dots."""
    return token.count(".") == 2


def token_hash(token: str) -> str:
    # The token has 256 random bits: one round of a plain hash cannot be undone, and salt would add nothing.
    return hashlib.sha256(token.encode()).hexdigest()


def secret_name(user: str) -> str:
    return f"token-{user}"


def token_secret(
    user: str,
    groups: tuple[str, ...],
    token: str,
    *,
    expires: datetime | None = None,
    old: Token | None = None,
) -> Json:
    """Return the Secret that lets the user in, until the token ends; ``old`` is a token that is valid beside it."""
    data = {"user": user, "groups": ",".join(groups), "sha256": token_hash(token)}
    if expires is not None:
        data["expires"] = str(int(expires.timestamp()))
    if old is not None:
        data["old-sha256"] = old.sha256
        data["old-expires"] = str(int(old.expires))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(user), "namespace": NAMESPACE, "labels": {USER_LABEL: user}},
        "type": SECRET_TYPE,
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def read_secret(secret: Json) -> UserCredentials:
    """Return the user, the groups and the tokens in a Secret."""
    data = {key: base64.b64decode(value).decode(errors="replace") for key, value in (secret.get("data") or {}).items()}
    found = [
        Token(data[f"{prefix}sha256"], _seconds(data.get(f"{prefix}expires", "")))
        for prefix in ("", "old-")
        if data.get(f"{prefix}sha256")
    ]
    groups = tuple(group for group in data.get("groups", "").split(",") if group)
    return UserCredentials(data.get("user", ""), groups, tuple(found))


def _seconds(text: str) -> float:
    """Return the time of a token. One that cannot be read has ended: a damaged bound is no permission."""
    if not text:
        return NEVER
    return float(text) if text.isdecimal() else 0.0
