"""The layer rules of docs/ARCHITECTURE.md, read off the import statements."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
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
    "streams": set(),
    "tenants": {"api"},
    "plans": {"api", "kinds", "engine", "workflows"},
    "kube": {"api", "streams"},
    "bus": {"api"},
    "shadow": {"api", "engine"},
    "controllers": {"kube", "bus", "plans", "kinds", "api", "engine", "shadow"},
    "server": {"api", "kinds", "streams"},
    "runtime": {"kube", "api"},
    "simulation": {"api", "engine"},
    "doctor": {"api", "kinds"},
    "bench": {"api", "kinds", "engine", "workflows", "plans", "kube", "bus", "controllers", "server", "runtime", "app"},
    "pools": {"api", "engine", "plans", "kube", "bus", "controllers", "server", "runtime"},
    "embedded": {
        "api", "kinds", "engine", "plans", "kube", "bus", "controllers", "server", "runtime", "pools", "visibility",
        "accounting",
    },
    "accounting": {"api", "kinds", "plans", "server"},
    "endpoints": {"api", "kube", "server"},
    "webhooks": {"api", "kinds", "plans", "kube", "server"},
    "visibility": {"api", "engine", "kube", "controllers", "server"},
    "install": {"api", "kinds", "plans", "controllers", "webhooks", "visibility", "shadow"},
    "on_cluster": {
        "api", "kube", "controllers", "app", "endpoints", "install", "webhooks", "visibility", "server", "shadow",
    },
    # The SDK is a second user interface: it shares the submission, the reasons and the logs with the commands.
    "sdk": {"api", "kinds", "kube", "runtime", "cli"},
    "app": {
        "api", "kinds", "engine", "plans", "kube", "bus", "controllers", "server", "runtime", "embedded", "lock",
        "accounting",
    },
}
PURE = {"api", "kinds", "engine", "workflows", "tenants", "plans", "streams", "shadow"}
IMPURE_MODULES = {
    "asyncio", "time", "random", "logging", "os", "threading", "socket", "subprocess", "multiprocessing", "concurrent",
    "aiohttp", "httptools", "sqlite3", "nats", "signal", "tempfile", "shutil", "secrets", "select",
}  # fmt: skip
MAX_MODULES = 25
# Names that still stand for two or more classes. The list is exact, and shrinks until it is empty.
AMBIGUOUS_CLASSES = {
    "Container",
    "Entry",
    "Facts",
    "Objects",
    "Options",
    "Pod",
    "Refused",
}
# One file (or folder) per foreign library, so that it can be replaced.
ONLY_IN = {
    "httptools": {"server", "kube"},
    "sqlite3": {"server", "cli"},
    "jsonschema_rs": {"server"},
    "cel_expr_python": {"server"},
    "nats": {"bus"},
    "cloudpickle": {"sdk"},
    "yaml": {"api", "server"},
    "prometheus_client": {"controllers", "server"},
}


def package(path: Path) -> str:
    relative = path.relative_to(ROOT / "kyu")
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Each imported module, and whether the import stands at the top of the file."""
    return list(find_imports(path))


def find_imports(path: Path) -> Iterator[tuple[str, bool]]:
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
            allowed = MAY_IMPORT[own] | {own, "__version__"} | ({"log", "write_fairness"} if own not in PURE else set())
            assert target in allowed, f"{own} imports {module}"
        if own in PURE:
            assert parts[0] not in IMPURE_MODULES, f"{path} is in a pure layer and imports {module}"
        if parts[0] in ONLY_IN:
            assert own in ONLY_IN[parts[0]], f"{path} imports {parts[0]}"
        assert at_top or own in {"cli", "app", "__main__", "__init__"}, f"{path} imports {module} inside a function"


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


def family(module: str) -> str:
    """Return the folder of a module, or the module itself where it stands at the top of its package."""
    parts = module.split(".")
    return ".".join(parts[:3]) if len(parts) > 3 else module


@cache
def family_imports() -> dict[str, set[str]]:
    """Return for each family of modules the families that it imports."""
    found: dict[str, set[str]] = {}
    for module, path in FILE_BY_MODULE.items():
        if path.name == "__init__.py":
            continue
        targets = {name if name in FILE_BY_MODULE else name.rpartition(".")[0] for name, _ in imports(path)}
        own = found.setdefault(family(module), set())
        own |= {family(target) for target in targets if target in FILE_BY_MODULE} - {family(module)}
    return found


def test_families_do_not_import_each_other_in_a_circle() -> None:
    order = TopologicalSorter(family_imports())
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(f"families import each other: {' -> '.join(error.args[1])}")


def test_no_folder_holds_too_many_modules() -> None:
    folders = Counter(path.parent for path in FILES if path.name != "__init__.py")
    wide = {str(folder.relative_to(ROOT)): count for folder, count in folders.items() if count > MAX_MODULES}
    assert wide == {}


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    found = {name: where for name, where in places.items() if len(where) > 1}
    new = {name: where for name, where in found.items() if name not in AMBIGUOUS_CLASSES}
    assert not new, f"rename one of each: {new}"
    assert set(found) == AMBIGUOUS_CLASSES, f"not ambiguous any longer: {sorted(AMBIGUOUS_CLASSES - set(found))}"
