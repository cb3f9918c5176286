"""
The pods of a job, and the reasons why they do not run.

The pods of a job are the pods of its Workload, however many owners are in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kyu.api.meta import Json, Kind
from kyu.cli.connection import ServerConnection
from kyu.kinds import metadata

# Not imported from kyu.kinds, which would slow the start of the command.
POD = Kind("", "v1", "Pod", "pods")


def pods_of(server: ServerConnection, workload: Json) -> list[Json]:
    """Return the pods of a Workload, oldest first."""
    mine = own_pods(workload, server.client.list(POD, workload["metadata"]["namespace"]))
    return sorted(mine, key=lambda pod: (str(pod["metadata"].get("creationTimestamp")), metadata.name_of(pod)))


def own_pods(workload: Json, pods: Iterable[Json]) -> list[Json]:
    """Select the pods of a Workload."""
    namespace = workload["metadata"]["namespace"]
    name = metadata.annotations_of(workload).get(metadata.SLICE_NAME) or workload["metadata"]["name"]
    owners = {owner["uid"] for owner in workload["metadata"].get("ownerReferences") or ()}
    return [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == namespace
        and (metadata.annotations_of(pod).get(metadata.WORKLOAD) == name or pod["metadata"]["uid"] in owners)
    ]


def why_starting(wanted: int, pods: list[Json]) -> str:
    """Return why an admitted job does not run yet: the problems of its pods, or their number."""
    if not pods:
        return "its pods do not exist yet"
    return "; ".join(troubles(pods)) or f"{sum(map(is_ready, pods))} of {wanted} pods are ready"


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def troubles(pods: list[Json]) -> list[str]:
    """Return each problem of the pods once, with the number of pods that have it."""
    found = Counter(trouble for pod in pods if (trouble := trouble_of(pod)))
    return [f"{count} pod{'s' if count > 1 else ''}: {trouble}" for trouble, count in found.items()]


def trouble_of(pod: Json) -> str:
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = container.get("state") or {}
        held = state.get("waiting") or state.get("terminated") or {}
        if held.get("reason") not in (None, "Completed"):
            code = f", exit code {held['exitCode']}" if held.get("exitCode") else ""
            return f"{held['reason']}{code}{': ' + held['message'] if held.get('message') else ''}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', 'not scheduled')}: {condition.get('message', '')}"
    return f"{status['reason']}: {status.get('message', '')}" if status.get("reason") else ""
