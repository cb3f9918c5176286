"""
Compile modules with mypyc into a wheel for one platform: ``HATCH_BUILD_HOOKS_ENABLE=1 pip wheel .``

pyproject.toml lists the modules. Plain Python is the default: without that variable, hatchling does not read this
file. A compiled wheel contains the sources too, for tracebacks. Nothing is written into the checkout, so no compiled
module can shadow an edited source. `make fast` installs the wheel into its own virtualenv.

Called by: hatchling.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from mypyc.build import mypycify
from setuptools import Distribution
from setuptools.command.build_ext import build_ext


class CompileHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the compiled modules to the wheel, and mark the wheel as one for this platform."""
        if version == "editable":
            raise ValueError("an editable install cannot be compiled: compiled modules do not follow edits")
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        for built in compile_modules(Path(self.root), self.config["modules"], folder):
            build_data["force_include"][str(built)] = str(built.relative_to(folder / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self.folder.cleanup()


def compile_modules(root: Path, patterns: Iterable[str], folder: Path) -> list[Path]:
    """Return the compiled modules, below ``folder/lib``; intermediate files are in the folder too."""
    os.chdir(root)
    sources = sorted(str(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern))
    options = [f"--cache-dir={folder / 'cache'}"]
    extensions = mypycify([*options, *sources], opt_level="2", debug_level="0", target_dir=str(folder / "c"))
    command = build_ext(Distribution({"name": "kyu", "ext_modules": extensions}))
    command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "objects")
    command.ensure_finalized()
    command.run()
    return sorted(path for path in (folder / "lib").rglob("*") if path.is_file())
