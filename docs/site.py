"""
The documentation as a site: what mkdocs cannot know by itself. Called by: mkdocs (``hooks`` in mkdocs.yml).

The navigation is the list of docs/README.md, so that a page is listed once. Pages and examples outside of docs/ that
pages link to become part of the site. Links to folders lead to their files.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ENTRY = re.compile(r"- \[([^\]]+)\]\(([^)#\s]+)\)")
# The target of a link to a file.
LINK = re.compile(r"\]\((?![a-z]+://)([^)#\s]+)")
# The folder of the site for files outside of docs/.
OUTSIDE = "project"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Build the navigation from the list of pages in docs/README.md."""
    start = [{"Home": "README.md"}, {"Quick start": "quick-start.md"}, {"Concepts": "concepts.md"}]
    sections: list[dict[str, list[dict[str, str]]]] = []
    pages: list[dict[str, str]] = []
    for line in (ROOT / "docs" / "README.md").read_text().splitlines():
        if heading := re.fullmatch(r"\*\*(.+)\*\*", line):
            pages = []
            sections.append({heading[1]: pages})
        elif entry := ENTRY.match(line):
            pages.append({entry[1]: published(target_of("docs/README.md", entry[2]))})
    config.nav = [*start, *sections]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of docs/ that pages link to."""
    for name in sorted(outside()):
        file = File.generated(config, published(name), abs_src_path=str(ROOT / name))
        if files.get_file_from_path(file.src_path) is None:
            files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that leave docs/ lead to the files that were added."""
    place = page.file.src_uri
    source = place.removeprefix(f"{OUTSIDE}/") if place.startswith(f"{OUTSIDE}/") else f"docs/{place}"

    def moved(link: re.Match[str]) -> str:
        target = published(target_of(source, link[1]))
        return f"]({relpath(target, dirname(place) or '.')}"

    return LINK.sub(moved, markdown)


def target_of(source: str, link: str) -> str:
    """Return the file that a link of a file leads to: for a folder its page, or its first file."""
    target = normpath(join(dirname(source), link))
    if not (ROOT / target).is_dir():
        return target
    files = sorted(path for path in (ROOT / target).iterdir() if path.is_file())
    first = next((path for path in files if path.name == "README.md"), files[0])
    return str(first.relative_to(ROOT))


def published(path: str) -> str:
    """Return the place of a file in the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{OUTSIDE}/{path}"


def outside() -> set[str]:
    """Return the paths of all files outside of docs/ that pages link to, directly or through such a page."""
    found: set[str] = set()
    waiting = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")]
    while waiting:
        source = waiting.pop()
        targets = {target_of(source, link) for link in LINK.findall((ROOT / source).read_text())}
        new = {target for target in targets if not target.startswith("docs/")} - found
        found |= new
        waiting += [target for target in new if target.endswith(".md")]
    return found
