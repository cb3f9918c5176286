"""
The front proxy: an API server that forwards requests of the visibility API, and names their users in headers.

The proxy proves itself by a client certificate. The ConfigMap extension-apiserver-authentication names its authority,
its certificate's names and its headers.

Kubernetes: apiserver/pkg/authentication/request/headerrequest
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from kyu import log
from kyu.api.actions import View
from kyu.api.core import CONFIG_MAP
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.server.exchange import User
from kyu.server.http.connection import Connection
from kyu.server.http.site import Site

AUTHENTICATION = Key("kube-system", "extension-apiserver-authentication")
PREFIX = "requestheader-"


class FrontProxy(NamedTuple):
    """The settings of the proxy. Without names, every certificate of the authority is accepted."""

    authority: str
    names: tuple[str, ...]
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]

    def find_user(self, headers: Mapping[str, str]) -> User | None:
        """Return the user that the headers of a forwarded request name."""
        name = next((found[0] for header in self.user_headers if (found := split_header(headers, header))), "")
        if not name:
            return None
        return User(name, tuple(group for header in self.group_headers for group in split_header(headers, header)))


def read_proxy(config_map: Json | None) -> FrontProxy | None:
    """Return the settings; None if the API server forwards nothing."""
    data = (config_map or {}).get("data") or {}
    authority = data.get(f"{PREFIX}client-ca-file", "")
    if not authority:
        return None
    try:
        names, users, groups = (
            msgspec.json.decode(data.get(f"{PREFIX}{name}", "[]"), type=tuple[str, ...])
            for name in ("allowed-names", "username-headers", "group-headers")
        )
    except msgspec.DecodeError as error:
        log.warning("front proxy not understood", config_map=AUTHENTICATION, error=error)
        return None
    return FrontProxy(authority, names, tuple(map(str.lower, users)), tuple(map(str.lower, groups)))


def find_proxy(view: View) -> FrontProxy | None:
    return read_proxy(view.find_json(CONFIG_MAP, AUTHENTICATION))


def encode_header(value: bytes) -> bytes:
    return value.replace(b"%", b"%25").replace(b",", b"%2C")


def split_header(headers: Mapping[str, str], name: str) -> list[str]:
    """Return the values of a header that may be sent several times."""
    decoded = (part.replace("%2C", ",").replace("%25", "%") for part in headers.get(name, "").split(",") if part)
    return [value.encode("latin-1").decode(errors="replace") for value in decoded]


class AuthorityTrust:
    """A subscriber that lets a TLS context trust the authority of the proxy. Without one, no client is accepted."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._trusted = ""
        context.verify_mode = ssl.CERT_REQUIRED

    def changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        if new is None or key_of(new) != AUTHENTICATION:
            return
        proxy = read_proxy(new)
        if proxy is None or proxy.authority == self._trusted:
            return
        try:
            self._context.load_verify_locations(cadata=proxy.authority)
            self._trusted = proxy.authority
        except ssl.SSLError as error:
            log.warning("authority of the front proxy not read", config_map=AUTHENTICATION, error=error)


class ProxyConnection(Connection):
    """A connection of the front proxy. Other clients of the same authority are cut off."""

    def __init__(self, site: Site, proxy: Callable[[], FrontProxy | None]) -> None:
        super().__init__(site)
        self._proxy = proxy
        # A group may have a comma, and a connection joins repeated headers by commas, so these are encoded.
        self._encoded: frozenset[bytes] = frozenset()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        proxy = self._proxy()
        names = common_names(transport.get_extra_info("peercert") or {})
        if proxy is None or (proxy.names and names.isdisjoint(proxy.names)):
            log.warning("client is not the front proxy", names=sorted(names))
            self.abort()
            return
        self._encoded = frozenset(header.encode() for header in (*proxy.user_headers, *proxy.group_headers))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, encode_header(value) if name.lower() in self._encoded else value)


def common_names(certificate: Json) -> set[str]:
    """Return the common names of the subject of a peer's certificate, as the library describes it."""
    pairs = (pair for part in certificate.get("subject", ()) for pair in part)
    return {value for key, value in pairs if key == "commonName"}
