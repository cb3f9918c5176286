"""
What YuniKorn and Kueue accept, as data: each key that they read, where it may stand, and the form of its value.

A result of ``render`` is checked by this table before it is given back, so that no plugin can write what a scheduler
would silently ignore. The forms say what is wrong in words.

Used by: plugin.py. YuniKorn 1.8: admission controller, k8shim cache, core configvalidator. Kueue 0.19: pod webhook.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec

from kyu.api import names, quantity
from kyu.api.meta import Json
from kyu.kinds import fields, metadata
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
class Rule:
    """A key that a scheduler reads from a pod. ``needs`` names a key that must stand beside it."""

    scheduler: str
    key: str
    at: tuple[Literal["label", "annotation"], ...]
    form: str
    needs: str = ""


RULES = (
    Rule("yunikorn", yunikorn.APP_ID, ("label",), "label value"),
    Rule("yunikorn", yunikorn.QUEUE, ("label", "annotation"), "queue path"),
    Rule("yunikorn", yunikorn.USER_INFO, ("annotation",), "user info"),
    Rule("yunikorn", yunikorn.TASK_GROUPS, ("annotation",), "task groups", needs=yunikorn.TASK_GROUP_NAME),
    Rule("yunikorn", yunikorn.TASK_GROUP_NAME, ("annotation",), "DNS label", needs=yunikorn.TASK_GROUPS),
    Rule("yunikorn", yunikorn.PARAMETERS, ("annotation",), "policy parameters", needs=yunikorn.TASK_GROUPS),
    Rule("yunikorn", yunikorn.ALLOW_PREEMPTION, ("annotation",), "true or false"),
    Rule("kueue", metadata.QUEUE_NAME, ("label",), "DNS subdomain"),
    Rule("kueue", metadata.POD_GROUP_NAME, ("label",), "DNS subdomain", needs=metadata.POD_GROUP_TOTAL_COUNT),
    Rule("kueue", metadata.POD_GROUP_TOTAL_COUNT, ("annotation",), "positive number", needs=metadata.POD_GROUP_NAME),
)


RULES_OF = {name: {rule.key: rule for rule in RULES if rule.scheduler == name} for name in ("kueue", "yunikorn")}


def label_value(text: str) -> str:
    return names.why_not_label_value(text)


def dns_label(text: str) -> str:
    return names.why_not_dns_label(text)


def dns_subdomain(text: str) -> str:
    return names.why_not_dns_subdomain(text)


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
    "label value": label_value,
    "DNS label": dns_label,
    "DNS subdomain": dns_subdomain,
    "queue path": queue_path,
    "user info": user_info,
    "task groups": task_groups,
    "policy parameters": policy_parameters,
    "true or false": true_or_false,
    "positive number": positive_number,
}


def refusals(scheduler: str, obj: Json, places: Iterable[fields.Path]) -> list[Refusal]:
    """What the scheduler would refuse or ignore where settings were written: on the object, or on its pods."""
    holders = dict.fromkeys(place[:-1] for place in places if place[-1] in ("labels", "annotations"))
    found = []
    for holder in holders:
        meta = fields.json_at(obj, holder)
        found += list(faults(scheduler, meta.get("labels") or {}, meta.get("annotations") or {}))
    return [Refusal(f"{scheduler} would not accept {fault}", "change it") for fault in dict.fromkeys(found)]


def faults(scheduler: str, labels: Json, annotations: Json) -> Iterator[str]:
    rule_by_key = RULES_OF.get(scheduler, {})
    for place, values in (("label", labels), ("annotation", annotations)):
        for key, value in values.items():
            rule = rule_by_key.get(key)
            if rule is None:
                continue
            if place not in rule.at:
                yield f"{key} as {place}: it is read as {' or '.join(rule.at)} only"
            elif reason := judge(rule.form, value):
                yield f"{key}: {reason}"
            elif rule.needs and rule.needs not in labels and rule.needs not in annotations:
                yield f"{key} without {rule.needs}"
    name, groups = annotations.get(yunikorn.TASK_GROUP_NAME), annotations.get(yunikorn.TASK_GROUPS)
    if scheduler == "yunikorn" and name is not None and groups is not None and name not in group_names(groups):
        yield f"{yunikorn.TASK_GROUP_NAME} {name!r}: it is not among the task groups"


@lru_cache(maxsize=1024)
def judge(form: str, value: str) -> str:
    """What is wrong with a value; all pods of a job have the same ones, so the answers are kept."""
    return FORMS[form](value)


@lru_cache(maxsize=1024)
def group_names(text: str) -> frozenset[str]:
    listed = decoded(text)
    groups = listed if isinstance(listed, list) else []
    return frozenset(str(group.get("name")) for group in groups if isinstance(group, dict))
