"""The pending workloads of a queue: their order, their positions, and parts of the list."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kyu.api import codec
from kyu.api.meta import Json, Key
from kyu.engine.options import Options
from kyu.engine.state import State
from kyu.server.errors import StatusError
from kyu.visibility.pending import CLUSTER_QUEUES, LOCAL_QUEUES, QueueVisibility
from tests.support.manifests import KUEUE, flavor, obj, owner, queues, workload
from tests.support.memory_view import MemoryView

MAIN, OTHER = Key("default", "main"), Key("default", "other")


def pending(*extra: Json) -> QueueVisibility:
    """Return three workloads of two LocalQueues: ``high`` goes first, then ``early``, then ``late``."""
    objects = [
        obj("v1", "Namespace", "default"),
        flavor("main"),
        *queues("main"),
        obj(KUEUE, "LocalQueue", "other", "default", spec={"clusterQueue": "main"}),
        waiting("late", "other", minute=2),
        waiting("early", "main", minute=1),
        waiting("high", "other", minute=3, priority=5),
        *extra,
    ]
    state = State(Options())
    for one in objects:
        state.put(codec.decode(one))
    return QueueVisibility(lambda: state, MemoryView(objects))


def waiting(name: str, queue: str, *, minute: int, priority: int | None = None) -> Json:
    metadata = {
        "uid": name,
        "creationTimestamp": f"2026-01-01T09:0{minute}:00Z",
        "ownerReferences": [owner("Job", f"job-{name}")],
    }
    spec = {} if priority is None else {"priority": priority}
    return workload(name, queue=queue, namespace="default", cpu="9", metadata=metadata, **spec)


def positions(shown: Json) -> list[tuple[str, int, int]]:
    return [
        (one["metadata"]["name"], one["positionInClusterQueue"], one["positionInLocalQueue"]) for one in shown["items"]
    ]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_cluster_queue_shows_all_its_workloads_in_order(version: str) -> None:
    shown = pending().summary(version, CLUSTER_QUEUES, Key("", "main"), {})
    assert shown["kind"] == "PendingWorkloadsSummary"
    assert shown["apiVersion"] == f"visibility.kueue.x-k8s.io/{version}"
    assert positions(shown) == [("high", 0, 0), ("early", 1, 0), ("late", 2, 1)]
    assert shown["items"][0] == {
        "metadata": {
            "name": "high",
            "namespace": "default",
            "creationTimestamp": "2026-01-01T09:03:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "job-high", "uid": "job-high"}],
        },
        "priority": 5,
        "localQueueName": "other",
        "positionInClusterQueue": 0,
        "positionInLocalQueue": 0,
    }
    assert [one["priority"] for one in shown["items"]] == [5, 0, 0]


def test_a_local_queue_shows_its_own_workloads() -> None:
    assert positions(pending().summary("v1beta2", LOCAL_QUEUES, OTHER, {})) == [("high", 0, 0), ("late", 2, 1)]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"limit": "1"}, ["high"]),
        ({"limit": "1", "offset": "1"}, ["early"]),
        ({"offset": "2"}, ["late"]),
        ({"offset": "9"}, []),
        ({"limit": "-1"}, []),
        ({"limit": "0"}, ["high", "early", "late"]),
        ({"limit": "999999999", "offset": "-3"}, ["high", "early", "late"]),
    ],
)
def test_a_part_of_the_list_keeps_the_positions(query: Mapping[str, str], names: list[str]) -> None:
    everything = positions(pending().summary("v1beta2", CLUSTER_QUEUES, Key("", "main"), {}))
    shown = positions(pending().summary("v1beta2", CLUSTER_QUEUES, Key("", "main"), query))
    assert shown == [one for one in everything if one[0] in names]


def test_the_offset_of_a_local_queue_counts_its_own_workloads() -> None:
    shown = pending().summary("v1beta2", LOCAL_QUEUES, OTHER, {"offset": "1", "limit": "1"})
    assert positions(shown) == [("late", 2, 1)]


def test_a_queue_without_a_cluster_queue_is_empty() -> None:
    lost = obj(KUEUE, "LocalQueue", "lost", "default", spec={"clusterQueue": "missing"})
    assert pending(lost).summary("v1beta2", LOCAL_QUEUES, Key("default", "lost"), {})["items"] == []


@pytest.mark.parametrize(
    ("plural", "key", "query", "code", "message"),
    [
        (CLUSTER_QUEUES, Key("", "x"), {}, 404, 'clusterqueue.visibility.kueue.x-k8s.io "x" not found'),
        (LOCAL_QUEUES, Key("default", "x"), {}, 404, 'localqueue.visibility.kueue.x-k8s.io "x" not found'),
        (CLUSTER_QUEUES, Key("", "main"), {"limit": "a"}, 400, 'strconv.ParseInt: parsing "a": invalid syntax'),
    ],
)
def test_bad_requests_are_refused(plural: str, key: Key, query: Mapping[str, str], code: int, message: str) -> None:
    with pytest.raises(StatusError) as raised:
        pending().summary("v1beta2", plural, key, query)
    assert (raised.value.code, raised.value.message) == (code, message)


def test_nothing_is_shown_before_all_objects_are_known() -> None:
    with pytest.raises(StatusError) as raised:
        QueueVisibility(lambda: None, MemoryView()).summary("v1beta2", CLUSTER_QUEUES, Key("", "main"), {})
    assert raised.value.code == 503
