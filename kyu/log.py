"""
Log lines as events with fields: ``log.info("admitted", workload=key, waited=3.1)``. Only the outer layers log.

An event is one line of `key=value` on standard error; values with blanks are quoted. Tokens and secrets are no fields.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import TextIO

_logger = logging.getLogger("kyu")


def info(event: str, **fields: object) -> None:
    _emit(logging.INFO, event, fields)


def warning(event: str, **fields: object) -> None:
    _emit(logging.WARNING, event, fields)


def error(event: str, **fields: object) -> None:
    _emit(logging.ERROR, event, fields)


def debug(event: str, **fields: object) -> None:
    _emit(logging.DEBUG, event, fields)


def start(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send events to the stream from now on; called once, by the composition root."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    _logger.handlers = [handler]
    _logger.setLevel(level)
    _logger.propagate = False


def _emit(level: int, event: str, fields: dict[str, object]) -> None:
    if _logger.isEnabledFor(level):
        _logger.log(level, "%s", " ".join([event, *(f"{name}={_render(value)}" for name, value in fields.items())]))


def _render(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "\n=') else text
