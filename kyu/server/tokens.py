"""
Tokens and the Secrets that hold their hashes.

A token is long and random, and only its hash is kept: in a Secret of a type of its own, in a namespace that only
administrators can read. So users come and go through the API, while the server runs, and are part of a backup.

Called by: server/auth.py (reads them), app.py and cli/user.py (make them).
"""

from __future__ import annotations

import base64
import hashlib
import secrets

from kyu.api.meta import Json

NAMESPACE = "kyu-system"
SECRET_TYPE = "kyu.dev/token"
USER_LABEL = "kyu.dev/user"


def new_token() -> str:
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    # The token has 256 random bits: one round of a plain hash cannot be undone, and salt would add nothing.
    return hashlib.sha256(token.encode()).hexdigest()


def secret_name(user: str) -> str:
    return f"token-{user}"


def token_secret(user: str, groups: tuple[str, ...], token: str) -> Json:
    """The Secret that lets the user in."""
    data = {"user": user, "groups": ",".join(groups), "sha256": token_hash(token)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(user), "namespace": NAMESPACE, "labels": {USER_LABEL: user}},
        "type": SECRET_TYPE,
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def read_secret(secret: Json) -> dict[str, str]:
    """The user, the groups and the hash in a Secret."""
    return {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
