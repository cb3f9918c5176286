"""
Evicts pods that use more storage than they may, and the largest ones while the disk is nearly full.

Every ten seconds the pods with limits are measured, as the kubelet does. If the disk of the pods has little room left,
all pods are measured, and the one that exceeds its request most is evicted. The measuring is the work of another
process of the lowest priority: its length is up to the tenants.

Called by: processes.py. Kubernetes: the kubelet's eviction manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import kyu
from kyu import log
from kyu.api.meta import Json
from kyu.runtime import records
from kyu.runtime.storage import limits
from kyu.runtime.storage.limits import StorageLimits, StorageUsage

EVICTED = "Evicted"
LONGEST_SECONDS = 60.0
# The disk is nearly full below a twentieth of it, or below this if that is less.
LITTLE_ROOM_BYTES = 1024**3
LITTLE_ROOM_SHARE = 0.05
PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(kyu.__file__)))
# The parts of a pod's folder that are no volumes.
OTHERS = (records.HOME, records.TEMPORARY, records.STATE)


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that may be evicted."""

    uid: str
    folder: str
    limits: StorageLimits

    @classmethod
    def of(cls, pod: Json, folder: str) -> RunningPod:
        return cls(pod["metadata"]["uid"], folder, limits.limits_of(pod))


@dataclass(slots=True)
class Evictor:
    """Measures pods for ever. ``protects_disk``: the disk is shared by tenants, so the largest pods may have to go."""

    folder: str
    running: Callable[[], Iterable[RunningPod]]
    evict: Callable[[str, str], None]
    interval_seconds: float
    protects_disk: bool = False
    little_room_bytes: int = LITTLE_ROOM_BYTES
    little_room_share: float = LITTLE_ROOM_SHARE
    python: tuple[str, ...] = field(default=(sys.executable, "-S", "-E", "-s"))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.interval_seconds)
            try:
                await self.look()
            except OSError as error:
                log.warning("storage of pods not measured", error=error)

    async def look(self) -> None:
        """Measure once, and evict what has to go."""
        is_full = self.protects_disk and self._has_little_room()
        pods = {pod.uid: pod for pod in self.running() if is_full or pod.limits}
        usages = await self._measure(pods.values()) if pods else {}
        evicted = False
        for uid, usage in usages.items():
            if message := limits.find_excess(pods[uid].limits, usage):
                self.evict(uid, message)
                evicted = True
        if is_full and not evicted and (largest := find_largest(pods, usages)) is not None:
            used = usages[largest].total
            text = f"The node was low on resource: ephemeral-storage. The pod uses {used // 1024}Ki. "
            self.evict(largest, text)

    def _has_little_room(self) -> bool:
        """Return whether the disk, or its number of files, is nearly used up."""
        found = os.statvfs(self.folder)
        room = min(self.little_room_bytes, int(found.f_blocks * found.f_frsize * self.little_room_share))
        few_files = found.f_files > 0 and found.f_favail < found.f_files * LITTLE_ROOM_SHARE
        return found.f_bavail * found.f_frsize < room or few_files

    async def _measure(self, pods: Iterable[RunningPod]) -> dict[str, StorageUsage]:
        """Return the usage of each pod; in time not all may be measured."""
        wanted = {pod.uid: folders_of(pod) for pod in pods}
        process = await asyncio.create_subprocess_exec(
            *self.python, "-m", "kyu.runtime.storage.disk_usage",
            cwd=PACKAGES,
            env={},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        found: dict[str, StorageUsage] = {}
        try:
            process.stdin.write(f"{json.dumps(wanted)}\n".encode())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_SECONDS):
                    async for line in process.stdout:
                        document = json.loads(line)
                        found[document["uid"]] = usage_of(document)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return found


def folders_of(pod: RunningPod) -> dict[str, str]:
    """Return the folders of a pod by name. Its volumes begin with a slash, which no other name does."""
    folders = {name: os.path.join(pod.folder, name) for name in OTHERS}
    volumes = os.path.join(pod.folder, records.VOLUMES)
    with contextlib.suppress(FileNotFoundError):
        folders |= {f"/{name}": os.path.join(volumes, name) for name in os.listdir(volumes)}
    return folders


def usage_of(document: Json) -> StorageUsage:
    found: Mapping[str, int] = document.get("bytes") or {}
    volumes = {name[1:]: size for name, size in found.items() if name.startswith("/")}
    return StorageUsage(volumes, sum(found.values()), bool(document.get("tooMany")))


def find_largest(pods: Mapping[str, RunningPod], usages: Mapping[str, StorageUsage]) -> str | None:
    """Return the pod that exceeds its request most, or None if no pod does."""
    excess = {uid: usage.total - pods[uid].limits.requested for uid, usage in usages.items()}
    largest = max(excess, key=lambda uid: (usages[uid].too_many, excess[uid]), default=None)
    return largest if largest is not None and (usages[largest].too_many or excess[largest] > 0) else None
