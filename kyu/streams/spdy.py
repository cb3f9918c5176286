"""
The frames of SPDY/3.1, as far as Kubernetes uses them: streams with headers, data in both directions, resets, pings.

Peers of Kubernetes (moby/spdystream) never send WINDOW_UPDATE, so windows are not kept: the connection itself holds a
sender back. A decoder passes data on as it comes. Control frames and the sizes of headers have bounds.

Called by: server/streams.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

VERSION = 3
SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
CONTROL_BIT = 0x80
FIN = 0x01
PROTOCOL_ERROR, REFUSED_STREAM, CANCEL, INTERNAL_ERROR = 1, 3, 5, 6
HEAD_BYTES = 8
LONGEST_CONTROL = 64 * 1024
LONGEST_HEADERS = 256 * 1024
MOST_HEADERS = 256

# A comma ends each word, because some have spaces.
_WORDS = """
    options,head,post,put,delete,trace,accept,accept-charset,accept-encoding,accept-language,accept-ranges,age,allow,
    authorization,cache-control,connection,content-base,content-encoding,content-language,content-length,
    content-location,content-md5,content-range,content-type,date,etag,expect,expires,from,host,if-match,
    if-modified-since,if-none-match,if-range,if-unmodified-since,last-modified,location,max-forwards,pragma,
    proxy-authenticate,proxy-authorization,range,referer,retry-after,server,te,trailer,transfer-encoding,upgrade,
    user-agent,vary,via,warning,www-authenticate,method,get,status,200 OK,version,HTTP/1.1,url,public,set-cookie,
    keep-alive,origin,
"""
_TEXT = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative "
    b"Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 "
    b"Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec "
    b"00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    b"application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8"
    b"charset=iso-8859-1,utf-,*,enq=0."
)
# The dictionary of SPDY/3: both sides compress headers with it, so every byte counts.
_WORD_LIST = [word.strip() for word in _WORDS.split(",") if word.strip()]
DICTIONARY = b"".join(struct.pack(">I", len(word)) + word.encode() for word in _WORD_LIST) + _TEXT


class BadSpdy(Exception):
    """The peer breaks the protocol, or a bound."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The peer opens a stream, or answers one (``is_reply``)."""

    stream: int
    headers: Mapping[str, str]
    is_last: bool = False
    is_reply: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """A part of the data of a stream. ``is_last``: the peer sends nothing more on it."""

    stream: int
    data: bytes
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    stream: int
    status: int


@dataclass(frozen=True, slots=True)
class Ping:
    number: int


@dataclass(frozen=True, slots=True)
class GoAway:
    status: int


SpdyEvent: TypeAlias = StreamOpened | Data | Reset | Ping | GoAway


class SpdyDecoder:
    """The frames of one direction."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        # The data frame that is being read: its stream, the bytes that are still to come, and its flags.
        self._stream = 0
        self._left = 0
        self._flags = 0

    def feed(self, data: bytes) -> Iterator[SpdyEvent]:
        """Yield the events that are complete with this data. Raise BadSpdy if the peer breaks the protocol."""
        self._buffer += data
        while self._buffer:
            if self._left:
                yield self._data()
                continue
            if len(self._buffer) < HEAD_BYTES:
                return
            length = int.from_bytes(self._buffer[5:8], "big")
            if not self._buffer[0] & CONTROL_BIT:
                self._stream = int.from_bytes(self._buffer[:4], "big")
                self._flags, self._left = self._buffer[4], length
                del self._buffer[:HEAD_BYTES]
                if not length:
                    yield Data(self._stream, b"", bool(self._flags & FIN))
                continue
            if length > LONGEST_CONTROL:
                raise BadSpdy("a control frame is too long")
            if len(self._buffer) < HEAD_BYTES + length:
                return
            head, payload = bytes(self._buffer[:HEAD_BYTES]), bytes(self._buffer[HEAD_BYTES : HEAD_BYTES + length])
            del self._buffer[: HEAD_BYTES + length]
            try:
                yield from self._control(head, payload)
            except (struct.error, zlib.error) as error:
                raise BadSpdy(f"a control frame is damaged: {error}") from error

    def _data(self) -> Data:
        part = bytes(self._buffer[: self._left])
        del self._buffer[: len(part)]
        self._left -= len(part)
        return Data(self._stream, part, not self._left and bool(self._flags & FIN))

    def _control(self, head: bytes, payload: bytes) -> Iterator[SpdyEvent]:
        version, kind = struct.unpack(">HH", head[:4])
        if version & 0x7FFF != VERSION:
            raise BadSpdy(f"version {version & 0x7FFF} is not {VERSION}")
        flags = head[4]
        if kind in (SYN_STREAM, SYN_REPLY, HEADERS):
            start = 10 if kind == SYN_STREAM else 4
            # The state of the compression goes on with every frame that has headers, also with those of no use.
            headers = self._headers(payload[start:])
            if kind != HEADERS:
                number = struct.unpack(">I", payload[:4])[0] & 0x7FFFFFFF
                yield StreamOpened(number, headers, bool(flags & FIN), is_reply=kind == SYN_REPLY)
        elif kind == RST_STREAM:
            number, status = struct.unpack(">II", payload)
            yield Reset(number & 0x7FFFFFFF, status)
        elif kind == PING:
            yield Ping(struct.unpack(">I", payload)[0])
        elif kind == GOAWAY:
            yield GoAway(struct.unpack(">II", payload)[1])

    def _headers(self, block: bytes) -> Mapping[str, str]:
        text = self._inflate.decompress(block, LONGEST_HEADERS)
        if self._inflate.unconsumed_tail:
            raise BadSpdy("the headers of a stream are too long")
        count, position = struct.unpack(">I", text[:4])[0], 4
        if count > MOST_HEADERS:
            raise BadSpdy("a stream has too many headers")
        words = []
        for _ in range(2 * count):
            size = struct.unpack(">I", text[position : position + 4])[0]
            words.append(text[position + 4 : position + 4 + size].decode("latin-1"))
            position += 4 + size
        if position != len(text):
            raise BadSpdy("the headers of a stream are damaged")
        return {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=True)}


class SpdyEncoder:
    """The frames of the other direction. The order of the calls is the order on the connection."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def open(self, stream: int, headers: Mapping[str, str], *, is_last: bool = False) -> bytes:
        body = struct.pack(">IIBB", stream, 0, 0, 0) + self._block(headers)
        return control(SYN_STREAM, FIN if is_last else 0, body)

    def reply(self, stream: int, headers: Mapping[str, str] | None = None) -> bytes:
        return control(SYN_REPLY, 0, struct.pack(">I", stream) + self._block(headers or {}))

    def _block(self, headers: Mapping[str, str]) -> bytes:
        text = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for word in (name.lower().encode("latin-1"), value.encode("latin-1")):
                text += struct.pack(">I", len(word)) + word
        return self._deflate.compress(text) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def data(stream: int, payload: bytes, *, is_last: bool = False) -> bytes:
    return struct.pack(">IB", stream, FIN if is_last else 0) + len(payload).to_bytes(3, "big") + payload


def reset(stream: int, status: int) -> bytes:
    return control(RST_STREAM, 0, struct.pack(">II", stream, status))


def ping(number: int) -> bytes:
    return control(PING, 0, struct.pack(">I", number))


def go_away(last_stream: int) -> bytes:
    return control(GOAWAY, 0, struct.pack(">II", last_stream, 0))


def control(kind: int, flags: int, payload: bytes) -> bytes:
    return struct.pack(">HHB", 0x8000 | VERSION, kind, flags) + len(payload).to_bytes(3, "big") + payload
