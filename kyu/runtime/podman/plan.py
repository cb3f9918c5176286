"""
Turns a container of a Pod into the arguments of ``podman run``.

The result has the form of any container's plan, so the supervisor treats both alike. A field that asks for more than
a container of several users may have is refused by name; it is never ignored.

Called by: podplan.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from kyu.api.meta import Json
from kyu.runtime import environment, records, user_files, volumes
from kyu.runtime.sandbox.mounts import Mount

RuntimeChoice: TypeAlias = Literal["auto", "process", "podman"]
# The capabilities that podman gives by default, without the name's prefix. A container may drop them, not add others.
CAPABILITIES = frozenset({
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
    "SYS_CHROOT",
})  # fmt: skip
# Variables that podman itself would follow. One of several lines goes through its own environment.
OF_PODMAN = re.compile(
    r"_?(CONTAINERS?|STORAGE|BUILDAH|REGISTRY|REGISTRIES|XDG|LD|GO|SSL|NOTIFY|LISTEN|DBUS)_.*|GO.*|PATH|HOME|TMPDIR"
)
# They would stand between the parts of an argument.
NOT_IN_A_PATH = re.compile(r"[:,]")


@dataclass(frozen=True, slots=True)
class Image:
    """An image of this machine."""

    id: str
    user: str = ""
    has_command: bool = True


def security_options(container: Json, spec: Json, image: Image) -> list[str]:
    """Return the options of the security context, or refuse what is not given here."""
    context = {**(spec.get("securityContext") or {}), **(container.get("securityContext") or {})}
    name = container["name"]
    for field, usual in (("privileged", False), ("procMount", "Default")):
        if context.get(field) not in (None, usual):
            refuse(f'container "{name}": securityContext.{field} {context[field]} is not permitted here')
    for field in ("hostPID", "hostIPC"):
        if spec.get(field):
            refuse(f"{field} is not permitted here")
    profile = (context.get("seccompProfile") or {}).get("type", "RuntimeDefault")
    if profile != "RuntimeDefault":
        refuse(f'container "{name}": seccompProfile {profile} is not permitted here, only RuntimeDefault')
    capabilities = context.get("capabilities") or {}
    added = {each.removeprefix("CAP_") for each in capabilities.get("add") or ()}
    if added - CAPABILITIES:
        refuse(f'container "{name}": the capability {", ".join(sorted(added - CAPABILITIES))} is not permitted here')
    options = [f"--cap-drop={each}" for each in capabilities.get("drop") or ()]
    options += [f"--cap-add={each}" for each in sorted(added)]
    if context.get("allowPrivilegeEscalation") is False:
        options.append("--security-opt=no-new-privileges")
    if context.get("readOnlyRootFilesystem"):
        options.append("--read-only")
    return options + user_options(name, context, image)


def user_options(name: str, context: Json, image: Image) -> list[str]:
    user, group = context.get("runAsUser"), context.get("runAsGroup")
    if context.get("runAsNonRoot") and (user == 0 or (user is None and image.user in ("", "0", "root"))):
        refuse(f'container "{name}": runAsNonRoot is set, and the user would be root')
    options = []
    if user is not None or group is not None:
        options.append(f"--user={image.user or 0 if user is None else user}" + ("" if group is None else f":{group}"))
    groups = [*(context.get("supplementalGroups") or ()), *filter(None, [context.get("fsGroup")])]
    return options + [f"--group-add={each}" for each in groups]


def plan_container(
    container: Json,
    image: Image,
    pod: Json,
    declared: Mapping[str, str],
    volume_mounts: Sequence[Mount],
    message_mount: Mount,
    gpus: Sequence[int],
) -> Json:
    """Return the part of a container's plan that differs from that of a process of the machine."""
    spec, name = pod["spec"], container["name"]
    if user_files.plan_files(container, pod, "/"):
        refuse(f'container "{name}": output files are not written for containers with an image; use `kyu logs`')
    usual = {**volume_variables(container), "KYU_TERMINATION_LOG": message_mount.target, "PYTHONUNBUFFERED": "1"}
    known = {**usual, **declared}
    mounts = [*volume_mounts, message_mount]
    for path in (mount.target for mount in mounts):
        if NOT_IN_A_PATH.search(path):
            refuse(f"mountPath {path}: a colon or comma cannot be in it")
    for key, value in known.items():
        if "\n" in value and OF_PODMAN.fullmatch(key):
            refuse(f"env {key}: a variable of this name cannot have several lines")
    command = [environment.expand(word, known) for word in container.get("command") or ()]
    arguments = [environment.expand(word, known) for word in container.get("args") or ()]
    if not command and not arguments and not image.has_command:
        refuse(f'container "{name}" has no command, and its image has none; say it in spec.containers[].command')
    options = [f"--hostname={spec.get('hostname') or pod['metadata']['name']}"]
    options += security_options(container, spec, image)
    if container.get("workingDir"):
        working_dir = environment.expand(container["workingDir"], known)
        volumes.check_path(working_dir, "workingDir")
        options.append(f"--workdir={working_dir}")
    if command:
        options.append(f"--entrypoint={json.dumps(command)}")
    options += ["--interactive"] if container.get("stdin") else []
    options += ["--tty"] if container.get("tty") else []
    options += [f"--device=nvidia.com/gpu={gpu}" for gpu in gpus]
    return {
        "podman": {"image": image.id, "options": options, "arguments": arguments},
        "argv": ["podman"],
        "env": {**known, records.MARK: pod["metadata"]["uid"]},
        "workingDir": "/",
        "mounts": [asdict(mount) for mount in mounts],
        "messageIsMounted": True,
        "outputFiles": {},
    }


def volume_variables(container: Json) -> dict[str, str]:
    """Return where the container finds its volumes, in the words of pods without mounts."""
    return {
        "KYU_VOLUME_" + re.sub(r"[^A-Z0-9]", "_", mount["name"].upper()): mount["mountPath"]
        for mount in reversed(container.get("volumeMounts") or ())
        if not mount.get("subPath") and not mount.get("subPathExpr")
    }


def refuse(message: str) -> None:
    raise environment.PodCannotRun("InvalidPod", message)
