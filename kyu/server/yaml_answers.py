"""
Answers in YAML, for who asks for it: what was to be said in JSON, written as Kubernetes writes it.

Keys are sorted, a text that could be taken for something else is in double quotes, and one of several lines is a block.

Called by: server/routes.py. Kubernetes: apimachinery/pkg/runtime/serializer/json, sigs.k8s.io/yaml.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import msgspec
import yaml

from kyu.server.exchange import JSON, Response

YAML: Final = "application/yaml"
_TEXT: Final = "tag:yaml.org,2002:str"
# What YAML 1.1 takes for a truth and the resolver here does not.
_TRUTHS: Final = frozenset({"y", "Y", "n", "N"})
# Of numbers there are more forms than the resolver knows: 1:30 and 1e3.
_is_number: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
).fullmatch


def json_instead(accept: str) -> str:
    """The header of who prefers YAML, with JSON in its place; empty for all others."""
    if YAML not in accept:
        return ""
    clauses = [clause.strip() for clause in accept.split(",")]
    preferred = max(clauses, key=_quality)
    return preferred.replace(YAML, JSON, 1) if preferred.partition(";")[0].strip() == YAML else ""


def _quality(clause: str) -> float:
    found = re.search(r";\s*q=([0-9.]+)", clause)
    return float(found[1]) if found and found[1].strip(".") else 1.0


async def rewritten(response: Response) -> Response:
    """The same answer in YAML; a long list is written in a thread, beside which others are answered."""
    if response.content_type != JSON or not isinstance(response.body, bytes):
        return response
    text = await asyncio.to_thread(render, msgspec.json.decode(response.body))
    return msgspec.structs.replace(response, body=text.encode(), content_type=YAML)


def render(value: Any) -> str:
    return yaml.dump(_sorted(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=_natural)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _natural(key: str) -> list[tuple[int, int, int]]:
    """Letters come last, and numbers count as such: ``a9`` is before ``a10``."""
    parts = re.findall(r"[0-9]+|[^0-9]", key)
    return [
        (0, ord("0"), int(part)) if part[0] in "0123456789" else (int(part.isalpha()), ord(part), 0) for part in parts
    ]


class _Dumper(yaml.CSafeDumper):
    """Texts in the quotes of Kubernetes, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    style = None
    if "\n" in text:
        style = "|"
    elif _resolves_to_more(dumper, text) or text in _TRUTHS or _is_number(text):
        style = '"'
    return dumper.represent_scalar(_TEXT, text, style=style)


def _resolves_to_more(dumper: Any, text: str) -> bool:
    return bool(dumper.resolve(yaml.ScalarNode, text, (True, False)) != _TEXT)


_Dumper.add_representer(str, _represent_text)
