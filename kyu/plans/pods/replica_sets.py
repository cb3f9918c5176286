"""
Deployments and ReplicaSets where no controller runs them: a minimal version, honest about what it does.

A ReplicaSet keeps its number of pods, and replaces those that ended, with a pause if they ended at once. A Deployment
has one ReplicaSet for each version of its template; the new one gets all replicas at once, and the old ones go when it
is available. With Recreate the old ones go first, and the new one comes when their pods have ended. There is no surge
limit and no rollback; ``kubectl rollout status`` works.

Kubernetes: pkg/controller/{deployment,replicaset}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime

from kyu.api.actions import Action, Create, Delete, Patch, View, WakeAt
from kyu.api.core import Pod
from kyu.api.meta import Json, Key, Kind, Ref, key_of
from kyu.kinds import conditions, fields, metadata, pods

DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")
TEMPLATE_HASH = "pod-template-hash"
HASH_LENGTH = 10
SUFFIX_LENGTH = 5
LONGEST_NAME = 63
# A pod that can never start is replaced no more often than this.
SHORTEST_LIFE_SECONDS = 10


def plan_replica_set(view: View, key: Key, now: datetime) -> list[Action]:
    replica_set = view.find_json(REPLICA_SET, key)
    if replica_set is None or metadata.is_deleted(replica_set):
        return []
    its_pods = view.owned_by(Pod.KIND, metadata.uid_of(replica_set))
    there = [pod for pod in its_pods if not metadata.is_deleted(pod)]
    ended = [pod for pod in there if pods.is_terminal(pod)]
    live = [pod for pod in there if not pods.is_terminal(pod)]
    wanted = fields.int_at(replica_set, ("spec", "replicas"), 1)
    surplus = sorted(live, key=pods.deletion_order)[: max(0, len(live) - wanted)]
    resting = sorted((pod for pod in ended if now < replaceable_at(pod)), key=replaceable_at)[: max(0, wanted)]
    gone = [pod for pod in ended if pod not in resting]
    result: list[Action] = [Delete(ref(Pod.KIND, pod), metadata.uid_of(pod)) for pod in (*gone, *surplus)]
    if resting:
        result.append(WakeAt(replaceable_at(resting[0])))
    taken = {metadata.name_of(pod) for pod in its_pods}
    number = 0
    for _ in range(wanted - len(live) - len(resting)):
        while (name := pod_name(replica_set, number)) in taken:
            number += 1
        taken.add(name)
        template = fields.json_at(replica_set, ("spec", "template"))
        result.append(Create(Pod.KIND, pods.Blueprint(name, "main", number, template).to_pod(replica_set)))
    status = replica_set_status(replica_set, live, len(its_pods) - len(there))
    return [*status_actions(REPLICA_SET, replica_set, status), *result]


def replaceable_at(pod: Json) -> datetime:
    """Return when a pod that has ended is replaced: at once, if it lived for a while."""
    created = fields.text_at(pod, ("metadata", "creationTimestamp"))
    if not created:
        return datetime.min.replace(tzinfo=UTC)
    return conditions.add_seconds(conditions.parse_timestamp(created), SHORTEST_LIFE_SECONDS)


def pod_name(replica_set: Json, number: int) -> str:
    text = f"{metadata.uid_of(replica_set)}/{number}"
    suffix = hashlib.sha256(text.encode()).hexdigest()[:SUFFIX_LENGTH]
    name = metadata.name_of(replica_set)
    return f"{name[: LONGEST_NAME - SUFFIX_LENGTH - 1]}-{suffix}"


def replica_set_status(replica_set: Json, live: Sequence[Json], terminating: int) -> Json:
    ready = sum(pods.is_ready(pod) for pod in live)
    return {
        "replicas": len(live),
        "fullyLabeledReplicas": len(live) or None,
        "readyReplicas": ready or None,
        "availableReplicas": ready or None,
        "terminatingReplicas": terminating or None,
        "observedGeneration": fields.int_at(replica_set, ("metadata", "generation")),
    }


def plan_deployment(view: View, key: Key, now: datetime) -> list[Action]:
    deployment = view.find_json(DEPLOYMENT, key)
    if deployment is None or metadata.is_deleted(deployment):
        return []
    sets = view.owned_by(REPLICA_SET, metadata.uid_of(deployment))
    wanted_set = make_replica_set(deployment)
    name = wanted_set["metadata"]["name"]
    current = next((s for s in sets if metadata.name_of(s) == name), None)
    old = [s for s in sets if s is not current]
    status = deployment_status(deployment, current, sets, now)
    result = status_actions(DEPLOYMENT, deployment, status)
    wanted = fields.int_at(deployment, ("spec", "replicas"), 1)
    recreates = fields.text_at(deployment, ("spec", "strategy", "type")) == "Recreate"
    if current is None:
        if not recreates or not (total_of(old, "replicas") or total_of(old, "terminatingReplicas")):
            result.append(Create(REPLICA_SET, wanted_set))
    elif fields.int_at(current, ("spec", "replicas"), 1) != wanted:
        result.append(Patch(ref(REPLICA_SET, current), {"spec": {"replicas": wanted}}))
    available = fields.int_at(current or {}, ("status", "availableReplicas"))
    if recreates or (current is not None and available >= wanted):
        result += [empty(s) for s in old if fields.int_at(s, ("spec", "replicas"), 1)]
        result += [Delete(ref(REPLICA_SET, s)) for s in surplus_history(deployment, old)]
    return result


def empty(replica_set: Json) -> Patch:
    return Patch(ref(REPLICA_SET, replica_set), {"spec": {"replicas": 0}})


def surplus_history(deployment: Json, old: Sequence[Json]) -> list[Json]:
    """Empty ReplicaSets of old versions, beyond those that are kept to look at."""
    limit = fields.int_at(deployment, ("spec", "revisionHistoryLimit"), 10)
    idle = [
        s for s in old if not fields.int_at(s, ("spec", "replicas"), 1) and not fields.int_at(s, ("status", "replicas"))
    ]
    idle.sort(key=lambda s: fields.text_at(s, ("metadata", "creationTimestamp")))
    return idle[: max(0, len(idle) - limit)]


def make_replica_set(deployment: Json) -> Json:
    template = fields.json_at(deployment, ("spec", "template"))
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:HASH_LENGTH]
    labels = {**fields.json_at(template, ("metadata", "labels")), TEMPLATE_HASH: digest}
    selector = fields.json_at(deployment, ("spec", "selector"))
    match_labels = {**fields.json_at(selector, ("matchLabels",)), TEMPLATE_HASH: digest}
    return {
        "apiVersion": REPLICA_SET.api_version,
        "kind": REPLICA_SET.kind,
        "metadata": {
            "name": f"{metadata.name_of(deployment)}-{digest}",
            "namespace": fields.text_at(deployment, ("metadata", "namespace")),
            "labels": labels,
            "ownerReferences": [pods.owner_reference(deployment)],
        },
        "spec": {
            "replicas": fields.int_at(deployment, ("spec", "replicas"), 1),
            "selector": {**selector, "matchLabels": match_labels},
            "template": fields.with_value(template, ("metadata", "labels"), labels),
        },
    }


def deployment_status(deployment: Json, current: Json | None, sets: Sequence[Json], now: datetime) -> Json:
    wanted = fields.int_at(deployment, ("spec", "replicas"), 1)
    total, available = total_of(sets, "replicas"), total_of(sets, "availableReplicas")
    updated = fields.int_at(current or {}, ("status", "replicas"))
    done = updated >= wanted and total == updated and available >= wanted
    listed = fields.list_at(deployment, ("status", "conditions"))
    listed = conditions.with_condition(
        listed,
        "Available",
        "True" if available >= wanted else "False",
        reason="MinimumReplicasAvailable" if available >= wanted else "MinimumReplicasUnavailable",
        message=f"{available} of {wanted} replicas are available",
        now=now,
    )
    listed = conditions.with_condition(
        listed,
        "Progressing",
        "True",
        reason="NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
        message="The ReplicaSet has successfully progressed" if done else "The ReplicaSet is progressing",
        now=now,
    )
    return {
        "replicas": total or None,
        "updatedReplicas": updated or None,
        "readyReplicas": total_of(sets, "readyReplicas") or None,
        "availableReplicas": available or None,
        "unavailableReplicas": max(0, wanted - available) or None,
        "observedGeneration": fields.int_at(deployment, ("metadata", "generation")),
        "conditions": listed,
    }


def total_of(sets: Sequence[Json], field: str) -> int:
    return sum(fields.int_at(s, ("status", field)) for s in sets)


def status_actions(kind: Kind, obj: Json, status: Json) -> list[Action]:
    present = fields.json_at(obj, ("status",))
    wanted = {key: value for key, value in {**present, **status}.items() if value is not None}
    patch = fields.merge_patch(present, wanted)
    return [Patch(ref(kind, obj), {"status": patch}, "status")] if patch else []


def ref(kind: Kind, obj: Json) -> Ref:
    return Ref(kind, key_of(obj))
