"""
The Node of this machine, as the API shows it: its resources, its abilities, and its heartbeat.

Facts are read once from /proc and the like; the Node and its Lease are made of them. Abilities that this machine lacks
(limits, mounts, isolation) stand in its conditions, with the reason.

Called by: heartbeat.py, embedded.py, simulated_nodes.py, pools/. Kubernetes: the kubelet's node status setters.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import datetime

import kyu
from kyu.api import quantity
from kyu.api.meta import Json
from kyu.kube.lease import LEASE
from kyu.runtime import cgroups, records
from kyu.runtime.status import ADDRESS

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
GPU = "nvidia.com/gpu"
# Processes are light: cpu and memory bound them.
MOST_PODS = 1000
# The condition that says whether pods of different namespaces are isolated, and its reasons when they are not.
ISOLATED = "kyu.dev/TenantsIsolated"
TRUSTED = "UsersTrusted"
PODS_REFUSED = "PodsRefused"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The facts about this machine."""

    hostname: str
    cores: int
    memory_bytes: int
    storage_bytes: int
    gpus: int
    architecture: str
    kernel: str
    os_image: str
    machine_id: str
    boot_id: str


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities of this machine; an empty reason means that it has the ability."""

    limits_refused: str
    mounts_refused: str
    # Why pods of different users cannot run here; empty if each namespace has its own user and sandbox.
    isolation_refused: str = ""
    # The parts of the isolation that this system does not permit.
    isolation_missing: tuple[str, ...] = ()
    # The administrator declares by --trust-users that users need not be isolated from each other.
    trusts_users: bool = False
    # Pods of different users are refused, rather than run without isolation.
    refuses_pods: bool = False
    # Why pods do not run from images here; None if they need not.
    images_refused: str | None = None


def read_facts(folder: str) -> MachineFacts:
    """Look at this machine; storage is that of the file system where pods keep their files."""
    disk = os.statvfs(folder)
    return MachineFacts(
        hostname=platform.node().lower(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=min(total_memory_bytes(), cgroup_memory_bytes()),
        storage_bytes=disk.f_blocks * disk.f_frsize,
        gpus=count_gpus(),
        architecture=ARCHITECTURES.get(platform.machine(), platform.machine()),
        kernel=platform.release(),
        os_image=platform.freedesktop_os_release().get("PRETTY_NAME", "Linux") if has_os_release() else "Linux",
        machine_id=read_text("/etc/machine-id"),
        boot_id=records.boot_id(),
    )


def total_memory_bytes() -> int:
    for line in read_text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/meminfo has no MemTotal")


def cgroup_memory_bytes() -> int:
    """Return the memory limit of this process itself, as in a container; a very large number if there is none."""
    base = cgroups.find_mount("/proc/self/mountinfo")
    own = next((line[3:] for line in read_text("/proc/self/cgroup").splitlines() if line.startswith("0::")), "")
    text = read_text(f"{base}{own}/memory.max") if base else ""
    return int(text) if text.isdigit() else quantity.UNLIMITED


def count_gpus() -> int:
    """Count the GPUs of NVIDIA's driver."""
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0


def has_os_release() -> bool:
    return os.path.exists("/etc/os-release") or os.path.exists("/usr/lib/os-release")


def read_text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def resources(facts: MachineFacts) -> dict[str, str]:
    """Return the capacity; all of it can be allocated."""
    found = {
        "cpu": str(facts.cores),
        "memory": f"{facts.memory_bytes // 1024}Ki",
        "ephemeral-storage": f"{facts.storage_bytes // 1024}Ki",
        "pods": str(MOST_PODS),
    }
    return found | {GPU: str(facts.gpus)} if facts.gpus else found


def make_node(name: str, facts: MachineFacts, abilities: Abilities, now: datetime) -> Json:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": facts.architecture,
        "kubernetes.io/os": "linux",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": resources(facts),
            "allocatable": resources(facts),
            "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": name}],
            "conditions": conditions(abilities, now),
            "nodeInfo": {
                "architecture": facts.architecture,
                "bootID": facts.boot_id,
                "containerRuntimeVersion": f"kyu://{kyu.__version__}",
                "kernelVersion": facts.kernel,
                "kubeProxyVersion": "",
                "kubeletVersion": f"v{kyu.__version__}",
                "machineID": facts.machine_id,
                "operatingSystem": "linux",
                "osImage": facts.os_image,
                "systemUUID": facts.machine_id,
            },
        },
    }


def conditions(abilities: Abilities, now: datetime) -> list[Json]:
    granted = "; ".join(("separate users and sandboxes for namespaces", *abilities.isolation_missing))
    isolated = ability(ISOLATED, granted, abilities.isolation_refused, now)
    if abilities.trusts_users:
        isolated = condition(ISOLATED, "False", TRUSTED, "all pods run as the same user, by --trust-users", now)
    elif abilities.refuses_pods:
        message = f"pods are refused: {abilities.isolation_refused}"
        isolated = condition(ISOLATED, "False", PODS_REFUSED, message, now)
    images = []
    if abilities.images_refused is not None:
        images = [ability("kyu.dev/ImagesRun", "images as containers of podman", abilities.images_refused, now)]
    return [
        condition("Ready", "True", "KubeletReady", "kyu runs pods as processes", now),
        *images,
        ability("kyu.dev/LimitsEnforced", "cpu and memory limits", abilities.limits_refused, now),
        ability("kyu.dev/VolumesMounted", "volumes at their mount paths", abilities.mounts_refused, now),
        isolated,
    ]


def ability(type_: str, what: str, refused: str, now: datetime) -> Json:
    if refused:
        return condition(type_, "False", "NotPermitted", f"no {what}: {refused}", now)
    return condition(type_, "True", "Permitted", what, now)


def condition(type_: str, status: str, reason: str, message: str, now: datetime) -> Json:
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": time,
        "lastTransitionTime": time,
    }


def make_lease(name: str, now: datetime) -> Json:
    """Return the heartbeat: it says until when the node counts as alive."""
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }
