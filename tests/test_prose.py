"""
The language of docstrings, comments, messages and pages: the rules that a test can hold.

Each failure names the file and line, the rule and the words at fault.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
# The packages and files that follow the rules. The list grows until it is all of the project.
HELD = [
    "docs",
    "examples",
    "hatch_build.py",
    "kyu",
    "snakemake_executor_plugin_kyu",
    "tests/attack",
    "tests/bus",
    "tests/controllers",
    "tests/install",
    "tests/kube",
    "tests/package.py",
    "tests/pools",
    "tests/runtime",
    "tests/server",
    "tests/test_docs.py",
    "tests/visibility",
    "tests/webhooks",
    "tests/workflows",
]
PAGES = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/README.md", "docs/benchmarks.md",
    "docs/concepts.md", "docs/quick-start.md", "docs/decisions/*.md", "docs/install/*.md", "docs/operations/*.md",
    "docs/reference/api-differences.md", "docs/reference/metrics.md", "docs/reference/runtime.md",
    "docs/tasks/*.md", "examples/*/*.md",
]  # fmt: skip
LONGEST_SENTENCE = 35


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that leave the reader without a noun when a text begins with them.
OPENINGS = words("""
    who whose whoever whom what whatever which whichever where wherever those of that
    nobody somebody someone anybody everybody everyone
""")

# Words that no function docstring begins with: it begins with a verb (Return, Reject, Parse).
NOT_VERBS = OPENINGS | words("""
    a an the this these it its he she they their one two three each every all any some none no both either neither such
    and or but not only also as at by for from in into on to with without within between beside after before until since
    under over out off up if whether when while why how because though so than then there here same true false yes
""")

PERSONS = re.compile(r"\b(somebody|someone|nobody|no one|anybody|everybody|everyone|whoever|whom|those who)\b", re.I)
# "who" follows people, at most four words before it: "users who", "an administrator of Kyu who".
PEOPLE = words("""
    user users administrator administrators admin admins person persons people caller callers tenant tenants
    reader readers owner owners author authors operator operators colleague colleagues member members team teams
    client clients human humans newcomer newcomers developer developers submitter submitters
""")


class Prose(NamedTuple):
    """A docstring, comment or message, with the line on which it begins."""

    line: int
    kind: str
    text: str


class Offence(NamedTuple):
    """A place that breaks a rule."""

    line: int
    rule: str
    words: str


def is_function(node: ast.AST) -> bool:
    """Return whether the docstring of the node describes an action: no property, special method, fixture or test."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or re.match(r"test_|__", node.name):
        return False
    decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    return not re.search(r"property|fixture", decorators)


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.Constant, str]]:
    for node in ast.walk(tree):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            for index, statement in enumerate(body if isinstance(body, list) else ()):
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    kind = "function docstring" if index == 0 and is_function(node) else "docstring"
                    yield statement.value, kind


def messages(tree: ast.Module, known: set[int]) -> Iterator[Prose]:
    """Yield the string constants that read as words, except docstrings."""
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in known
        if is_text and " " in node.value:
            yield Prose(node.lineno, "message", node.value)


def comments(source: str) -> Iterator[Prose]:
    """Yield each block of comment lines as one text."""
    begin, column, texts = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or re.match(r"#(!|\s*(noqa|type:|fmt:|mypy:))", token.string):
            continue
        (line, start), text = token.start, token.string.lstrip("#: ")
        if texts and line == begin + len(texts) and start == column:
            texts.append(text)
            continue
        if texts:
            yield Prose(begin, "comment", "\n".join(texts))
        begin, column, texts = line, start, [text]
    if texts:
        yield Prose(begin, "comment", "\n".join(texts))


def prose_of(source: str) -> Iterator[Prose]:
    tree = ast.parse(source)
    known = set()
    for constant, kind in docstrings(tree):
        known.add(id(constant))
        if isinstance(constant.value, str):
            yield Prose(constant.lineno, kind, constant.value)
    yield from comments(source)
    yield from messages(tree, known)


def sentences(text: str) -> Iterator[str]:
    """Split a text at full stops, colons, semicolons and empty lines; leave out tables, quoted code and list marks."""
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*|]|\d+\.) |\n {4,}(?=\S.*\s{2,}\S)", text):
        without_code = re.sub(r"``?[^`]+``?", "code", paragraph)
        yield from re.split(r"(?<=[.!?:;])\)?\s", without_code)


def persons(text: str) -> Iterator[str]:
    """Yield the words that speak of objects as of persons."""
    yield from (match.group() for match in PERSONS.finditer(text))
    words = re.findall(r"[\w']+|[.;:]", text.lower())
    for index, word in enumerate(words):
        if word == "who" and not PEOPLE & set(words[max(0, index - 4) : index]):
            yield " ".join(words[max(0, index - 2) : index + 3])


def offences(prose: Prose) -> Iterator[Offence]:
    yield from (Offence(prose.line, "person for an object", words) for words in persons(prose.text))
    if prose.kind == "message":
        return
    first = re.match(r"\W*([\w']+)", prose.text)
    word = first.group(1) if first and "`" not in first.group() else ""
    forbidden = NOT_VERBS if prose.kind == "function docstring" else OPENINGS
    if word.lower() in forbidden:
        yield Offence(prose.line, f"opening word of a {prose.kind}", prose.text.strip().splitlines()[0])
    for sentence in sentences(prose.text):
        if len(sentence.split()) > LONGEST_SENTENCE:
            yield Offence(prose.line, f"more than {LONGEST_SENTENCE} words", " ".join(sentence.split()[:8]) + " …")


def files(held: list[str]) -> list[Path]:
    places = [ROOT / name for name in held]
    found = {path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place])}
    return sorted(found - {Path(__file__)})


@pytest.mark.parametrize("path", files(HELD), ids=lambda path: str(path.relative_to(ROOT)))
def test_code_is_described_in_plain_words(path: Path) -> None:
    found = [offence for prose in prose_of(path.read_text()) for offence in offences(prose)]
    name = path.relative_to(ROOT)
    assert not found, "\n" + "\n".join(f"{name}:{line}: {rule}: {words}" for line, rule, words in sorted(found))


@pytest.mark.parametrize("name", sorted(str(path.relative_to(ROOT)) for name in PAGES for path in ROOT.glob(name)))
def test_pages_are_written_in_plain_words(name: str) -> None:
    lines = re.sub(r"```.*?```", lambda match: "\n" * match.group().count("\n"), (ROOT / name).read_text(), flags=re.S)
    found = [(number, words) for number, line in enumerate(lines.splitlines(), 1) for words in persons(line)]
    assert not found, "\n" + "\n".join(f"{name}:{number}: person for an object: {words}" for number, words in found)
    text = "\n".join(line for line in lines.splitlines() if not line.startswith(("|", "#")))
    assert [sentence for sentence in sentences(text) if len(sentence.split()) > LONGEST_SENTENCE] == []


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('def f():\n    """Who is next."""\n', "opening word"),
        ('def f():\n    """The next head."""\n', "opening word"),
        ('class C:\n    """What is kept."""\n', "opening word"),
        ("# Of the queue.\nx = 1\n", "opening word"),
        ('def f():\n    """Return workloads who wait."""\n', "person"),
        ('print("nobody waits for it")\n', "person"),
        ('"""' + "word " * 36 + '"""\n', "more than"),
    ],
)
def test_offences_are_found(source: str, rule: str) -> None:
    assert any(rule in offence.rule for prose in prose_of(source) for offence in offences(prose))


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Return the users who may list jobs."""\n',
        'class C:\n    """A queue of pending workloads."""\n',
        "@property\ndef f():\n    '''The next head.'''\n",
        "# noqa: E501\n",
    ],
)
def test_plain_words_pass(source: str) -> None:
    assert [offence for prose in prose_of(source) for offence in offences(prose)] == []
