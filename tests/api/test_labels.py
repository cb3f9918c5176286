"""Requirements on labels: every operator, with and without the label."""

from __future__ import annotations

import pytest

from kyu.api.core import NodeSelectorRequirement
from kyu.api.labels import holds

LABELS = {"tier": "web", "cores": "8", "empty": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("tier", "In", ("web", "db"), True),
        ("tier", "In", ("db",), False),
        ("absent", "In", ("",), False),
        ("empty", "In", ("",), True),
        ("tier", "NotIn", ("web",), False),
        ("absent", "NotIn", ("web",), True),
        ("empty", "Exists", (), True),
        ("absent", "Exists", (), False),
        ("absent", "DoesNotExist", (), True),
        ("tier", "DoesNotExist", (), False),
        ("cores", "Gt", ("7",), True),
        ("cores", "Gt", ("8",), False),
        ("cores", "Lt", ("9",), True),
        ("cores", "Lt", ("9", "10"), False),
        ("cores", "Lt", (), False),
        ("tier", "Gt", ("1",), False),
        ("cores", "Gt", ("many",), False),
        ("absent", "Lt", ("1",), False),
        ("tier", "Equals", ("web",), False),
    ],
)
def test_requirements(key: str, operator: str, values: tuple[str, ...], expected: bool) -> None:
    assert holds(NodeSelectorRequirement(key, operator, values), LABELS) is expected
