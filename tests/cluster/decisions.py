"""
Random histories of queues and workloads, each the same for Kueue and for Kyu.

A scenario is a small tree of cohorts and queues with random quotas, limits and policies, and a list of workloads that
arrive one after the other, so that nothing depends on who of two came first. The seed decides everything. Scenarios
share nothing, so many of them can be played on one control plane at once.

Called by: test_decisions.py, decisions_played.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.cluster.client import Manifest

KUEUE = "kueue.x-k8s.io/v1beta2"
FLAVORS = ("first", "second", "third")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Queues, and workloads in the order of their arrival. The name is that of the namespace, too."""

    name: str
    queues: list[Manifest] = field(default_factory=list)
    workloads: list[Manifest] = field(default_factory=list)


def flavors() -> list[Manifest]:
    """What the quotas of all scenarios are counted in."""
    return [{"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}} for name in FLAVORS]


def scenario(name: str, seed: int, arrivals: int) -> Scenario:
    """The scenario of a seed, with names that begin with the given one."""
    return _Dice(name, random.Random(seed)).throw(arrivals)


@dataclass(slots=True)
class _Dice:
    name: str
    chance: random.Random
    flavors: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()

    def throw(self, arrivals: int) -> Scenario:
        chance = self.chance
        self.flavors = FLAVORS[: chance.choice((1, 1, 2, 3))]
        self.resources = chance.choice((("cpu",), ("cpu",), ("cpu", "memory")))
        cohorts = [f"{self.name}-c{number}" for number in range(chance.choice((0, 1, 1, 2, 3)))]
        queues = [self._cohort(cohorts, number) for number in range(len(cohorts)) if number or chance.random() < 0.6]
        names = [f"q{number}" for number in range(chance.randint(2, 5))]
        for name in names:
            queues += self._queue(name, chance.choice(cohorts) if cohorts else "")
        workloads = [self._workload(f"w{number:02}", chance.choice(names)) for number in range(arrivals)]
        return Scenario(self.name, queues, workloads)

    def _cohort(self, cohorts: list[str], number: int) -> Manifest:
        chance = self.chance
        spec: Manifest = {"fairSharing": {"weight": chance.choice(("1", "1", "2", "500m"))}}
        if number and chance.random() < 0.8:
            spec["parentName"] = cohorts[chance.randrange(number)]
        if chance.random() < 0.4:
            spec["resourceGroups"] = self._groups(limited="parentName" in spec)
        return {"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": cohorts[number]}, "spec": spec}

    def _queue(self, name: str, cohort: str) -> list[Manifest]:
        chance = self.chance
        spec: Manifest = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.name}},
            "queueingStrategy": chance.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            "resourceGroups": self._groups(limited=bool(cohort)),
            "preemption": self._preemption(),
            "flavorFungibility": {
                "whenCanBorrow": chance.choice(("MayStopSearch", "TryNextFlavor")),
                "whenCanPreempt": chance.choice(("MayStopSearch", "TryNextFlavor")),
            },
            "fairSharing": {"weight": chance.choice(("1", "1", "1", "2", "500m"))},
        }
        if cohort:
            spec["cohortName"] = cohort
        full_name = f"{self.name}-{name}"
        local: Manifest = {
            "apiVersion": KUEUE,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": self.name},
            "spec": {"clusterQueue": full_name},
        }
        return [{"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": full_name}, "spec": spec}, local]

    def _preemption(self) -> Manifest:
        chance = self.chance
        reclaim = chance.choice(("Never", "LowerPriority", "Any", "Any"))
        borrow: Manifest = {"policy": "Never"}
        if reclaim != "Never" and chance.random() < 0.3:
            borrow = {"policy": "LowerPriority", "maxPriorityThreshold": chance.randint(0, 2)}
        within = chance.choice(("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"))
        return {"withinClusterQueue": within, "reclaimWithinCohort": reclaim, "borrowWithinCohort": borrow}

    def _groups(self, *, limited: bool) -> list[Manifest]:
        names = list(self.flavors)
        if self.chance.random() < 0.3:
            self.chance.shuffle(names)
        listed = [{"name": name, "resources": [self._quota(r, limited) for r in self.resources]} for name in names]
        return [{"coveredResources": list(self.resources), "flavors": listed}]

    def _quota(self, resource: str, limited: bool) -> Manifest:
        unit = "Gi" if resource == "memory" else ""
        nominal = self.chance.randint(0, 6)
        quota: Manifest = {"name": resource, "nominalQuota": f"{nominal}{unit}"}
        if limited and self.chance.random() < 0.25:
            quota["borrowingLimit"] = f"{self.chance.randint(0, 6)}{unit}"
        if limited and self.chance.random() < 0.2:
            quota["lendingLimit"] = f"{self.chance.randint(0, nominal)}{unit}"
        return quota

    def _workload(self, name: str, queue: str) -> Manifest:
        chance = self.chance
        count = chance.choice((1, 1, 2, 3))
        amounts = {"cpu": str(chance.choice((1, 1, 2, 3))), "memory": f"{chance.choice((0, 1, 1, 2, 4))}Gi"}
        requests = {resource: amounts[resource] for resource in self.resources}
        container = {"name": "main", "image": "none", "resources": {"requests": requests}}
        template: Manifest = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        pod_set: Manifest = {"name": "main", "count": count, "template": template}
        if count > 1 and chance.random() < 0.3:
            pod_set["minCount"] = 1
        spec = {"queueName": queue, "priority": chance.choice((0, 0, 0, 1, 2)), "podSets": [pod_set]}
        metadata = {"name": name, "namespace": self.name}
        return {"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": spec}
