"""
Build the sdist and the wheel, and run a job with each of them in a clean environment: `make package`.

pip needs a package index for the dependencies, so this is no part of `make test`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import kyu

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def run(*words: str | Path, **environment: str) -> str:
    """Return what a command prints; end the program if it fails."""
    done = subprocess.run(
        [str(word) for word in words], stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}, cwd="/"
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout.strip()


def build() -> list[Path]:
    """Build both artifacts; the wheel is built from the sdist."""
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob("kyu-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--quiet", "--outdir", DIST, ROOT)
    return sorted(DIST.glob("kyu-*"))


def try_out(artifact: Path, folder: Path) -> None:
    """Install the artifact into a new environment, and queue and run a job there."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    run(programs / "pip", "install", "--quiet", "--disable-pip-version-check", artifact)
    command, data = programs / "kyu", {"KYU_DATA": str(folder / "data"), "KUBECONFIG": "", "HOME": str(folder)}
    if (told := run(command, "version", **data)) != f"kyu {kyu.__version__}":
        sys.exit(f"{artifact.name}: kyu version prints {told}")
    run(programs / "python", "-c", "import kyu, pathlib; assert pathlib.Path(kyu.__path__[0], 'py.typed').exists()")
    run(command, "up", "-d", **data)
    try:
        run(command, "submit", "--name", "hello", "--cpu", "100m", "--", "echo", "it runs", **data)
        run(command, "wait", "hello", **data)
        if (told := run(command, "logs", "hello", **data)) != "it runs":
            sys.exit(f"{artifact.name}: the job printed {told}")
    finally:
        run(command, "down", **data)


def main() -> None:
    for artifact in build():
        with tempfile.TemporaryDirectory(prefix="kyu-package-") as folder:
            try_out(artifact, Path(folder))
        print(f"{artifact.relative_to(ROOT)}: installs and runs a job", flush=True)


if __name__ == "__main__":
    main()
