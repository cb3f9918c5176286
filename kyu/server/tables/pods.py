"""
The cells of a Pod.

Kubernetes: pkg/printers/internalversion.
"""

from __future__ import annotations

from datetime import datetime

from kyu.api.meta import Json
from kyu.server.tables.words import NONE, age, true_conditions


def ready(pod: Json) -> str:
    """Return the ready containers of all, sidecars included."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = _sidecars(spec)
    started = [each for each in status.get("initContainerStatuses") or () if each.get("name") in sidecars]
    containers = status.get("containerStatuses") or () if _is_initialized(pod) else ()
    count = sum(1 for each in started if each.get("ready") and each.get("started"))
    count += sum(1 for each in containers if each.get("ready") and (each.get("state") or {}).get("running") is not None)
    return f"{count}/{len(spec.get('containers') or ()) + len(sidecars)}"


def restarts(pod: Json, now: datetime) -> str:
    """Return the number of restarts, and the time since the last one."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    counted = [*(status.get("initContainerStatuses") or ())]
    if _is_initialized(pod):
        sidecars = _sidecars(spec)
        counted = [each for each in counted if each.get("name") in sidecars]
        counted += status.get("containerStatuses") or ()
    number = sum(each.get("restartCount", 0) for each in counted)
    ends = [((each.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for each in counted]
    last = max((end for end in ends if end), default=None)
    return f"{number} ({age(last, now)} ago)" if number and last else str(number)


def status(pod: Json) -> str:
    status = pod.get("status") or {}
    found = status.get("reason") or status.get("phase", "")
    reasons = {each["type"]: each.get("reason") for each in status.get("conditions") or ()}
    if reasons.get("PodScheduled") == "SchedulingGated":
        found = "SchedulingGated"
    starting, true = _init_status(pod), true_conditions(pod)
    if starting:
        found = starting
    if not starting or "Initialized" in true:
        found = _container_status(status, found, is_ready="Ready" in true)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(found)


def readiness_gates(pod: Json) -> str:
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    if not gates:
        return NONE
    true = true_conditions(pod)
    return f"{sum(1 for gate in gates if gate.get('conditionType') in true)}/{len(gates)}"


def address(pod: Json) -> str:
    status = pod.get("status") or {}
    addresses = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return addresses[0].get("ip") or NONE


def _sidecars(spec: Json) -> set[str]:
    """Return the names of the sidecars: init containers that restart always."""
    return {each["name"] for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"}


def _is_initialized(pod: Json) -> bool:
    return not _init_status(pod) or "Initialized" in true_conditions(pod)


def _init_status(pod: Json) -> str:
    """Return the state of the first init container that is not done; empty if all are."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = _sidecars(spec)
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        state = each.get("state") or {}
        ended, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason", "")
        is_done = ended is not None and not ended.get("exitCode")
        if is_done or (each.get("name") in sidecars and each.get("started")):
            continue
        if ended is not None:
            return f"Init:{_exit_status(ended)}"
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(spec.get('initContainers') or ())}"
    return ""


def _container_status(status: Json, found: str, *, is_ready: bool) -> str:
    is_running = False
    for each in reversed(status.get("containerStatuses") or []):
        state = each.get("state") or {}
        if waiting := (state.get("waiting") or {}).get("reason"):
            found = waiting
        elif state.get("terminated") is not None:
            found = _exit_status(state["terminated"])
        elif each.get("ready") and state.get("running") is not None:
            is_running = True
    if found == "Completed" and is_running:
        return "Running" if is_ready else "NotReady"
    return found


def _exit_status(ended: Json) -> str:
    if reason := ended.get("reason"):
        return str(reason)
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
