"""Pages against the code: every command with every option, every metric, every package; links that lead somewhere."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from kyu.cli import reference
from kyu.controllers.dispatch_metrics import DispatchMetrics
from kyu.controllers.metrics import Metrics
from kyu.engine.options import Options
from kyu.engine.state import State
from tests.servers import serving

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ARCHITECTURE = (DOCS / "ARCHITECTURE.md").read_text()
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


def test_the_page_of_commands_is_up_to_date() -> None:
    assert (DOCS / "commands.md").read_text() == reference.page(), "run `make update`"


async def test_every_metric_is_on_its_page(tmp_path: Path) -> None:
    state = State(Options())
    async with serving(tmp_path) as (api, _):
        Metrics(api.metrics.registry, lambda: state)
        DispatchMetrics(api.metrics.registry, "standalone")
        families = list(api.metrics.registry.collect())
    exported = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    told = re.findall(r"^\| `(\w+)` \|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(exported)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    assert [link for link in targets if "://" not in link and not (page.parent / link).exists()] == []


def test_every_package_is_in_the_picture_of_the_layers() -> None:
    picture = (DOCS / "ARCHITECTURE.md").read_text().split("```")[1]
    packages = {path.parent.name for path in (ROOT / "kyu").glob("*/__init__.py")}
    assert {package for package in packages if f"{package}/" not in picture} == set()


def test_the_architecture_names_files_that_are_there() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", ARCHITECTURE))
    places = [ROOT, ROOT / "kyu", ROOT / "kyu" / "server"]
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_every_file_of_the_server_is_in_a_group() -> None:
    section = ARCHITECTURE.partition("## The API server")[2].partition("\n## ")[0]
    patterns = [name.removeprefix("server/") for name in re.findall(r"`([a-z_*/]+\.py)`", section)]
    files = [path.name for path in (ROOT / "kyu" / "server").glob("*.py") if path.name != "__init__.py"]
    assert [name for name in files if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in files)] == []
