"""Every way in to a real nats-server: with and without TLS, TCP and web sockets, and all kinds of credentials."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import nkeys
import pytest

from kyu.bus.connector import Connector
from tests.cluster import certificates
from tests.cluster.certificates import KeyPair
from tests.support.nats_listening import heard, say, speaking
from tests.support.nats_servers import nats_server

MESSAGE = {"quotas": {"cpu": "8"}}
# The NATS library uses a deprecated call of its web socket library.
pytestmark = pytest.mark.filterwarnings("ignore:parameter 'timeout' of type 'float':DeprecationWarning")


@dataclass(frozen=True, slots=True)
class Certificates:
    """Certificates in files, as the server reads them."""

    folder: Path
    authority: KeyPair
    user: KeyPair

    @property
    def trusted(self) -> str:
        return self.authority.certificate_pem().decode()

    def block(self, *more: str) -> str:
        files = [
            f'{option}: "{self.folder / name}"' for option, name in (("cert_file", "s.crt"), ("key_file", "s.key"))
        ]
        return f"tls {{ {', '.join([*files, *more])} }}"

    @property
    def verified(self) -> str:
        """Return the settings of a server that verifies clients."""
        return self.block(f'ca_file: "{self.folder / "ca.crt"}"', "verify: true")


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    authority = certificates.authority("nats-tests")
    server = certificates.server(authority, ["127.0.0.1"])
    (folder / "ca.crt").write_bytes(authority.certificate_pem())
    (folder / "s.crt").write_bytes(server.certificate_pem())
    (folder / "s.key").write_bytes(server.key_pem())
    return Certificates(folder, authority, certificates.user(authority, "kyu", []))


def configured(folder: Path, text: str) -> tuple[str, str]:
    path = folder / "nats.conf"
    path.write_text(text)
    return "-c", str(path)


async def listens(server_side: Connector, secret: dict[str, str], url: str) -> None:
    """Check that a MasterQueue with credentials from a Secret hears the pool."""
    async with heard(**secret) as one, speaking(server_side) as mouth:
        one.put(url, credentialsSecret={"namespace": "kyu", "name": "nats"})
        await one.until("connected", lambda: one.source().connected)
        await say(mouth, "a", MESSAGE)
        await one.until("heard", lambda: one.pools() == ["a"])


async def is_refused(secret: dict[str, str], url: str, *words: str) -> None:
    async with heard(**secret) as one:
        one.put(url, credentialsSecret={"namespace": "kyu", "name": "nats"})
        await one.until("refused", lambda: any(word in one.source().error for word in words))
        assert not one.source().connected


async def test_tls_with_an_authority_of_our_own(tmp_path: Path, certified: Certificates) -> None:
    with nats_server(tmp_path, *configured(tmp_path, certified.block())) as server:
        url = server.url.replace("nats://", "tls://")
        await listens(Connector(url, authority=certified.trusted), {"ca.crt": certified.trusted}, url)
        await is_refused({"user": "nobody"}, url, "certificate verify failed", "CERTIFICATE_VERIFY_FAILED")


async def test_a_server_that_wants_tls_gets_it_for_a_plain_address_too(tmp_path: Path, certified: Certificates) -> None:
    with nats_server(tmp_path, *configured(tmp_path, certified.block())) as server:
        connector = Connector(server.url, authority=certified.trusted)
        await listens(connector, {"ca.crt": certified.trusted}, server.url)


async def test_a_client_certificate(tmp_path: Path, certified: Certificates) -> None:
    chain, key = certified.user.certificate_pem().decode(), certified.user.key_pem().decode()
    with nats_server(tmp_path, *configured(tmp_path, certified.verified)) as server:
        url = server.url.replace("nats://", "tls://")
        connector = Connector(url, authority=certified.trusted, certificate=chain, private_key=key)
        await listens(connector, {"ca.crt": certified.trusted, "tls.crt": chain, "tls.key": key}, url)
        async with heard(**{"ca.crt": certified.trusted}) as one:
            one.put(url, credentialsSecret={"namespace": "kyu", "name": "nats"})
            await one.until("refused", lambda: bool(one.source().error))
            assert not one.source().connected


async def test_a_pool_gets_in_with_the_files_of_a_secret(tmp_path: Path, certified: Certificates) -> None:
    secret = {
        "ca.crt": certified.trusted,
        "tls.crt": certified.user.certificate_pem().decode(),
        "tls.key": certified.user.key_pem().decode(),
    }
    folder = tmp_path / "secret"
    folder.mkdir()
    for name, text in secret.items():
        (folder / name).write_text(text)
    with nats_server(tmp_path, *configured(tmp_path, certified.verified)) as server:
        url = server.url.replace("nats://", "tls://")
        async with heard(**secret) as one:
            one.put(url, credentialsSecret={"namespace": "kyu", "name": "nats"})
            await one.until("connected", lambda: one.source().connected)
            words = ["--nats", url, "--nats-secret", str(folder), "--pool", "a", "--from", "static", "--once"]
            publishing = [sys.executable, "-m", "kyu", "pool", "publish", "--pool-data", str(tmp_path), *words]
            process = await asyncio.create_subprocess_exec(*publishing)
            assert await process.wait() == 0
            await one.until("heard", lambda: one.pools() == ["a"])


async def test_web_sockets(tmp_path: Path) -> None:
    text = 'websocket { host: "127.0.0.1", port: -1, no_tls: true }\nauthorization { token: "a-token" }'
    with nats_server(tmp_path, *configured(tmp_path, text)) as server:
        address = f"ws://127.0.0.1:{server.websocket_port}"
        await listens(Connector(server.url, token="a-token"), {"token": "a-token"}, address)


async def test_encrypted_web_sockets_with_user_and_password_in_the_address(
    tmp_path: Path, certified: Certificates
) -> None:
    users = 'authorization { user: "ana", password: "hidden" }'
    text = f'websocket {{ host: "127.0.0.1", port: -1, {certified.block()} }}\n{users}'
    with nats_server(tmp_path, *configured(tmp_path, text)) as server:
        plain = Connector(server.url, user="ana", password="hidden")
        address = f"wss://ana:hidden@127.0.0.1:{server.websocket_port}/release"
        await listens(plain, {"ca.crt": certified.trusted}, address)


async def test_an_nkey(tmp_path: Path) -> None:
    user, stranger = new_key(nkeys.PREFIX_BYTE_USER), new_key(nkeys.PREFIX_BYTE_USER)
    text = f'authorization {{ users: [ {{ nkey: "{user.public}" }} ] }}'
    with nats_server(tmp_path, *configured(tmp_path, text)) as server:
        await listens(Connector(server.url, nkey_seed=user.seed), {"nkey": user.seed}, server.url)
        await is_refused({"nkey": stranger.seed}, server.url, "Authorization")


async def test_a_credentials_file_with_jwt_and_seed(tmp_path: Path) -> None:
    operator, account = new_key(nkeys.PREFIX_BYTE_OPERATOR), new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    user, stranger = new_key(nkeys.PREFIX_BYTE_USER), new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    limits = {"subs": -1, "data": -1, "payload": -1, "conn": -1, "imports": -1, "exports": -1, "leaf": -1}
    known = signed(operator, account.public, "account", {"limits": limits})
    itself = signed(operator, operator.public, "operator", {})
    text = f"operator: {itself}\nresolver: MEMORY\nresolver_preload: {{ {account.public}: {known} }}"
    anything = {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
    good = credentials(signed(account, user.public, "user", anything), user)
    bad = credentials(signed(stranger, user.public, "user", anything), user)
    with nats_server(tmp_path, *configured(tmp_path, text)) as server:
        await listens(Connector(server.url, credentials=good), {"creds": good}, server.url)
        await is_refused({"creds": bad}, server.url, "Authorization")


@dataclass(frozen=True, slots=True)
class NatsKey:
    seed: str
    public: str


def new_key(prefix: int) -> NatsKey:
    seed = nkeys.encode_seed(os.urandom(32), prefix)
    return NatsKey(seed.decode(), nkeys.from_seed(bytearray(seed)).public_key.decode())


def signed(issuer: NatsKey, subject: str, type_: str, claims: dict[str, object]) -> str:
    """Return a NATS token: subject and claims, signed with the issuer's key."""
    body: dict[str, object] = {"iss": issuer.public, "sub": subject, "name": type_, "iat": 1_700_000_000}
    body["nats"] = {"type": type_, "version": 2, **claims}
    body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
    parts = [encoded(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)]
    message = ".".join(parts)
    signature = nkeys.from_seed(bytearray(issuer.seed.encode())).sign(message.encode())
    return f"{message}.{encoded(signature)}"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def credentials(token: str, user: NatsKey) -> str:
    parts = (("NATS USER JWT", token), ("USER NKEY SEED", user.seed))
    return "\n".join(f"-----BEGIN {name}-----\n{text}\n------END {name}------\n" for name, text in parts)
