"""
LimitRanges and PodDisruptionBudgets: bounds that must not contradict each other.

Called by: builtin.py. Kubernetes: pkg/apis/core/validation (ValidateLimitRange), pkg/apis/policy/validation
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api import quantity
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.builtin_metadata import validate_labels
from kyu.server.builtin_names import label_key, regex_error
from kyu.server.builtin_pod_containers import NOT_OF_CONTAINERS, resource_name_objections
from kyu.server.builtin_pod_probes import AT_LEAST_ZERO
from kyu.server.errors import Unshown

BOUNDS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# Lower, upper, what they are called, and which of the two is blamed and shown.
ORDER: Final = (
    ("min", "max", "min value", "max value", "min", "min"),
    ("min", "defaultRequest", "min value", "default request value", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "default request value", "max value", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default", "default request value", "default limit value", "defaultRequest", "defaultRequest"),
    # The minimum is shown where the default is blamed; Kubernetes has it so.
    ("min", "default", "min value", "default value", "default", "min"),
    ("default", "max", "default value", "max value", "default", "default"),
)
# What a quota can bound: numbers of objects, and amounts.
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


def validate_quota(quota: Json) -> list[FieldError]:
    spec = quota.get("spec") or {}
    found: list[FieldError] = []
    for name, text in (spec.get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        found += [fields.invalid(path, name, objection) for objection in _quota_name_objections(name)]
        amount = quantity.parse(text)
        if amount.nanos < 0:
            found.append(fields.invalid(path, text, AT_LEAST_ZERO))
        if name in COUNTED and amount.nanos % quantity.NANO:
            found.append(fields.invalid(path, text, "must be an integer"))
    scopes = spec.get("scopes") or []
    if any(scope not in SCOPES for scope in scopes):
        found.append(fields.invalid("spec.scopes", scopes, "unsupported scope"))
    elif "BestEffort" in scopes and any(name != "pods" for name in spec.get("hard") or ()):
        found.append(fields.invalid("spec.scopes", scopes, "unsupported scope applied to resource"))
    return found


def _quota_name_objections(name: str) -> tuple[str, ...]:
    if "/" in name or (objections := label_key(name)):
        return label_key(name)
    if name in COUNTED or name in MEASURED or name.removeprefix("requests.").startswith("hugepages-"):
        return objections
    return ("must be a standard resource type or fully qualified", "must be a standard resource for quota")


def validate_limit_range(limit_range: Json) -> list[FieldError]:
    found: list[FieldError] = []
    types: set[str] = set()
    for index, item in enumerate((limit_range.get("spec") or {}).get("limits") or ()):
        path = f"spec.limits[{index}]"
        kind = item.get("type", "")
        found += [fields.invalid(f"{path}.type", kind, text) for text in _limit_type_objections(kind)]
        if kind in types:
            found.append(fields.duplicate(f"{path}.type", kind))
            continue
        types.add(kind)
        found += _validate_item(item, kind, path)
    return found


def _limit_type_objections(kind: str) -> tuple[str, ...]:
    if objections := label_key(kind):
        return objections
    return () if "/" in kind or kind in LIMIT_TYPES else ("must be a standard limit type or fully qualified",)


def _validate_item(item: Json, kind: str, path: str) -> Iterator[FieldError]:
    for bound in ("max", "min"):
        yield from _validate_names(item, bound, kind, path)
    if kind == "Pod":
        for bound in ("default", "defaultRequest"):
            if item.get(bound):
                yield fields.forbidden(f"{path}.{bound}", "may not be specified when `type` is 'Pod'")
    else:
        for bound in ("default", "defaultRequest"):
            yield from _validate_names(item, bound, kind, path)
    if kind == "PersistentVolumeClaim" and not any("storage" in (item.get(bound) or {}) for bound in ("min", "max")):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        yield fields.required(path, detail)
    names = dict.fromkeys(name for bound in BOUNDS for name in item.get(bound) or {})
    for name in names:
        values = {bound: quantity.parse(item[bound][name]) for bound in BOUNDS if name in (item.get(bound) or {})}
        yield from _validate_order(values, name, path)


def _validate_names(item: Json, bound: str, kind: str, path: str) -> Iterator[FieldError]:
    for name in item.get(bound) or {}:
        objections = resource_name_objections(name)
        if kind not in ("Container", "Pod"):
            objections = () if name == "storage" else tuple(text for text in objections if text != NOT_OF_CONTAINERS)
        yield from (fields.invalid(f"{path}.{bound}[{name}]", name, text) for text in objections)


def _validate_order(values: dict[str, quantity.Quantity], name: str, path: str) -> Iterator[FieldError]:
    for lower, upper, lower_name, upper_name, blamed, shown in ORDER:
        if lower in values and upper in values and values[lower].nanos > values[upper].nanos:
            detail = f"{lower_name} {values[lower]} is greater than {upper_name} {values[upper]}"
            yield fields.invalid(f"{path}.{blamed}[{name}]", str(values[shown]), detail)
    ratio = values.get("maxLimitRequestRatio")
    if ratio is not None and ratio.nanos < ONE_QUANTITY.nanos:
        yield fields.invalid(f"{path}.maxLimitRequestRatio[{name}]", str(ratio), f"ratio {ratio} is less than 1")


def validate_disruption_budget(budget: Json) -> list[FieldError]:
    spec = budget.get("spec") or {}
    found: list[FieldError] = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        found.append(Unshown("Invalid", "spec", None, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        if spec.get(name) is not None:
            found += validate_share(spec[name], f"spec.{name}")
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    found += validate_labels(labels, "spec.selector.matchLabels")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in EVICTION_POLICIES:
        found.append(fields.not_supported("spec.unhealthyPodEvictionPolicy", policy, EVICTION_POLICIES))
    return found


def validate_share(value: Any, path: str, *, may_exceed_all: bool = False) -> list[FieldError]:
    """A number of pods, or a percentage of them."""
    if isinstance(value, int):
        return [fields.invalid(path, value, AT_LEAST_ZERO)] if value < 0 else []
    if not re.fullmatch(PERCENT, value):
        detail = regex_error("a valid percent string must be a numeric string followed by an ending '%'",
                             PERCENT, "1%", "93%")  # fmt: skip
        return [fields.invalid(path, value, detail)]
    if may_exceed_all or int(value[:-1]) <= 100:
        return []
    return [fields.invalid(path, value, "must not be greater than 100%")]
