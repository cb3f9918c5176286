"""The heads of requests and answers: header lines to text, and back."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus

from kyu.server.exchange import Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Longer lines are not remembered: the memo is bounded in bytes, too.
REMEMBERED_BYTES = 512


def head(response: Response, framing: bytes, *, is_last: bool) -> bytes:
    """Return the status line and the headers of an answer."""
    start = _start(response.status, response.content_type) + framing
    if not (response.warnings or response.headers or is_last):
        return start + b"\r\n"
    headers = [("warning", warning) for warning in response.warnings]
    headers += [(name.lower(), value) for name, value in response.headers.items()]
    if is_last:
        headers.append(("connection", "close"))
    # A line break would end the header. A warning may quote a field name with one.
    lines = [f"{name}: {' '.join(value.splitlines())}\r\n" for name, value in headers]
    return start + "".join(lines).encode() + b"\r\n"


def header(name: bytes, value: bytes) -> tuple[str, str]:
    """Return a header with its name in lower case. Clients repeat the same headers with each request."""
    if len(name) + len(value) > REMEMBERED_BYTES:
        return name.decode("latin-1").lower(), value.decode("latin-1")
    return _short_header(name, value)


@lru_cache(maxsize=1024)
def _short_header(name: bytes, value: bytes) -> tuple[str, str]:
    return name.decode("latin-1").lower(), value.decode("latin-1")


@lru_cache(maxsize=256)
def _start(status: int, content_type: str) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    kind = f"content-type: {content_type}\r\n" if content_type else ""
    return f"HTTP/1.1 {status} {phrase}\r\n{kind}cache-control: no-cache, private\r\n".encode()
