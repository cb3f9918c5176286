"""
The finer rules of a pod spec: names of ports and variables, probes, hooks, host names, terms of affinity.

Called by: server/builtin_pod_rules.py. Kubernetes: pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.builtin_names import label, label_key, subdomain

PRINTABLE_NAME: Final = re.compile(r"[ -<>-~]+")
# What a pod may be told of itself: these, and single labels and annotations.
FIELD_PATHS: Final = frozenset(
    {
        "metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
        "spec.nodeName", "spec.serviceAccountName", "spec.host", "status.phase", "status.hostIP", "status.hostIPs",
        "status.podIP", "status.podIPs",
    }
)  # fmt: skip
SUBSCRIPTED: Final = re.compile(r"metadata\.(labels|annotations)\['[^']+'\]")
PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
PROBE_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
HOOK_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
SYSTEMS: Final = ("linux", "windows")
WHEN_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")
ID_RANGE: Final = "must be between 0 and 2147483647, inclusive"
HANDLER: Final = "must specify a handler type"


def container_faults(container: Json, path: str) -> Iterator[FieldError]:
    yield from _port_names(container, path)
    for index, variable in enumerate(container.get("env") or ()):
        yield from _variable(variable, f"{path}.env[{index}]")
    for name in PROBES:
        probe = container.get(name)
        if probe is not None and not any(handler in probe for handler in PROBE_HANDLERS):
            yield fields.required(f"{path}.{name}", HANDLER)
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, dict) and not any(handler in hook for handler in HOOK_HANDLERS):
            yield fields.required(f"{path}.lifecycle.{name}", HANDLER)
    yield from _ids(container.get("securityContext") or {}, f"{path}.securityContext")


def _port_names(container: Json, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, port in enumerate(container.get("ports") or ()):
        name = port.get("name")
        if name and name in seen:
            yield fields.duplicate(f"{path}.ports[{index}].name", name)
        seen.add(name)


def _variable(variable: Json, path: str) -> Iterator[FieldError]:
    name = variable.get("name", "")
    if name and not PRINTABLE_NAME.fullmatch(name):
        detail = "a valid environment variable name must consist only of printable ASCII characters other than '='"
        yield fields.invalid(f"{path}.name", name, detail)
    told = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
    if told and told not in FIELD_PATHS and not SUBSCRIPTED.fullmatch(told):
        detail = f"error converting fieldPath: field label not supported: {told}"
        yield fields.invalid(f"{path}.valueFrom.fieldRef.fieldPath", told, detail)


def _ids(context: Json, path: str) -> Iterator[FieldError]:
    for name in ("runAsUser", "runAsGroup"):
        given = context.get(name)
        if given is not None and not 0 <= given < 2**31:
            yield fields.invalid(f"{path}.{name}", given, ID_RANGE)


def spec_faults(spec: Json, path: str) -> Iterator[FieldError]:
    """Of all but the containers."""
    for name in ("hostname", "subdomain"):
        if given := spec.get(name):
            dots = ["must not contain dots"] if "." in given else label(given)
            yield from (fields.invalid(f"{path}.{name}", given, text) for text in dots)
    if account := spec.get("serviceAccountName"):
        yield from (fields.invalid(f"{path}.serviceAccountName", account, text) for text in subdomain(account))
    system = (spec.get("os") or {}).get("name")
    if system is not None and system not in SYSTEMS:
        yield fields.not_supported(f"{path}.os", system, SYSTEMS)
    if spec.get("dnsPolicy") == "None" and not spec.get("dnsConfig"):
        yield fields.required(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        given = gate.get("conditionType", "")
        here = f"{path}.readinessGates[{index}].conditionType"
        yield from (fields.invalid(here, given, text) for text in label_key(given))
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread(constraint, f"{path}.topologySpreadConstraints[{index}]")
    context = spec.get("securityContext") or {}
    yield from _ids(context, f"{path}.securityContext")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield fields.invalid(f"{path}.securityContext.shareProcessNamespace", True, detail)


def _spread(constraint: Json, path: str) -> Iterator[FieldError]:
    skew = constraint.get("maxSkew", 0)
    if skew <= 0:
        yield fields.invalid(f"{path}.maxSkew", skew, "must be greater than zero")
    if not constraint.get("topologyKey"):
        yield fields.required(f"{path}.topologyKey", "can not be empty")
    when = constraint.get("whenUnsatisfiable", "")
    if when not in WHEN_UNSATISFIABLE:
        yield fields.not_supported(f"{path}.whenUnsatisfiable", when, WHEN_UNSATISFIABLE)


def term_faults(term: Json, path: str) -> Iterator[FieldError]:
    """Of a term of node affinity."""
    for index, rule in enumerate(term.get("matchExpressions") or ()):
        here, values = f"{path}.matchExpressions[{index}]", rule.get("values") or ()
        match rule.get("operator", ""):
            case "In" | "NotIn":
                if not values:
                    detail = "must be specified when `operator` is 'In' or 'NotIn'"
                    yield fields.required(f"{here}.values", detail)
            case "Exists" | "DoesNotExist":
                if values:
                    detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    yield fields.forbidden(f"{here}.values", detail)
            case "Gt" | "Lt":
                if len(values) != 1:
                    detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                    yield fields.required(f"{here}.values", detail)
            case operator:
                yield fields.invalid(f"{here}.operator", operator, "not a valid selector operator")
