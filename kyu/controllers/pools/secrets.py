"""
Credentials of NATS servers: the connector of a MasterQueue with its Secret, from the API or a mounted folder.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

from kyu.api.core import SECRET
from kyu.api.meta import Key
from kyu.api.pools import NatsFlavor
from kyu.bus.connector import Connector
from kyu.kube.client import Client

KEYS = ("connector", "user", "password", "token", "creds", "nkey", "ca.crt", "tls.crt", "tls.key")


async def find_connector(client: Client, nats: NatsFlavor) -> Connector:
    """Return the connector. Raise LookupError for a missing or unreadable Secret, BadConnector for a bad address."""
    if nats.credentials_secret is None:
        return Connector(nats.nats_connector)
    reference = nats.credentials_secret
    secret = await client.find(SECRET, Key(reference.namespace, reference.name))
    if secret is None:
        raise LookupError(f"Secret {reference.namespace}/{reference.name} does not exist")
    data = secret.get("data") or {}
    return with_secret(nats.nats_connector, {name: _decode(name, data[name]) for name in KEYS if name in data})


def read_folder(url: str, folder: Path) -> Connector:
    """Return the connector from a folder with a file for each key. Raise OSError or BadConnector."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder")
    return with_secret(url, {name: (folder / name).read_text() for name in KEYS if (folder / name).exists()})


def with_secret(url: str, words: Mapping[str, str]) -> Connector:
    return Connector(
        words.get("connector", "").strip() or url,
        user=words.get("user", "").strip(),
        password=words.get("password", "").strip(),
        token=words.get("token", "").strip(),
        credentials=words.get("creds", ""),
        nkey_seed=words.get("nkey", "").strip(),
        authority=words.get("ca.crt", ""),
        certificate=words.get("tls.crt", ""),
        private_key=words.get("tls.key", ""),
    )


def _decode(name: str, text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise LookupError(f"{name} in the Secret is no text") from error
