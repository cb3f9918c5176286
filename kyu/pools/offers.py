"""
The capacity that a pool announces: that of this machine, a cluster, a Slurm site, or given by the administrator.

An offer has the quotas for the MasterQueue, and the free resources for display. A machine offers all of its resources,
since the pool's own pods count against them. A cluster or a Slurm site has other users, so it offers what is free.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field

from kyu.api import codec, quantity
from kyu.api.core import Node, Pod
from kyu.api.meta import Json, find_condition
from kyu.engine import requests
from kyu.kube.blocking import BlockingClient
from kyu.runtime.nodes import node

GPU = "nvidia.com/gpu"
SINFO = ("sinfo", "--noheader", "--Node", "--format=%N|%C|%m|%e|%G|%t")
SINFO_SECONDS = 20.0
# States of Slurm nodes that accept jobs, without suffixes.
SLURM_UP = frozenset({"idle", "mix", "alloc", "comp"})
GRES = re.compile(r"gpu:(?:[^:,(]+:)?(\d+)")
PODS_PER_NODE = 110


class NoOffer(Exception):
    """The capacity cannot be found out; the message says why."""


@dataclass(frozen=True, slots=True)
class Offer:
    quotas: dict[str, str]
    free: dict[str, str] = field(default_factory=dict)


def local_offer(folder: str) -> Offer:
    """Return all resources of this machine, and as free those that the kernel reports."""
    facts = node.read_facts(folder)
    has = node.resources(facts)
    quotas = {name: has[name] for name in ("cpu", "memory", "pods") if name in has} | {GPU: str(facts.gpus)}
    idle = max(0.0, facts.cores - os.getloadavg()[0])
    return Offer(quotas, {"cpu": f"{int(idle * 1000)}m", "memory": f"{available_kilobytes()}Ki"})


def available_kilobytes() -> int:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", node.read_text("/proc/meminfo"), re.MULTILINE)
    return int(found[1]) if found else 0


def cluster_offer(client: BlockingClient) -> Offer:
    nodes, pods = client.list(Node.KIND), client.list(Pod.KIND)
    return offer_of_nodes(nodes, pods)


def offer_of_nodes(nodes: Iterable[Json], pods: Iterable[Json]) -> Offer:
    """Return the free resources of all ready nodes; an overcommitted node takes nothing from others."""
    free: dict[str, dict[str, int]] = {}
    for raw in nodes:
        one = codec.decode_as(Node, raw)
        ready = find_condition(one.status.conditions, "Ready")
        if not one.spec.unschedulable and ready is not None and ready.status == "True":
            has = {name: quantity.amount(name, value) for name, value in one.status.allocatable.items()}
            free[one.metadata.name] = has
    for raw in pods:
        pod = codec.decode_as(Pod, raw)
        room = free.get(pod.spec.node_name)
        if room is None or pod.status.phase in ("Succeeded", "Failed"):
            continue
        asked = requests.amounts(requests.raw_requests(requests.complete(pod.spec, {}, {})))
        for name, amount in {**asked, "pods": 1}.items():
            room[name] = room.get(name, 0) - amount
    sums = dict.fromkeys(("cpu", "memory", "pods", GPU), 0)
    for room in free.values():
        for name, amount in room.items():
            sums[name] = quantity.add(sums.get(name, 0), max(0, amount))
    left = {name: quantity.render(name, amount) for name, amount in sums.items()}
    return Offer(left, left)


def slurm_offer() -> Offer:
    if shutil.which(SINFO[0]) is None:
        raise NoOffer("there is no `sinfo` here: is Slurm installed?")
    try:
        done = subprocess.run(SINFO, capture_output=True, text=True, timeout=SINFO_SECONDS, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        raise NoOffer(f"sinfo: {error}") from error
    return parse_sinfo(done.stdout)


def parse_sinfo(text: str) -> Offer:
    """Parse a line per node: name, cpus (allocated/idle/other/total), MB, MB free, gres, state. A node counts once."""
    cpus = megabytes = gpus = 0
    seen: set[str] = set()
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) != 6:
            raise NoOffer(f"sinfo printed a line that cannot be read: {line[:80]!r}")
        name, counts, _, free, gres, state = parts
        if name in seen or state.rstrip("*~#!%$@^-+") not in SLURM_UP:
            continue
        seen.add(name)
        idle = int(counts.split("/")[1])
        cpus += idle
        megabytes += int(free) if free.isdigit() and idle else 0
        # sinfo does not show how many GPUs are in use, so a busy node offers none.
        gpus += sum(int(count) for count in GRES.findall(gres)) if state.startswith("idle") else 0
    left = {"cpu": str(cpus), "memory": f"{megabytes}Mi", "pods": str(PODS_PER_NODE * len(seen)), GPU: str(gpus)}
    return Offer(left, left)
