"""
Decides the next steps of a pod's supervisor: the containers to start and to end, and when the pod is over.

Containers are ordered: init containers one after the other, each to its success; sidecars (init containers that
always restart) are passed as soon as they run; then the main containers together; when those are done, the sidecars
end in reverse order. A stop ends the main containers first, then the sidecars. Time is an argument, in seconds.

Called by: supervisor.py, after everything that happens. Kubernetes: the kubelet's computePodActions and getPhase.
Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

FIRST_BACK_OFF_SECONDS = 10.0
LONGEST_BACK_OFF_SECONDS = 300.0
# A container that ran this long is taken as healthy: the next failure starts with the shortest back-off again.
HEALTHY_SECONDS = 600.0

Role = Literal["init", "sidecar", "main"]
RestartPolicy = Literal["Always", "OnFailure", "Never"]


@dataclass(slots=True)
class ContainerState:
    """One container as it stands. ``waiting`` before its first start, then ``running`` and ``exited`` in turn."""

    name: str
    role: Role
    restart_policy: RestartPolicy
    state: Literal["waiting", "running", "exited"] = "waiting"
    starts: int = 0
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    # It could not be started at all, and another try would not help.
    hopeless: bool = False
    # Consecutive quick ends; the length of the back-off.
    crashes: int = 0
    # Set with SIGTERM: the time of SIGKILL.
    kill_at: float | None = None
    killed: bool = False


@dataclass(slots=True)
class PodState:
    """A pod as it stands."""

    containers: list[ContainerState]
    started_at: float
    active_deadline_seconds: float | None = None
    grace_seconds: float = 30.0
    stop: Stop | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The reason why the pod ends before its time, and the time by which its processes must be gone."""

    kill_at: float
    reason: str = ""
    message: str = ""
    # A pod that was stopped for a reason has failed, whatever its exit codes say.
    fails: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    container: ContainerState


@dataclass(frozen=True, slots=True)
class Terminate:
    container: ContainerState
    kill_at: float


@dataclass(frozen=True, slots=True)
class Kill:
    container: ContainerState


@dataclass(frozen=True, slots=True)
class Finish:
    phase: Literal["Succeeded", "Failed"]


Step: TypeAlias = Start | Terminate | Kill | Finish


@dataclass(slots=True)
class Next:
    steps: list[Step] = field(default_factory=list)
    wake_at: float | None = None

    def wake(self, at: float) -> None:
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def next_steps(pod: PodState, now: float) -> Next:
    result = Next()
    pod.stop = pod.stop or deadline(pod, now, result)
    for container in pod.containers:
        if container.state == "running" and container.kill_at is not None and not container.killed:
            if now >= container.kill_at:
                result.steps.append(Kill(container))
            else:
                result.wake(container.kill_at)
    if pod.stop is not None or is_over(pod):
        end(pod, now, result)
    else:
        advance(pod, now, result)
    return result


def request_stop(pod: PodState, stop: Stop) -> None:
    """Stop the pod. A further request may hurry the end, but the first reason for it stands."""
    if pod.stop is None:
        pod.stop = stop
        return
    first = pod.stop if pod.stop.reason else stop
    pod.stop = Stop(min(pod.stop.kill_at, stop.kill_at), first.reason, first.message, pod.stop.fails or stop.fails)


def deadline(pod: PodState, now: float, result: Next) -> Stop | None:
    if pod.active_deadline_seconds is None:
        return None
    at = pod.started_at + pod.active_deadline_seconds
    if now < at:
        result.wake(at)
        return None
    message = "Pod was active on the node longer than the specified deadline"
    return Stop(now + pod.grace_seconds, "DeadlineExceeded", message, fails=True)


def is_over(pod: PodState) -> bool:
    """Return whether the pod can only end: all main containers are done, or one of the containers never will be."""
    mains = [container for container in pod.containers if container.role == "main"]
    return (
        all(is_done(container) for container in mains)
        or any(container.hopeless for container in mains)
        or any(is_lost(container) for container in pod.containers)
    )


def advance(pod: PodState, now: float, result: Next) -> None:
    """Start the containers that are due: up to the first init container that is not done yet, or all."""
    for container in pod.containers:
        if container.role == "init" and container.state == "exited" and container.exit_code == 0:
            continue
        start_if_due(container, now, result)
        if container.role == "init":
            return


def is_lost(container: ContainerState) -> bool:
    """Return whether an init container or sidecar will never let the pod go on."""
    if container.state != "exited" or container.role == "main":
        return False
    return container.hopeless or (container.exit_code != 0 and not restarts(container))


def is_done(container: ContainerState) -> bool:
    return container.state == "exited" and not restarts(container)


def restarts(container: ContainerState) -> bool:
    if container.hopeless:
        return False
    return container.restart_policy == "Always" or (
        container.restart_policy == "OnFailure" and container.exit_code != 0
    )


def start_if_due(container: ContainerState, now: float, result: Next) -> None:
    if container.state == "running" or is_done(container):
        return
    at = container.finished_at + back_off_seconds(container)
    if now < at:
        result.wake(at)
    else:
        result.steps.append(Start(container))


def back_off_seconds(container: ContainerState) -> float:
    """Return the delay of a restart: none at first, then 10 s, then twice as long each time, up to five minutes."""
    if container.crashes <= 1:
        return 0.0
    return min(FIRST_BACK_OFF_SECONDS * 2.0 ** min(container.crashes - 2, 16), LONGEST_BACK_OFF_SECONDS)


def end(pod: PodState, now: float, result: Next) -> None:
    """Terminate the running containers: mains and init containers together, then sidecars, the last first."""
    running = [container for container in pod.containers if container.state == "running"]
    if not running:
        result.steps.append(Finish(phase(pod)))
        return
    kill_at = pod.stop.kill_at if pod.stop is not None else now + pod.grace_seconds
    others = [container for container in running if container.role != "sidecar"]
    for container in others or running[-1:]:
        if container.kill_at is None or (container.kill_at > kill_at and not container.killed):
            result.steps.append(Terminate(container, kill_at))
            result.wake(kill_at)


def phase(pod: PodState) -> Literal["Succeeded", "Failed"]:
    if pod.stop is not None and pod.stop.fails:
        return "Failed"
    if any(is_lost(container) for container in pod.containers):
        return "Failed"
    return "Succeeded" if all_succeeded(pod.containers) else "Failed"


def all_succeeded(containers: Sequence[ContainerState]) -> bool:
    """Return whether all have succeeded. One that never ran has not; sidecars do not count, since the pod ends them."""
    return all(
        container.state == "exited" and container.exit_code == 0
        for container in containers
        if container.role != "sidecar"
    )


def started(container: ContainerState, now: float) -> None:
    container.state = "running"
    container.starts += 1
    container.started_at = now
    container.kill_at = None
    container.killed = False


def exited(container: ContainerState, exit_code: int, now: float) -> None:
    healthy = now - container.started_at >= HEALTHY_SECONDS
    container.crashes = 1 if healthy else container.crashes + 1
    container.state = "exited"
    container.exit_code = exit_code
    container.finished_at = now
