"""
A realistic load: workloads request cpu and memory, and ClusterQueues also limit pods, in two tainted flavors.

The shape of a workload is drawn from a long tail: a few shapes are frequent, thousands are rare. A tenth of the shapes
have two pod sets. The draw depends on the seed alone.

Called by: bench/loads.py, bench/engine.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from random import Random

from kyu.api.meta import Json

# The memory and pods per cpu in the quota of a ClusterQueue, in each flavor.
GIBIBYTES_PER_CPU = 5
PODS_PER_CPU = 5
TAINT_BY_FLAVOR = {"on-demand": "reserved", "spot": "interruptible"}
FLAVORS = tuple(TAINT_BY_FLAVOR)
# The number of ranks of the long tail. A tenth of the ranks has three quarters of the workloads.
RANKS = 4_000


@dataclass(frozen=True, slots=True)
class ShapeOfRank:
    """The properties that all workloads of one rank share."""

    mebibytes_per_cpu: int
    tolerates: tuple[str, ...]
    pod_sets: int

    @classmethod
    def of(cls, rank: int) -> ShapeOfRank:
        """Return the properties of a rank."""
        random = Random(rank)
        return cls(
            mebibytes_per_cpu=random.randrange(512, GIBIBYTES_PER_CPU * 1024 + 1),
            tolerates=random.choice((("on-demand",), ("spot",), ("on-demand", "spot"))),
            pod_sets=2 if rank % 10 == 3 else 1,
        )


def draw_rank(random: Random) -> int:
    """Draw a rank: each tenfold range of ranks is equally likely."""
    return int(exp(random.random() * log(RANKS)))


def pod_sets(milli_cpu: int, rank: int) -> list[Json]:
    """Return the pod sets of a workload of a rank with a total cpu request."""
    shape = ShapeOfRank.of(rank)
    if shape.pod_sets == 1:
        return [_pod_set("main", 1, milli_cpu, shape)]
    workers = (1, 3, 4)[rank % 3]
    each = milli_cpu // (workers + 1)
    return [_pod_set("driver", 1, each, shape), _pod_set("worker", workers, each, shape)]


def one_pod_set(milli_cpu: int, rank: int) -> list[Json]:
    """Return the only pod set of a workload of a rank."""
    return [_pod_set("main", 1, milli_cpu, ShapeOfRank.of(rank))]


def _pod_set(name: str, count: int, milli_cpu: int, shape: ShapeOfRank) -> Json:
    requests = {"cpu": f"{milli_cpu}m", "memory": f"{milli_cpu * shape.mebibytes_per_cpu // 1000}Mi"}
    spec = {
        "containers": [{"name": "c", "resources": {"requests": requests}}],
        "tolerations": [{"key": TAINT_BY_FLAVOR[flavor], "operator": "Exists"} for flavor in shape.tolerates],
    }
    return {"name": name, "count": count, "template": {"spec": spec}}


def resource_groups(cpu: int, borrowed_cpu: int | None, flavors: Sequence[str]) -> list[Json]:
    """Return the resource groups of a ClusterQueue, with memory and pods in proportion to the cpu of each flavor."""

    def quota(resource: str, unit: str, per_cpu: int) -> Json:
        limit = {} if borrowed_cpu is None else {"borrowingLimit": f"{borrowed_cpu * per_cpu}{unit}"}
        return {"name": resource, "nominalQuota": f"{cpu * per_cpu}{unit}", **limit}

    resources = [quota("cpu", "", 1), quota("memory", "Gi", GIBIBYTES_PER_CPU), quota("pods", "", PODS_PER_CPU)]
    listed = [{"name": name, "resources": resources} for name in flavors]
    return [{"coveredResources": ["cpu", "memory", "pods"], "flavors": listed}]


def flavor_spec(name: str) -> Json:
    """Return the spec of a flavor. Its taint excludes pods that do not tolerate it."""
    taint = TAINT_BY_FLAVOR.get(name)
    return {} if taint is None else {"nodeTaints": [{"key": taint, "value": "true", "effect": "NoSchedule"}]}
