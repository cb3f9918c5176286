"""
The certificates of the webhooks: made, renewed and handed to the API server without a gap.

A Secret holds them for all replicas. A new authority is trusted for a while before it signs, so that each API server
knows it by then. ``advance`` decides this; the rest of the file reads and writes.

Kueue: pkg/util/cert
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from kyu import log
from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors
from kyu.kube.client import Client
from kyu.server.auth import certificates
from kyu.server.auth.certificates import KeyPair

SECRET = Kind("", "v1", "Secret", "secrets")
RENEW_AUTHORITY_BEFORE = timedelta(days=365)
# The time in which every API server learns of a new authority.
SETTLE = timedelta(hours=1)
PEM_END = b"-----END "
TRIES = 5
REFRESH_SECONDS = 600.0
RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Material:
    """The authorities, oldest first, and the certificate that the webhooks serve with."""

    authorities: tuple[KeyPair, ...]
    server: KeyPair

    @property
    def bundle(self) -> bytes:
        return b"".join(authority.certificate for authority in self.authorities)


def advance(material: Material | None, host: str, now: datetime) -> Material:
    """Return the material that holds from now on: the same one while nothing ends soon."""
    authorities = [each for each in material.authorities if each.ends > now] if material else []
    if not authorities or authorities[-1].ends - now < RENEW_AUTHORITY_BEFORE:
        authorities.append(certificates.make_authority("kyu-webhooks", now))
    settled = [each for each in authorities if each.begins + SETTLE <= now]
    signer = (settled or authorities[:1])[-1]
    server = material.server if material else None
    if server is None or not is_served_by(server, signer, host, now):
        server = certificates.make_server(signer, [host], now)
    return Material(tuple(authorities), server)


def is_served_by(server: KeyPair, signer: KeyPair, host: str, now: datetime) -> bool:
    good = certificates.is_good(server.certificate, host, now)
    return good and certificates.is_signed_by(server.certificate, signer.certificate)


def from_secret(secret: Json | None) -> Material | None:
    """Read the material. A Secret that cannot be read counts as empty."""
    data = (secret or {}).get("data") or {}
    try:
        parts = {name: base64.b64decode(data[name]) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
        pairs = zip(split_pem(parts["ca.crt"]), split_pem(parts["ca.key"]), strict=True)
        authorities = tuple(KeyPair(certificate, key) for certificate, key in pairs)
        material = Material(authorities, KeyPair(parts["tls.crt"], parts["tls.key"]))
        return material if all(each.ends for each in (*authorities, material.server)) and authorities else None
    except (KeyError, ValueError):
        return None


def to_data(material: Material) -> Json:
    keys = b"".join(authority.key for authority in material.authorities)
    texts = {
        "ca.crt": material.bundle,
        "ca.key": keys,
        "tls.crt": material.server.certificate,
        "tls.key": material.server.key,
    }
    return {name: base64.b64encode(text).decode() for name, text in texts.items()}


def split_pem(text: bytes) -> list[bytes]:
    """Split concatenated PEM blocks."""
    blocks: list[bytes] = []
    current: list[bytes] = []
    for line in text.splitlines(keepends=True):
        current.append(line)
        if line.startswith(PEM_END):
            blocks.append(b"".join(current))
            current = []
    return blocks


@dataclass(frozen=True, slots=True)
class TrustTarget:
    """An object whose client configurations trust the bundle."""

    kind: Kind
    name: str


class CertificateKeeper:
    """Keeps the Secret, the API server's bundles and a TLS context up to date."""

    def __init__(
        self, client: Client, secret: Key, host: str, targets: Sequence[TrustTarget], clock: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._secret = secret
        self._host = host
        self._targets = targets
        self._clock = clock
        self._served: KeyPair | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # For a server that asks its clients for certificates.
        self.proxied_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    @property
    def is_served(self) -> bool:
        return self._served is not None

    async def keep(self) -> None:
        """Refresh again and again. An API server that is away or refuses is asked again a little later."""
        while True:
            try:
                await self.refresh()
                pause = REFRESH_SECONDS
            except (errors.ApiError, OSError, TimeoutError) as error:
                log.warning("webhook certificate not refreshed", secret=self._secret, error=error)
                pause = RETRY_SECONDS
            await asyncio.sleep(pause)

    async def refresh(self) -> None:
        """Renew what ends soon, serve with the current certificate, and write the bundle where it is missing."""
        material = await self._ensure_secret()
        # The bundle comes first: a server certificate that the API server does not trust yet would leave a gap.
        for target in self._targets:
            await self._inject(target, base64.b64encode(material.bundle).decode())
        self._serve(material.server)

    async def _ensure_secret(self) -> Material:
        """Return the material of the Secret. Of several replicas that renew at once, one wins, and all use its own."""
        for _ in range(TRIES):
            found = await self._client.find(SECRET, self._secret)
            before = from_secret(found)
            material = advance(before, self._host, self._clock())
            if material == before:
                return material
            meta = {"name": self._secret.name, "namespace": self._secret.namespace}
            body = {**(found or {"metadata": meta, "type": "Opaque"}), "data": to_data(material)}
            try:
                await (self._client.create(SECRET, body) if found is None else self._client.update(SECRET, body))
            except (errors.Conflict, errors.AlreadyExists):
                continue
            log.info("webhook certificate renewed", secret=self._secret, ends=material.server.ends)
            return material
        raise errors.Conflict(409, "Conflict", f"the Secret {self._secret} changes all the time")

    async def _inject(self, target: TrustTarget, bundle: str) -> None:
        found = await self._client.find(target.kind, Key("", target.name))
        if found is None:
            return
        patch = bundle_patch(found, bundle)
        if patch:
            await self._client.patch(target.kind, Key("", target.name), patch)
            log.info("webhook bundle written", kind=target.kind.kind, name=target.name)

    def _serve(self, server: KeyPair) -> None:
        if server == self._served:
            return
        load_pair((self.context, self.proxied_context), server)
        self._served = server


def load_pair(contexts: Iterable[ssl.SSLContext], server: KeyPair) -> None:
    """Serve new connections with the pair. The library reads it from files only."""
    with tempfile.TemporaryDirectory(prefix="kyu-") as folder:
        chain, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        chain.write_bytes(server.certificate)
        key.touch(mode=0o600)
        key.write_bytes(server.key)
        for context in contexts:
            context.load_cert_chain(chain, key)


class CertificateFiles:
    """Serves with the certificate in a folder, as cert-manager mounts it, and reads it again when it changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._served: KeyPair | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # For a server that asks its clients for certificates.
        self.proxied_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    @property
    def is_served(self) -> bool:
        return self._served is not None

    async def keep(self) -> None:
        while True:
            try:
                found = KeyPair((self._folder / "tls.crt").read_bytes(), (self._folder / "tls.key").read_bytes())
                if found != self._served:
                    load_pair((self.context, self.proxied_context), found)
                    self._served = found
            except (OSError, ssl.SSLError) as error:
                log.warning("webhook certificate not read", folder=self._folder, error=error)
            await asyncio.sleep(RETRY_SECONDS)


def bundle_patch(obj: Json, bundle: str) -> Json:
    """Return the merge patch that writes the bundle into all client configurations; empty if it is there."""
    spec = obj.get("spec") or {}
    if "groupPriorityMinimum" in spec:
        # An APIService of Kueue is not checked by a bundle, and may have none.
        is_current = spec.get("insecureSkipTLSVerify") or spec.get("caBundle") == bundle
        return {} if is_current else {"spec": {"caBundle": bundle}}
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy") == "Webhook":
        if conversion["webhook"]["clientConfig"].get("caBundle") == bundle:
            return {}
        return {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}}
    webhooks = obj.get("webhooks") or []
    if all(webhook["clientConfig"].get("caBundle") == bundle for webhook in webhooks):
        return {}
    # A merge patch replaces the list, so it must not overwrite a change that was not seen.
    version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
    changed = [{**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": bundle}} for webhook in webhooks]
    return {"metadata": version, "webhooks": changed}
