"""
Build the parts of a control plane from their Go modules, once.

Per module: list the packages (this is where downloads happen, so a missing proxy shows here), build each binary into a
folder beside the final one, then rename. A folder that exists is complete; a lock keeps two builds of one module apart.

Called by: __main__.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import parts
from tests.cluster.parts import Module, Part

PROGRESS_SECONDS = 15.0


class Unavailable(Exception):
    """Go, or what it has to download, is not at hand: nothing is wrong with the sources."""


class BuildFailed(Exception):
    """The compiler refused."""


def missing() -> list[Module]:
    return [module for module in parts.MODULES if not parts.module_folder(module).exists()]


def require_go() -> None:
    if shutil.which("go") is None:
        raise Unavailable("Go is not installed")


def build(module: Module) -> None:
    """Build what is not built yet; say what takes how long."""
    final = parts.module_folder(module)
    final.parent.mkdir(parents=True, exist_ok=True)
    with locked(final.parent / f"{final.name}.lock"):
        if final.exists():
            return
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=f".{module.name}-") as scratch:
            folder = Path(scratch) / "built"
            folder.mkdir()
            build_into(module, folder)
            folder.rename(final)


def build_into(module: Module, folder: Path) -> None:
    own = [part for part in parts.PARTS if part.module == module]
    started = time.monotonic()
    packages = list_packages(module, own)
    say(f"{module.name} {module.version}: {packages} packages at hand after {since(started)}")
    for part in own:
        started = time.monotonic()
        build_part(part, folder)
        size = (folder / part.name).stat().st_size // 2**20
        say(f"{part.name}: built in {since(started)}, {size} MB")
    copy_manifests(module, folder)


def list_packages(module: Module, own: list[Part]) -> int:
    """How many packages the binaries need; downloads the modules that hold them."""
    require_go()
    command = ["go", "list", "-deps", "-f", "{{.ImportPath}}", *(part.package for part in own)]
    done = subprocess.run(command, cwd=module.folder, env=environment(), capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"Go cannot load {module.name} {module.version}: {last_line(done.stderr)}")
    return len(done.stdout.splitlines())


def build_part(part: Part, folder: Path) -> None:
    """One `go build`, with a line now and then: the first binary of a module compiles most of what the others need."""
    flags = " ".join(("-s", "-w", *part.module.linker_flags))
    command = ["nice", "go", "build", "-v", "-trimpath", f"-ldflags={flags}", f"-o={folder / part.name}", part.package]
    started = reported = time.monotonic()
    output: list[str] = []
    with subprocess.Popen(
        command, cwd=part.module.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if time.monotonic() - reported > PROGRESS_SECONDS:
                reported = time.monotonic()
                say(f"{part.name}: {len(output)} packages compiled after {since(started)}")
    if process.returncode:
        raise BuildFailed(f"{part.name} does not build:\n{''.join(output[-30:])}")


def copy_manifests(module: Module, folder: Path) -> None:
    """The module cache may be emptied between the build and a test, so what the tests read is taken now."""
    for name in module.manifests:
        # Bytes, not modes: the module cache is read-only, and a copy that cannot be removed is a nuisance.
        shutil.copytree(source_folder(module) / name, folder / name, copy_function=shutil.copyfile)
        for path in (folder / name, *(folder / name).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    if module.kustomization:
        command = [str(parts.kubectl()), "kustomize", str(source_folder(module) / module.kustomization)]
        (folder / parts.INSTALLATION).write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)


def source_folder(module: Module) -> Path:
    """Where Go keeps the sources of the upstream project."""
    command = ["go", "list", "-m", "-json", module.project]
    done = subprocess.run(command, cwd=module.folder, env=environment(), capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["Dir"])


def environment() -> dict[str, str]:
    """Static binaries, exactly the pinned versions, no version control at hand."""
    return os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "no message"


def since(started: float) -> str:
    return f"{time.monotonic() - started:.0f} s"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
