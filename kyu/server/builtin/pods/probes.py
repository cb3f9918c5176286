"""
Validation of probes and lifecycle hooks.

Kubernetes: pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import port_name, regex_error
from kyu.server.validation.checks import at_least_zero, objections, port_number

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS: Final = ("postStart", "preStop")
PROBE_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
HOOK_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
TIMES: Final = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
SCHEMES: Final = ("HTTP", "HTTPS")
_HEADER: Final = "[-A-Za-z0-9]+"


def probe_faults(container: Json, path: str) -> Iterator[FieldError]:
    for name in PROBES:
        if (probe := container.get(name)) is not None:
            yield from _probe(probe, name, f"{path}.{name}")


def hook_faults(container: Json, path: str, grace_seconds: int) -> Iterator[FieldError]:
    lifecycle = container.get("lifecycle") or {}
    for name in HOOKS:
        if (hook := lifecycle.get(name)) is not None:
            yield from _handlers(hook, f"{path}.lifecycle.{name}", HOOK_HANDLERS)
            seconds = (hook.get("sleep") or {}).get("seconds", 0)
            if not 0 <= seconds <= grace_seconds:
                detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_seconds})"
                yield fields.invalid(f"{path}.lifecycle.{name}.sleep", seconds, detail)


def idle_faults(container: Json, path: str) -> Iterator[FieldError]:
    """Reject probes and hooks of an init container that is no sidecar."""
    for name in ("lifecycle", *PROBES):
        if container.get(name) is not None:
            yield fields.forbidden(f"{path}.{name}", "may not be set for init containers without restartPolicy=Always")


def _probe(probe: Json, name: str, path: str) -> Iterator[FieldError]:
    yield from _handlers(probe, path, PROBE_HANDLERS)
    yield from at_least_zero(f"{path}.", probe, *TIMES)
    grace = probe.get("terminationGracePeriodSeconds")
    if name == "readinessProbe":
        if grace is not None:
            detail = "must not be set for readinessProbes"
            yield fields.invalid(f"{path}.terminationGracePeriodSeconds", grace, detail)
        return
    if grace is not None and grace <= 0:
        yield fields.invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")
    if probe.get("successThreshold", 1) != 1:
        yield fields.invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _handlers(given: Json, path: str, known: tuple[str, ...]) -> Iterator[FieldError]:
    handlers = [name for name in known if given.get(name) is not None]
    if not handlers:
        yield fields.required(path, "must specify a handler type")
        return
    yield from _handler(handlers[0], given[handlers[0]], f"{path}.{handlers[0]}")
    for extra in handlers[1:]:
        yield fields.forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")


def _handler(kind: str, handler: Json, path: str) -> Iterator[FieldError]:
    match kind:
        case "exec":
            if not handler.get("command"):
                yield fields.required(f"{path}.command")
        case "httpGet":
            if not handler.get("path"):
                yield fields.required(f"{path}.path")
            yield from _port(handler.get("port", 0), f"{path}.port")
            if handler.get("scheme") not in SCHEMES:
                yield fields.not_supported(f"{path}.scheme", handler.get("scheme", ""), SCHEMES)
            for header in handler.get("httpHeaders") or ():
                yield from _header(header.get("name", ""), f"{path}.httpHeaders")
        case "tcpSocket" | "grpc":
            yield from _port(handler.get("port", 0), f"{path}.port")


def _port(port: int | str, path: str) -> Iterator[FieldError]:
    if isinstance(port, str):
        yield from objections(path, port, port_name)
    else:
        yield from port_number(path, port)


def _header(name: str, path: str) -> Iterator[FieldError]:
    if not re.fullmatch(_HEADER, name):
        words = "a valid HTTP header must consist of alphanumeric characters or '-'"
        yield fields.invalid(path, name, regex_error(words, _HEADER, "X-Header-Name"))
