"""The surface of the engine is closed: other packages call methods of a State and do not reach into it."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from kyu.engine.state import State

ROOT = Path(__file__).parent.parent.parent
OUTSIDE = sorted(path for path in (ROOT / "kyu").rglob("*.py") if "engine" not in path.relative_to(ROOT).parts[1:2])
# The options are a value, and they are public.
INSIDE = {field.name for field in fields(State)} - {"options"}


def reaches_into_state(source: str) -> list[str]:
    """Return the places where the fields of a State are used: ``state.queues``, ``self.state.pending``."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in INSIDE and ast.unparse(node.value).split(".")[-1] in STATES
    ]


STATES = {"state", "_state"}


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_other_package_reaches_into_the_state(path: Path) -> None:
    source = path.read_text()
    if "kyu.engine" in source:
        assert reaches_into_state(source) == []


def test_a_reach_into_the_state_is_found() -> None:
    assert reaches_into_state("x = self.state.pending.workloads") == ["line 1: self.state.pending"]
