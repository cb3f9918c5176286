"""The flavor scan of the textbook scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field

from kyu.engine.options import Options
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.workloads import AssignedPodSet
from tests.support.textbook.preemption import Search
from tests.support.textbook.quota import Node, Pair
from tests.support.textbook.world import Memory, Snapshot, Tried, matches

# From the worst to the best.
MODES = ("noFit", "noCandidates", "preempt", "reclaim", "fit")


@dataclass
class Assignment:
    """The flavors of a workload, or none."""

    mode: str = "Fit"
    level: int = 0
    usage: dict[Pair, int] = field(default_factory=dict)
    needed: set[Pair] = field(default_factory=set)
    tried: Tried = field(default_factory=dict)
    pod_sets: list[tuple[str, int, dict[str, str], dict[str, int]]] = field(default_factory=list)
    """Name, count, flavor by resource, amount by resource."""

    def pinned(self) -> dict[str, dict[str, str]]:
        return {name: flavors for name, _, flavors, _ in self.pod_sets}

    def assigned(self) -> tuple[AssignedPodSet, ...]:
        return tuple(
            AssignedPodSet(name, count, flavors, {r: requests[r] for r in flavors})
            for name, count, flavors, requests in self.pod_sets
        )


@dataclass
class Verdict:
    """How well a flavor, or one resource of it, suits."""

    mode: str
    level: int

    def beats(self, other: Verdict, *, preemption_over_borrowing: bool) -> bool:
        if self.mode == "noFit" or other.mode == "noFit":
            return self.mode != "noFit"
        if (self.mode == "noCandidates") != (other.mode == "noCandidates"):
            return other.mode == "noCandidates"
        mine, theirs = MODES.index(self.mode), MODES.index(other.mode)
        if preemption_over_borrowing and self.level != other.level:
            return self.level < other.level
        if mine != theirs:
            return mine > theirs
        return self.level < other.level


@dataclass
class Assigner:
    """One workload with a number of pods for each pod set."""

    snapshot: Snapshot
    options: Options
    queue: Node
    workload: PendingWorkload
    counts: list[int]
    memory: Memory | None
    pinned: dict[str, dict[str, str]] | None

    def assign(self) -> Assignment:
        assert self.queue.spec is not None
        result = Assignment()
        shapes = self.workload.shape.pod_sets
        covers_pods = any("pods" in group.covered_resources for group in self.queue.spec.spec.resource_groups)
        for shape, count in zip(shapes, self.counts, strict=True):
            requests = dict(shape.requests(count))
            if covers_pods:
                requests["pods"] = count
            if not self._assign_pod_set(result, shape.name, count, requests):
                result.mode, result.needed = "NoFit", set()
                break
        return result

    def _assign_pod_set(self, result: Assignment, name: str, count: int, requests: dict[str, int]) -> bool:
        """Choose a flavor from each resource group; all of them are booked, or none."""
        assert self.queue.spec is not None
        flavors: dict[str, str] = {}
        verdicts: dict[Pair, Verdict] = {}
        tried: Tried = {}
        fits = True
        for group in self.queue.spec.spec.resource_groups:
            wanted = {r: requests[r] for r in group.covered_resources if r in requests}
            if not wanted:
                continue
            names = [flavor.name for flavor in group.flavors]
            found = self._scan(name, names, wanted, result.usage)
            if found is None:
                return False
            chosen, overall, by_resource, last = found
            fits = fits and overall.mode == "fit"
            for resource in wanted:
                flavors[resource], tried[name, resource] = chosen, last
                verdicts[chosen, resource] = by_resource[resource]
        if any(amount and resource not in flavors for resource, amount in requests.items()):
            return False
        for resource, flavor in flavors.items():
            pair = (flavor, resource)
            result.usage[pair] = result.usage.get(pair, 0) + requests[resource]
            result.level = max(result.level, verdicts[pair].level)
            if verdicts[pair].mode != "fit":
                result.needed.add(pair)
        if not fits:
            result.mode = "Preempt"
        result.tried.update(tried)
        result.pod_sets.append((name, count, flavors, requests))
        return True

    def _scan(
        self, pod_set: str, names: list[str], wanted: dict[str, int], assumed: dict[Pair, int]
    ) -> tuple[str, Verdict, dict[str, Verdict], int] | None:
        assert self.queue.spec is not None
        policy = self.queue.spec.spec.flavor_fungibility
        over = policy.preference == "PreemptionOverBorrowing"
        start = 0
        if self.memory is not None:
            start = self.memory.tried.get((pod_set, next(iter(wanted))), -1) + 1
        best: tuple[str, Verdict, dict[str, Verdict]] | None = None
        last = -1
        for index in range(start, len(names)):
            flavor = names[index]
            if not self._is_eligible(pod_set, flavor, wanted):
                continue
            by_resource = {r: self._test((flavor, r), assumed.get((flavor, r), 0) + v) for r, v in wanted.items()}
            overall = Verdict("fit", 0)
            for verdict in by_resource.values():
                if overall.beats(verdict, preemption_over_borrowing=over):
                    overall = verdict
            stops = overall.mode not in ("noFit", "noCandidates")
            stops = stops and (overall.mode == "fit" or policy.when_can_preempt != "TryNextFlavor")
            stops = stops and (overall.level == 0 or policy.when_can_borrow != "TryNextFlavor")
            better = overall.mode != "noFit" if best is None else overall.beats(best[1], preemption_over_borrowing=over)
            if stops or better:
                best = (flavor, overall, by_resource)
            if stops:
                last = index if index < len(names) - 1 else -1
                break
        return None if best is None else (*best, last)

    def _is_eligible(self, pod_set: str, flavor: str, wanted: dict[str, int]) -> bool:
        if self.pinned and self.pinned.get(pod_set, {}).get(next(iter(wanted))) != flavor:
            return False
        spec = self.snapshot.flavors.get(flavor)
        shape = next(shape for shape in self.workload.shape.pod_sets if shape.name == pod_set)
        return spec is not None and matches(spec, shape)

    def _test(self, pair: Pair, amount: int) -> Verdict:
        usage = self.snapshot.usage
        if amount > self.queue.potential(pair):
            return Verdict("noFit", 0)
        level, smaller = usage.level(self.queue, pair, amount)
        if amount <= max(0, usage.available(self.queue, pair)):
            return Verdict("fit", level)
        if not (self.queue.nominal.get(pair, 0) >= amount or smaller or self._may_preempt_while_borrowing()):
            return Verdict("noFit", level)
        victims = Search(self.snapshot, self.options, self.queue, self.workload, {pair: amount}, {pair}).find()
        if not victims:
            return Verdict("noCandidates", level)
        for victim in victims:
            self.snapshot.take_out(victim.reserved)
        level, _ = usage.level(self.queue, pair, amount)
        for victim in victims:
            self.snapshot.put_back(victim.reserved)
        own = any(victim.reserved.queue is self.queue for victim in victims)
        return Verdict("preempt" if own else "reclaim", level)

    def _may_preempt_while_borrowing(self) -> bool:
        assert self.queue.spec is not None
        preemption = self.queue.spec.spec.preemption
        if preemption is None:
            return False
        borrow = preemption.borrow_within_cohort
        if borrow is not None and borrow.policy != "Never":
            return True
        return self.options.fair_sharing and preemption.reclaim_within_cohort != "Never"
