"""
The keys that YuniKorn and Kueue read from objects: their places, and the format of their values.

``render`` checks its result by this table, so that no plugin writes what a scheduler would silently ignore.

YuniKorn 1.8: admission controller, k8shim cache, core configvalidator. Kueue 0.19: pod webhook.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec

from kyu.api import names, quantity
from kyu.api.meta import Json
from kyu.kinds import fields, metadata, table
from kyu.kinds.kind import Context
from kyu.workflows import yunikorn
from kyu.workflows.settings import Refusal

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
_QUEUE_PATH = re.compile(r"root(\.[a-zA-Z0-9_:#/@-]{1,64})+", re.ASCII)
_TASK_GROUP_KEYS = {
    "name", "minMember", "minResource", "labels", "annotations", "nodeSelector", "tolerations", "affinity",
    "topologySpreadConstraints",
}  # fmt: skip
_PARAMETER = re.compile(r"placeholderTimeoutInSeconds=\d+|gangSchedulingStyle=(Hard|Soft)", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeyRule:
    """A key that a scheduler reads from a pod. ``needs`` names a key that must be beside it."""

    scheduler: str
    key: str
    at: tuple[Literal["labels", "annotations"], ...]
    form: str
    needs: str = ""


RULES = (
    KeyRule("yunikorn", yunikorn.APP_ID, ("labels",), "label value"),
    KeyRule("yunikorn", yunikorn.QUEUE, ("labels", "annotations"), "queue path"),
    KeyRule("yunikorn", yunikorn.USER_INFO, ("annotations",), "user info"),
    KeyRule("yunikorn", yunikorn.TASK_GROUPS, ("annotations",), "task groups", needs=yunikorn.TASK_GROUP_NAME),
    KeyRule("yunikorn", yunikorn.TASK_GROUP_NAME, ("annotations",), "DNS label", needs=yunikorn.TASK_GROUPS),
    KeyRule("yunikorn", yunikorn.PARAMETERS, ("annotations",), "policy parameters", needs=yunikorn.TASK_GROUPS),
    KeyRule("yunikorn", yunikorn.ALLOW_PREEMPTION, ("annotations",), "true or false"),
    KeyRule("kueue", metadata.QUEUE_NAME, ("labels",), "DNS subdomain"),
    KeyRule("kueue", metadata.POD_GROUP_NAME, ("labels",), "DNS subdomain", needs=metadata.POD_GROUP_TOTAL_COUNT),
    KeyRule(
        "kueue", metadata.POD_GROUP_TOTAL_COUNT, ("annotations",), "positive number", needs=metadata.POD_GROUP_NAME
    ),
)


RULES_OF = {name: {rule.key: rule for rule in RULES if rule.scheduler == name} for name in ("kueue", "yunikorn")}


def queue_path(text: str) -> str:
    return "" if _QUEUE_PATH.fullmatch(text) else "must be root and then parts of letters, digits and _:#/@-"


def true_or_false(text: str) -> str:
    return "" if text in ("true", "false") else "must be true or false"


def positive_number(text: str) -> str:
    return "" if text.isascii() and text.isdigit() and 0 < int(text) <= MAX_INT32 else "must be a number above 0"


def policy_parameters(text: str) -> str:
    wrong = next((word for word in text.split(" ") if not _PARAMETER.fullmatch(word)), None)
    return f"has {wrong!r}, which would be ignored" if wrong is not None else ""


def user_info(text: str) -> str:
    info = decoded(text)
    if not isinstance(info, dict) or not isinstance(info.get("user"), str):
        return 'must be JSON such as {"user":"a","groups":["b"]}'
    if not yunikorn.USER.fullmatch(info["user"]):
        return f"has the user {info['user']!r}, which is no legal name"
    groups = info.get("groups") or []
    wrong = next((g for g in groups if not isinstance(g, str) or not yunikorn.GROUP.fullmatch(g)), None)
    return f"has the group {wrong!r}, which is no legal name" if wrong is not None else ""


def task_groups(text: str) -> str:
    groups = decoded(text)
    if not isinstance(groups, list) or not groups:
        return "must be a JSON list of task groups"
    seen = [group.get("name") for group in groups if isinstance(group, dict)]
    if len(set(seen)) != len(groups):
        return "must have groups with different names"
    total: dict[str, int] = {}
    for group in groups:
        if reason := task_group(group, total):
            return f"{group.get('name')}: {reason}"
    large = next((name for name, amount in total.items() if amount > MAX_INT64), None)
    return f"asks for more {large} than can be counted" if large is not None else ""


def task_group(group: dict[str, Any], total: dict[str, int]) -> str:
    unknown = set(group) - _TASK_GROUP_KEYS
    if unknown:
        return f"has {sorted(unknown)}, which would be ignored"
    if reason := names.why_not_dns_label(str(group.get("name") or "")):
        return f"name {reason}"
    count, size = group.get("minMember"), group.get("minResource")
    if not isinstance(count, int) or not 0 < count <= MAX_INT32:
        return "minMember must be above 0"
    if not isinstance(size, dict):
        return "minResource must be set"
    if "pods" in size or {"cpu", "vcore"} <= set(size):
        return "minResource must not have pods, nor both cpu and vcore"
    for name, value in size.items():
        amount = quantity.amount(name, value)
        if amount < 0:
            return f"minResource {name} must not be negative"
        total[name] = total.get(name, 0) + amount * count
    return ""


def decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


FORMS: dict[str, Callable[[str], str]] = {
    "label value": names.why_not_label_value,
    "DNS label": names.why_not_dns_label,
    "DNS subdomain": names.why_not_dns_subdomain,
    "queue path": queue_path,
    "user info": user_info,
    "task groups": task_groups,
    "policy parameters": policy_parameters,
    "true or false": true_or_false,
    "positive number": positive_number,
}


def refusals(scheduler: str, obj: Json, written: Mapping[fields.Path, Json]) -> list[Refusal]:
    """Return what the scheduler would refuse or ignore in the written mappings of the object."""
    rule_by_key = RULES_OF.get(scheduler, {})
    found = [
        fault
        for place, values in written.items()
        for key, value in values.items()
        if (rule := rule_by_key.get(key)) is not None and (fault := why_not(rule, place, value, values, obj))
    ]
    if found:
        return [Refusal(f"{scheduler} would not accept {fault}", "change it") for fault in dict.fromkeys(found)]
    return webhook_refusals(obj) if scheduler == "kueue" else []


def why_not(rule: KeyRule, place: fields.Path, value: str, beside: Json, obj: Json) -> str:
    """Return the fault of a value at a place, or an empty text."""
    # A MiniCluster's jobLabels become the labels of its Job.
    at = "labels" if place[-1] == "jobLabels" else place[-1]
    if at not in rule.at:
        return f"{rule.key} in {at}: it is read from {' or '.join(rule.at)} only"
    if reason := judge(rule.form, value):
        return f"{rule.key}: {reason}"
    if rule.needs and rule.needs not in beside and not stands_beside(obj, place, rule.needs):
        return f"{rule.key} without {rule.needs}"
    if rule.key == yunikorn.TASK_GROUP_NAME and value not in group_names(beside.get(yunikorn.TASK_GROUPS, "")):
        return f"{rule.key} {value!r}: it is not among the task groups"
    return ""


def stands_beside(obj: Json, place: fields.Path, key: str) -> bool:
    """Return whether the key is in the labels or annotations of the same pod or object."""
    return any(key in fields.json_at(obj, (*place[:-1], other)) for other in ("labels", "annotations"))


def webhook_refusals(obj: Json) -> list[Refusal]:
    """Return the errors of Kueue's webhook for the object."""
    kind = table.find(obj)
    if kind is None or not kind.framework:
        return []
    if not kind.is_managed(obj, Context()):
        ignored = f"Kueue would ignore this {kind.kind.kind}: it asks for no pods of its own"
        return [Refusal(ignored, "label the object that has the pods")]
    errors = kind.validate(obj, None, Context())
    return [Refusal(f"Kueue would refuse it: {error}", "change the object accordingly") for error in errors]


@lru_cache(maxsize=1024)
def judge(form: str, value: str) -> str:
    """Return the fault of a value; cached, because all pods of a job have the same values."""
    return FORMS[form](value)


@lru_cache(maxsize=1024)
def group_names(text: str) -> frozenset[str]:
    listed = decoded(text)
    groups = listed if isinstance(listed, list) else []
    return frozenset(str(group.get("name")) for group in groups if isinstance(group, dict))
