"""Kyu decides as Kueue does: the same stories on real Kubernetes, told by both, end the same."""

from __future__ import annotations

import difflib
import time

import pytest

from tests.cluster import stories, twins
from tests.cluster.client import PATIENCE_SECONDS
from tests.cluster.controlplane import POLL_SECONDS, ControlPlane


@pytest.mark.parametrize("name", stories.STORIES)
def test_same_decisions(name: str, kueue_plane: ControlPlane, kyu_plane: ControlPlane) -> None:
    planes = (kueue_plane, kyu_plane)
    for plane in planes:
        stories.STORIES[name](plane.admin)
    # A story is over when nothing changes any more, which nobody tells; a difference that stays is one.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (difference := compare(name, planes)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    assert not difference, difference


def compare(name: str, planes: tuple[ControlPlane, ControlPlane]) -> str:
    """What differs between the two ends of a story, or that one of the two has not ended."""
    if not all(stories.is_settled(plane.admin, name) for plane in planes):
        told = "\n".join("\n".join(twins.render(stories.decided(plane.admin, name))) for plane in planes)
        return f"the queues or jobs do not say what their workloads say:\n{told}"
    by_kueue, by_kyu = (twins.render(stories.decided(plane.admin, name)) for plane in planes)
    return "\n".join(difflib.unified_diff(by_kueue, by_kyu, "Kueue", "Kyu", lineterm=""))
