"""Queues that are stopped, missing or going: what a workload in them is told, and what becomes of one with quota."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kyu.api.kueue import ClusterQueue, LocalQueue, Workload
from kyu.plans.queues.activity import QueueStop, why_stopped

GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def local_queue(**meta: Any) -> LocalQueue:
    stop = {"stopPolicy": meta.pop("stop")} if "stop" in meta else {}
    body = {"metadata": {"name": "door", "namespace": "team", **meta}, "spec": {"clusterQueue": "main", **stop}}
    return msgspec.convert(body, LocalQueue)


def cluster_queue(active: str = "", **meta: Any) -> ClusterQueue:
    stop = {"stopPolicy": meta.pop("stop")} if "stop" in meta else {}
    status = {"conditions": [{"type": "Active", "status": active}]} if active else {}
    return msgspec.convert({"metadata": {"name": "main", **meta}, "spec": stop, "status": status}, ClusterQueue)


def workload(queue: str = "door") -> Workload:
    return msgspec.convert({"metadata": {"name": "w"}, "spec": {"queueName": queue}}, Workload)


STOPPED_DOOR = QueueStop("Suspended", "LocalQueue door is inactive", stopped="LocalQueue")
STOPPED_QUEUE = QueueStop("Suspended", "ClusterQueue main is inactive", stopped="ClusterQueue")


@pytest.mark.parametrize(
    ("door", "main", "expected"),
    [
        (None, cluster_queue(), QueueStop("Misconfigured", "LocalQueue door doesn't exist")),
        (local_queue(**GOING), cluster_queue(), QueueStop("Misconfigured", "LocalQueue door is terminating")),
        (local_queue(stop="Hold"), cluster_queue(), STOPPED_DOOR),
        (local_queue(stop="HoldAndDrain"), cluster_queue(), replace(STOPPED_DOOR, drains=True)),
        (local_queue(), None, QueueStop("Misconfigured", "ClusterQueue main doesn't exist")),
        (local_queue(), cluster_queue(**GOING), QueueStop("Misconfigured", "ClusterQueue main is terminating")),
        (local_queue(), cluster_queue(stop="Hold"), STOPPED_QUEUE),
        (local_queue(), cluster_queue(stop="HoldAndDrain"), replace(STOPPED_QUEUE, drains=True)),
        # The door is asked first.
        (local_queue(stop="Hold"), cluster_queue(stop="HoldAndDrain"), STOPPED_DOOR),
        # Something that it needs is missing: what holds quota keeps it.
        (
            local_queue(),
            cluster_queue("False"),
            QueueStop("Suspended", "ClusterQueue main is inactive", cancels_reservation=False),
        ),
        (local_queue(), cluster_queue("True"), None),
        (local_queue(), cluster_queue(), None),
    ],
)
def test_why_nothing_can_be_queued(
    door: LocalQueue | None, main: ClusterQueue | None, expected: QueueStop | None
) -> None:
    assert why_stopped(door, main, workload()) == expected


def test_a_workload_without_a_queue_name_is_told_so() -> None:
    assert why_stopped(None, None, workload("")) == QueueStop("Misconfigured", "no queue name is set")
