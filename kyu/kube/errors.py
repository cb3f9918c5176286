"""
Errors of an API server as types, so that a caller catches those that it can act on.

Raised by: kube/client.py. Caught by: kube/apply.py, kube/cache.py, controllers/loop.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kyu.api.meta import Json


class ApiError(Exception):
    """A Status of failure, with its advice about retrying."""

    def __init__(
        self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None, retry_after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after_seconds = retry_after

    def __str__(self) -> str:
        return self.message or f"{self.code} {self.reason}"


class NotFound(ApiError):
    """The object or the kind does not exist."""


class AlreadyExists(ApiError):
    """An object of this name exists already."""


class Conflict(ApiError):
    """The object has changed since it was read, or another manager owns an applied field."""


class Gone(ApiError):
    """The resource version is too old: list again."""


class Forbidden(ApiError):
    """The user lacks a permission."""


class Invalid(ApiError):
    """The object breaks a rule of its kind; ``details`` has a cause per field."""


class NoAnswer(ApiError):
    """The connection could not be made, or broke."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: dict[str, Any] | None = None


def from_answer(code: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """Return the error for an answer; a body that is no Status is its message."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        status = _Status(message=body.decode(errors="replace").strip()[:500])
    return from_status(code, status.reason, status.message, status.details, _seconds(headers.get("retry-after", "")))


def of_status(status: Json) -> ApiError:
    """Return the error for a Status."""
    return from_status(
        status.get("code", 500), status.get("reason", ""), status.get("message", ""), status.get("details")
    )


def from_status(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None, retry_after: float = 0.0
) -> ApiError:
    if not retry_after and details and isinstance(details.get("retryAfterSeconds"), int):
        retry_after = float(details["retryAfterSeconds"])
    return _type(code, reason)(code, reason, message, details, retry_after)


def _type(code: int, reason: str) -> type[ApiError]:
    if code == 409:
        return AlreadyExists if reason == "AlreadyExists" else Conflict
    return {403: Forbidden, 404: NotFound, 410: Gone, 422: Invalid}.get(code, ApiError)


def _seconds(text: str) -> float:
    return float(text) if text.isdigit() else 0.0
