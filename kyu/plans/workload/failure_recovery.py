"""
Pods that are stuck while terminating, because their node cannot be reached.

The kubelet of such a node never confirms that a pod has ended. A pod whose owner allows it by an annotation is declared
failed and deleted, one minute after the end of its own grace period. Needs the gate FailureRecoveryPolicy.

Kueue: pkg/controller/failurerecovery/pod_termination_controller.go
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kyu.api.actions import Action, Delete, Event, Patch, View, WakeAt
from kyu.api.core import Node
from kyu.api.duration import render
from kyu.api.meta import Json, Key, Ref, key_of
from kyu.kinds import fields, metadata, pods
from kyu.kinds.pod import POD
from kyu.plans.status import parse_time, timestamp

UNREACHABLE = "node.kubernetes.io/unreachable"
FORCED_AFTER = timedelta(minutes=1)
FORCED = "KueueForcefullyDeleted"
CONDITION = "KueueFailureRecovery"


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    pod = view.find_json(POD, key)
    if pod is None or not view.configuration.gates.enabled("FailureRecoveryPolicy") or not may_be_forced(pod):
        return []
    deleted = parse_time(pod["metadata"]["deletionTimestamp"])
    if deleted is not None and now < deleted + FORCED_AFTER:
        return [WakeAt(deleted + FORCED_AFTER)]
    node = view.get(Node, Key("", fields.text_at(pod, ("spec", "nodeName"))))
    if node is None or all(taint.key != UNREACHABLE for taint in node.spec.taints):
        return []
    return force(pod, node.metadata.name, now)


def may_be_forced(pod: Json) -> bool:
    """Return whether the pod is terminating, and its owner allows Kyu to delete it by force."""
    return (
        "deletionTimestamp" in pod["metadata"] and metadata.annotations_of(pod).get(metadata.SAFE_TO_DELETE) == "true"
    )


def force(pod: Json, node: str, now: datetime) -> list[Action]:
    """Declare the pod failed unless it has ended, and delete it without waiting for its node."""
    grace = timedelta(seconds=pod["metadata"].get("deletionGracePeriodSeconds") or 0) + FORCED_AFTER
    message = (
        f"Pod forcefully terminated after {render(grace)} grace period due to unreachable node `{node}` "
        f"(triggered by `{metadata.SAFE_TO_DELETE}` annotation)"
    )
    condition = {
        "type": CONDITION,
        "status": "True",
        "reason": FORCED,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
    status: Json = {"conditions": [*fields.list_at(pod, ("status", "conditions")), condition]}
    if not pods.is_terminal(pod):
        status["phase"] = "Failed"
    ref, meta = Ref(POD, key_of(pod)), pod["metadata"]
    version = meta.get("resourceVersion", "")
    return [
        Patch(ref, {"status": status}, subresource="status", resource_version=version),
        Event(ref, "Warning", FORCED, message, meta.get("uid", "")),
        Delete(ref, meta.get("uid", ""), grace_seconds=0),
    ]


def stuck_pods_on(view: View, node: Json) -> Iterable[Key]:
    """Yield the terminating pods of a node that may be deleted by force."""
    name = node["metadata"]["name"]
    for pod in view.list_json(POD):
        if fields.text_at(pod, ("spec", "nodeName")) == name and may_be_forced(pod):
            yield key_of(pod)
