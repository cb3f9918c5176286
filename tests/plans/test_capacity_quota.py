"""
From reports of clusters to quota, on objects in memory: the cases of tests/cases/capacity, in rounds.

A round says what the clusters report (`report: {east: {nodes: [...], foreign: {...}}}`: stamped with the time of the
round unless it has ``at``), what else changes (`put`, `delete`), and what is wanted: every write (`writes`, in order),
parts of objects, and the next time to look (`wakes`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from kyu.api import codec, duration
from kyu.api.actions import Action, Event, Patch, WakeAt
from kyu.api.clusters.capacity import FOREIGN_USAGE, REPORTED_AT, CapacityQuota
from kyu.api.meta import Json
from kyu.plans.clusters import quota
from kyu.plans.clusters.supply import SupplyTable
from kyu.plans.status import timestamp
from tests.plans.test_cases import check_object, put, remove
from tests.support.memory_view import MemoryView

CASES = Path(__file__).parent.parent / "cases" / "capacity"
START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_ROUNDS = 10


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda p: p.stem)
def test_case(path: Path) -> None:
    documents = [manifest.object for manifest in codec.read(path.read_text(), path.name)]
    rounds = [document for document in documents if document["kind"] == "Round"]
    assert rounds, f"{path.name} has no rounds"
    view = MemoryView([document for document in documents if document["kind"] != "Round"])
    table = SupplyTable()
    for number, one in enumerate(rounds, 1):
        run_round(table, view, one, f"{path.name}, round {number}")
        # A fresh table, as after a restart, decides nothing else.
        assert not settle(SupplyTable(), view, START + duration.parse(one["at"]), path.name)[0]


def run_round(table: SupplyTable, view: MemoryView, one: Json, where: str) -> None:
    now = START + duration.parse(one["at"])
    for name, said in (one.get("report") or {}).items():
        view.put(metrics(name, said, now))
    for change in one.get("put") or ():
        put(view, change)
    for name in one.get("delete") or ():
        remove(view, name)
    written, wake = settle(table, view, now, where)
    want = one.get("want") or {}
    if "writes" in want:
        assert written == want["writes"], f"{where}: {written}"
    if "wakes" in want:
        assert wake == (START + duration.parse(want["wakes"]) if want["wakes"] else None), f"{where}: {wake}"
    for path, expected in want.items():
        if path not in ("writes", "wakes"):
            check_object(view, path, "", expected, where)


def metrics(name: str, said: Json, now: datetime) -> Json:
    """A ClusterMetrics. A node is `{name, cpu, memory, …}`: what is no other field is a resource."""
    nodes = []
    for node in said.get("nodes") or ():
        known = {key: node[key] for key in ("name", "labels", "taints", "unschedulable") if key in node}
        has = {key: str(value) for key, value in node.items() if key not in (*known, "used")}
        used = {key: str(value) for key, value in (node.get("used") or {}).items()}
        nodes.append({**known, "allocatableResources": has, "allocatedResourceRequests": used})
    annotations = {}
    if said.get("at", "now") is not None:
        at = START + duration.parse(said["at"]) if "at" in said else now
        annotations[REPORTED_AT] = timestamp(at)
    if "foreign" in said:
        annotations[FOREIGN_USAGE] = msgspec.json.encode(said["foreign"]).decode()
    elif said.get("at", "now") is not None:
        annotations[FOREIGN_USAGE] = "{}"
    meta = {"name": name, "labels": said.get("labels") or {}, "annotations": annotations}
    kind = {"apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterMetrics"}
    return {**kind, "metadata": meta, "status": {"nodes": nodes}}


def settle(table: SupplyTable, view: MemoryView, now: datetime, where: str) -> tuple[list[str], datetime | None]:
    written: list[str] = []
    for _ in range(MOST_ROUNDS):
        actions: list[Action] = []
        for one in view.list(CapacityQuota):
            actions += quota.plan(table, view, one.key, now)
        writes = [action for action in actions if not isinstance(action, WakeAt | Event)]
        if not writes:
            return written, min((action.at for action in actions if isinstance(action, WakeAt)), default=None)
        for action in writes:
            assert isinstance(action, Patch)
            name = f"{action.ref.kind.kind}/{action.ref.key.name}"
            written.append(f"{name} {action.subresource}".strip())
            view.carry_out(action)
    raise AssertionError(f"{where}: the plan does not settle")


def test_a_report_is_read_once() -> None:
    """Two hundred clusters that repeat themselves cost no addition."""
    view = MemoryView(
        [
            {"apiVersion": "kyu.dev/v1alpha1", "kind": "CapacityQuota", "metadata": {"name": "q"},
             "spec": {"clusterQueue": "all"}},
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}},
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "all"},
             "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                 {"name": "any", "resources": [{"name": "cpu", "nominalQuota": 0}]}]}]}},
            *(metrics(f"c{i}", {"nodes": [{"name": "n", "cpu": 1}]}, START) for i in range(200)),
        ]
    )  # fmt: skip
    table = SupplyTable()
    assert settle(table, view, START, "")[0] == ["ClusterQueue/all", "CapacityQuota/q status"]
    known = {place: entry[2] for place, entry in table._known.items()}
    for i in range(200):
        view.put(metrics(f"c{i}", {"nodes": [{"name": "n", "cpu": 1}]}, START + timedelta(seconds=10)))
    assert settle(table, view, START + timedelta(seconds=10), "")[0] == []
    assert all(table._known[place][2] is supply for place, supply in known.items())
