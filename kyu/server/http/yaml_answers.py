"""
Answers in YAML, for clients that ask for it, as Kubernetes writes them.

Keys are sorted, a text that could be taken for something else is in double quotes, and one of several lines is a block.

Kubernetes: apimachinery/pkg/runtime/serializer/json, sigs.k8s.io/yaml.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
import yaml

from kyu.server import errors
from kyu.server.exchange import JSON, Response, error_response

YAML: Final = "application/yaml"
_TEXT: Final = "tag:yaml.org,2002:str"
# Words that YAML 1.1 reads as booleans and the resolver here does not.
_TRUTHS: Final = frozenset({"y", "Y", "n", "N"})
# YAML 1.1 has more forms of numbers than the resolver knows: 1:30 and 1e3.
_is_number: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
).fullmatch
# Writing YAML is slow, and a thread of it slows down all others: one at a time, and not too much.
MOST_BYTES = 1024 * 1024
_writer = ThreadPoolExecutor(1, "yaml-writer")


def json_instead(accept: str) -> str:
    """Return the Accept header of a client that prefers YAML, with JSON in its place; empty for other clients."""
    if YAML not in accept:
        return ""
    clauses = [clause.strip() for clause in accept.split(",")]
    preferred = max(clauses, key=_quality)
    return preferred.replace(YAML, JSON, 1) if preferred.partition(";")[0].strip() == YAML else ""


def _quality(clause: str) -> float:
    found = re.search(r";\s*q=([0-9]{1,3}(?:\.[0-9]{1,9})?)", clause)
    return float(found[1]) if found else 1.0


async def rewritten(response: Response) -> Response:
    """Return the same answer in YAML. A long list is written in a thread, so that other requests are answered."""
    if response.content_type != JSON:
        return response
    if not isinstance(response.body, bytes) or len(response.body) > MOST_BYTES:
        if not isinstance(response.body, bytes):
            response.body.close()
        text = f"an answer of more than {MOST_BYTES} bytes is not written as YAML: ask for JSON, or for fewer objects"
        return error_response(errors.StatusError(406, "NotAcceptable", text))
    value = msgspec.json.decode(response.body)
    text = await asyncio.get_running_loop().run_in_executor(_writer, render, value)
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
