"""What holds for the modules that a compiled build compiles, read off their sources; and a build says what it is."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from types import FunctionType

import pytest

from kyu.cli import main
from kyu.engine.schedule import schedule

ROOT = Path(__file__).parent.parent
HOOKS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
PATTERNS: list[str] = HOOKS["custom"]["modules"]
SOURCES = [path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_stands_for_modules(pattern: str) -> None:
    assert list(ROOT.glob(pattern))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_compiled_has_no_keywords_in_class_statements(path: Path) -> None:
    """The compiler drops them without a word: a frozen Struct would not be frozen any more."""
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.ClassDef) or not node.keywords, f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_compiled_class_with_an_order_has_a_hash(path: Path) -> None:
    """The compiler gives such a class none, and takes a plain ``__hash__ = ...`` for an attribute of its instances."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            fields = {ast.unparse(part.target) for part in node.body if isinstance(part, ast.AnnAssign)}
            assert not methods & {"__lt__", "__eq__"} or "__hash__" in methods | fields, f"{path}:{node.lineno}"


def test_a_build_says_whether_it_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["version"]) == 0
    assert capsys.readouterr().out.endswith("(compiled)\n") != isinstance(schedule, FunctionType)
