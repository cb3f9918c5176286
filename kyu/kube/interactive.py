"""
The client's side of exec and attach: a WebSocket to a Pod, with one stream in each message.

The newest protocol is asked for (v5, which can end standard input), and the one before it (v4).

Kubernetes: client-go/tools/remotecommand.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncGenerator, Sequence
from urllib.parse import urlencode, urlsplit

from kyu.kube import errors
from kyu.kube.blocking import Unreachable
from kyu.kube.kubeconfig import Credentials
from kyu.streams import websocket

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE_STREAM = 0, 1, 2, 3, 4, 255
LONGEST_HEAD = 64 * 1024
LONGEST_ANSWER = 1024 * 1024
READ_BYTES = 64 * 1024


class StreamConnection:
    """An open WebSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: str) -> None:
        self._reader = reader
        self._writer = writer
        self._can_end_streams = protocol == PROTOCOLS[0]

    async def messages(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield parts of messages with the number of their stream, until the server closes."""
        decoder = websocket.FrameDecoder(is_masked=False)
        stream = -1
        while data := await self._reader.read(READ_BYTES):
            for piece in decoder.feed(data):
                if piece.opcode == websocket.CLOSE:
                    return
                if piece.opcode == websocket.PING:
                    await self._send(websocket.PONG, piece.data)
                elif piece.opcode != websocket.PONG:
                    part = piece.data
                    stream = -1 if piece.is_first else stream
                    if stream < 0 and part:
                        stream, part = part[0], part[1:]
                    if part:
                        yield stream, part

    async def send(self, stream: int, data: bytes) -> None:
        await self._send(websocket.BINARY, bytes([stream]) + data)

    async def end_stdin(self) -> None:
        """Tell the server that no more input comes, if the protocol can say so."""
        if self._can_end_streams:
            await self.send(CLOSE_STREAM, bytes([STDIN]))

    async def _send(self, opcode: int, data: bytes) -> None:
        self._writer.write(websocket.frame(opcode, data, secrets.token_bytes(4)))
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


async def open_stream(credentials: Credentials, path: str, query: Sequence[tuple[str, str]]) -> StreamConnection:
    """Open a stream into a Pod. Raise ApiError if the server refuses it, Unreachable if it does not answer."""
    address = urlsplit(credentials.server)
    context = credentials.ssl_context()
    tls = context if not isinstance(context, bool) else None
    port = address.port or (443 if tls else 80)
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    headers = {
        "host": address.netloc,
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": key,
        "sec-websocket-protocol": ", ".join(PROTOCOLS),
        "user-agent": "kyu/cli",
        **credentials.headers(),
    }
    target = f"{address.path.rstrip('/')}{path}?{urlencode(query)}"
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    try:
        reader, writer = await asyncio.open_connection(
            address.hostname, port, ssl=tls, server_hostname=(credentials.server_name or None) if tls else None
        )
        writer.write(f"GET {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1"))
        await writer.drain()
        return await _read_answer(reader, writer, key)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise Unreachable(f"{credentials.server} does not answer: {error}") from error


async def _read_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> StreamConnection:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text.split("\r\n")
    status = int(first.split(" ")[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if status != 101:
        length = min(int(headers.get("content-length", "0")), LONGEST_ANSWER)
        body = await reader.readexactly(length)
        writer.close()
        raise errors.from_answer(status, body, headers)
    if headers.get("sec-websocket-accept") != websocket.accept_key(key):
        writer.close()
        raise ConnectionError("the answer is not that of a WebSocket server")
    return StreamConnection(reader, writer, headers.get("sec-websocket-protocol", ""))
