"""The example of the page of the SDK, as a newcomer runs it: a script in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "tasks" / "python.md"


def test_the_example_of_the_page_runs_in_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)[0])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KYU_", "KUBE"))}
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["25", "[0, 1, 4, 9, 16]"]
    assert [path.name for path in tmp_path.iterdir()] == ["example.py"]


def test_importing_kyu_is_cheap() -> None:
    code = "import sys; before = set(sys.modules); import kyu; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in eval(done.stdout)}
    assert loaded <= {
        "kyu",
        "importlib",
        "_frozen_importlib",
        "_frozen_importlib_external",
        "warnings",
        "_imp",
        "__future__",
    }
