"""The frames of WebSocket and SPDY: whole and in pieces, and frames that break the rules."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kyu.streams import spdy, websocket

MASK = b"\x01\x02\x03\xff"


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@given(some.lists(some.binary(max_size=400), max_size=5), some.integers(1, 97), some.booleans())
def test_messages_of_a_websocket_survive_any_cut(messages: list[bytes], size: int, is_masked: bool) -> None:
    mask = MASK if is_masked else b""
    sent = b"".join(websocket.frame(websocket.BINARY, each, mask) for each in messages)
    decoder = websocket.FrameDecoder(is_masked=is_masked)
    found: list[bytes] = []
    for part in cut(sent, size):
        for piece in decoder.feed(part):
            if piece.is_first:
                found.append(b"")
            found[-1] += piece.data
    assert found == messages


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_lengths_of_a_websocket_have_three_forms(size: int) -> None:
    (piece,) = websocket.FrameDecoder(is_masked=False).feed(websocket.frame(websocket.TEXT, b"x" * size))
    assert piece == websocket.MessagePiece(websocket.TEXT, b"x" * size)


def test_a_ping_may_come_within_a_message() -> None:
    first = bytes([websocket.BINARY, 0x80 | 2]) + MASK + websocket.unmask(b"ab", MASK, 0)
    last = bytes([0x80 | websocket.CONTINUATION, 0x80 | 1]) + MASK + websocket.unmask(b"c", MASK, 0)
    pieces = list(
        websocket.FrameDecoder(is_masked=True).feed(first + websocket.frame(websocket.PING, b"!", MASK) + last)
    )
    assert [(piece.opcode, piece.data, piece.is_first, piece.is_last) for piece in pieces] == [
        (websocket.BINARY, b"ab", True, False),
        (websocket.PING, b"!", True, True),
        (websocket.BINARY, b"c", False, True),
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (websocket.frame(websocket.BINARY, b"xxxx"), "mask is missing"),
        (b"\xc2\x80" + MASK, "reserved"),
        (b"\x83\x80" + MASK, "opcode 3"),
        (b"\x80\x80" + MASK, "opcode 0"),
        (b"\x09\x80" + MASK, "in parts"),
        (b"\x89\xfe\x01\x00" + MASK, "long"),
        (b"\x82\xff" + b"\xff" * 8 + MASK, "too large"),
    ],
)
def test_a_websocket_that_breaks_the_rules_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(websocket.BadFrame, match=why):
        list(websocket.FrameDecoder(is_masked=True).feed(data))


def test_the_key_of_the_rfc() -> None:
    assert websocket.accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert websocket.is_key("dGhlIHNhbXBsZSBub25jZQ==")
    assert not websocket.is_key("short")


def test_the_dictionary_is_that_of_the_specification() -> None:
    assert (len(spdy.DICTIONARY), zlib.adler32(spdy.DICTIONARY)) == (1423, 3821447106)


@given(some.lists(some.binary(max_size=300), min_size=1, max_size=4), some.integers(1, 61))
def test_streams_of_spdy_survive_any_cut(blocks: list[bytes], size: int) -> None:
    encoder, decoder = spdy.SpdyEncoder(), spdy.SpdyDecoder()
    sent = encoder.open(1, {"streamType": "stdin"}) + encoder.open(3, {"streamType": "error", "port": "80"})
    sent += b"".join(spdy.data(1, block) for block in blocks) + spdy.data(1, b"", is_last=True)
    sent += encoder.reply(5, {"a": "b"}) + spdy.ping(7) + spdy.reset(3, spdy.CANCEL) + spdy.go_away(3)
    events = [event for part in cut(sent, size) for event in decoder.feed(part)]
    data = [event for event in events if isinstance(event, spdy.Data)]
    assert b"".join(event.data for event in data) == b"".join(blocks)
    assert [event.is_last for event in data][-1]
    assert [event for event in events if not isinstance(event, spdy.Data)] == [
        spdy.StreamOpened(1, {"streamtype": "stdin"}),
        spdy.StreamOpened(3, {"streamtype": "error", "port": "80"}),
        spdy.StreamOpened(5, {"a": "b"}, is_reply=True),
        spdy.Ping(7),
        spdy.Reset(3, spdy.CANCEL),
        spdy.GoAway(0),
    ]


def test_headers_that_swell_are_refused() -> None:
    bomb = spdy.SpdyEncoder().open(1, {"x": "a" * (2 * spdy.LONGEST_HEADERS)})
    assert len(bomb) < spdy.LONGEST_CONTROL
    with pytest.raises(spdy.BadSpdy, match="too long"):
        list(spdy.SpdyDecoder().feed(bomb))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (spdy.control(spdy.SYN_STREAM, 0, b"\0" * 10 + b"garbage"), "damaged"),
        (spdy.control(spdy.PING, 0, b"\0"), "damaged"),
        (b"\x80\x02" + spdy.ping(1)[2:], "version 2"),
        (spdy.control(spdy.SETTINGS, 0, b"")[:5] + b"\xff\xff\xff", "too long"),
    ],
)
def test_spdy_that_breaks_the_rules_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(spdy.BadSpdy, match=why):
        list(spdy.SpdyDecoder().feed(data))


@given(some.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read, refusal in (
        (websocket.FrameDecoder(is_masked=True).feed, websocket.BadFrame),
        (spdy.SpdyDecoder().feed, spdy.BadSpdy),
    ):
        with contextlib.suppress(refusal):
            list(read(data))
