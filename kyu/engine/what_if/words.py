"""
The words and the JSON of counterfactuals: one line for people, plain values for programs.

Called by: cli/batch/why.py, cli/web/pages/job.py (through it), cli/admin/decide.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import assert_never

from kyu.api import quantity
from kyu.api.meta import Json, Key
from kyu.engine.what_if.changes import (
    Change,
    FewerPods,
    HigherPriority,
    Later,
    MoreQuota,
    OtherFlavor,
    OtherQueue,
    Resume,
    SmallerRequest,
)
from kyu.engine.what_if.counterfactuals import Counterfactual

TIME = "%Y-%m-%d %H:%M UTC"


def render_change(change: Change) -> str:
    """Return a change as an instruction."""
    match change:
        case FewerPods(pod_set, before, after):
            return f"with {after} pods instead of {before}{_of(pod_set)}"
        case SmallerRequest(pod_set, resource, before, after):
            amounts = (quantity.render(resource, amount) for amount in (after, before))
            return f"with {next(amounts)} {resource} per pod instead of {next(amounts)}{_of(pod_set)}"
        case OtherFlavor(flavor, tolerations, selectors):
            words = [f"tolerating {taint}" for taint in tolerations] + [f"selecting {label}" for label in selectors]
            return f"on flavor {flavor}, {' and '.join(words)}" if words else f"on flavor {flavor}"
        case OtherQueue(local_queue, cluster_queue):
            return f"in the queue {local_queue} (ClusterQueue {cluster_queue})"
        case HigherPriority(before, after):
            return f"with priority {after} instead of {before}"
        case MoreQuota(cluster_queue, field, raises):
            parts = [
                f"{quantity.render(r.key.resource, r.after)} {r.key.resource} of flavor {r.key.flavor} "
                f"instead of {quantity.render(r.key.resource, r.before)}"
                for r in raises
            ]
            what = "owned" if field == "nominalQuota" else "might borrow"
            return f"if ClusterQueue {cluster_queue} {what} {' and '.join(parts)}"
        case Resume(kind, name):
            return f"if {kind} {name} were resumed"
        case Later(at, ended):
            time = datetime.fromtimestamp(at, UTC).strftime(TIME)
            others = "another one has" if ended == 1 else f"{ended} others have"
            return f"by {time}, when {others} reached the maximum execution time"
        case _:
            assert_never(change)


def _of(pod_set: str) -> str:
    return "" if pod_set == "main" else f" in pod set {pod_set}"


def render_counterfactual(found: Counterfactual, names: Mapping[Key, str]) -> str:
    """Return a change and what it would preempt, in one line."""
    victims = [names.get(preempt.victim, str(preempt.victim)) for preempt in found.preempts]
    shown = ", ".join(victims[:3]) + (f" and {len(victims) - 3} more" if len(victims) > 3 else "")
    return f"{render_change(found.change)}{f', preempting {shown}' if victims else ''}"


def change_json(change: Change) -> Json:
    """Return a change as plain values. ``kind`` tells which."""
    match change:
        case FewerPods(pod_set, before, after):
            return {"kind": "pods", "podSet": pod_set, "from": before, "to": after}
        case SmallerRequest(pod_set, resource, before, after):
            amounts = {"from": quantity.render(resource, before), "to": quantity.render(resource, after)}
            return {"kind": "request", "podSet": pod_set, "resource": resource, **amounts}
        case OtherFlavor(flavor, tolerations, selectors):
            return {
                "kind": "flavor",
                "flavor": flavor,
                "tolerations": list(tolerations),
                "nodeSelector": list(selectors),
            }
        case OtherQueue(local_queue, cluster_queue):
            return {"kind": "queue", "localQueue": local_queue, "clusterQueue": cluster_queue}
        case HigherPriority(before, after):
            return {"kind": "priority", "from": before, "to": after}
        case MoreQuota(cluster_queue, field, raises):
            quotas = [
                {
                    "flavor": r.key.flavor,
                    "resource": r.key.resource,
                    "from": quantity.render(r.key.resource, r.before),
                    "to": quantity.render(r.key.resource, r.after),
                }
                for r in raises
            ]
            return {"kind": field, "clusterQueue": cluster_queue, "quotas": quotas}
        case Resume(kind, name):
            return {"kind": "resume", "queue": kind, "name": name}
        case Later(at, ended):
            time = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
            return {"kind": "time", "at": time, "ended": ended}
        case _:
            assert_never(change)


def counterfactual_json(found: Counterfactual, names: Mapping[Key, str]) -> Json:
    """Return a counterfactual as plain values."""
    flavors = {pod_set.name: dict(pod_set.flavors) for pod_set in found.admit.pod_sets}
    preempts = [{"workload": str(p.victim), "job": names.get(p.victim, ""), "rule": p.reason} for p in found.preempts]
    return {
        **change_json(found.change),
        "clusterQueue": found.admit.cluster_queue,
        "flavors": flavors,
        "preempts": preempts,
        "text": render_counterfactual(found, names),
    }
