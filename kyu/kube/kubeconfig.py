"""
Server addresses and credentials: kubeconfig files, exec plugins, and the service account of a pod.

Plugins block. Nothing here is asynchronous, so that commands need not import asyncio.

Kubernetes: client-go tools/clientcmd, plugin/pkg/client/auth/exec.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from kyu.api import documents
from kyu.api.meta import Json

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_SECONDS = 60.0
LOGIN_SECONDS = 10.0
MOST_LOGIN_BYTES = 65536
PEER = struct.Struct("3i")
# A token is renewed so long before its end.
SOON = timedelta(seconds=60)
# Fields that a kubeconfig from another user must not have, by section and part of its entries.
FOREIGN_FIELDS = (
    ("clusters", "cluster", ("insecure-skip-tls-verify", "certificate-authority")),
    (
        "users",
        "user",
        ("tokenFile", "exec", "auth-provider", "username", "password", "client-certificate", "client-key"),
    ),
    ("contexts", "context", ()),
)


class BadKubeconfig(Exception):
    """The file cannot be used; the message names it and the place in it."""


class UnsafeKubeconfig(BadKubeconfig):
    """A kubeconfig from another user that would read files of this machine, run programs, or skip TLS verification."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An exec plugin: a program that prints credentials."""

    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    api_version: str


@dataclass(slots=True)
class Credentials:
    """All that a connection needs. Tokens in files and from plugins are read again when they have changed."""

    server: str
    namespace: str = "default"
    user: str = ""
    authority: bytes = b""
    verifies: bool = True
    server_name: str = ""
    certificate: bytes = b""
    key: bytes = b""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    plugin: Plugin | None = None
    # The socket of a local server, which gives tokens that end soon.
    socket: Path | None = None
    namespaces: tuple[str, ...] = ()
    _expires: datetime | None = None
    _is_fresh: bool = False

    @property
    def needs_plugin(self) -> bool:
        """Return whether the exec plugin has to run before the next request."""
        if self.plugin is None:
            return False
        if not self.token and not self.certificate:
            return True
        return self._expires is not None and datetime.now(UTC) >= self._expires

    def headers(self) -> dict[str, str]:
        """Return the Authorization header, if a token is known."""
        if self.plugin is not None and self.needs_plugin:
            self._run_plugin(self.plugin)
        if self.socket is not None and (self._expires is None or datetime.now(UTC) >= self._expires - SOON):
            self._log_in(self.socket)
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return {"authorization": f"Bearer {token}"} if token else {}

    def refresh(self) -> bool:
        """Drop a token that the server refused; return whether there may be another one."""
        if self.socket is not None:
            self._log_in(self.socket)
            return True
        if self.plugin is None or self._is_fresh:
            return self.token_file is not None
        self._run_plugin(self.plugin)
        return True

    def _log_in(self, path: Path) -> None:
        fresh = log_in(path)
        self.token, self._expires = fresh.token, fresh.expires
        self.server, self.authority = fresh.server, fresh.authority

    @property
    def expires(self) -> datetime | None:
        """The end of the token, if it is known."""
        return self._expires

    def ssl_context(self) -> ssl.SSLContext | bool:
        if not self.server.startswith("https"):
            return False
        # The authorities of the system are read only where they are needed: that takes longer than most commands.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.authority:
            context.load_verify_locations(cadata=self.authority.decode())
        elif self.verifies:
            context.load_default_certs()
        if not self.verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            _load_pair(context, self.certificate, self.key)
        return context

    def _run_plugin(self, plugin: Plugin) -> None:
        spec = {"interactive": False}
        request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {
            **os.environ,
            **plugin.environment,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode(),
        }
        try:
            done = subprocess.run(
                [plugin.command, *plugin.arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=EXEC_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise BadKubeconfig(f"credential plugin {plugin.command}: timed out") from error
        except OSError as error:
            raise BadKubeconfig(f"credential plugin {plugin.command}: {error}") from error
        if done.returncode != 0:
            raise BadKubeconfig(f"credential plugin {plugin.command} failed with exit code {done.returncode}")
        self._take(plugin, done.stdout)

    def _take(self, plugin: Plugin, output: bytes) -> None:
        try:
            status = msgspec.json.decode(output)["status"]
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise BadKubeconfig(f"credential plugin {plugin.command} printed no ExecCredential") from error
        self.token = status.get("token", "")
        self.certificate = status.get("clientCertificateData", "").encode()
        self.key = status.get("clientKeyData", "").encode()
        expires = status.get("expirationTimestamp")
        self._expires = datetime.fromisoformat(expires) if expires else None
        self._is_fresh = True


def log_in(path: Path) -> Credentials:
    """Return the credentials that a local server gives to this account at its socket."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(LOGIN_SECONDS)
            connection.connect(str(path))
            _, uid, _ = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
            if uid not in (0, os.getuid()):
                raise BadKubeconfig(f"{path}: the server of this socket belongs to the user {uid}, and not to root")
            with connection.makefile("rb") as file:
                answer = msgspec.json.decode(file.read(MOST_LOGIN_BYTES))
    except (OSError, msgspec.DecodeError) as error:
        raise BadKubeconfig(f"{path}: the server does not answer: {error}") from error
    if "error" in answer:
        raise BadKubeconfig(f"{path}: {answer['error']}")
    namespaces = tuple(answer["namespaces"])
    return Credentials(
        server=answer["server"],
        namespace=namespaces[0] if namespaces else "default",
        user=answer["user"],
        authority=answer["authority"].encode(),
        token=answer["token"],
        socket=path,
        namespaces=namespaces,
        _expires=datetime.fromisoformat(answer["expires"]),
    )


def load(path: Path, context: str = "") -> Credentials:
    """Return the credentials of a context of the file, by default of its current one."""
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise BadKubeconfig(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return _credentials(path, _parse(path, text), context)


def parse_foreign(text: str, source: str) -> Credentials:
    """Return the credentials of a kubeconfig from another user, which must be self-contained and verify the server."""
    path = Path(source)
    document = _parse(path, text)
    for section, inner, refused in FOREIGN_FIELDS:
        entries = document.get(section) or []
        if not isinstance(entries, list):
            raise BadKubeconfig(f"{path}: {section} must be a list")
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get(inner), dict):
                raise BadKubeconfig(f"{path}: {section} has an entry without {inner}")
            for name in refused:
                if entry[inner].get(name):
                    raise UnsafeKubeconfig(f"{path}: {inner} {entry.get('name', '')!r}: {name} is not allowed here")
    return _credentials(path, document, "")


def _parse(path: Path, text: str) -> Json:
    try:
        found = documents.parse(text)
    except ValueError as error:
        raise BadKubeconfig(f"{path}: {error}") from error
    if len(found) != 1 or not isinstance(found[0].value, dict):
        raise BadKubeconfig(f"{path}: not a kubeconfig")
    document: Json = found[0].value
    return document


def _credentials(path: Path, document: Json, context: str) -> Credentials:
    name = context or document.get("current-context") or ""
    chosen = _named(path, document, "contexts", name, "context")
    cluster = _named(path, document, "clusters", chosen.get("cluster", ""), "cluster")
    user = _named(path, document, "users", chosen.get("user", ""), "user") if chosen.get("user") else {}
    credentials = _from_cluster(path, cluster)
    credentials.namespace = chosen.get("namespace") or "default"
    credentials.user = chosen.get("user", "")
    _add_user(path, user, credentials)
    return credentials


def in_cluster(folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ) -> Credentials | None:
    """Return the credentials of the pod that this process runs in, or None outside of one."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    token = folder / "token"
    if not host or not port or not token.exists():
        return None
    address = f"[{host}]" if ":" in host else host
    namespace = folder / "namespace"
    return Credentials(
        server=f"https://{address}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        authority=(folder / "ca.crt").read_bytes(),
        token_file=token,
    )


def render(server: str, authority: bytes, user: str, credential: str | Json, namespace: str = "default") -> str:
    """Return a kubeconfig with one context, as JSON, which is YAML. ``credential``: a token, or another entry."""
    document: Json = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "kyu",
                "cluster": {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()},
            }
        ],
        "users": [{"name": user, "user": {"token": credential} if isinstance(credential, str) else credential}],
        "contexts": [{"name": "kyu", "context": {"cluster": "kyu", "user": user, "namespace": namespace}}],
        "current-context": "kyu",
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"


def _named(path: Path, document: Json, section: str, name: str, inner: str) -> Json:
    for entry in document.get(section) or []:
        if entry.get("name") == name:
            found: Json = entry.get(inner) or {}
            return found
    raise BadKubeconfig(f"{path}: {section} has no entry {name!r}")


def _from_cluster(path: Path, cluster: Json) -> Credentials:
    if not cluster.get("server"):
        raise BadKubeconfig(f"{path}: the cluster has no server")
    return Credentials(
        server=cluster["server"],
        authority=_data_or_file(path, cluster, "certificate-authority"),
        verifies=not cluster.get("insecure-skip-tls-verify", False),
        server_name=cluster.get("tls-server-name", ""),
    )


def _add_user(path: Path, user: Json, credentials: Credentials) -> None:
    if "auth-provider" in user or "username" in user:
        raise BadKubeconfig(f"{path}: auth providers and passwords are not supported; use a token or an exec plugin")
    credentials.certificate = _data_or_file(path, user, "client-certificate")
    credentials.key = _data_or_file(path, user, "client-key")
    credentials.token = user.get("token", "")
    if user.get("tokenFile"):
        credentials.token_file = path.parent / user["tokenFile"]
    if plugin := user.get("exec"):
        credentials.plugin = _plugin(path, plugin)


def _plugin(path: Path, plugin: Json) -> Plugin:
    if not plugin.get("command"):
        raise BadKubeconfig(f"{path}: the exec plugin has no command")
    command = plugin["command"]
    if "/" in command and not command.startswith("/"):
        command = str(path.parent / command)
    environment = {entry["name"]: entry["value"] for entry in plugin.get("env") or []}
    version = plugin.get("apiVersion", "client.authentication.k8s.io/v1")
    return Plugin(command, tuple(plugin.get("args") or ()), environment, version)


def _data_or_file(path: Path, section: Mapping[str, Any], name: str) -> bytes:
    if data := section.get(f"{name}-data"):
        return base64.b64decode(str(data))
    if file := section.get(name):
        try:
            return Path(path.parent, str(file)).read_bytes()
        except OSError as error:
            raise BadKubeconfig(f"{path}: {name}: {file}: {error.strerror}") from error
    return b""


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # The ssl module reads key pairs from files only; the folder is private and deleted at once.
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "certificate"), Path(folder, "key")
        pair[0].write_bytes(certificate)
        pair[1].write_bytes(key)
        context.load_cert_chain(*pair)
