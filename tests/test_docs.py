"""Pages against the code: every command with every option, every metric, every package; links that lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from kyu.api.actions import Action
from kyu.cli import reference
from kyu.controllers.audit import QuotaAudit
from kyu.controllers.clusters.metrics import DispatchMetrics
from kyu.controllers.metrics.kueue import KueueMetrics
from kyu.controllers.metrics.shadow import ShadowMetrics
from kyu.engine.options import Options
from kyu.engine.state import State
from kyu.shadow.report import ShadowReport
from tests.support.memory_view import MemoryView
from tests.support.servers import serving

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
ARCHITECTURE = (DOCS / "ARCHITECTURE.md").read_text()
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *ROOT.glob("*.md")])


def test_the_page_of_commands_is_up_to_date() -> None:
    assert (DOCS / "reference" / "commands.md").read_text() == reference.page(), "run `make update`"


def test_the_index_of_decisions_is_up_to_date() -> None:
    index = runpy.run_path(str(DECISIONS / "index.py"))
    assert (DECISIONS / "README.md").read_text() == index["page"](), "run `make update`"


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in sorted(DECISIONS.glob("[0-9]*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_decisions_are_named_by_their_number_in_links_only() -> None:
    """A number in running text is not found when the pages are renumbered; the test of links finds the others."""
    mentions = re.compile(r"(?<!\[)\bdecisions? \d+", re.IGNORECASE)
    sources = [*(ROOT / "kyu").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *PAGES]
    found = [path for path in sources if path.name != "CHANGELOG.md" and mentions.search(path.read_text())]
    assert [str(path.relative_to(ROOT)) for path in found] == []


async def write_nothing(actions: list[Action]) -> None:
    assert actions == []


async def test_every_metric_is_on_its_page(tmp_path: Path) -> None:
    state = State(Options())
    async with serving(tmp_path) as (api, _):
        KueueMetrics(api.metrics.registry, lambda: state, MemoryView())
        DispatchMetrics(api.metrics.registry, "standalone")
        ShadowMetrics(api.metrics.registry, ShadowReport(0.0))
        api.metrics.registry.register(QuotaAudit(MemoryView(), write_nothing))
        families = list(api.metrics.registry.collect())
    exported = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    told = re.findall(r"^\| `(\w+)` \|", (DOCS / "reference" / "metrics.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(exported)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    assert [link for link in targets if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_have_no_marks_of_a_merge(page: Path) -> None:
    assert re.findall(r"^(?:<{7}|>{7}) .*$", page.read_text(), re.MULTILINE) == []


def test_every_page_is_listed() -> None:
    listed = {(DOCS / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", (DOCS / "README.md").read_text())}
    pages = {path for path in DOCS.rglob("*.md") if DECISIONS not in path.parents} - {DOCS / "README.md"}
    assert [str(page.relative_to(DOCS)) for page in pages - listed] == [], "add a link to docs/README.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_a_heading_name_one_that_exists(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*\.md)?#([^)\s]+)\)", page.read_text())
    targets = [(page.parent / name if name else page, anchor) for name, anchor in links]
    assert [f"{target.name}#{anchor}" for target, anchor in targets if anchor not in anchors(target)] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_package_is_in_the_picture_of_the_layers() -> None:
    picture = (DOCS / "ARCHITECTURE.md").read_text().split("```")[1]
    packages = {path.parent.name for path in (ROOT / "kyu").glob("*/__init__.py")}
    assert {package for package in packages if f"{package}/" not in picture} == set()


def test_the_architecture_names_files_that_are_there() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", ARCHITECTURE))
    places = [ROOT, ROOT / "kyu", ROOT / "kyu" / "server"]
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_every_folder_of_the_server_is_in_the_architecture() -> None:
    section = ARCHITECTURE.partition("## The API server")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+)/`", section))
    folders = {path.name for path in (ROOT / "kyu" / "server").iterdir() if (path / "__init__.py").exists()}
    assert named == folders
