"""
Keeps the output of pods after the pods are deleted, within bounds on age, size and number.

The archive copies the logs of a pod before its folder is removed: one file for each start of a container, and a line of
JSON in the index for each pod. In the folder of a pod, a tenant may have put anything in the place of a log. So only
regular files of the folder's owner are copied, and no link is followed. If the archive is full, the namespace with the
most output loses its oldest pod, so that no tenant pushes out the logs of another.

Called by: processes.py, which adds pods; embedded.py, which reads them.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from kyu.api.accounting import submitter_of
from kyu.api.labels import task_number
from kyu.api.meta import Json
from kyu.runtime import logs, output, records
from kyu.runtime.sandbox import files

INDEX = "index.jsonl"
# Names that no pod can have: of a list of the kept pods of a job, and of a pod by its uid.
JOB_PREFIX = "job:"
UID_PREFIX = "uid:"
LOG_NAME = re.compile(r"(?P<container>[a-z0-9]([-a-z0-9]*[a-z0-9])?)\.(?P<number>\d{1,9})\.log(\.\d{20})?")
WORKLOAD = "kueue.x-k8s.io/workload"
COPY_BYTES = 1024 * 1024
# The index is written anew when this many of its lines are of pods that are no longer kept.
MOST_STALE_LINES = 1000


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """The bounds of the archive. ``log_bytes`` bounds the output of one start of one container."""

    longest_seconds: float = 14 * 24 * 3600.0
    most_bytes: int = 1024**3
    most_pods: int = 20_000
    log_bytes: int = 50 * 1024**2


class KeptPod(msgspec.Struct, frozen=True, omit_defaults=True):
    """A deleted pod whose output is kept. ``starts`` lists, by container, the starts that wrote output."""

    namespace: str
    name: str
    uid: str
    created: str
    kept_at: float
    job: str = ""
    workload: str = ""
    task: str = ""
    phase: str = ""
    ended: str = ""
    containers: tuple[str, ...] = ()
    starts: dict[str, list[int]] = {}
    size: int = 0
    exit_code: int | None = None
    submitter: str = ""

    def is_of_job(self, name: str) -> bool:
        """Return whether the pod ran for a job of this name: its owner, itself, or the job of its Workload."""
        if name in (self.job, self.name):
            return True
        # Kueue names a Workload after the kind, name and a hash of its job.
        return re.fullmatch(rf"[a-z]+-{re.escape(name)}-[0-9a-f]{{5}}", self.workload) is not None


@dataclass(slots=True)
class KeptNamespace:
    """The kept pods of a namespace, the oldest first, and the size of their output."""

    pods: deque[KeptPod] = field(default_factory=deque)
    size: int = 0


class LogArchive:
    """The output of deleted pods in a folder of its own. Its methods may be called from any thread."""

    def __init__(self, folder: str, limits: ArchiveLimits, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._limits = limits
        self._clock = clock
        self._namespaces: dict[str, KeptNamespace] = {}
        self._uids: set[str] = set()
        self._stale_lines = 0
        self._lock = threading.Lock()

    def open(self) -> None:
        """Read the index, and remove logs that are too old."""
        with self._lock:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            for pod in self._read_index():
                self._add(pod)
            self._prune()

    def keep(self, pod: Json, folder: str) -> None:
        """Copy the logs of a pod from its folder. Do nothing if they are kept already."""
        meta = pod["metadata"]
        with self._lock:
            if meta["uid"] in self._uids:
                return
            starts, size = self._copy_logs(meta["namespace"], meta["uid"], os.path.join(folder, records.LOGS))
            kept = describe(pod, self._clock(), starts, size)
            line = msgspec.json.encode(kept) + b"\n"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            descriptor = os.open(os.path.join(self._folder, INDEX), flags, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
            self._add(kept)
            self._prune()

    def pods(self, namespace: str, since: str) -> list[KeptPod]:
        """Return the kept pods of a namespace, the oldest first. Pods created up to ``since`` are left out.

        Times have whole seconds, so a pod of that second may belong to an earlier namespace of the same name.
        """
        with self._lock:
            kept = self._namespaces.get(namespace)
            return [pod for pod in kept.pods if pod.created > since] if kept else []

    def find_log(self, pod: KeptPod, container: str, *, previous: bool) -> str | logs.NoLog:
        """Return the path of the output of the last start of a container, or of the start before."""
        names = {*pod.containers, *pod.starts}
        if not container and len(pod.containers) > 1:
            listed = " ".join(pod.containers)
            return logs.NoLog(f"a container name must be specified for pod {pod.name}, choose one of: [{listed}]")
        if container and container not in names:
            return logs.NoLog(f"container {container} is not valid for pod {pod.name}")
        container = container or pod.containers[0]
        numbers = pod.starts.get(container, [0])
        if previous and len(numbers) < 2:
            return logs.NoLog(f'previous terminated container "{container}" in pod "{pod.name}" not found')
        return self.log_path(pod, container, numbers[-2 if previous else -1])

    def log_path(self, pod: KeptPod, container: str, number: int) -> str:
        return os.path.join(self._folder, pod.namespace, f"{pod.uid}.{container}.{number}.log")

    def _read_index(self) -> Iterator[KeptPod]:
        try:
            with open(os.path.join(self._folder, INDEX), "rb") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            # A crash may leave a part of a line, and the next line joined to it.
            try:
                yield msgspec.json.decode(line, type=KeptPod)
            except msgspec.DecodeError:
                self._stale_lines += 1

    def _copy_logs(self, namespace: str, uid: str, folder: str) -> tuple[dict[str, list[int]], int]:
        """Copy the logs of a pod, the files of one start after each other; return the starts and the size."""
        try:
            source = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            # The pod wrote nothing, or the folder is no folder.
            return {}, 0
        try:
            starts = find_starts(os.listdir(source))
            target = os.path.join(self._folder, namespace)
            os.makedirs(target, mode=0o700, exist_ok=True)
            size = 0
            for container, numbers in starts.items():
                for number, names in numbers.items():
                    path = os.path.join(target, f"{uid}.{container}.{number}.log")
                    size += copy_files(source, names, path, self._limits.log_bytes)
            return {container: sorted(numbers) for container, numbers in starts.items()}, size
        finally:
            os.close(source)

    def _add(self, pod: KeptPod) -> None:
        kept = self._namespaces.setdefault(pod.namespace, KeptNamespace())
        kept.pods.append(pod)
        kept.size += pod.size
        self._uids.add(pod.uid)

    def _prune(self) -> None:
        """Remove pods that are too old, then pods of the largest namespaces, until the rest is within the bounds."""
        oldest = self._clock() - self._limits.longest_seconds
        for kept in self._namespaces.values():
            while kept.pods and kept.pods[0].kept_at < oldest:
                self._remove_oldest(kept)
        while sum(kept.size for kept in self._namespaces.values()) > self._limits.most_bytes:
            self._remove_oldest(max(self._namespaces.values(), key=lambda kept: kept.size))
        while len(self._uids) > self._limits.most_pods:
            self._remove_oldest(max(self._namespaces.values(), key=lambda kept: len(kept.pods)))
        if self._stale_lines > max(MOST_STALE_LINES, len(self._uids)):
            self._write_index()

    def _remove_oldest(self, kept: KeptNamespace) -> None:
        pod = kept.pods.popleft()
        kept.size -= pod.size
        self._uids.discard(pod.uid)
        self._stale_lines += 1
        for container, numbers in pod.starts.items():
            for number in numbers:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.log_path(pod, container, number))

    def _write_index(self) -> None:
        path = os.path.join(self._folder, INDEX)
        kept = sorted((pod for group in self._namespaces.values() for pod in group.pods), key=lambda pod: pod.kept_at)
        with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.writelines(msgspec.json.encode(pod) + b"\n" for pod in kept)
        os.rename(f"{path}.new", path)
        self._stale_lines = 0


def find_pod(pods: list[KeptPod], name: str) -> KeptPod | None:
    """Return the newest kept pod of this name, or the pod of a uid."""
    uid = name.removeprefix(UID_PREFIX) if name.startswith(UID_PREFIX) else ""
    return next((pod for pod in reversed(pods) if (pod.uid == uid if uid else pod.name == name)), None)


def list_pods(pods: list[KeptPod], job: str) -> bytes:
    """Return the kept pods of a job as lines of JSON, the oldest first."""
    return b"".join(msgspec.json.encode(pod) + b"\n" for pod in pods if pod.is_of_job(job))


def describe(pod: Json, now: float, starts: dict[str, list[int]], size: int) -> KeptPod:
    """Return the entry of the index for a pod."""
    meta, spec = pod["metadata"], pod["spec"]
    owner: Json = next((ref for ref in meta.get("ownerReferences") or () if ref.get("controller")), {})
    annotations = meta.get("annotations") or {}
    status = pod.get("status") or {}
    states = [entry.get("state") or {} for entry in status.get("containerStatuses") or ()]
    ends = [str(state["terminated"].get("finishedAt", "")) for state in states if state.get("terminated")]
    return KeptPod(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        created=meta.get("creationTimestamp") or "",
        kept_at=now,
        job=owner.get("name", ""),
        workload=annotations.get(WORKLOAD, ""),
        task=task_number(annotations),
        phase=status.get("phase", ""),
        ended=max(ends, default="") or records.rfc3339(now),
        containers=tuple(container["name"] for container in spec["containers"]),
        starts=starts,
        size=size,
        submitter=submitter_of(pod),
        exit_code=next((code for state in states if (code := (state.get("terminated") or {}).get("exitCode"))), None),
    )


def find_starts(names: list[str]) -> dict[str, dict[int, list[str]]]:
    """Return the files of the last starts of each container: full files first, by their times, then the current one."""
    found: dict[str, dict[int, list[str]]] = {}
    # "main.0.log" sorts before "main.0.log.TIME", and is the newest.
    for name in sorted(names, key=lambda name: (name.endswith(".log"), name)):
        if match := LOG_NAME.fullmatch(name):
            found.setdefault(match["container"], {}).setdefault(int(match["number"]), []).append(name)
    return {
        container: {number: starts[number] for number in sorted(starts)[-output.MOST_STARTS :]}
        for container, starts in found.items()
    }


def copy_files(folder: int, names: list[str], path: str, most_bytes: int) -> int:
    """Copy files of an open folder to one file, the oldest first; return its size."""
    size = 0
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as target:
        for name in names:
            with contextlib.suppress(OSError), open(files.open_owned(folder, name), "rb") as source:
                while size < most_bytes and (block := source.read(min(COPY_BYTES, most_bytes - size))):
                    target.write(block)
                    size += len(block)
    return size


def read_log(path: str, options: logs.LogOptions) -> bytes:
    """Return the text of a kept log."""
    try:
        lines = [line for line in logs.read_lines(path) if line.count(b" ") >= 3]
    except FileNotFoundError:
        return b""
    if options.tail_lines is not None:
        lines = logs.last_full_lines(lines, options.tail_lines)
    text = logs.Printer(options).print(lines)
    return text if options.limit_bytes is None else text[: options.limit_bytes]
