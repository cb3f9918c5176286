"""HTML from Python calls. Every text is escaped: names and logs cannot become elements. Only ``tag`` makes markup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

VOID = {"br", "hr", "img", "input", "link", "meta"}


@dataclass(frozen=True, slots=True)
class Markup:
    """Finished HTML."""

    text: str


Child: TypeAlias = Markup | str | int | Iterable["Child"] | None
Attribute: TypeAlias = str | int | bool | None


def tag(element: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element. ``class_`` is the attribute class, ``data_x`` is data-x; None and False leave one out."""
    head = element + "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{head}>" if element in VOID else f"<{head}>{render(children)}</{element}>")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def render(child: Child) -> str:
    match child:
        case None:
            return ""
        case Markup():
            return child.text
        case str():
            return escape(child)
        case int():
            return str(child)
        case _:
            return "".join(render(each) for each in child)


def table(header: Iterable[Child], rows: Iterable[Iterable[Child]], *, label: str) -> Markup:
    """Return a table with a heading for screen readers, in a box that scrolls on narrow screens."""
    head = tag("thead", tag("tr", [tag("th", cell, scope="col") for cell in header]))
    body = tag("tbody", [tag("tr", [tag("td", cell) for cell in row]) for row in rows])
    return tag("div", tag("table", tag("caption", label, class_="unseen"), head, body), class_="scroll")
