"""
The texts of cells: ages, selectors, lists, conditions.

Kubernetes: meta/v1 FormatLabelSelector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from kyu.api import duration
from kyu.api.meta import Json

NONE = "<none>"
UNKNOWN = "<unknown>"
MOST_LISTED = 3
_OPERATORS = {"In": "in", "NotIn": "notin"}


def age(timestamp: str | None, now: datetime) -> str:
    if not timestamp:
        return UNKNOWN
    then = datetime.fromisoformat(timestamp)
    return duration.short((now - then).total_seconds())


def listed(words: Iterable[str]) -> str:
    return ",".join(words)


def first_few(words: Sequence[str]) -> str:
    more = f" + {len(words) - MOST_LISTED} more..." if len(words) > MOST_LISTED else ""
    return listed(words[:MOST_LISTED]) + more


def true_conditions(obj: Json) -> set[str]:
    """Return the types of the conditions with status True."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return {each["type"] for each in conditions if each.get("status") == "True"}


def labels(chosen: Mapping[str, str] | None) -> str:
    """Return ``a=b,c=d``."""
    return listed(f"{key}={value}" for key, value in sorted((chosen or {}).items())) or NONE


def selector(chosen: Json | None) -> str:
    """Return a label selector in the notation of a query."""
    chosen = chosen or {}
    parts = [(key, f"{key}={value}") for key, value in (chosen.get("matchLabels") or {}).items()]
    parts += [(rule["key"], _requirement(rule)) for rule in chosen.get("matchExpressions") or ()]
    return listed(text for _, text in sorted(parts)) or NONE


def _requirement(rule: Json) -> str:
    key, operator = rule["key"], rule.get("operator", "")
    if operator in _OPERATORS:
        return f"{key} {_OPERATORS[operator]} ({listed(sorted(rule.get('values') or ()))})"
    return f"!{key}" if operator == "DoesNotExist" else str(key)
