"""
The answer to ProvisioningRequests of class check-capacity, where no cluster autoscaler gives it.

It compares with what the nodes really have free: pods that run and wait take their part first, then what was promised
to earlier requests and is not used yet, and then the request's own pods are placed, all or none. A request that does
not fit is looked at again whenever a pod or a node changes, unless its parameter ``noRetry`` says that it fails then.

Cluster autoscaler: processors/provreq, check-capacity.autoscaling.x-k8s.io.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from kyu.api import codec
from kyu.api.actions import Action, View
from kyu.api.core import Node, Pod
from kyu.api.meta import Json, Key, key_of
from kyu.kinds import conditions, fields, metadata
from kyu.plans.pods import binding
from kyu.plans.pods.binding import NodeRoom, NodesAndPods
from kyu.plans.provisioning.requests import CONSUMED_REQUEST, POD_TEMPLATE, REQUEST
from kyu.plans.quota import coverage
from kyu.plans.status import StatusEdit

CLASS = "check-capacity.autoscaling.x-k8s.io"
NO_RETRY = "noRetry"
FOUND, NOT_FOUND = "CapacityIsFound", "CapacityIsNotFound"


def plan(view: View, key: Key, now: datetime) -> list[Action]:
    requests = [request for request in view.list_json(REQUEST) if is_ours(request)]
    unanswered = sorted((r for r in requests if not is_answered(r)), key=age)
    if not unanswered:
        return []
    pods = view.list(Pod)
    cluster = binding.survey(view.list(Node), pods)
    for pod in sorted(cluster.waiting, key=binding.order):
        binding.take_room(pod, cluster)
    users = Counter(map(consumed_request, pods))
    for request in requests:
        if conditions.is_true(request, "Provisioned"):
            place_all(list(promised(view, request, users[key_of(request)])), cluster)
    actions: list[Action] = []
    for request in unanswered:
        wanted = list(wanted_pods(view, request))
        # Its templates come before it; until they are seen there is nothing to compare.
        if wanted:
            actions += answer(request, place_all(wanted, cluster), now)
    return actions


def is_ours(request: Json) -> bool:
    asked = fields.text_at(request, ("spec", "provisioningClassName"))
    return asked == CLASS and not metadata.is_deleted(request)


def is_answered(request: Json) -> bool:
    return any(conditions.is_true(request, type_) for type_ in ("Provisioned", "Failed"))


def age(request: Json) -> tuple[str, str, str]:
    created = fields.text_at(request, ("metadata", "creationTimestamp"))
    key = key_of(request)
    return (created, key.namespace, key.name)


def consumed_request(pod: Pod) -> Key:
    """Return the request whose capacity the pod uses. A gated pod uses none."""
    name = "" if pod.spec.scheduling_gates else pod.metadata.annotations.get(CONSUMED_REQUEST, "")
    return Key(pod.metadata.namespace, name)


def wanted_pods(view: View, request: Json) -> Iterator[Pod]:
    """Yield the pods of the request, as if they existed."""
    namespace = key_of(request).namespace
    for pod_set in fields.list_at(request, ("spec", "podSets")):
        name = fields.text_at(pod_set, ("podTemplateRef", "name"))
        stored = view.find_json(POD_TEMPLATE, Key(namespace, name))
        if stored is None:
            continue
        template = fields.json_at(stored, ("template",))
        meta = {**fields.json_at(template, ("metadata",)), "name": name, "namespace": namespace}
        pod = codec.decode_as(Pod, {"metadata": meta, "spec": fields.json_at(template, ("spec",))})
        yield from [pod] * fields.int_at(pod_set, ("count",), 1)


def promised(view: View, request: Json, used: int) -> Iterator[Pod]:
    """Yield the promised pods that do not exist yet."""
    for position, pod in enumerate(wanted_pods(view, request)):
        if position >= used:
            yield pod


def place_all(pods: Sequence[Pod], cluster: NodesAndPods) -> str:
    """Take room for all of them, or for none and say why."""
    taken: list[tuple[Pod, NodeRoom]] = []
    known, away = len(cluster.neighbours.placed), len(cluster.neighbours.keeping_away)
    for pod in pods:
        match binding.take_room(pod, cluster):
            case NodeRoom() as room:
                taken.append((pod, room))
            case why:
                for placed, room in taken:
                    room.take({name: -amount for name, amount in coverage.pod_amounts(placed.spec).items()})
                del cluster.neighbours.placed[known:], cluster.neighbours.keeping_away[away:]
                return f"{len(taken)} of {len(pods)} pod(s) would fit: {why}"
    return ""


def answer(request: Json, why_not: str, now: datetime) -> list[Action]:
    edit = StatusEdit(request, now)
    edit.set_condition("Accepted", "True", "Accepted", "The request is compared with the free capacity of the nodes")
    if not why_not:
        edit.set_condition("Provisioned", "True", FOUND, "Capacity is found on the nodes")
    elif fields.text_at(request, ("spec", "parameters", NO_RETRY)) == "true":
        edit.set_condition("Failed", "True", NOT_FOUND, why_not)
    else:
        edit.set_condition("Provisioned", "False", NOT_FOUND, why_not)
    patch = edit.patch(REQUEST)
    return [patch] if patch else []
