"""
The frames of WebSocket (RFC 6455).

A decoder passes the payload of a message on as it comes, so that a long message costs no more memory than a short one.
Extensions are not negotiated.

Called by: server/streams, kube/interactive.py.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL, GOING_AWAY, PROTOCOL_ERROR = 1000, 1001, 1002
FINAL, MASKED = 0x80, 0x80
LONGEST_CONTROL = 125
# Magic text of the RFC: proves that the server has read the key as a WebSocket server does.
KEY_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class BadFrame(Exception):
    """The peer breaks the protocol."""


@dataclass(frozen=True, slots=True)
class MessagePiece:
    """A part of a message, or a whole control frame. ``opcode`` is that of the message."""

    opcode: int
    data: bytes
    is_first: bool = True
    is_last: bool = True


def accept_key(key: str) -> str:
    """Return the answer to the key of a client."""
    return base64.b64encode(hashlib.sha1(f"{key}{KEY_SUFFIX}".encode()).digest()).decode()


def is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except ValueError:
        return False


def frame(opcode: int, data: bytes, mask: bytes = b"") -> bytes:
    """Return a whole message as one frame. Clients give a random mask of four bytes."""
    bit, size = (MASKED if mask else 0), len(data)
    head = bytes([FINAL | opcode])
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([bit | 127]) + size.to_bytes(8, "big")
    return head + mask + (unmask(data, mask, 0) if mask else data)


def close_frame(code: int, reason: str = "", mask: bytes = b"") -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big") + reason.encode()[: LONGEST_CONTROL - 2], mask)


def unmask(data: bytes, mask: bytes, offset: int) -> bytes:
    """Apply the mask to a part of a payload that begins at this offset. The same call masks and unmasks."""
    size = len(data)
    start = offset % 4
    turned = mask[start:] + mask[:start]
    key = (turned * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


class FrameDecoder:
    """The frames of one direction. A server reads masked frames only, a client unmasked ones only."""

    def __init__(self, *, is_masked: bool) -> None:
        self._is_masked = is_masked
        self._buffer = bytearray()
        # The frame whose payload is being read.
        self._opcode = -1
        self._is_final = False
        self._left = 0
        self._mask = b""
        self._offset = 0
        self._begins = False
        # The message that further frames continue, or -1.
        self._message = -1

    def feed(self, data: bytes) -> Iterator[MessagePiece]:
        """Yield the pieces that are complete with this data. Raise BadFrame if the peer breaks the protocol."""
        self._buffer += data
        while True:
            if self._opcode < 0 and not self._read_head():
                return
            if self._opcode >= CLOSE:
                if len(self._buffer) < self._left:
                    return
            elif self._left and not self._buffer:
                return
            yield self._piece()

    def _read_head(self) -> bool:
        buffer = self._buffer
        if len(buffer) < 2:
            return False
        size, start = buffer[1] & 0x7F, 2
        if size > 125:
            start = 4 if size == 126 else 10
        end = start + (4 if self._is_masked else 0)
        if len(buffer) < end:
            return False
        first, second = buffer[0], buffer[1]
        self._left = int.from_bytes(buffer[2:start], "big") if size > 125 else size
        self._check_head(first, is_masked=bool(second & MASKED))
        self._mask, self._offset = bytes(buffer[start:end]), 0
        del buffer[:end]
        return True

    def _check_head(self, first: int, *, is_masked: bool) -> None:
        opcode, self._is_final = first & 0x0F, bool(first & FINAL)
        if first & 0x70:
            raise BadFrame("reserved bits are set")
        if is_masked != self._is_masked:
            raise BadFrame("the mask is missing" if self._is_masked else "the frame is masked")
        if self._left >> 63:
            raise BadFrame("the length is too large")
        if opcode in (CLOSE, PING, PONG):
            if self._left > LONGEST_CONTROL or not self._is_final:
                raise BadFrame("a control frame is long or in parts")
            self._opcode = opcode
            return
        if opcode not in (CONTINUATION, TEXT, BINARY) or (opcode == CONTINUATION) != (self._message >= 0):
            raise BadFrame(f"opcode {opcode} is not expected")
        self._begins = opcode != CONTINUATION
        self._opcode = self._message = opcode if self._begins else self._message

    def _piece(self) -> MessagePiece:
        data = bytes(self._buffer[: self._left])
        del self._buffer[: len(data)]
        if self._mask:
            data = unmask(data, self._mask, self._offset)
        self._offset += len(data)
        self._left -= len(data)
        opcode, is_control = self._opcode, self._opcode >= CLOSE
        is_first = is_control or self._begins
        is_last = self._is_final and not self._left
        if not is_control:
            self._begins = False
        if not self._left:
            self._opcode = -1
            if is_last and not is_control:
                self._message = -1
        return MessagePiece(opcode, data, is_first, is_last)
