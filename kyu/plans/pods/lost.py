"""
Pods of a node that does not exist any more. Their end is unknown. After a while, in which the node may come back, they
fail and are deleted.

Kubernetes: pkg/controller/podgc
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kyu.api.actions import Action, Delete, View, WakeAt
from kyu.api.core import Node, Pod
from kyu.api.meta import Json, Key, Ref
from kyu.kinds import pods
from kyu.plans.status import StatusEdit, parse_time

# As long as Kubernetes waits.
GRACE = timedelta(seconds=40)
# Also the memory of when the node was missed first.
DOOMED, REASON = "DisruptionTarget", "DeletionByPodGC"


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    pod = view.find_json(Pod.KIND, key)
    node = node_of(pod) if pod is not None else ""
    if pod is None or not node or pods.is_terminal(pod):
        return []
    edit = StatusEdit(pod, now)
    doomed = edit.condition(DOOMED)
    is_known = doomed is not None and doomed.get("status") == "True" and doomed.get("reason") == REASON
    if view.find_json(Node.KIND, Key("", node)) is not None:
        if is_known:
            edit.remove_condition(DOOMED)
        return written(edit)
    message = f"Its node {node} does not exist"
    edit.set_condition(DOOMED, "True", REASON, message)
    since = parse_time((edit.condition(DOOMED) or {}).get("lastTransitionTime")) if is_known else now
    if since is not None and now < since + GRACE:
        return [*written(edit), WakeAt(since + GRACE)]
    edit.status.update(phase="Failed", reason="NodeGone", message=message)
    return [*written(edit), Delete(Ref(Pod.KIND, key), pod["metadata"]["uid"])]


def node_of(pod: Json) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def written(edit: StatusEdit) -> list[Action]:
    patch = edit.patch(Pod.KIND)
    return [] if patch is None else [patch]
