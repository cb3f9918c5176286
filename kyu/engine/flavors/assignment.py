"""
The flavor assignment of one workload: does it fit, by borrowing, by preemption, or not at all.

The flavors of a resource group are tried in order. For each flavor, every resource gives a verdict: a granular mode and
a borrowing level. The verdict of the flavor is that of its worst resource. The best flavor is taken, by the same
preference. To find out whether preemption could help, the search for targets runs as if it were decided.

``Assigner`` computes only the mode and the borrowing level. Reasons and the flavors of each pod set are made from the
recorded choices when they are asked for.

Called by: engine/nominate.py. Calls: engine/flavors/compiled.py, engine/quota/amounts.py; through the state
engine/preemption/classical.py or engine/preemption/fair.py.
Kueue: pkg/scheduler/flavorassigner/flavorassigner.go, preemption_oracle.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from kyu.engine.flavors.compiled import (
    Charge,
    CompiledAssignment,
    CompiledGroup,
    CompiledPodSet,
    FlavorOption,
    Pinned,
    PodSetsTogether,
)
from kyu.engine.preemption.candidates import Demand, PreemptionTarget
from kyu.engine.queueing.pending_workload import PendingWorkload, ScanMemory
from kyu.engine.quota import amounts
from kyu.engine.quota.amounts import FlavorResource, QuotaNode
from kyu.engine.reasons import (
    NO_FIT_SEVERITY,
    ExceedsQuota,
    FlavorReason,
    FlavorSkipped,
    InsufficientQuota,
    NoFitWord,
    PodSetReasons,
    ResourceNotCovered,
)
from kyu.engine.state import State
from kyu.engine.topology.types import DomainUsage, Placement
from kyu.engine.tree import Queue
from kyu.engine.workloads import AssignedPodSet


class Mode(IntEnum):
    """How well a workload fits."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2
    FIT = 3


# The granular mode of one resource in one flavor, from the worst to the best.
NO_FIT: Final = 0
NO_CANDIDATES: Final = 1
PREEMPT: Final = 2
RECLAIM: Final = 3
FIT: Final = 4
# In place of the free quota of a shortage: the amount exceeds the most that the ClusterQueue could ever use.
EXCEEDS: Final = -1


def is_preferred(inner: int, level: int, other: int, other_level: int, *, preemption_over_borrowing: bool) -> bool:
    """Return whether the first granular mode and borrowing level are strictly better than the second."""
    if inner == NO_FIT:
        return False
    if other == NO_FIT:
        return True
    if (inner == NO_CANDIDATES) != (other == NO_CANDIDATES):
        return other == NO_CANDIDATES
    if preemption_over_borrowing:
        return (-level, inner) > (-other_level, other)
    return (inner, -level) > (other, -other_level)


class Shortage(NamedTuple):
    """A quota node that does not have what a flavor would charge to it."""

    quota: QuotaNode
    considered: int
    """Quota that earlier pod sets of the workload would take."""
    requested: int
    free: int


class Attempt:
    """One flavor that was tried."""

    __slots__ = ("inner", "level", "modes", "option", "shortages", "top_level")

    def __init__(self, option: FlavorOption) -> None:
        self.option = option
        self.inner: int = FIT
        self.level = 0
        """The borrowing level of the worst resource, by which flavors are compared."""
        self.top_level = 0
        """The highest borrowing level of a resource."""
        self.modes: list[Mode] | None = None
        """By resource; None if all resources fit."""
        self.shortages: list[Shortage] = []


class GroupChoice:
    """The flavor that was chosen from a resource group, and what the scan found on its way."""

    __slots__ = ("attempts", "best", "group", "last_tried", "start", "stop")

    def __init__(self, group: CompiledGroup, start: int) -> None:
        self.group = group
        self.start = start
        """The first flavor that was tried."""
        self.stop = group.flavors
        """The flavor after the last one that was tried."""
        self.best: Attempt | None = None
        """The chosen flavor; None if no flavor fits."""
        self.attempts: list[Attempt] = []
        self.last_tried = -1
        """The last flavor that was tried; -1 if it was the last of the group."""

    def reasons(self) -> Iterator[FlavorReason]:
        """Yield why flavors were not taken; nothing if the chosen flavor fits."""
        if self.best is not None and self.best.inner == FIT:
            return
        found: list[tuple[int, FlavorReason]] = [r for r in self.group.rejected if self.start <= r[0] < self.stop]
        for attempt in self.attempts:
            index = attempt.option.index
            found += [(index, mismatch) for mismatch in attempt.option.mismatches]
            found += [(index, _reason_of(shortage)) for shortage in attempt.shortages]
        found.sort(key=_index)
        yield from (reason for _, reason in found)

    def word(self) -> NoFitWord:
        """Return the least severe word over the flavors that were tried."""
        words: list[NoFitWord] = [
            "NoMatchingFlavor"
            for index, reason in self.group.rejected
            if self.start <= index < self.stop and not isinstance(reason, FlavorSkipped)
        ]
        words += [_word_of(attempt) for attempt in self.attempts]
        return min(words, key=NO_FIT_SEVERITY.index, default="NoMatchingFlavor")


def _index(entry: tuple[int, FlavorReason]) -> int:
    return entry[0]


def _pod_set_index(entry: tuple[CompiledPodSet, tuple[GroupChoice, ...]]) -> int:
    return entry[0].index


def _reason_of(shortage: Shortage) -> FlavorReason:
    quota, considered, requested, free = shortage
    if free == EXCEEDS:
        return ExceedsQuota(*quota.key, considered, requested, quota.potential)
    return InsufficientQuota(*quota.key, considered + requested, free)


def _word_of(attempt: Attempt) -> NoFitWord:
    if attempt.option.mismatches:
        return "NoMatchingFlavor"
    if any(shortage.free == EXCEEDS for shortage in attempt.shortages):
        return "ExceedsMaxQuota"
    return "WaitingForQuota" if attempt.shortages else "TopologyPlacementFailed"


@dataclass(slots=True)
class Assignment:
    """The flavors that a workload would get."""

    compiled: CompiledAssignment
    mode: Mode = Mode.FIT
    level: int = 0
    """The highest borrowing level over all resources."""
    usage: dict[QuotaNode, int] = field(default_factory=dict)
    """Quota that the workload takes, beyond what it or the slice that it replaces has."""
    choices: list[tuple[GroupChoice, ...]] = field(default_factory=list)
    """For the pod sets that got flavors, in the order of the compiled assignment."""
    failure: GroupChoice | ResourceNotCovered | None = None
    """The reason why the next pod sets got none."""
    failure_word: NoFitWord | None = None
    """The word of a failure that is not a missing flavor."""
    placements: dict[str, Placement] = field(default_factory=dict)
    delayed: set[str] = field(default_factory=set)
    """Pod sets whose placement is chosen after the admission checks."""
    placement_reasons: dict[str, tuple[FlavorReason, ...]] = field(default_factory=dict)
    topology: tuple[DomainUsage, ...] = ()
    """Room on nodes that the workload takes."""

    @property
    def word(self) -> NoFitWord:
        """The kind of failure of an assignment that does not fit."""
        if self.failure_word is not None:
            return self.failure_word
        return self.failure.word() if isinstance(self.failure, GroupChoice) else "NoMatchingFlavor"

    @property
    def is_scan_pending(self) -> bool:
        """Some flavors were not tried yet."""
        return any(choice.last_tried != -1 for chosen in self.choices for choice in chosen)

    def pod_sets(self) -> list[tuple[CompiledPodSet, tuple[GroupChoice, ...]]]:
        """Return the pod sets that were tried, with their choices, in the order of the workload."""
        found = [
            (pod_set, chosen)
            for sets, chosen in zip(self.compiled.together, self.choices, strict=False)
            for pod_set in sets.pod_sets
        ]
        if self.failure is not None:
            found += [(pod_set, ()) for pod_set in self.compiled.together[len(self.choices)].pod_sets]
        if len(found) > 1:
            found.sort(key=_pod_set_index)
        return found

    def flavors(self, state: State, pod_set: CompiledPodSet, chosen: tuple[GroupChoice, ...]) -> dict[str, str]:
        """Return the flavors of a pod set by resource. A pod set without requests goes where the others are placed."""
        found: dict[str, str] = {}
        for choice in chosen:
            if choice.best is not None:
                flavor = choice.best.option.flavor
                for resource in choice.group.resources:
                    if resource in pod_set.requests or (not pod_set.requests and state.cluster.has_topology(flavor)):
                        found[resource] = flavor
        return found

    @property
    def reasons(self) -> tuple[PodSetReasons, ...]:
        """Why flavors were not taken, by pod set."""
        found: list[PodSetReasons] = []
        for pod_set, chosen in self.pod_sets():
            reasons = [reason for choice in chosen for reason in choice.reasons()]
            if not chosen and isinstance(self.failure, GroupChoice):
                reasons += self.failure.reasons()
            elif not chosen and isinstance(self.failure, ResourceNotCovered):
                reasons.append(self.failure)
            reasons += self.placement_reasons.get(pod_set.shape.name, ())
            if reasons:
                found.append(PodSetReasons(pod_set.shape.name, tuple(reasons)))
        return tuple(found)

    def needed(self) -> tuple[FlavorResource, ...]:
        """Return the flavors and resources for which others may be preempted."""
        found: dict[FlavorResource, None] = {}
        for chosen in self.choices:
            for choice in chosen:
                if choice.best is not None and choice.best.modes is not None:
                    for (quota, _), mode in zip(choice.best.option.charges, choice.best.modes, strict=True):
                        if mode == Mode.PREEMPT:
                            found[quota.key] = None
        return tuple(found)

    def pinned(self, state: State) -> Pinned:
        """Return the flavors by pod set and resource."""
        return {p.shape.name: self.flavors(state, p, chosen) for p, chosen in self.pod_sets()}

    def assigned(self, state: State) -> tuple[tuple[AssignedPodSet, ...], tuple[Charge, ...]]:
        """Return what each pod set gets, and the charges. Equal assignments of a request shape are one object."""
        options = tuple([c.best.option for chosen in self.choices for c in chosen if c.best is not None])
        is_plain = not (self.placements or self.delayed)
        found = self.compiled.assigned.get(options) if is_plain else None
        if found is None:
            found = self._make_assigned(state)
            if is_plain:
                self.compiled.assigned[options] = found
        return found

    def _make_assigned(self, state: State) -> tuple[tuple[AssignedPodSet, ...], tuple[Charge, ...]]:
        pod_sets: list[AssignedPodSet] = []
        for pod_set, chosen in self.pod_sets():
            name, flavors = pod_set.shape.name, self.flavors(state, pod_set, chosen)
            usage = {resource: pod_set.requests.get(resource, 0) for resource in flavors}
            placement = self.placements.get(name)
            pod_sets.append(AssignedPodSet(name, pod_set.count, flavors, usage, placement, name in self.delayed))
        return tuple(pod_sets), tuple(self.usage.items())

    def memory(self, state: State, queue: Queue, workload: PendingWorkload) -> ScanMemory:
        """Return where the scans of flavors have stopped."""
        tried: list[tuple[str, Mapping[str, int]]] = []
        for pod_set, chosen in self.pod_sets():
            flavors = self.flavors(state, pod_set, chosen)
            if flavors:
                last = {r: c.last_tried for c in chosen for r in c.group.resources if r in flavors}
                tried.append((pod_set.shape.name, last))
        return ScanMemory(tuple(tried), state.cycles, queue.generation, workload.shape, workload.priority)


class Oracle(NamedTuple):
    """The last answer to whether preemption would help."""

    quota: QuotaNode
    amount: int
    targets: list[PreemptionTarget]

    def answers(self, demand: Demand) -> bool:
        """Return whether the demand is the one that was asked about, so that its targets are the same."""
        return demand.has_place is None and demand.amounts == {self.quota: self.amount}


@dataclass(slots=True)
class Assigner:
    """The flavor scan of one workload in one ClusterQueue; ``assign`` may be called for several numbers of pods."""

    state: State
    queue: Queue
    workload: PendingWorkload
    memory: ScanMemory | None = None
    oracle: Oracle | None = None
    _over_borrowing: bool = False

    def __post_init__(self) -> None:
        self._over_borrowing = self.queue.spec.flavor_fungibility.preference == "PreemptionOverBorrowing"

    def assign(self, compiled: CompiledAssignment) -> Assignment:
        """Choose flavors for all pod sets. Each pod set sees what the earlier ones would take."""
        result = Assignment(compiled)
        for sets in compiled.together:
            chosen: list[GroupChoice] = []
            for group in sets.groups:
                choice = self._scan(sets, group, result.usage)
                if choice.best is None:
                    result.mode, result.failure = Mode.NO_FIT, choice
                    return result
                chosen.append(choice)
            if sets.uncovered is not None:
                result.mode, result.failure = Mode.NO_FIT, sets.uncovered
                return result
            self._book(result, sets, tuple(chosen))
            if sets.is_last:
                break
        return result

    def _book(self, result: Assignment, sets: PodSetsTogether, chosen: tuple[GroupChoice, ...]) -> None:
        """Add what pod sets take to the usage of the assignment."""
        result.choices.append(chosen)
        usage, fits = result.usage, True
        for choice in chosen:
            best = choice.best
            assert best is not None
            for quota, amount in best.option.charges:
                usage[quota] = usage.get(quota, 0) + amount
            if best.top_level > result.level:
                result.level = best.top_level
            fits = fits and best.inner == FIT
        if fits:
            # A flavor that was taken as fitting leaves the mode, even if one of its resources needs preemption: under
            # PreemptionOverBorrowing that counts as better than a flavor that borrows.
            return
        for choice in chosen:
            if choice.best is not None and choice.best.modes is not None:
                result.mode = min(result.mode, *choice.best.modes)
        if sets.bare and not all(self._has_flavor(pod_set, result, chosen) for pod_set in sets.pod_sets):
            # Kueue finds no flavor for a pod set without requests that shares flavors with a preempting pod set.
            result.mode, result.failure_word = Mode.NO_FIT, "WaitingForQuota"

    def _has_flavor(self, pod_set: CompiledPodSet, result: Assignment, chosen: tuple[GroupChoice, ...]) -> bool:
        return bool(result.flavors(self.state, pod_set, chosen))

    def _scan(self, sets: PodSetsTogether, group: CompiledGroup, assumed: Mapping[QuotaNode, int]) -> GroupChoice:
        """Try the flavors of a resource group in order."""
        fungible = self.state.options.flavor_fungibility
        start = 0
        if self.memory is not None and fungible:
            start = self.memory.next_flavor(sets.pod_sets[0].shape.name, group.resource)
        choice = GroupChoice(group, start)
        best: Attempt | None = None
        for option in group.options:
            if option.index < start:
                continue
            attempt = self._try(option, assumed)
            if attempt.shortages or option.mismatches:
                choice.attempts.append(attempt)
            if self._stops(attempt):
                # Worse flavors that were tried on the way do not matter.
                best = attempt
                choice.stop = option.index + 1
                if choice.stop < group.flavors:
                    choice.last_tried = option.index
                break
            if self._is_better(attempt, best):
                best = attempt
        choice.best = best
        if not fungible:
            # Without the gate, Kueue always finds flavors left to try, so the workload is requeued at once.
            choice.last_tried = 0
        return choice

    def _is_better(self, attempt: Attempt, best: Attempt | None) -> bool:
        if best is None:
            return attempt.inner != NO_FIT
        if not self.state.options.flavor_fungibility:
            return attempt.inner > best.inner
        return is_preferred(
            attempt.inner, attempt.level, best.inner, best.level, preemption_over_borrowing=self._over_borrowing
        )

    def _stops(self, attempt: Attempt) -> bool:
        """Return whether the flavor is good enough not to try the next."""
        inner = attempt.inner
        if not self.state.options.flavor_fungibility:
            return inner == FIT
        if inner <= NO_CANDIDATES:
            return False
        policy = self.queue.spec.flavor_fungibility
        if inner != FIT and policy.when_can_preempt == "TryNextFlavor":
            return False
        return attempt.level == 0 or policy.when_can_borrow != "TryNextFlavor"

    def _try(self, option: FlavorOption, assumed: Mapping[QuotaNode, int]) -> Attempt:
        """Return the verdict about one flavor, which is that of its worst resource."""
        attempt = Attempt(option)
        top, short = 0, False
        for quota, amount in option.charges:
            if assumed:
                amount += assumed.get(quota, 0)
            level = quota.fit_level(amount)
            if level < 0:
                short = True
                break
            if level > top:
                top = level
        attempt.level = attempt.top_level = top
        if short or option.mismatches:
            self._try_preemption(attempt, assumed)
        return attempt

    def _try_preemption(self, attempt: Attempt, assumed: Mapping[QuotaNode, int]) -> None:
        """Find the verdict about a flavor that lacks some resource."""
        verdicts: list[tuple[int, int]] = []
        for quota, requested in attempt.option.charges:
            considered = assumed.get(quota, 0)
            verdicts.append(self._test(quota, considered, requested, attempt.shortages))
        if attempt.option.mismatches or (NO_FIT, 0) in verdicts:
            attempt.inner, attempt.level = NO_FIT, 0
            return
        self._ask_oracle(attempt, assumed, verdicts)
        worst, worst_level = FIT, 0
        for inner, level in verdicts:
            if is_preferred(worst, worst_level, inner, level, preemption_over_borrowing=self._over_borrowing):
                worst, worst_level = inner, level
        attempt.inner, attempt.level = worst, worst_level
        attempt.top_level = max([level for _, level in verdicts])
        attempt.modes = [Mode.FIT if inner == FIT else Mode.PREEMPT for inner, _ in verdicts]

    def _test(self, quota: QuotaNode, considered: int, requested: int, shortages: list[Shortage]) -> tuple[int, int]:
        """Return whether an amount fits, may fit after preemption (PREEMPT), or cannot fit, and the borrowing level."""
        amount = considered + requested
        if amount > quota.potential:
            shortages.append(Shortage(quota, considered, requested, EXCEEDS))
            return NO_FIT, 0
        level = quota.borrowing_level(amount)
        free = max(0, quota.available())
        if amount <= free:
            return FIT, level.height
        shortages.append(Shortage(quota, considered, requested, free))
        if quota.nominal >= amount or level.inside:
            return PREEMPT, level.height
        fair_sharing = self.state.options.fair_sharing
        if self.queue.policies.may_preempt_while_borrowing(fair_sharing=fair_sharing):
            return PREEMPT, level.height
        return NO_FIT, 0

    def _ask_oracle(self, attempt: Attempt, assumed: Mapping[QuotaNode, int], verdicts: list[tuple[int, int]]) -> None:
        """Replace each verdict PREEMPT by what the search for targets finds, for this resource alone."""
        obtainable, priority = self.queue.pending.obtainable, self.workload.priority
        asked: list[tuple[int, QuotaNode, int]] = []
        hopeless_level = -1
        for index, (quota, requested) in enumerate(attempt.option.charges):
            inner, level = verdicts[index]
            if inner == PREEMPT:
                amount = assumed.get(quota, 0) + requested
                if amount > obtainable(quota, priority):
                    verdicts[index] = NO_CANDIDATES, level
                    hopeless_level = max(hopeless_level, level)
                else:
                    asked.append((index, quota, amount))
        for index, quota, amount in asked:
            level = verdicts[index][1]
            # A resource without candidates decides the verdict. Targets of another resource only lower its level.
            verdicts[index] = (
                (NO_CANDIDATES, level) if level <= hopeless_level else self._find_verdict(quota, amount, level)
            )

    def _find_verdict(self, quota: QuotaNode, amount: int, level: int) -> tuple[int, int]:
        state = self.state
        demand = Demand(self.queue, self.workload, {quota: amount}, (quota.key,), head_start=state.options.head_start)
        targets = state.search_targets(state.reserved, demand)
        self.oracle = Oracle(quota, amount, targets)
        if not targets:
            return NO_CANDIDATES, level
        with amounts.without([charge for target in targets for charge in target.reserved.charges]):
            level = quota.borrowing_level(amount).height
        return (PREEMPT if any(target.queue is self.queue for target in targets) else RECLAIM), level
