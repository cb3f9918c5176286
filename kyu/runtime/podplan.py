"""
Turns a Pod into the plan of its supervisor: plain words, with every reference resolved.

The plan is all that the supervisor knows of the pod; it never reads the API. A pod that cannot run as its manifest
says is ``PodRefused`` with the reason, one that waits for a ConfigMap or Secret is ``NotYet``. No pod is half planned.

Called by: processes.py. Calls: environment.py, volumes.py, podman/plan.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, TypeAlias

from kyu.api import quantity
from kyu.api.meta import Json
from kyu.runtime import cgroups, environment, records, user_files, user_ids, volumes
from kyu.runtime.environment import NotYet, PodFacts, PodRefused, SettingsSource, ordered
from kyu.runtime.identity import service_account
from kyu.runtime.podman import plan as podman
from kyu.runtime.podman.plan import Image, RuntimeChoice
from kyu.runtime.sandbox.mounts import Mount
from kyu.runtime.sandbox.namespaces import Sandbox
from kyu.runtime.storage import limits

# Run the pod although its mount paths cannot be provided: it finds its volumes by $KYU_VOLUME_<NAME>.
VOLUME_MOUNTS_ANNOTATION = "kyu.dev/volume-mounts"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GPU = "nvidia.com/gpu"
DEFAULT_GRACE_SECONDS = 30.0
DEFAULT_MESSAGE_PATH = "/dev/termination-log"
# Images whose whole purpose is one program that every machine has: with them, args alone are enough.
ENTRYPOINTS: Mapping[str, tuple[str, ...]] = {"perf-tests/sleep": ("sleep",), "pause": ("sleep", "infinity")}


# All other fields name what every pod of a tenant has anyway, such as no new privileges.
SECURITY_WITHOUT_EFFECT = (
    "runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "sysctls", "readOnlyRootFilesystem", "privileged",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """How pods run on this node. Given once, by the composition root."""

    # The search path for commands; the containers' PATH.
    path: str = DEFAULT_PATH
    # The folders of the machine that hostPath volumes may name.
    host_paths: tuple[str, ...] = ()
    # The folders of the system that volumes may cover.
    mount_over: tuple[str, ...] = ()
    # The namespaces belong to different people: each gets a user id of its own, and its pods are isolated or refused.
    tenants: bool = False
    # The file of the machine that user ids are registered in.
    user_ids: str = user_ids.REGISTRY
    # The machine's network for all pods, or for each pod a loopback interface of its own.
    network: Literal["host", "none"] = "host"
    # Pods are processes of the machine, or containers of podman; with auto those that name an image of their own.
    runtime: RuntimeChoice = "process"
    # A longer grace period is cut: a pod that is being deleted may have given its quota back already.
    longest_grace_seconds: float = 600.0
    # How often the storage of pods is measured; the kubelet's number.
    storage_interval_seconds: float = 10.0
    # The kubelet's numbers: five files of 10 MiB a container.
    log_most_bytes: int = 10 * 1024 * 1024
    log_most_files: int = 5


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a pod: its folder, and the abilities of this machine."""

    folder: str
    notices: str
    boot_id: str
    cgroup_root: str = ""
    # Empty if mounts work, else why not.
    mounts_refused: str = ""
    sandbox: Sandbox = field(default_factory=Sandbox)
    # The GPUs of this machine that the pod may use, by number.
    gpus: tuple[int, ...] = ()
    # The name of the pod's user, and the folder with the files that say so.
    user_name: str = ""
    accounts: str = ""
    # The home folder of the pod's user; empty for a folder of the pod.
    home: str = ""
    # The images of its containers by name, if they run from images; else they are processes of the machine.
    images: Mapping[str, Image] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The supervisor's plan, and the volumes to make for it."""

    document: Json
    volumes: tuple[volumes.Volume, ...]
    # The fields of the manifest that have no effect on this node.
    no_effect: tuple[str, ...] = ()


Outcome: TypeAlias = Plan | PodRefused | NotYet


def plan_pod(facts: PodFacts, objects: SettingsSource, options: RuntimeOptions, place: Place) -> Outcome:
    at_fault = ""
    original, facts = facts.pod, with_account(facts, place)
    spec, meta = facts.pod["spec"], facts.pod["metadata"]
    try:
        planned = volumes.plan_volumes(facts, objects, options.host_paths)
        containers = []
        for container, role in ordered(spec):
            at_fault = container["name"]
            containers.append(plan_container(container, role, planned, facts, objects, options, place))
    except environment.Missing as missing:
        return NotYet(at_fault, str(missing))
    except environment.PodCannotRun as refused:
        return PodRefused(refused.reason, str(refused), at_fault)
    document = {
        "pod": original,
        "uid": meta["uid"],
        "namespace": facts.namespace,
        "name": meta["name"],
        "bootId": place.boot_id,
        "notices": place.notices,
        "sandbox": asdict(place.sandbox),
        "gpus": list(place.gpus),
        "memoryVolumes": limits.memory_volumes(facts.pod),
        "sharedMemoryBytes": limits.shared_memory(facts.pod),
        "cgroup": os.path.join(place.cgroup_root, meta["uid"]) if place.cgroup_root else "",
        # The main containers together have this share of a busy machine.
        "cpuWeight": cgroups.weight(sum(map(requested_cpu, spec["containers"]))),
        "activeDeadlineSeconds": spec.get("activeDeadlineSeconds"),
        "graceSeconds": min(grace_seconds(spec), options.longest_grace_seconds),
        "logMostBytes": options.log_most_bytes,
        "logMostFiles": options.log_most_files,
        "containers": containers,
        "tokens": [asdict(token) for token in service_account.token_files(facts.pod)],
    }
    return Plan(document, tuple(planned), tuple(not_done(original, options, place)))


def with_account(facts: PodFacts, place: Place) -> PodFacts:
    """Return the facts with the volume of the pod's ServiceAccount, where volumes can be mounted."""
    if place.mounts_refused or wants_no_mounts(facts.pod):
        return facts
    return replace(facts, pod=service_account.with_volume(facts.pod, facts.access))


def grace_seconds(spec: Json) -> float:
    grace = spec.get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_SECONDS if grace is None else float(grace)


def plan_container(
    container: Json,
    role: str,
    planned: Sequence[volumes.Volume],
    facts: PodFacts,
    objects: SettingsSource,
    options: RuntimeOptions,
    place: Place,
) -> Json:
    name = volumes.check_name(container["name"], "container")
    declared = environment.resolve(container, facts, objects)
    parts = container_of_image if place.images else process_of_machine
    return {
        "name": name,
        "role": role,
        "image": container.get("image", ""),
        "restartPolicy": restart_policy(facts.pod["spec"], role),
        "mayCover": [*options.mount_over, DEFAULT_MESSAGE_PATH, service_account.FOLDER],
        "scratch": os.path.join(place.folder, records.SCRATCH),
        "messageFromLog": container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        "limits": container_limits(container),
        "umask": user_files.umask_of(facts.pod),
        "stdin": bool(container.get("stdin")),
        "stdinOnce": bool(container.get("stdinOnce")),
        "tty": bool(container.get("tty")),
        **parts(container, planned, declared, facts, options, place),
    }


def container_of_image(
    container: Json,
    planned: Sequence[volumes.Volume],
    declared: Mapping[str, str],
    facts: PodFacts,
    options: RuntimeOptions,
    place: Place,
) -> Json:
    """Return the parts of a plan that podman runs."""
    message_file = os.path.join(place.folder, records.message_file(container["name"]))
    return podman.plan_container(
        container,
        place.images[container.get("image", "")],
        facts.pod,
        declared,
        plan_mounts(container, planned, declared, facts, options, place),
        Mount(message_file, container.get("terminationMessagePath") or DEFAULT_MESSAGE_PATH),
        container_gpus(container, facts.pod, place),
    )


def process_of_machine(
    container: Json,
    planned: Sequence[volumes.Volume],
    declared: Mapping[str, str],
    facts: PodFacts,
    options: RuntimeOptions,
    place: Place,
) -> Json:
    """Return the parts of a plan that runs a command of the machine."""
    home = place.home or os.path.join(place.folder, records.HOME)
    message_file = os.path.join(place.folder, records.message_file(container["name"]))
    known = {**volume_variables(planned, place), "KYU_TERMINATION_LOG": message_file, **declared}
    base = {
        "PATH": options.path,
        "HOME": home,
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        # Output that a program holds back is lost when the pod is killed.
        "PYTHONUNBUFFERED": "1",
        "HOSTNAME": facts.pod["spec"].get("hostname") or facts.pod["metadata"]["name"],
        # Set to nothing, too: a pod that requests no GPU must not find one.
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, container_gpus(container, facts.pod, place))),
    }
    if facts.access.server is not None and service_account.expects_server(facts.pod["spec"]):
        base |= facts.access.server.variables()
    if place.user_name:
        base |= {"USER": place.user_name, "LOGNAME": place.user_name}
    working_dir = environment.expand(container.get("workingDir") or home, known)
    volumes.check_path(working_dir, "workingDir")
    if not os.path.isabs(working_dir):
        raise environment.PodCannotRun("InvalidPod", f"workingDir {working_dir!r} does not begin with a slash")
    message_mounts = message_mount(container, message_file, facts.pod, place)
    volume_mounts = plan_mounts(container, planned, known, facts, options, place)
    return {
        "argv": command_line(container, known),
        "env": base | known | {records.MARK: facts.pod["metadata"]["uid"]},
        "workingDir": working_dir,
        "mounts": [asdict(mount) for mount in (*volume_mounts, *message_mounts)],
        "messageIsMounted": bool(message_mounts),
        "outputFiles": output_files(container, facts.pod, working_dir),
    }


def output_files(container: Json, pod: Json, working_dir: str) -> dict[str, str]:
    """Return the user's file of each stream, or refuse a file outside of the working directory."""
    files = user_files.plan_files(container, pod, working_dir)
    for path in files.values():
        if why := user_files.why_not_below(path, working_dir):
            raise environment.PodCannotRun("InvalidPod", f"output file {path}: {why}")
    return files


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
        raise environment.PodCannotRun(
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
    container: Json,
    planned: Sequence[volumes.Volume],
    known: Mapping[str, str],
    facts: PodFacts,
    options: RuntimeOptions,
    place: Place,
) -> list[Mount]:
    mounts = container.get("volumeMounts") or []
    if not mounts or (wants_no_mounts(facts.pod) and not place.images):
        return []
    if place.mounts_refused:
        paths = ", ".join(mount["mountPath"] for mount in mounts)
        raise environment.PodCannotRun(
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
            raise environment.PodCannotRun("InvalidPod", f'volumeMount "{mount["name"]}": there is no such volume')
        volumes.check_path(mount["mountPath"], "mountPath")
        inner = environment.expand(mount.get("subPathExpr") or "", known) or mount.get("subPath") or ""
        result.append(
            Mount(
                volume_folder(volume, place),
                mount["mountPath"],
                read_only=bool(mount.get("readOnly")) or not volume.writable,
                inner=volumes.inner_path(inner) if inner else "",
                allowed=options.host_paths if volume.host_path else None,
                # Most programs need no server, and run where this folder cannot be made.
                is_optional=volume.name == service_account.VOLUME,
            )
        )
    return result


def wants_no_mounts(pod: Json) -> bool:
    return (pod["metadata"].get("annotations") or {}).get(VOLUME_MOUNTS_ANNOTATION) == "env"


def message_mount(container: Json, message_file: str, pod: Json, place: Place) -> list[Mount]:
    """Provide the path of the last message.

    The usual path is missing where mounts are refused, and for jobs of `kyu submit`: it costs time, and their programs
    expect no cluster. $KYU_TERMINATION_LOG names the file in any case.
    """
    path = container.get("terminationMessagePath") or DEFAULT_MESSAGE_PATH
    if path == DEFAULT_MESSAGE_PATH:
        if container.get("image") == service_account.HOST_IMAGE or place.mounts_refused or wants_no_mounts(pod):
            return []
        return [Mount(message_file, path, is_optional=True)]
    volumes.check_path(path, "terminationMessagePath")
    return [Mount(message_file, path)]


def wanted_gpus(container: Json) -> int:
    resources = container.get("resources") or {}
    wanted = (resources.get("limits") or resources.get("requests") or {}).get(GPU, 0)
    return quantity.amount(GPU, wanted)


def pod_gpus(pod: Json) -> int:
    """Return the number of GPUs that the pod needs: main containers have their own, init containers borrow those."""
    main = sum(wanted_gpus(container) for container in pod["spec"]["containers"])
    return max(main, *(wanted_gpus(container) for container, _ in ordered(pod["spec"])))


def container_gpus(container: Json, pod: Json, place: Place) -> tuple[int, ...]:
    """Return the container's part of the pod's GPUs."""
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
    files = cgroups.limits(
        None if cpu is None else quantity.amount("cpu", cpu),
        None if memory is None else quantity.amount("memory", memory),
    )
    return files | {"cpu.weight": cgroups.weight(requested_cpu(container))}


def requested_cpu(container: Json) -> int:
    """Return the request for CPU in thousandths; it is the limit if there is none."""
    resources = container.get("resources") or {}
    text = (resources.get("requests") or {}).get("cpu", (resources.get("limits") or {}).get("cpu"))
    return 0 if text is None else quantity.amount("cpu", text)


def not_done(pod: Json, options: RuntimeOptions, place: Place) -> list[str]:
    """Return the fields of the manifest that have no effect here; the user is told, the pod runs."""
    wishes = []
    if (grace := grace_seconds(pod["spec"])) > options.longest_grace_seconds:
        wishes.append(f"terminationGracePeriodSeconds {grace:.0f}, above {options.longest_grace_seconds:.0f}")
    if not place.sandbox.namespaces:
        wishes += [f"volume {name}: medium Memory" for name in limits.memory_volumes(pod)]
    wishes += [key for key in ("hostPID", "hostIPC") if pod["spec"].get(key)]
    wishes += security_not_done(pod["spec"].get("securityContext"))
    for container, _ in ordered(pod["spec"]):
        keys = [key for key in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle") if container.get(key)]
        wishes += [f"{container['name']}: {key}" for key in keys]
        if not place.images:
            wishes += [f"{container['name']}: {wish}" for wish in security_not_done(container.get("securityContext"))]
    return wishes


def security_not_done(context: Json | None) -> list[str]:
    """Return the rights and restrictions of a securityContext that no container here has."""
    found = context or {}
    # A user id of zero is a wish, too.
    wishes = [key for key in SECURITY_WITHOUT_EFFECT if found.get(key) or type(found.get(key)) is int]
    if (found.get("capabilities") or {}).get("add"):
        wishes.append("capabilities.add")
    return [f"securityContext.{key}" for key in wishes]
