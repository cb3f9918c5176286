"""
Validation of environment variables: their names, and the sources of their values.

Kubernetes: pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kyu.api import errors as fields
from kyu.api import quantity
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import config_key, label_key, subdomain
from kyu.server.validation.checks import objections

PRINTABLE_NAME: Final = re.compile(r"[ -<>-~]+")
PRINTABLE: Final = "a valid environment variable name must consist only of printable ASCII characters other than '='"
SUBSCRIPTED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
# The fields of a pod that a fieldRef may name: all, those for a variable, and those for a file.
FIELD_PATHS: Final = frozenset(
    {
        "metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
        "spec.nodeName", "spec.serviceAccountName", "spec.host", "status.phase", "status.hostIP", "status.hostIPs",
        "status.podIP", "status.podIPs",
    }
)  # fmt: skip
# An old path that is still supported.
RENAMED: Final = {"spec.host": "spec.nodeName"}
VARIABLE_PATHS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
FILE_PATHS: Final = (
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
)  # fmt: skip
AMOUNTS: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
    "requests.memory",
)  # fmt: skip
CPU_DIVISORS: Final = ("1m", "1")
BYTE_DIVISORS: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
ONLY_ONE: Final = "may not have more than one field specified at a time"


def variable_faults(container: Json, path: str) -> Iterator[FieldError]:
    for index, variable in enumerate(container.get("env") or ()):
        yield from _variable(variable, f"{path}.env[{index}]")
    for index, source in enumerate(container.get("envFrom") or ()):
        yield from _whole_source(source, f"{path}.envFrom", index)


def _variable(variable: Json, path: str) -> Iterator[FieldError]:
    name = variable.get("name", "")
    if not name:
        yield fields.required(f"{path}.name")
    elif not PRINTABLE_NAME.fullmatch(name):
        yield fields.invalid(f"{path}.name", name, PRINTABLE)
    source = variable.get("valueFrom")
    if source is None:
        return
    path = f"{path}.valueFrom"
    given = [kind for kind in SOURCES if source.get(kind) is not None]
    if not given:
        listed = ", ".join(f"`{kind}`" for kind in SOURCES[:-1])
        yield fields.invalid(path, "", f"must specify one of: {listed} or `{SOURCES[-1]}`")
    elif variable.get("value"):
        yield fields.invalid(path, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield fields.invalid(path, "", ONLY_ONE)
    if reference := source.get("fieldRef"):
        yield from field_faults(reference, f"{path}.fieldRef", VARIABLE_PATHS)
    if reference := source.get("resourceFieldRef"):
        yield from amount_faults(reference, f"{path}.resourceFieldRef")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if source.get(kind) is not None:
            yield from _key(source[kind], f"{path}.{kind}")


def _key(reference: Json, path: str) -> Iterator[FieldError]:
    name, key = reference.get("name", ""), reference.get("key", "")
    yield from objections(f"{path}.name", name, subdomain)
    if not key:
        yield fields.required(f"{path}.key")
    else:
        yield from objections(f"{path}.key", key, config_key)


def _whole_source(source: Json, path: str, index: int) -> Iterator[FieldError]:
    prefix = source.get("prefix", "")
    if prefix and not PRINTABLE_NAME.fullmatch(prefix):
        yield fields.invalid(f"{path}[{index}].prefix", prefix, PRINTABLE)
    given = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
    for kind in given:
        name = source[kind].get("name", "")
        if not name:
            yield fields.required(f"{path}[{index}].{kind}.name")
        else:
            yield from objections(f"{path}[{index}].{kind}.name", name, subdomain)
    if not given:
        yield fields.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
    elif len(given) > 1:
        yield fields.invalid(path, "", ONLY_ONE)


def field_faults(reference: Json, path: str, supported: tuple[str, ...]) -> Iterator[FieldError]:
    """Check a reference to a field of the pod."""
    told, version = reference.get("fieldPath", ""), reference.get("apiVersion", "v1")
    if not told:
        yield fields.required(f"{path}.fieldPath")
        return
    subscripted = SUBSCRIPTED.fullmatch(told)
    if version != "v1":
        detail = f"error converting fieldPath: unsupported pod version: {version}"
        yield fields.invalid(f"{path}.fieldPath", told, detail)
    elif subscripted:
        where, key = subscripted.groups()
        checked = key if where == "labels" else key.lower()
        yield from (fields.invalid(path, key, text) for text in label_key(checked))
    elif told not in FIELD_PATHS:
        detail = f"error converting fieldPath: field label not supported: {told}"
        yield fields.invalid(f"{path}.fieldPath", told, detail)
    elif RENAMED.get(told, told) not in supported:
        yield fields.not_supported(f"{path}.fieldPath", told, supported)


def amount_faults(reference: Json, path: str, *, is_file: bool = False) -> Iterator[FieldError]:
    """Check a reference to a request or limit. In a file, it must name the container."""
    resource = reference.get("resource", "")
    if is_file and not reference.get("containerName"):
        yield fields.required(f"{path}.containerName")
    elif not resource:
        yield fields.required(f"{path}.resource")
    elif resource not in AMOUNTS and not resource.startswith(("requests.hugepages-", "limits.hugepages-")):
        yield fields.not_supported(f"{path}.resource", resource, AMOUNTS)
    elif divisor := quantity.parse(reference.get("divisor", 0)):
        name = resource.partition(".")[2]
        allowed = CPU_DIVISORS if name == "cpu" else BYTE_DIVISORS
        if divisor not in [quantity.parse(each) for each in allowed]:
            shown = " and ".join(allowed) if name == "cpu" else ", ".join(allowed)
            detail = f"only divisor's values {shown} are supported with the {name} resource"
            yield fields.invalid(f"{path}.divisor", resource, detail)
