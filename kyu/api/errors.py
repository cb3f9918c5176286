"""
Errors about fields of an object, in the words of Kubernetes.

A rule that refuses an object returns these. The API server turns them into the causes of a Status, the CLI into lines.

Kubernetes: apimachinery util/validation/field
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

ErrorType: TypeAlias = Literal[
    "Required", "Invalid", "NotSupported", "Forbidden", "Duplicate", "TooLong", "TooMany", "TypeInvalid", "NotFound"
]

_TITLES: dict[ErrorType, str] = {
    "Required": "Required value",
    "Invalid": "Invalid value",
    "NotSupported": "Unsupported value",
    "Forbidden": "Forbidden",
    "Duplicate": "Duplicate value",
    "TooLong": "Too long",
    "TooMany": "Too many",
    "TypeInvalid": "Invalid value",
    "NotFound": "Not found",
}
# The messages of these types do not repeat the value.
_WITHOUT_VALUE = {"Required", "Forbidden", "TooLong", "TooMany"}


class FieldError(msgspec.Struct, frozen=True):
    """One error. ``reason`` is its reason in the causes of a Status. A value that is UNSET is not printed."""

    type: ErrorType
    field: str
    value: Any = msgspec.UNSET
    detail: str = ""

    @property
    def reason(self) -> str:
        return f"FieldValue{self.type}"

    @property
    def message(self) -> str:
        """Return the message without the field, as in the causes of a Status."""
        text = _TITLES[self.type]
        if self.type not in _WITHOUT_VALUE and self.value is not msgspec.UNSET:
            text += f": {render_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def render_value(value: object) -> str:
    """Render a text in quotes, and other values as JSON."""
    return msgspec.json.encode(value).decode()


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("Required", field, detail=detail)


def invalid(field: str, value: object, detail: str) -> FieldError:
    return FieldError("Invalid", field, value, detail)


def type_invalid(field: str, value: object, detail: str) -> FieldError:
    return FieldError("TypeInvalid", field, value, detail)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError("Forbidden", field, detail=detail)


def broken_rule(field: str, detail: str) -> FieldError:
    """Build the error of a rule about several fields. The value would be the whole object, so it is left out."""
    return FieldError("Invalid", field, detail=detail)


def duplicate(field: str, value: object) -> FieldError:
    return FieldError("Duplicate", field, value)


def not_supported(field: str, value: object, supported: Iterable[str]) -> FieldError:
    choices = ", ".join(f'"{choice}"' for choice in supported)
    return FieldError("NotSupported", field, value, f"supported values: {choices}")


def too_long(field: str, value: object, limit: int) -> FieldError:
    return FieldError("TooLong", field, value, f"may not be more than {limit} {'byte' if limit == 1 else 'bytes'}")


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError("TooMany", field, count, f"{count}: must have at most {limit} items")
