"""The layer rules of docs/ARCHITECTURE.md, read off the import statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "kyu").rglob("*.py"))

# Which packages of Kyu a package may import, besides itself.
MAY_IMPORT = {
    "api": set(),
    "kinds": {"api"},
    "engine": {"api"},
    "workflows": {"api", "kinds"},
    "plans": {"api", "kinds", "engine", "workflows"},
    "kube": {"api"},
    "bus": {"api"},
    "controllers": {"kube", "bus", "plans", "kinds", "api", "engine"},
    "server": {"api", "kinds"},
    "runtime": {"kube", "api"},
    "bench": {"api", "kinds", "engine", "workflows", "plans", "kube", "bus", "controllers", "server", "runtime", "app"},
    "pools": {"api", "engine", "plans", "kube", "bus", "controllers", "server", "runtime"},
    "embedded": {"api", "kinds", "engine", "plans", "kube", "bus", "controllers", "server", "runtime", "pools"},
    "app": {"api", "kinds", "engine", "plans", "kube", "bus", "controllers", "server", "runtime", "embedded", "lock"},
}
PURE = {"api", "kinds", "engine", "workflows", "plans"}
IMPURE_MODULES = {
    "asyncio", "time", "random", "logging", "os", "threading", "socket", "subprocess", "multiprocessing", "concurrent",
    "aiohttp", "httptools", "sqlite3", "nats", "signal", "tempfile", "shutil", "secrets", "select",
}  # fmt: skip
# One file (or folder) per foreign library, so that it can be replaced.
ONLY_IN = {
    "httptools": {"server", "kube"},
    "sqlite3": {"server", "cli"},
    "jsonschema_rs": {"server"},
    "cel_expr_python": {"server"},
    "nats": {"bus"},
    "yaml": {"api", "server"},
    "prometheus_client": {"controllers", "server"},
}


def package(path: Path) -> str:
    relative = path.relative_to(ROOT / "kyu")
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Each imported module, and whether the import stands at the top of the file."""
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for name in node.names:
                yield f"{node.module}.{name.name}", id(node) in top


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_layers(path: Path) -> None:
    own = package(path)
    for module, at_top in imports(path):
        parts = module.split(".")
        if parts[0] == "kyu" and len(parts) > 1 and own in MAY_IMPORT:
            target = parts[1]
            allowed = MAY_IMPORT[own] | {own, "__version__"} | ({"log", "turns"} if own not in PURE else set())
            assert target in allowed, f"{own} imports {module}"
        if own in PURE:
            assert parts[0] not in IMPURE_MODULES, f"{path} is in a pure layer and imports {module}"
        if parts[0] in ONLY_IN:
            assert own in ONLY_IN[parts[0]], f"{path} imports {parts[0]}"
        assert at_top or own in {"cli", "app", "__main__"}, f"{path} imports {module} inside a function"


@pytest.mark.parametrize("path", [p for p in FILES if package(p) in PURE], ids=lambda p: str(p.relative_to(ROOT)))
def test_pure_layers_have_no_clock_and_no_async(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), f"{path}:{node.lineno} is async"
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"now", "utcnow", "today"} or not is_datetime(node), (
                f"{path}:{node.lineno} reads the clock"
            )


def is_datetime(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in {"datetime", "date"}
