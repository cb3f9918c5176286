"""Kyu decides as Kueue does: the same stories on real Kubernetes, told by both, end the same."""

from __future__ import annotations

import difflib

import pytest

from tests.cluster import stories, twins
from tests.cluster.controlplane import ControlPlane


@pytest.mark.parametrize("name", stories.STORIES)
def test_same_decisions(name: str, kueue_plane: ControlPlane, kyu_plane: ControlPlane) -> None:
    tellings = []
    for plane in (kueue_plane, kyu_plane):
        stories.STORIES[name](plane.admin)
        stories.settle(plane.admin, name)
        tellings.append(stories.decided(plane.admin, name))
    by_kueue, by_kyu = map(twins.render, tellings)
    difference = "\n".join(difflib.unified_diff(by_kueue, by_kyu, "Kueue", "Kyu", lineterm=""))
    assert not difference, difference
