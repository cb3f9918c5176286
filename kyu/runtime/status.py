"""
Turns a supervisor's record into the status of a Pod, in Kubernetes' words.

The record has the state of each container; phase, readiness and conditions follow. A condition keeps its time of
change as long as its status stays.

Called by: processes.py and simulate.py. Kubernetes: the kubelet's generateAPIPodStatus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kyu.api.meta import Json

# The address of every pod and of its node: all share the network of this machine.
ADDRESS = "127.0.0.1"
LOST_EXIT_CODE = 137


def pod_status(pod: Json, record: Json, now: str) -> Json:
    """Return the status without ``qosClass``, which is the server's; ``pod`` gives images and former conditions."""
    spec = pod["spec"]
    init = [container_status(container, record, is_init=True) for container in spec.get("initContainers") or ()]
    main = [container_status(container, record, is_init=False) for container in spec["containers"]]
    phase = record["phase"]
    status: Json = {
        "phase": phase,
        "conditions": conditions(pod, phase, init, main, now),
        "hostIP": ADDRESS,
        "hostIPs": [{"ip": ADDRESS}],
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "startTime": record["startTime"],
        "containerStatuses": main,
    }
    if init:
        status["initContainerStatuses"] = init
    for key in ("reason", "message"):
        if record.get(key):
            status[key] = record[key]
    return status


def container_status(container: Json, record: Json, *, is_init: bool) -> Json:
    entry = record["containers"].get(container["name"]) or {}
    state = entry.get("state") or {"waiting": {"reason": "PodInitializing"}}
    running = "running" in state
    succeeded = (state.get("terminated") or {}).get("exitCode") == 0
    status: Json = {
        "name": container["name"],
        "state": state,
        "lastState": entry.get("lastState") or {},
        # An init container that has done its work counts as ready.
        "ready": running or (is_init and succeeded),
        "restartCount": entry.get("restartCount", 0),
        "image": container.get("image", ""),
        "imageID": entry.get("imageID", ""),
        "started": running,
    }
    if running or "terminated" in state:
        status["containerID"] = f"kyu://{record['uid']}/{container['name']}/{status['restartCount']}"
    return status


def conditions(pod: Json, phase: str, init: Sequence[Json], main: Sequence[Json], now: str) -> list[Json]:
    over = phase in ("Succeeded", "Failed")
    initialized = any("containerID" in status for status in main) or all(status["ready"] for status in init)
    not_ready = [status["name"] for status in main if not status["ready"]]
    completed = "PodCompleted" if phase == "Succeeded" else "PodFailed" if over else "ContainersNotReady"
    message = "" if over or not not_ready else f"containers with unready status: [{' '.join(not_ready)}]"
    ready = ("True", "", "") if not not_ready and not over else ("False", completed, message)
    wanted = {
        "PodScheduled": ("True", "", ""),
        "Initialized": ("True", "", "") if initialized else ("False", "ContainersNotInitialized", ""),
        "ContainersReady": ready,
        "Ready": ready,
    }
    present = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or ()}
    others = [found for type_, found in present.items() if type_ not in wanted]
    return others + [condition(type_, *words, present.get(type_), now) for type_, words in wanted.items()]


def condition(type_: str, status: str, reason: str, message: str, present: Mapping[str, str] | None, now: str) -> Json:
    kept = present is not None and present.get("status") == status
    result: Json = {"type": type_, "status": status, "lastProbeTime": None}
    result["lastTransitionTime"] = present["lastTransitionTime"] if present is not None and kept else now
    if reason:
        result["reason"] = reason
    if message:
        result["message"] = message
    return result


def failed_status(pod: Json, reason: str, message: str, container: str, now: str) -> Json:
    """Return the status of a pod that was never started."""
    names = [c["name"] for c in pod["spec"]["containers"]]
    ended = {"exitCode": 128, "reason": reason, "message": message, "startedAt": now, "finishedAt": now}
    states = {name: {"state": {"terminated": ended}} for name in names if name == container or not container}
    waiting = {name: {"state": {"waiting": {"reason": "PodInitializing"}}} for name in names if name not in states}
    record = {
        "uid": pod["metadata"]["uid"],
        "phase": "Failed",
        "startTime": now,
        "reason": reason,
        "message": message,
        "containers": states | waiting,
    }
    return pod_status(pod, record, now)


def waiting_status(pod: Json, container: str, reason: str, message: str, now: str) -> Json:
    """Return the status of a pod that waits for a ConfigMap, a Secret or an image."""
    names = [c["name"] for c in pod["spec"]["containers"]]
    at_fault = {"reason": reason, "message": message}
    states = {
        name: {
            "state": {"waiting": at_fault if name == container or not container else {"reason": "ContainerCreating"}}
        }
        for name in names
    }
    start_time = (pod.get("status") or {}).get("startTime") or now
    record = {"uid": pod["metadata"]["uid"], "phase": "Pending", "startTime": start_time, "containers": states}
    return pod_status(pod, record, now)


def lost_record(record: Json, reason: str, message: str, now: str) -> Json:
    """Return the last record of a pod whose supervisor is gone: its containers have ended, with an unknown code."""
    containers = {}
    for name, entry in record["containers"].items():
        if "terminated" in entry["state"]:
            containers[name] = entry
            continue
        started = (entry["state"].get("running") or {}).get("startedAt", now)
        ended = {
            "exitCode": LOST_EXIT_CODE,
            "reason": "ContainerStatusUnknown",
            "message": message,
            "startedAt": started,
            "finishedAt": now,
        }
        containers[name] = {**entry, "state": {"terminated": ended}, "process": None}
    return {**record, "phase": "Failed", "reason": reason, "message": message, "containers": containers}
