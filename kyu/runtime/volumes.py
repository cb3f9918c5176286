"""
Volumes as folders: the files of each volume, and the place of each.

emptyDir, configMap, secret, downwardAPI and projected volumes are folders of the pod, filled once, when it starts.
hostPath is a place of the machine, where the administrator permits it. All others are refused by name.

Called by: podplan.py (plans), podfolder.py (writes the files). Kubernetes: pkg/volume, atomic writer aside.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kyu.api.meta import Json
from kyu.runtime import environment, records
from kyu.runtime.environment import Missing, PodCannotRun, PodFacts, SettingsSource
from kyu.runtime.identity import service_account
from kyu.runtime.sandbox import files, mounts

DEFAULT_MODE = 0o644
# The widest mode of a Secret's files where a pod has one user, whatever the manifest says.
SECRET_MODE = 0o500
LONGEST_SHOWN = 100
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
HOST_PATH_TYPES = ("", "Directory", "File")
# The kinds of volumes; the name of a volume's source is its kind.
FOLDERS = ("emptyDir", "configMap", "secret", "downwardAPI", "projected")


@dataclass(frozen=True, slots=True)
class File:
    """A file of a volume."""

    path: str
    content: bytes
    mode: int
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder to make, relative to the pod's volumes, with its files; or a place of the machine."""

    name: str
    files: tuple[File, ...] = ()
    writable: bool = False
    host_path: str = ""


def plan_volumes(facts: PodFacts, objects: SettingsSource, host_paths: Sequence[str]) -> list[Volume]:
    """Resolve the pod's volumes. ``host_paths`` are the folders that hostPath may name."""
    found = facts.pod["spec"].get("volumes") or ()
    return [plan_volume(volume, facts, objects, host_paths) for volume in found]


def plan_volume(volume: Json, facts: PodFacts, objects: SettingsSource, host_paths: Sequence[str]) -> Volume:
    name = check_name(volume["name"], "volume")
    kind = next((key for key in volume if key != "name" and volume[key] is not None), "emptyDir")
    if kind == "hostPath":
        return Volume(name, writable=True, host_path=host_path(name, volume[kind], host_paths))
    if kind not in FOLDERS:
        raise PodCannotRun("VolumeRefused", f'volume "{name}": {kind} volumes are not supported by this node')
    if kind == "emptyDir":
        return Volume(name, writable=True)
    body = volume[kind]
    sources = body.get("sources") or () if kind == "projected" else ({kind: body},)
    mode = body.get("defaultMode")
    files = [file for source in sources for file in source_files(name, source, mode, facts, objects)]
    return Volume(name, tuple(files))


def host_path(name: str, body: Json, host_paths: Sequence[str]) -> str:
    """Return the place of the machine. It must exist when the container starts; none is made."""
    path, type_ = body.get("path") or "", body.get("type") or ""
    if type_ not in HOST_PATH_TYPES:
        known = ", ".join(filter(None, HOST_PATH_TYPES))
        raise PodCannotRun(
            "VolumeRefused", f'volume "{name}": a hostPath of type {type_} is not supported, only {known}'
        )
    if not os.path.isabs(path):
        raise PodCannotRun("VolumeRefused", f'volume "{name}": hostPath {path!r} does not begin with a slash')
    check_path(path, f'volume "{name}": hostPath')
    normal = os.path.normpath(path)
    if not any(mounts.is_within(normal, folder) for folder in host_paths):
        raise PodCannotRun(
            "VolumeRefused",
            f'volume "{name}": hostPath {path} is not permitted here; `kyu up --host-paths` permits hostPath volumes',
        )
    return normal


def source_files(name: str, source: Json, mode: int | None, facts: PodFacts, objects: SettingsSource) -> list[File]:
    if "downwardAPI" in source:
        return downward_files(source["downwardAPI"], mode, facts)
    if "configMap" in source:
        return keyed_files(
            source["configMap"], environment.config_map_data(source["configMap"], facts.namespace, objects), mode
        )
    if "secret" in source:
        data = environment.secret_data(source["secret"], facts.namespace, objects)
        return [replace(file, is_secret=True) for file in keyed_files(source["secret"], data, mode)]
    if "serviceAccountToken" in source:
        return [token_file(name, source["serviceAccountToken"], mode, facts)]
    what = ", ".join(source)
    raise PodCannotRun("VolumeRefused", f'volume "{name}": a projected {what} is not supported by this node')


def token_file(name: str, source: Json, mode: int | None, facts: PodFacts) -> File:
    """Return the file of a token of the pod's ServiceAccount."""
    seconds = source.get("expirationSeconds") or service_account.DEFAULT_SECONDS
    token = facts.access.tokens.get((source.get("audience") or "", seconds))
    if facts.access is service_account.NO_ACCESS:
        why = "a projected serviceAccountToken is not issued on this node"
        raise PodCannotRun("VolumeRefused", f'volume "{name}": {why}')
    if token is None:
        account = service_account.account_name(facts.pod)
        raise Missing(f'volume "{name}": serviceaccount "{account}" not found')
    return File(inner_path(source["path"]), token.encode(), DEFAULT_MODE if mode is None else mode, is_secret=True)


def keyed_files(ref: Json, data: Mapping[str, bytes], mode: int | None) -> list[File]:
    """Return a file for each key, or for each of the items."""
    mode = DEFAULT_MODE if mode is None else mode
    items = ref.get("items")
    if not items:
        return [File(inner_path(key), content, mode) for key, content in sorted(data.items())]
    files = []
    for item in items:
        if item["key"] in data:
            files.append(File(inner_path(item["path"]), data[item["key"]], item.get("mode", mode)))
        elif not ref.get("optional"):
            raise Missing(f"references non-existent key: {item['key']}")
    return files


def downward_files(body: Json, mode: int | None, facts: PodFacts) -> list[File]:
    mode = DEFAULT_MODE if mode is None else mode
    containers = {container["name"]: container for container in facts.pod["spec"]["containers"]}
    files = []
    for item in body.get("items") or ():
        if "fieldRef" in item:
            text = environment.field_text(item["fieldRef"].get("fieldPath", ""), facts)
        else:
            ref = item.get("resourceFieldRef") or {}
            text = environment.resource_text(ref, containers.get(ref.get("containerName", ""), {}), facts)
        files.append(File(inner_path(item["path"]), text.encode(), item.get("mode", mode)))
    return files


def inner_path(path: str) -> str:
    """Return the path, which must stay in its volume."""
    check_path(path, "path")
    normal = os.path.normpath(path)
    if os.path.isabs(normal) or normal.split("/")[0] == "..":
        raise PodCannotRun("VolumeRefused", f"path {path!r} leaves its volume")
    return normal


def check_path(path: str, what: str) -> None:
    """Refuse a path that no file can have. It could never be provided, however long the pod waits."""
    if reason := files.why_not_a_path(path):
        shown = path if len(path) <= LONGEST_SHOWN else f"{path[:LONGEST_SHOWN]}…"
        raise PodCannotRun("InvalidPod", f"{what} {shown!r} cannot be: {reason}")


def check_name(name: str, what: str) -> str:
    """Return a name that becomes the name of a file or folder. Pods of a pool come from another server."""
    if not NAME.fullmatch(name):
        raise PodCannotRun("InvalidPod", f"{what} {name[:LONGEST_SHOWN]!r} is not a valid name")
    return name


def write(volumes: Sequence[Volume], folder: str, user: int | None, *, has_users: bool = False) -> None:
    """Make the folders and files, for the pod's user alone, or for all users that an image has.

    Users of the machine do not reach them either way: the folder that holds them is closed.
    """
    for volume in volumes:
        if volume.host_path:
            continue
        root = os.path.join(folder, volume.name)
        os.mkdir(root, 0o700)
        for file in volume.files:
            path = os.path.join(root, file.path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as writer:
                os.fchmod(writer.fileno(), file.mode & SECRET_MODE if file.is_secret and not has_users else file.mode)
                writer.write(file.content)
        if has_users:
            open_to_all(root, 0o777 if volume.writable else 0o755)
        if user is not None:
            give(root, user)


def replace_file(root: str, path: str, content: bytes) -> None:
    """Put new content in the place of a file, in one step, while the pod runs. Owner and mode stay."""
    folder, name = os.path.split(path)
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        place = files.open_beneath(top, folder)
    finally:
        os.close(top)
    temporary = f".{name}.new"
    try:
        old = os.stat(name, dir_fd=place, follow_symlinks=False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=place)
        descriptor = os.open(temporary, records.NEW_FILE, 0o600, dir_fd=place)
        with open(descriptor, "wb") as writer:
            writer.write(content)
            os.fchown(descriptor, old.st_uid, old.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
        os.rename(temporary, name, src_dir_fd=place, dst_dir_fd=place)
    finally:
        os.close(place)


def open_to_all(root: str, mode: int) -> None:
    """Let all users into the folders, also where the server has a narrow umask. The kubelet's modes."""
    for folder, _, _ in os.walk(root):
        os.chmod(folder, mode)


def give(root: str, user: int) -> None:
    """Make the user of the pod's namespace the owner. No process of that user can reach the folder yet."""
    os.chown(root, user, user)
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            os.chown(os.path.join(folder, name), user, user, follow_symlinks=False)
