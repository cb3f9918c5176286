"""
ResourceQuotas, LimitRanges and PodDisruptionBudgets: defaults and validation.

Kubernetes: pkg/apis/core/{v1/defaults.go,validation}, pkg/apis/policy/validation
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api import quantity
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label_key, regex_error
from kyu.server.builtin.pods.containers import NOT_OF_CONTAINERS, resource_name_objections
from kyu.server.builtin.pods.pods import round_up
from kyu.server.validation.checks import AT_LEAST_ZERO, objections, one_of
from kyu.server.validation.metadata import validate_labels

BOUNDS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# (lower bound, upper bound, their names in the message, the bound of the path, the bound of the value)
ORDER: Final = (
    ("min", "max", "min value", "max value", "min", "min"),
    ("min", "defaultRequest", "min value", "default request value", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "default request value", "max value", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default", "default request value", "default limit value", "defaultRequest", "defaultRequest"),
    # Kubernetes shows the minimum at the path of the default.
    ("min", "default", "min value", "default value", "default", "min"),
    ("default", "max", "default value", "max value", "default", "default"),
)
# The resources of a quota: numbers of objects, and amounts.
COUNTED: Final = frozenset(
    {
        "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
        "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
    }
)  # fmt: skip
MEASURED: Final = frozenset(
    {"cpu", "memory", "ephemeral-storage", "requests.storage"}
    | {f"{start}.{name}" for start in ("requests", "limits") for name in ("cpu", "memory", "ephemeral-storage")}
)
SCOPES: Final = (
    "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
)  # fmt: skip
LIMIT_TYPES: Final = ("Pod", "Container", "PersistentVolumeClaim")
PERCENT: Final = "[0-9]+%"
EVICTION_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")
ONE_QUANTITY: Final = quantity.parse("1")


def validate_quota(quota: Json) -> Iterator[FieldError]:
    spec = quota.get("spec") or {}
    for name, text in (spec.get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        yield from objections(path, name, _quota_name_objections)
        amount = quantity.parse(text)
        if amount.nanos < 0:
            yield fields.invalid(path, text, AT_LEAST_ZERO)
        if name in COUNTED and amount.nanos % quantity.NANO:
            yield fields.invalid(path, text, "must be an integer")
    scopes = spec.get("scopes") or []
    if any(scope not in SCOPES for scope in scopes):
        yield fields.invalid("spec.scopes", scopes, "unsupported scope")
    elif "BestEffort" in scopes and any(name != "pods" for name in spec.get("hard") or ()):
        yield fields.invalid("spec.scopes", scopes, "unsupported scope applied to resource")


def _quota_name_objections(name: str) -> tuple[str, ...]:
    """Check that a quota can limit the resource: a standard one, or one with a domain."""
    if "/" in name or label_key(name):
        return label_key(name)
    if name in COUNTED or name in MEASURED or name.removeprefix("requests.").startswith("hugepages-"):
        return ()
    return ("must be a standard resource type or fully qualified", "must be a standard resource for quota")


def default_limit_range(limit_range: Json) -> None:
    """Set the defaults of a Container: the limit from the maximum, the request from the limit or the minimum."""
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        for bound in BOUNDS:
            round_up(item.get(bound) or {})
        if item.get("type") != "Container":
            continue
        limits = {**(item.get("max") or {}), **(item.get("default") or {})}
        requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
        if limits:
            item["default"] = limits
        if requests:
            item["defaultRequest"] = requests


def validate_limit_range(limit_range: Json) -> Iterator[FieldError]:
    types: set[str] = set()
    for index, item in enumerate((limit_range.get("spec") or {}).get("limits") or ()):
        path = f"spec.limits[{index}]"
        kind = item.get("type", "")
        yield from objections(f"{path}.type", kind, _limit_type_objections)
        if kind in types:
            yield fields.duplicate(f"{path}.type", kind)
            continue
        types.add(kind)
        yield from _item_faults(item, kind, path)


def _limit_type_objections(kind: str) -> tuple[str, ...]:
    if found := label_key(kind):
        return found
    return () if "/" in kind or kind in LIMIT_TYPES else ("must be a standard limit type or fully qualified",)


def _item_faults(item: Json, kind: str, path: str) -> Iterator[FieldError]:
    for bound in ("max", "min"):
        yield from _name_faults(item, bound, kind, path)
    if kind == "Pod":
        for bound in ("default", "defaultRequest"):
            if item.get(bound):
                yield fields.forbidden(f"{path}.{bound}", "may not be specified when `type` is 'Pod'")
    else:
        for bound in ("default", "defaultRequest"):
            yield from _name_faults(item, bound, kind, path)
    if kind == "PersistentVolumeClaim" and not any("storage" in (item.get(bound) or {}) for bound in ("min", "max")):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        yield fields.required(path, detail)
    names = dict.fromkeys(name for bound in BOUNDS for name in item.get(bound) or {})
    for name in names:
        values = {bound: quantity.parse(item[bound][name]) for bound in BOUNDS if name in (item.get(bound) or {})}
        yield from _order_faults(values, name, path)


def _name_faults(item: Json, bound: str, kind: str, path: str) -> Iterator[FieldError]:
    rule = resource_name_objections if kind in ("Container", "Pod") else _other_name_objections
    for name in item.get(bound) or {}:
        yield from objections(f"{path}.{bound}[{name}]", name, rule)


def _other_name_objections(name: str) -> tuple[str, ...]:
    """Check the name of a resource that is not one of containers."""
    if name == "storage":
        return ()
    return tuple(text for text in resource_name_objections(name) if text != NOT_OF_CONTAINERS)


def _order_faults(values: dict[str, quantity.Quantity], name: str, path: str) -> Iterator[FieldError]:
    for lower, upper, lower_name, upper_name, blamed, shown in ORDER:
        if lower in values and upper in values and values[lower].nanos > values[upper].nanos:
            detail = f"{lower_name} {values[lower]} is greater than {upper_name} {values[upper]}"
            yield fields.invalid(f"{path}.{blamed}[{name}]", str(values[shown]), detail)
    ratio = values.get("maxLimitRequestRatio")
    if ratio is not None and ratio.nanos < ONE_QUANTITY.nanos:
        yield fields.invalid(f"{path}.maxLimitRequestRatio[{name}]", str(ratio), f"ratio {ratio} is less than 1")


def validate_disruption_budget(budget: Json) -> Iterator[FieldError]:
    spec = budget.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield fields.broken_rule("spec", "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        if spec.get(name) is not None:
            yield from share_faults(spec[name], f"spec.{name}")
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    yield from validate_labels(labels, "spec.selector.matchLabels")
    policy = spec.get("unhealthyPodEvictionPolicy")
    yield from one_of("spec.unhealthyPodEvictionPolicy", policy, EVICTION_POLICIES)


def share_faults(value: Any, path: str, *, may_exceed_all: bool = False) -> Iterator[FieldError]:
    """Check a number of pods, or a percentage of them."""
    if isinstance(value, int):
        if value < 0:
            yield fields.invalid(path, value, AT_LEAST_ZERO)
    elif not re.fullmatch(PERCENT, value):
        words = "a valid percent string must be a numeric string followed by an ending '%'"
        yield fields.invalid(path, value, regex_error(words, PERCENT, "1%", "93%"))
    elif not may_exceed_all and int(value[:-1]) > 100:
        yield fields.invalid(path, value, "must not be greater than 100%")
