"""
Plans as readable cases: manifests, then steps. A step runs plans until they have nothing more to write, so every case
also shows that plans settle: planned twice is planned once.

A step says ``now``, which ``plans`` to run and on which ``key``, what happened in the meantime (``put``: objects
merged into the stored ones, ``delete``), and what is wanted afterwards: ``conditions`` ("True/Reason" or a part of
the message), ``status`` and ``object`` (a subset), ``events`` (reasons, in order), ``wakes`` (when the plan wants to
be asked again).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from kyu.api import codec
from kyu.api.actions import Action, Event, WakeAt
from kyu.api.config import file
from kyu.api.meta import Json, Key
from kyu.kinds import table
from kyu.plans.job import dependencies, lifecycle
from kyu.plans.provisioning import requests
from kyu.plans.workflows import lifecycle as workflows
from kyu.plans.workload import lifecycle as workload
from kyu.plans.workload import topology
from tests.support.memory_view import MemoryView, merged

CASES = Path(__file__).parent.parent / "cases" / "lifecycle"
PLANS: dict[str, Callable[..., list[Action]]] = {
    "workload": workload.plan,
    "job-dependencies": dependencies.plan,
    "pod-group": lifecycle.plan_group,
    "provisioning": requests.plan,
    "topology": topology.plan,
    "workflow": partial(workflows.plan, workflows.EMBEDDED),
    **{kind.framework: partial(lifecycle.plan, kind) for kind in table.KINDS if kind.framework},
}


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda p: p.stem)
def test_case(path: Path) -> None:
    documents = [manifest.object for manifest in codec.read(path.read_text(), path.name)]
    steps = [document for document in documents if document["kind"] == "Step"]
    assert steps, f"{path.name} has no steps"
    settings = [document for document in documents if document["kind"] == "Configuration"]
    view = MemoryView(
        [d for d in documents if d["kind"] not in ("Step", "Configuration")],
        file.load(settings[0]).configuration if settings else None,
    )
    for number, step in enumerate(steps, 1):
        run_step(view, step, f"{path.name}, step {number}")


def run_step(view: MemoryView, step: Json, where: str) -> None:
    for change in step.get("put") or ():
        put(view, change)
    for name in step.get("delete") or ():
        remove(view, name)
    now = step["now"] if isinstance(step["now"], datetime) else datetime.fromisoformat(step["now"])
    namespace, _, name = step["key"].rpartition("/")
    events, wakes = settle(view, step["plans"], Key(namespace, name), now, where)
    want = step.get("want") or {}
    if "events" in want:
        told = [f"{event.reason}: {event.message}" for event in events]
        # Wanted by their reasons; one with a colon by its message, too.
        short = [
            one if ": " in wish else one.partition(":")[0] for one, wish in zip(told, want["events"], strict=False)
        ]
        assert short + told[len(short) :] == want["events"], where
    if "wakes" in want:
        assert min(wakes, default=None) == datetime.fromisoformat(want["wakes"]), where
    for kind, expected in want.items():
        if kind not in ("events", "wakes"):
            check_object(view, kind, namespace, expected, where)


def settle(
    view: MemoryView, plans: list[str], key: Key, now: datetime, where: str
) -> tuple[list[Event], list[datetime]]:
    events: list[Event] = []
    for _ in range(12):
        wrote, wakes = False, []
        for name in plans:
            for action in PLANS[name](view, key, now):
                if isinstance(action, WakeAt):
                    wakes.append(action.at)
                    continue
                if isinstance(action, Event):
                    events.append(action)
                    continue
                view.carry_out(action)
                wrote = True
        if not wrote:
            return events, wakes
    raise AssertionError(f"{where}: the plans do not settle")


def check_object(view: MemoryView, path: str, namespace: str, expected: object, where: str) -> None:
    """``Workload/name``: what is wanted of it; null if it must be gone."""
    kind, _, name = path.partition("/")
    found = next(
        (obj for (_, k, key), obj in view.objects.items() if k == kind and key.name == name),
        None,
    )
    if expected is None:
        assert found is None, f"{where}: {path} is still there"
        return
    assert found is not None, f"{where}: there is no {path}; there are {[f'{k[1]}/{k[2]}' for k in view.objects]}"
    assert isinstance(expected, dict)
    for type_, wanted in (expected.get("conditions") or {}).items():
        check_condition(found, type_, wanted, f"{where}: {path}")
    rest = {name: value for name, value in expected.items() if name != "conditions"}
    assert_subset(rest, found, f"{where}: {path}")


def check_condition(obj: Json, type_: str, wanted: str | None, where: str) -> None:
    conditions = {c["type"]: c for c in (obj.get("status") or {}).get("conditions") or ()}
    if wanted is None:
        assert type_ not in conditions, f"{where}: condition {type_} is there: {conditions[type_]}"
        return
    assert type_ in conditions, f"{where}: no condition {type_} among {sorted(conditions)}"
    found = conditions[type_]
    word, _, message = wanted.partition(": ")
    assert f"{found['status']}/{found['reason']}" == word, f"{where}: {type_} is {found}"
    assert message in found["message"], f"{where}: {type_} says {found['message']!r}"


def assert_subset(wanted: object, found: object, where: str) -> None:
    if isinstance(wanted, dict):
        assert isinstance(found, dict), f"{where}: {found!r} is no object"
        for name, value in wanted.items():
            if value is None:
                assert name not in found, f"{where}.{name} is {found[name]!r}"
            else:
                assert name in found, f"{where}.{name} is missing"
                assert_subset(value, found[name], f"{where}.{name}")
    elif isinstance(wanted, list):
        assert isinstance(found, list), f"{where}: {found!r} is no list"
        assert len(found) == len(wanted), f"{where}: {found!r}"
        for position, value in enumerate(wanted):
            assert_subset(value, found[position], f"{where}[{position}]")
    else:
        assert found == wanted, f"{where}: {found!r}, wanted {wanted!r}"


def put(view: MemoryView, change: Json) -> None:
    for (_, kind, key), obj in list(view.objects.items()):
        if kind == change["kind"] and key.name == change["metadata"]["name"]:
            view.put(merged(obj, change))
            return
    view.put(change)


def remove(view: MemoryView, path: str) -> None:
    kind, _, name = path.partition("/")
    for index in [index for index in view.objects if index[1] == kind and index[2].name == name]:
        del view.objects[index]
