"""
From a Pod to what its supervisor runs: plain words, with every reference resolved.

The plan is all that the supervisor knows of the pod; it never reads the API. A pod that cannot run as its manifest
says is ``Refused`` with the reason, one that waits for a ConfigMap or Secret is ``NotYet``. Nothing is half done.

Called by: processes.py. Calls: environment.py, volumes.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kyu.api import quantity
from kyu.api.meta import Json
from kyu.runtime import cgroups, environment, records, volumes
from kyu.runtime.environment import Facts, Objects

# Run the pod although its mount paths cannot be provided: it finds its volumes by $KYU_VOLUME_<NAME>.
VOLUME_MOUNTS_ANNOTATION = "kyu.dev/volume-mounts"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GPU = "nvidia.com/gpu"
DEFAULT_MESSAGE_PATH = "/dev/termination-log"
# Images whose whole purpose is one program that every machine has: with them, args alone are enough.
ENTRYPOINTS: Mapping[str, tuple[str, ...]] = {"perf-tests/sleep": ("sleep",), "pause": ("sleep", "infinity")}


@dataclass(frozen=True, slots=True)
class Options:
    """How pods run on this node. Given once, by the composition root."""

    # Where commands are looked for; the containers' PATH.
    path: str = DEFAULT_PATH
    # Whether pods may have folders and files of the machine as volumes.
    host_paths: bool = False
    # A user of its own for each namespace; needs root.
    user_per_namespace: bool = False
    first_user: int = 2_000_000
    # The kubelet's numbers: five files of 10 MiB a container.
    log_most_bytes: int = 10 * 1024 * 1024
    log_most_files: int = 5


@dataclass(frozen=True, slots=True)
class Place:
    """Where the pod runs: its folder, and what this machine can give."""

    folder: str
    notices: str
    boot_id: str
    cgroup_root: str = ""
    # Empty if mounts work, else why not.
    mounts_refused: str = ""
    user: int | None = None
    # The GPUs of this machine that the pod may use, by number.
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    document: Json
    volumes: tuple[volumes.Volume, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod fails, with this reason. The container is named if one is at fault."""

    reason: str
    message: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class NotYet:
    """The container waits for this."""

    container: str
    message: str


Outcome: TypeAlias = Plan | Refused | NotYet


def plan_pod(facts: Facts, objects: Objects, options: Options, place: Place) -> Outcome:
    spec, meta = facts.pod["spec"], facts.pod["metadata"]
    at_fault = ""
    try:
        planned = volumes.plan_volumes(facts, objects, host_paths=options.host_paths)
        containers = []
        for container, role in ordered(spec):
            at_fault = container["name"]
            containers.append(plan_container(container, role, planned, facts, objects, options, place))
    except environment.Missing as missing:
        return NotYet(at_fault, str(missing))
    except environment.Refused as refused:
        return Refused(refused.reason, str(refused), at_fault)
    grace = spec.get("terminationGracePeriodSeconds")
    document = {
        "pod": facts.pod,
        "uid": meta["uid"],
        "namespace": facts.namespace,
        "name": meta["name"],
        "bootId": place.boot_id,
        "notices": place.notices,
        "user": place.user,
        "gpus": list(place.gpus),
        "cgroup": os.path.join(place.cgroup_root, meta["uid"]) if place.cgroup_root else "",
        "activeDeadlineSeconds": spec.get("activeDeadlineSeconds"),
        "graceSeconds": 30 if grace is None else grace,
        "logMostBytes": options.log_most_bytes,
        "logMostFiles": options.log_most_files,
        "containers": containers,
    }
    return Plan(document, tuple(planned))


def ordered(spec: Json) -> list[tuple[Json, str]]:
    """All containers with their roles, in the order in which they start."""
    first = [(c, "sidecar" if c.get("restartPolicy") == "Always" else "init") for c in spec.get("initContainers") or ()]
    return first + [(container, "main") for container in spec["containers"]]


def plan_container(
    container: Json,
    role: str,
    planned: Sequence[volumes.Volume],
    facts: Facts,
    objects: Objects,
    options: Options,
    place: Place,
) -> Json:
    name = container["name"]
    declared = environment.resolve(container, facts, objects)
    home = os.path.join(place.folder, records.HOME)
    message_file = os.path.join(place.folder, records.message_file(name))
    message_mounts = message_mount(container, message_file)
    known = {**volume_variables(planned, place), "KYU_TERMINATION_LOG": message_file} | declared
    base = {
        "PATH": options.path,
        "HOME": home,
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "HOSTNAME": facts.pod["spec"].get("hostname") or facts.pod["metadata"]["name"],
        # Also when there are none: a pod that asked for no GPU must not find one.
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, container_gpus(container, facts.pod, place))),
    }
    return {
        "name": name,
        "role": role,
        "image": container.get("image", ""),
        "restartPolicy": restart_policy(facts.pod["spec"], role),
        "argv": command_line(container, known),
        "env": base | known,
        "workingDir": environment.expand(container.get("workingDir") or home, known),
        "mounts": [*plan_mounts(container, planned, known, facts, place), *message_mounts],
        "scratch": os.path.join(place.folder, records.SCRATCH),
        "messageFile": message_file,
        "messageIsMounted": bool(message_mounts),
        "messageFromLog": container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        "limits": container_limits(container),
    }


def restart_policy(spec: Json, role: str) -> str:
    policy = str(spec.get("restartPolicy") or "Always")
    if role == "sidecar":
        return "Always"
    # An init container that has succeeded is never run again.
    return "OnFailure" if role == "init" and policy == "Always" else policy


def command_line(container: Json, known: Mapping[str, str]) -> list[str]:
    image = str(container.get("image", ""))
    command = container.get("command") or entrypoint(image)
    if not command:
        raise environment.Refused(
            "StartError",
            f'container "{container["name"]}" has no command: images are not run here, so the command of'
            f' the image "{image}" is not known; say it in spec.containers[].command',
        )
    return [environment.expand(word, known) for word in (*command, *(container.get("args") or ()))]


def entrypoint(image: str) -> tuple[str, ...]:
    repository = image.partition("@")[0]
    repository = re.sub(r":[^/:]*$", "", repository)
    for suffix, command in ENTRYPOINTS.items():
        if f"/{repository}".endswith(f"/{suffix}") or f"/{repository}".endswith(f"-{suffix}"):
            return command
    return ()


def volume_variables(planned: Sequence[volumes.Volume], place: Place) -> dict[str, str]:
    return {
        "KYU_VOLUME_" + re.sub(r"[^A-Z0-9]", "_", volume.name.upper()): volume_folder(volume, place)
        for volume in planned
    }


def volume_folder(volume: volumes.Volume, place: Place) -> str:
    return volume.host_path or os.path.join(place.folder, records.VOLUMES, volume.name)


def plan_mounts(
    container: Json, planned: Sequence[volumes.Volume], known: Mapping[str, str], facts: Facts, place: Place
) -> list[tuple[str, str, bool]]:
    mounts = container.get("volumeMounts") or []
    if not mounts or wants_no_mounts(facts.pod):
        return []
    if place.mounts_refused:
        paths = ", ".join(mount["mountPath"] for mount in mounts)
        raise environment.Refused(
            "VolumeRefused",
            f"mountPath {paths} cannot be provided: this system does not let Kyu mount ({place.mounts_refused});"
            f' with the annotation {VOLUME_MOUNTS_ANNOTATION}: "env" the pod runs and finds its volumes by'
            " $KYU_VOLUME_<NAME>",
        )
    volume_by_name = {volume.name: volume for volume in planned}
    result = []
    for mount in mounts:
        volume = volume_by_name.get(mount["name"])
        if volume is None:
            raise environment.Refused("InvalidPod", f'volumeMount "{mount["name"]}": there is no such volume')
        inner = environment.expand(mount.get("subPathExpr") or "", known) or mount.get("subPath") or ""
        source = volume_folder(volume, place)
        if inner:
            source = os.path.join(source, volumes.inner_path(inner))
        read_only = bool(mount.get("readOnly")) or not volume.writable
        result.append((source, mount["mountPath"], read_only))
    return result


def wants_no_mounts(pod: Json) -> bool:
    return (pod["metadata"].get("annotations") or {}).get(VOLUME_MOUNTS_ANNOTATION) == "env"


def message_mount(container: Json, message_file: str) -> list[tuple[str, str, bool]]:
    """A path that the user chose is provided; the usual one only by $KYU_TERMINATION_LOG: it costs a namespace."""
    path = container.get("terminationMessagePath") or DEFAULT_MESSAGE_PATH
    return [] if path == DEFAULT_MESSAGE_PATH else [(message_file, path, False)]


def wanted_gpus(container: Json) -> int:
    resources = container.get("resources") or {}
    wanted = (resources.get("limits") or resources.get("requests") or {}).get(GPU, 0)
    return quantity.amount(GPU, wanted)


def pod_gpus(pod: Json) -> int:
    """How many GPUs the pod needs: main containers have their own, init containers borrow those."""
    main = sum(wanted_gpus(container) for container in pod["spec"]["containers"])
    return max(main, *(wanted_gpus(container) for container, _ in ordered(pod["spec"])))


def container_gpus(container: Json, pod: Json, place: Place) -> tuple[int, ...]:
    """The container's part of the pod's GPUs."""
    first = 0
    for other in pod["spec"]["containers"]:
        if other["name"] == container["name"]:
            break
        first += wanted_gpus(other)
    else:
        first = 0
    return place.gpus[first : first + wanted_gpus(container)]


def container_limits(container: Json) -> dict[str, str]:
    limits = (container.get("resources") or {}).get("limits") or {}
    cpu, memory = limits.get("cpu"), limits.get("memory")
    return cgroups.limits(
        None if cpu is None else quantity.amount("cpu", cpu),
        None if memory is None else quantity.amount("memory", memory),
    )


def not_done(pod: Json) -> list[str]:
    """Wishes of the manifest that have no effect here; the user is told, the pod runs."""
    wishes = []
    for container, _ in ordered(pod["spec"]):
        keys = [key for key in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle") if container.get(key)]
        wishes += [f"{container['name']}: {key}" for key in keys]
        if (container.get("securityContext") or {}).get("runAsUser") is not None:
            wishes.append(f"{container['name']}: securityContext.runAsUser")
    return wishes
