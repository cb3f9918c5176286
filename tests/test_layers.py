"""The layer rules of docs/ARCHITECTURE.md, read off the import statements; and whether modules tell who calls them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "kyu").rglob("*.py"))
FILE_BY_MODULE = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES
}

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
    "endpoints": {"api", "kube", "server"},
    "on_cluster": {"api", "kube", "controllers", "app", "endpoints"},
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


# "Called by: turn.py, and through it commit.py. Calls: quota.py." A claim ends with its sentence or at the next label.
CLAIM = re.compile(r"(Called by|Calls): (.+?)(?=\.(?:\s|$)|\s[A-Z][\w ]*: |\n\n|\Z)", re.DOTALL)


@cache
def imported_files(path: Path) -> frozenset[Path]:
    """The files of Kyu that a file imports; commands import what they measure or run by its name."""
    names = {module for module, _ in imports(path)}
    names |= {module.rpartition(".")[0] for module in names}
    if path.name == "bench.py":
        names |= {f"kyu.bench.{other.stem}" for other in FILES if other.parent.name == "bench"}
    return frozenset(FILE_BY_MODULE[name] for name in names if name in FILE_BY_MODULE)


def claims(path: Path) -> Iterator[tuple[str, str]]:
    """Each file that the docstring names as a caller or as called. Through whom a call goes is for people to judge."""
    for label, claim in CLAIM.findall(ast.get_docstring(ast.parse(path.read_text())) or ""):
        for part in claim.split(";"):
            if "through" not in part:
                yield from ((label, name) for name in re.findall(r"[\w/]+\.py", part))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_tell_who_calls_them(path: Path) -> None:
    for label, name in claims(path):
        other = next((place / name for place in (path.parent, ROOT / "kyu") if (place / name).exists()), None)
        assert other is not None, f"{path}: there is no {name}"
        caller, called = (other, path) if label == "Called by" else (path, other)
        # Or somebody else puts the two together.
        assert called in imported_files(caller) or any({caller, called} <= imported_files(third) for third in FILES), (
            f"{path}: {label}: {name} is not so any more"
        )
