"""
How to get in to the NATS server of a group: its connector, and what a Secret adds to it.

Called by: controllers/pools.py.
"""

from __future__ import annotations

import base64
import binascii

from kyu.api.meta import Key, Kind
from kyu.api.pools import NatsFlavor
from kyu.bus.nats import Connector
from kyu.kube.client import Client

SECRET = Kind("", "v1", "Secret", "secrets")


async def find_connector(client: Client, nats: NatsFlavor) -> Connector:
    """Raises LookupError if the Secret is not there or not readable, BadConnector if the address is no address."""
    if nats.credentials_secret is None:
        return Connector(nats.nats_connector)
    reference = nats.credentials_secret
    secret = await client.find(SECRET, Key(reference.namespace, reference.name))
    if secret is None:
        raise LookupError(f"Secret {reference.namespace}/{reference.name} does not exist")
    words = {name: _decode(name, text) for name, text in (secret.get("data") or {}).items()}
    return Connector(
        words.get("connector", "").strip() or nats.nats_connector,
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
