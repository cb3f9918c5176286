"""The dashboard and the alerts: they read only metrics that Kyu exports, by labels that these have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kyu.install import monitoring

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
EXPRESSIONS = [
    *(line[0] for _, row in monitoring.ROWS for panel in row for line in panel.lines),
    *(alert.expression for alert in monitoring.ALERTS),
]


def exported() -> dict[str, set[str]]:
    """Return the labels of each metric, as its page says; tests/test_docs.py holds the page to what is exported."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    return {name: set(re.findall(r"\w+", labels)) for name, labels in rows}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_read_exported_metrics(expression: str) -> None:
    named = re.findall(r"\b(?:kueue|kyu)_\w+", expression)
    assert named
    assert [name for name in named if name.removesuffix("_bucket") not in exported()] == []


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_group_by_labels_of_their_metrics(expression: str) -> None:
    known = {"le"}.union(
        *(
            exported()[name.removesuffix("_bucket")]
            for name in re.findall(r"\bk\w+_\w+", expression)
            if name.removesuffix("_bucket") in exported()
        )
    )
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in re.findall(r"\w+", group)}
    selected = set(re.findall(r"(\w+)=~?\"", expression))
    assert grouped | selected <= known


def test_quantiles_read_the_buckets_of_histograms() -> None:
    for expression in EXPRESSIONS:
        assert ("histogram_quantile" in expression) == ("_bucket" in expression)


def test_legends_name_labels_of_the_expression() -> None:
    for _, row in monitoring.ROWS:
        for panel in row:
            for expression, legend in panel.lines:
                assert all(label in expression for label in re.findall(r"{{(\w+)}}", legend)), panel.title


def test_the_dashboard_places_panels_side_by_side() -> None:
    dashboard = json.loads(monitoring.dashboard())
    cells = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        covered = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not covered & cells
        assert all(x < monitoring.WIDTH for x, _ in covered)
        cells |= covered
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    for alert in monitoring.ALERTS:
        labels = re.findall(r"\$labels\.(\w+)", alert.summary)
        assert all(label in alert.expression for label in labels), alert.name
        assert alert.summary.endswith(".")
        assert alert.remedy.endswith(".")


def test_every_alert_is_on_its_page() -> None:
    page = PAGE.parents[1] / "operations" / "monitoring.md"
    told = re.findall(r"^\| (Kyu\w+) \|", page.read_text(), re.MULTILINE)
    assert told == [alert.name for alert in monitoring.ALERTS]
