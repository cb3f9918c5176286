"""Virtual nodes of MasterQueues: created, kept as they should be, and removed; other nodes are left alone."""

from __future__ import annotations

from datetime import UTC, datetime

from kyu.api.core import Node
from kyu.api.meta import Json, Key
from kyu.plans.pools import nodes
from tests.support.memory_view import MemoryView

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("", "pools")


def master_queue(node: str = "pools", **effective: str) -> Json:
    group = {"name": "g", "natsFlavor": {"natsSubject": "s", "virtualNode": node}}
    pool = {"flavor": "g", "name": "p", "state": "Live", "since": "", "resourceFlavor": "f", "effective": effective}
    local = {"name": "local"}
    return {
        "apiVersion": "vk.io/v1",
        "kind": "MasterQueue",
        "metadata": {"name": f"of-{node}"},
        "spec": {"flavors": [group, local]},
        "status": {"pools": [pool]},
    }


def settle(view: MemoryView) -> Json | None:
    for _ in range(4):
        actions = nodes.plan(view, KEY, NOW)
        if not actions:
            return view.find_json(Node.KIND, KEY)
        for action in actions:
            view.carry_out(action)
    raise AssertionError(f"the plan still wants {actions}")


def test_a_node_that_a_master_queue_names_is_made_with_room_for_all_that_pools_have() -> None:
    node = settle(MemoryView([master_queue(**{"example.com/chip": "4"})]))
    assert node is not None
    assert node["spec"]["taints"][0]["key"] == "virtual-node.interlink/no-schedule"
    assert {"cpu", "memory", "pods", "example.com/chip"} <= set(node["status"]["allocatable"])
    assert [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"] == ["True"]


def test_manual_changes_of_it_are_reverted() -> None:
    view = MemoryView([master_queue()])
    node = settle(view)
    assert node is not None
    for change in ({"spec": {"taints": []}}, {"status": {"allocatable": {}}}, {"status": {"conditions": []}}):
        for part, values in change.items():
            view.put({**node, part: {**node[part], **values}})
        mended = settle(view)
        assert mended is not None
        assert mended["spec"]["taints"] == node["spec"]["taints"]
        assert mended["status"]["allocatable"] == node["status"]["allocatable"]
        assert mended["status"]["conditions"]


def test_it_goes_when_no_master_queue_names_it() -> None:
    view = MemoryView([master_queue()])
    settle(view)
    view.put(master_queue("elsewhere"))
    del view.objects["vk.io", "MasterQueue", Key("", "of-pools")]
    assert settle(view) is None


def test_a_node_of_that_name_that_is_none_of_ours_stays_as_it_is() -> None:
    theirs = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "pools"}, "spec": {}}
    for queues in ([master_queue()], []):
        view = MemoryView([theirs, *queues])
        assert nodes.plan(view, KEY, NOW) == []
