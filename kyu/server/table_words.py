"""
The words of cells: ages, selectors, lists, conditions.

Called by: server/table.py, server/table_builtin.py, server/table_pods.py.
Kubernetes: apimachinery/pkg/util/duration, meta/v1 FormatLabelSelector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from kyu.api.meta import Json

NONE = "<none>"
UNKNOWN = "<unknown>"
MOST_LISTED = 3
_OPERATORS = {"In": "in", "NotIn": "notin"}


def age(timestamp: str | None, now: datetime) -> str:
    if not timestamp:
        return UNKNOWN
    then = datetime.fromisoformat(timestamp)
    return duration((now - then).total_seconds())


def duration(seconds: float) -> str:
    """Two significant units at most, fewer as it gets longer."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def listed(words: Iterable[str]) -> str:
    return ",".join(words)


def first_few(words: Sequence[str]) -> str:
    more = f" + {len(words) - MOST_LISTED} more..." if len(words) > MOST_LISTED else ""
    return listed(words[:MOST_LISTED]) + more


def true_conditions(obj: Json) -> set[str]:
    """The types of the conditions that hold."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return {each["type"] for each in conditions if each.get("status") == "True"}


def labels(chosen: Mapping[str, str] | None) -> str:
    """``a=b,c=d``."""
    return listed(f"{key}={value}" for key, value in sorted((chosen or {}).items())) or NONE


def selector(chosen: Json | None) -> str:
    """A label selector as it is written in a query."""
    chosen = chosen or {}
    parts = [(key, f"{key}={value}") for key, value in (chosen.get("matchLabels") or {}).items()]
    parts += [(rule["key"], _requirement(rule)) for rule in chosen.get("matchExpressions") or ()]
    return listed(text for _, text in sorted(parts)) or NONE


def _requirement(rule: Json) -> str:
    key, operator = rule["key"], rule.get("operator", "")
    if operator in _OPERATORS:
        return f"{key} {_OPERATORS[operator]} ({listed(sorted(rule.get('values') or ()))})"
    return f"!{key}" if operator == "DoesNotExist" else str(key)
