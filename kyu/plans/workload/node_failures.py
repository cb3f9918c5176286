"""
Nodes that fail under workloads that were placed on them.

The first one is written down in the workload's status; the scheduler then moves the pods that were there, and nothing
else (engine/topology/replace.py). With a second one before that the workload has to go. A node that is only not ready,
or got a taint, has failed when no pod of the workload runs there any more; one that is gone has failed at once.

Kueue: pkg/controller/tas/node_controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from kyu.api import placement as stored
from kyu.api.actions import Action, Event, Patch, View, WakeAt
from kyu.api.core import Node, Toleration
from kyu.api.kueue import HOSTNAME_LABEL, ResourceFlavor, Workload
from kyu.api.meta import Json, Key, Ref, find_condition, is_true, key_of
from kyu.kinds import fields, metadata, pods
from kyu.kinds.pod import POD
from kyu.plans.status import StatusEdit, parse_time, timestamp
from kyu.plans.workload.admission import event
from kyu.plans.workload.eviction import evict

# Without waitForPodsReady, a node that is not ready for this long has failed.
LONGEST_NOT_READY = timedelta(seconds=30)
ENDED = "UnschedulableOnAssignedNode"
ENDED_MESSAGE = "The node that the pod was placed on has failed"


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    workload, raw = view.get(Workload, key), view.find_json(Workload.KIND, key)
    if workload is None or raw is None or not is_concerned(view, workload):
        return []
    suspected = [node for node in nodes_of(workload) if is_suspected(view, workload, node)]
    recorded = [node.name for node in workload.status.unhealthy_nodes]
    if not suspected and not recorded:
        return []
    mine = pods_of(view, workload) if suspected else []
    failed = [node for node in suspected if has_failed(view, node, mine, now)]
    late = [pod for pod in mine if waits_for(pod) in failed]
    return [*plan_status(workload, raw, recorded, failed, now), *end_all(late, now), *look_again(view, suspected, now)]


def is_concerned(view: View, workload: Workload) -> bool:
    conditions = workload.status.conditions
    return (
        view.configuration.gates.enabled("TASFailedNodeReplacement")
        and is_true(conditions, "Admitted")
        and not is_true(conditions, "Evicted")
        and not is_true(conditions, "Finished")
    )


def nodes_of(workload: Workload) -> list[str]:
    """Return the nodes of the workload's pods, in the order of the assignment."""
    admission = workload.status.admission
    found: dict[str, None] = {}
    for assignment in admission.pod_set_assignments if admission else ():
        where = assignment.topology_assignment
        if where is not None and where.levels and where.levels[-1] == HOSTNAME_LABEL:
            found.update(dict.fromkeys(domain.values[-1] for domain in stored.domains(where)))
    return list(found)


# Failed nodes


def is_suspected(view: View, workload: Workload, name: str) -> bool:
    """Return whether the node is gone, not ready, or has a taint that a pod there does not tolerate for ever."""
    node = view.get(Node, Key("", name))
    if node is None or not is_true(node.status.conditions, "Ready"):
        return True
    taints = [taint for taint in node.spec.taints if taint.effect in ("NoSchedule", "NoExecute")]
    if not taints:
        return False
    return any(
        not any(one.tolerates(taint) and one.toleration_seconds is None for one in tolerations)
        for tolerations in tolerations_on(view, workload, name)
        for taint in taints
    )


def tolerations_on(view: View, workload: Workload, node: str) -> Iterable[Sequence[Toleration]]:
    """Return the tolerations of the pod sets with pods on the node, with those of their flavors."""
    admission = workload.status.admission
    templates = {pod_set.name: pod_set.template.spec for pod_set in workload.spec.pod_sets}
    for assignment in admission.pod_set_assignments if admission else ():
        where = assignment.topology_assignment
        if where is None or all(domain.values[-1] != node for domain in stored.domains(where)):
            continue
        flavors = [view.get(ResourceFlavor, Key("", name)) for name in sorted(set(assignment.flavors.values()))]
        added = [toleration for flavor in flavors if flavor is not None for toleration in flavor.spec.tolerations]
        template = templates.get(assignment.name)
        yield [*(template.tolerations if template else ()), *added]


def has_failed(view: View, name: str, mine: Iterable[Json], now: datetime) -> bool:
    node = view.get(Node, Key("", name))
    ready = find_condition(node.status.conditions, "Ready") if node else None
    if ready is None:
        return True
    if ready.status != "True" and not waits_for_pods(view):
        since = parse_time(ready.last_transition_time)
        return since is None or now >= since + LONGEST_NOT_READY
    return not any(fields.text_at(pod, ("spec", "nodeName")) == name and is_live(pod) for pod in mine)


def waits_for_pods(view: View) -> bool:
    return view.configuration.gates.enabled("TASReplaceNodeOnPodTermination")


def look_again(view: View, suspected: Iterable[str], now: datetime) -> list[Action]:
    """Wake when a node will have been not ready for too long, if that counts."""
    if waits_for_pods(view):
        return []
    nodes = (view.get(Node, Key("", name)) for name in suspected)
    found = (find_condition(node.status.conditions, "Ready") for node in nodes if node is not None)
    since = [parse_time(ready.last_transition_time) for ready in found if ready is not None and ready.status != "True"]
    ends = [one + LONGEST_NOT_READY for one in since if one is not None and one + LONGEST_NOT_READY > now]
    return [WakeAt(min(ends))] if ends else []


# Pods


def pods_of(view: View, workload: Workload) -> list[Json]:
    return [
        pod
        for pod in view.list_json(POD, workload.metadata.namespace)
        if metadata.annotations_of(pod).get(metadata.WORKLOAD) == workload.metadata.name and not pods.is_terminal(pod)
    ]


def is_live(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def waits_for(pod: Json) -> str:
    """Return the node that a pod was placed on and is not bound to yet; empty if it is bound or deleted."""
    if fields.text_at(pod, ("spec", "nodeName")) or not is_live(pod):
        return ""
    return str(fields.json_at(pod, ("spec", "nodeSelector")).get(HOSTNAME_LABEL, ""))


def end_all(late: Iterable[Json], now: datetime) -> list[Action]:
    """Delete pods that can never start: their job makes others, which find the new place."""
    actions: list[Action] = []
    for pod in late:
        ref = Ref(POD, key_of(pod))
        condition = {
            "type": "TerminatedByKueue",
            "status": "True",
            "reason": ENDED,
            "message": ENDED_MESSAGE,
            "lastTransitionTime": timestamp(now),
        }
        conditions = [c for c in fields.list_at(pod, ("status", "conditions")) if c.get("type") != condition["type"]]
        status = {"phase": "Failed", "conditions": [*conditions, condition]}
        version = pod["metadata"].get("resourceVersion", "")
        actions.append(Patch(ref, {"status": status}, subresource="status", resource_version=version))
        actions.append(Event(ref, "Normal", "PodTerminatedByKueue", ENDED_MESSAGE, pod["metadata"].get("uid", "")))
    return actions


# The status


def plan_status(workload: Workload, raw: Json, recorded: list[str], failed: list[str], now: datetime) -> list[Action]:
    """Record one failed node, and remove recovered ones. Two failed nodes evict the workload."""
    still = [name for name in recorded if name in failed]
    wanted = [*still, *(name for name in failed if name not in still)]
    if wanted == recorded:
        return []
    edit = StatusEdit(raw, now)
    if len(wanted) > 1:
        listed = ", ".join(wanted)
        message = f"Workload eviction triggered due to multiple TAS assigned node failures, including: {listed}"
        evict(edit, "NodeFailures", message)
        patch = edit.patch(Workload.KIND)
        return [patch, event(workload, "EvictedDueToNodeFailures", message)] if patch else []
    if wanted:
        edit.status["unhealthyNodes"] = [{"name": name} for name in wanted]
    else:
        edit.status.pop("unhealthyNodes", None)
    patch = edit.patch(Workload.KIND)
    return [patch] if patch else []
