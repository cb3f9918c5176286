"""
Chooses the protocol of an interactive stream: which one the client offers, and the head of the answer.

Kubernetes: apimachinery/pkg/util/httpstream/{wsstream,spdy}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kyu.server import errors
from kyu.server.exchange import Request
from kyu.streams import websocket

SPDY = "SPDY/3.1"
COMMAND_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
SPDY_COMMAND_PROTOCOLS = ("v4.channel.k8s.io",)
FORWARD_PROTOCOL = "portforward.k8s.io"
TUNNELLED_FORWARD = f"{SPDY}+{FORWARD_PROTOCOL}"
FORWARD_CHANNELS = "v4.channel.k8s.io"


@dataclass(frozen=True, slots=True)
class Negotiated:
    """The transport and the protocol on it, with the headers of the answer."""

    transport: Literal["websocket", "spdy"]
    protocol: str
    headers: Mapping[str, str]


def negotiate(request: Request, by_websocket: Sequence[str], by_spdy: Sequence[str]) -> Negotiated:
    """Return the first protocol of the client that is served. Raise if there is none."""
    words = {word.strip().lower() for word in request.headers.get("connection", "").split(",")}
    upgrade = request.headers.get("upgrade", "").strip()
    if "upgrade" not in words or upgrade.lower() not in ("websocket", SPDY.lower()):
        raise errors.bad_request("Upgrade request required")
    if upgrade.lower() == "websocket":
        return _websocket(request, by_websocket)
    chosen = _choose(request.headers.get("x-stream-protocol-version", ""), by_spdy)
    headers = {"Connection": "Upgrade", "Upgrade": SPDY, "X-Stream-Protocol-Version": chosen}
    return Negotiated("spdy", chosen, headers)


def _websocket(request: Request, served: Sequence[str]) -> Negotiated:
    key = request.headers.get("sec-websocket-key", "").strip()
    if request.method != "GET" or request.headers.get("sec-websocket-version", "").strip() != "13":
        raise errors.bad_request("a WebSocket begins with a GET of version 13")
    if not websocket.is_key(key):
        raise errors.bad_request("the key of the WebSocket is missing or damaged")
    chosen = _choose(request.headers.get("sec-websocket-protocol", ""), served)
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Accept": websocket.accept_key(key),
        "Sec-WebSocket-Protocol": chosen,
    }
    return Negotiated("websocket", chosen, headers)


def _choose(offered: str, served: Sequence[str]) -> str:
    names = [name.strip() for name in offered.split(",") if name.strip()]
    for name in names:
        if name in served:
            return name
    text = f"unable to upgrade: unable to negotiate protocol: client supports {names}, server accepts {list(served)}"
    raise errors.StatusError(403, "Forbidden", text)
