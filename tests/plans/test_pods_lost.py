"""Pods whose node is gone: they wait for it a while, then fail and go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kyu.api.actions import Delete, WakeAt
from kyu.api.core import Pod
from kyu.api.meta import Key
from kyu.plans.pods import lost
from tests.support.manifests import node, pod
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("team", "p")
BOUND = pod(node="n", phase="Running")


def run(view: MemoryView, now: datetime) -> list[datetime]:
    """When the plan wants to be asked again; a second round has nothing more to write."""
    actions = lost.plan(view, KEY, now)
    for action in actions:
        if not isinstance(action, WakeAt):
            view.carry_out(action)
    assert all(isinstance(action, WakeAt) for action in lost.plan(view, KEY, now))
    return [action.at for action in actions if isinstance(action, WakeAt)]


def marks(view: MemoryView) -> list[str]:
    return [c["type"] for c in (view.find_json(Pod.KIND, KEY) or {})["status"].get("conditions") or ()]


def test_a_pod_of_a_node_that_is_gone_fails_and_goes_when_the_node_had_time_to_come_back() -> None:
    view = MemoryView([BOUND])
    end = NOW + lost.GRACE
    assert run(view, NOW) == [end]
    assert run(view, NOW + timedelta(seconds=20)) == [end]
    actions = lost.plan(view, KEY, end)
    assert any(isinstance(action, Delete) and action.uid == "p" for action in actions)
    view.carry_out(actions[0])
    status = (view.find_json(Pod.KIND, KEY) or {})["status"]
    assert (status["phase"], status["message"]) == ("Failed", "Its node n does not exist")
    assert [(c["type"], c["reason"]) for c in status["conditions"]] == [("DisruptionTarget", "DeletionByPodGC")]


def test_a_node_that_comes_back_keeps_its_pods() -> None:
    view = MemoryView([BOUND])
    (wake,) = run(view, NOW)
    assert marks(view) == ["DisruptionTarget"]
    view.put(node())
    assert run(view, wake) == []
    assert marks(view) == []


def test_nothing_happens_to_pods_that_are_over_or_have_no_node_or_one_that_is_there() -> None:
    for view in (MemoryView([pod(node="n", phase="Succeeded")]), MemoryView([pod()]), MemoryView([BOUND, node()])):
        assert lost.plan(view, KEY, NOW) == []
