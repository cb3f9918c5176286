"""
The storage that a pod may use, by its manifest, and what is said if it uses more.

The size of an emptyDir in memory and of /dev/shm is bounded by the kernel. All other storage is measured: an emptyDir
with a ``sizeLimit``, and the pod as a whole if its containers have limits of ephemeral-storage.

Called by: podplan.py, eviction.py. Kubernetes: pkg/kubelet/eviction, localStorageEviction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kyu.api import quantity
from kyu.api.meta import Json

EPHEMERAL_STORAGE = "ephemeral-storage"
# The size of /dev/shm that container engines give a pod.
USUAL_SHARED_MEMORY = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """The limits that are enforced by measuring. ``total``: of the whole pod. ``requested``: the share it asked for."""

    volumes: Mapping[str, int]
    total: int | None = None
    requested: int = 0

    def __bool__(self) -> bool:
        return bool(self.volumes) or self.total is not None


@dataclass(frozen=True, slots=True)
class StorageUsage:
    """The bytes on the disk: of each volume, and of all of the pod. ``too_many``: there are too many files to count."""

    volumes: Mapping[str, int]
    total: int
    too_many: bool = False


def limits_of(pod: Json) -> StorageLimits:
    spec = pod["spec"]
    volumes = {}
    for name, empty_dir in empty_dirs(spec):
        if empty_dir.get("medium") != "Memory" and (limit := size_limit(empty_dir)) is not None:
            volumes[name] = limit
    found = [*amounts(spec, "limits", EPHEMERAL_STORAGE)]
    return StorageLimits(volumes, sum(found) if found else None, sum(amounts(spec, "requests", EPHEMERAL_STORAGE)))


def memory_volumes(pod: Json) -> dict[str, int]:
    """Return the volumes that are in memory, with their sizes."""
    most = shared_memory(pod)
    return {
        name: min(most, most if (limit := size_limit(empty_dir)) is None else limit)
        for name, empty_dir in empty_dirs(pod["spec"])
        if empty_dir.get("medium") == "Memory"
    }


def shared_memory(pod: Json) -> int:
    """Return the memory that files of the pod may take: its limit, or its request, or as much as is usual."""
    spec = pod["spec"]
    limits = [*amounts(spec, "limits", "memory")]
    if len(limits) < len(spec["containers"]):
        limits = []
    return max(USUAL_SHARED_MEMORY, sum(limits), sum(amounts(spec, "requests", "memory")))


def find_excess(limits: StorageLimits, usage: StorageUsage) -> str | None:
    """Return which limit is exceeded, in the words of the kubelet, or None."""
    if usage.too_many:
        return "The pod has more files than can be counted for its storage limits. "
    for name, limit in limits.volumes.items():
        if usage.volumes.get(name, 0) > limit:
            text = quantity.render(EPHEMERAL_STORAGE, limit)
            return f'Usage of EmptyDir volume "{name}" exceeds the limit "{text}". '
    if limits.total is not None and usage.total > limits.total:
        text = quantity.render(EPHEMERAL_STORAGE, limits.total)
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {text}. "
    return None


def empty_dirs(spec: Json) -> Iterator[tuple[str, Json]]:
    for volume in spec.get("volumes") or ():
        if volume.get("emptyDir") is not None:
            yield volume["name"], volume["emptyDir"]


def size_limit(empty_dir: Json) -> int | None:
    """Return the limit in bytes. As in Kubernetes, a limit of zero is none."""
    text = empty_dir.get("sizeLimit")
    return None if text is None else quantity.amount(EPHEMERAL_STORAGE, text) or None


def amounts(spec: Json, which: str, resource: str) -> Iterator[int]:
    """Yield the requests or limits of the main containers for a resource."""
    for container in spec["containers"]:
        text = ((container.get("resources") or {}).get(which) or {}).get(resource)
        if text is not None:
            yield quantity.amount(resource, text)
