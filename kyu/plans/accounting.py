"""
The description of an attempt: at its start from the Workload and the job of its pod, at its end from the pod's status.

The start is described while the Workload is there. A job may be deleted before its last pod has ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from kyu.api import labels
from kyu.api.accounting import SUBMITTER, AttemptState, JobAttempt
from kyu.api.actions import View
from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, find_condition, is_true
from kyu.api.quantity import NANO, QuantityError
from kyu.kinds import conditions, fields, metadata, requests, table

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
TIME_TOLERANCE_SECONDS = 2.0
LARGEST_AMOUNT = 2.0**60
TIME_LIMIT = ("MaximumExecutionTimeExceeded", "DeadlineExceeded")


def describe_start(view: View, pod: Json) -> Json:
    """Return the fields of an attempt that are known when its pod starts."""
    meta = pod["metadata"]
    namespace = meta.get("namespace", "")
    name = metadata.annotations_of(pod).get(metadata.WORKLOAD, "")
    workload = view.get(Workload, Key(namespace, name)) if name else None
    owner = controller_of(workload) if workload is not None else next(iter(meta.get("ownerReferences") or ()), None)
    found: Json = {
        "uid": meta["uid"],
        "namespace": namespace,
        "pod": meta["name"],
        "job": owner["name"] if owner else meta["name"],
        "kind": owner["kind"] if owner else "Pod",
        "job_uid": owner["uid"] if owner else meta["uid"],
        "task": labels.task_number(metadata.annotations_of(pod)),
        "node": fields.text_at(pod, ("spec", "nodeName")),
        "requests": amounts(pod),
        "queued": meta.get("creationTimestamp", ""),
        # Only the server writes it on a pod of a user; pods of controllers have none.
        "submitter": metadata.annotations_of(pod).get(SUBMITTER, ""),
    }
    return found | of_workload(workload) if workload is not None else found


def of_workload(workload: Workload) -> Json:
    admission = workload.status.admission
    assignments = admission.pod_set_assignments if admission else ()
    return {
        "workload": workload.metadata.name,
        "queue": workload.spec.queue_name,
        "cluster_queue": admission.cluster_queue if admission else "",
        "flavors": {name: flavor for one in assignments for name, flavor in one.flavors.items()},
        "priority": workload.spec.priority or 0,
        "queued": queued_at(workload),
        "submitter": workload.metadata.annotations.get(SUBMITTER, ""),
    }


def controller_of(workload: Workload) -> Json | None:
    owners = workload.metadata.owner_references
    chosen = next((owner for owner in owners if owner.controller), owners[0] if owners else None)
    return None if chosen is None else {"name": chosen.name, "kind": chosen.kind, "uid": chosen.uid}


def queued_at(workload: Workload) -> str:
    """Return since when the Workload waited: its creation, or its last eviction."""
    created = workload.metadata.creation_timestamp or ""
    evicted = find_condition(workload.status.conditions, "Evicted")
    return max(created, evicted.last_transition_time or "") if evicted is not None else created


def has_job(view: View, workload: Workload) -> bool:
    """Return whether the job of a Workload is there and not being deleted."""
    for owner in workload.metadata.owner_references:
        kind = table.find({"apiVersion": owner.api_version, "kind": owner.kind})
        found = view.find_json(kind.kind, Key(workload.metadata.namespace, owner.name)) if kind is not None else None
        if found is not None and metadata.uid_of(found) == owner.uid and not metadata.is_deleted(found):
            return True
    return not workload.metadata.owner_references


def amounts(pod: Json) -> dict[str, float]:
    try:
        return {name: quantity.nanos / NANO for name, quantity in requests.pod_requests(pod).items()}
    except QuantityError:
        return {}


def describe_end(
    view: View, account: Json, status: Json, now: datetime, *, stopped: bool, usage: Mapping[str, Any]
) -> JobAttempt:
    """Return the line of an attempt whose pod has ended. ``stopped``: its end was requested."""
    started, ended = times(status, now)
    elapsed = (conditions.parse_timestamp(ended) - conditions.parse_timestamp(started)).total_seconds()
    measured = amount(usage, "seconds")
    # Times have whole seconds. The measured time is finer, and the record of a pod is not trusted beyond that.
    is_close = measured is not None and abs(measured - elapsed) <= TIME_TOLERANCE_SECONDS
    containers = fields.list_at(status, ("containerStatuses",))
    codes = [fields.value_at(one, ("state", "terminated", "exitCode")) for one in containers]
    known = [code for code in codes if isinstance(code, int)]
    line: Json = {
        **account,
        "state": state_of(view, account, status, stopped=stopped),
        "started": started,
        "ended": ended,
        "seconds": measured if is_close else elapsed,
        "exit_code": next((code for code in known if code), known[0] if known else None),
        "reason": status.get("reason") or "",
        "restarts": sum(fields.int_at(one, ("restartCount",)) for one in containers),
        "cpu_seconds": amount(usage, "cpuSeconds"),
        "peak_bytes": None if (peak := amount(usage, "peakBytes")) is None else int(peak),
    }
    return msgspec.convert(line, JobAttempt)


def amount(usage: Mapping[str, Any], name: str) -> float | None:
    """Return a measured amount, or None if it is none: the record of a pod lies in a folder of its user."""
    value = usage.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < LARGEST_AMOUNT else None


def times(status: Json, now: datetime) -> tuple[str, str]:
    """Return start and end, in the order of time and not in the future."""
    ends = [
        fields.text_at(container, ("state", "terminated", "finishedAt"))
        for container in fields.list_at(status, ("containerStatuses",))
    ]
    latest = conditions.timestamp(now)
    started = fields.text_at(status, ("startTime",))
    started = min(started, latest) if TIME.fullmatch(started) else latest
    ended = max((end for end in ends if TIME.fullmatch(end)), default=latest)
    return started, min(max(started, ended), latest)


def state_of(view: View, account: Json, status: Json, *, stopped: bool) -> AttemptState:
    """Return how an attempt ended, and if it was stopped, why."""
    if status.get("phase") == "Succeeded":
        return "Succeeded"
    reasons = {
        fields.text_at(container, ("state", "terminated", "reason"))
        for container in fields.list_at(status, ("containerStatuses",))
    }
    if "OOMKilled" in reasons:
        return "OOMKilled"
    if status.get("reason") in ("SupervisorLost", "NodeRestarted"):
        return "Lost"
    if status.get("reason") in TIME_LIMIT:
        return "TimeLimit"
    return why_stopped(view, account) if stopped else "Failed"


def why_stopped(view: View, account: Json) -> AttemptState:
    name = account.get("workload")
    if not name:
        return "Cancelled"
    workload = view.get(Workload, Key(account["namespace"], name))
    if workload is None or workload.metadata.deletion_timestamp or not has_job(view, workload):
        return "Cancelled"
    evicted = find_condition(workload.status.conditions, "Evicted")
    if evicted is None or not is_true(workload.status.conditions, "Evicted"):
        return "Stopped"
    if any(word in evicted.reason for word in TIME_LIMIT):
        return "TimeLimit"
    return "Preempted" if evicted.reason == "Preempted" else "Evicted"
