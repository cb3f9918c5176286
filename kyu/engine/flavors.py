"""
Which flavor each pod set gets: does it fit, by borrowing, by preempting, or not at all, and why not.

Flavors of a resource group are tried in order. For each, every resource gives a verdict (an inner mode and how far up
the tree it borrows); the worst over the resources is the flavor's, the best over the flavors is taken, both by the same
preference. Whether preemption could help is found by asking for it, as if it were decided already.

Called by: nomination.py. Calls: quota.py, eligibility.py; preemption.py or
fair_preemption.py, through the state.
Kueue: pkg/scheduler/flavorassigner/flavorassigner.go, preemption_oracle.go
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from kyu.engine import eligibility, quota
from kyu.engine.asks import Ask, ScanMemory
from kyu.engine.preemption import Demand, Target
from kyu.engine.quota import Cell
from kyu.engine.reasons import (
    NO_FIT_SEVERITY,
    ExceedsQuota,
    FlavorReason,
    FlavorSkipped,
    InsufficientQuota,
    NoFitWord,
    PodSetReasons,
    ResourceNotCovered,
    SliceFlavorMismatch,
)
from kyu.engine.shapes import PodSetShape
from kyu.engine.state import State
from kyu.engine.topology_types import DomainUsage, Placement
from kyu.engine.tree import Flavor, Group, Queue
from kyu.engine.workload import Holding

PODS = "pods"


class Mode(IntEnum):
    """How well a workload fits."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2
    FIT = 3


class Inner(IntEnum):
    """How well one resource fits one flavor; finer than the mode, to choose between flavors."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4

    @property
    def mode(self) -> Mode:
        return Mode.FIT if self is Inner.FIT else Mode.NO_FIT if self is Inner.NO_FIT else Mode.PREEMPT


class Verdict(NamedTuple):
    """What one resource, or all resources of a group together, find in a flavor."""

    inner: Inner
    level: int


BEST = Verdict(Inner.FIT, 0)
WORST = Verdict(Inner.NO_FIT, 0)


def prefers(a: Verdict, b: Verdict, *, preemption_over_borrowing: bool) -> bool:
    """Whether the first is strictly better than the second."""
    if a.inner is Inner.NO_FIT:
        return False
    if b.inner is Inner.NO_FIT:
        return True
    if (a.inner is Inner.NO_CANDIDATES) != (b.inner is Inner.NO_CANDIDATES):
        return b.inner is Inner.NO_CANDIDATES
    if preemption_over_borrowing:
        return (-a.level, a.inner) > (-b.level, b.inner)
    return (a.inner, -a.level) > (b.inner, -b.level)


@dataclass(slots=True)
class Choice:
    """The flavor of one resource of a pod set."""

    flavor: str
    cell: Cell
    mode: Mode
    level: int


@dataclass(slots=True)
class PodSetAnswer:
    """What one pod set got, or why it got nothing."""

    shape: PodSetShape
    count: int
    requests: Mapping[str, int]
    choices: dict[str, Choice] = field(default_factory=dict)
    reasons: tuple[FlavorReason, ...] = ()
    last_tried: dict[str, int] = field(default_factory=dict)
    placement: Placement | None = None
    delayed: bool = False


@dataclass(slots=True)
class Assignment:
    """What a workload would get."""

    pod_sets: list[PodSetAnswer] = field(default_factory=list)
    mode: Mode = Mode.FIT
    word: NoFitWord = "NoMatchingFlavor"
    """Of an assignment that does not fit: what kind of reason that is."""
    usage: dict[Cell, int] = field(default_factory=dict)
    """Quota that it takes on top of what the workload, or the slice that it replaces, has."""
    topology: tuple[DomainUsage, ...] = ()
    """Room on nodes that it takes."""

    @property
    def level(self) -> int:
        return max((c.level for p in self.pod_sets for c in p.choices.values()), default=0)

    @property
    def reasons(self) -> tuple[PodSetReasons, ...]:
        return tuple(PodSetReasons(p.shape.name, p.reasons) for p in self.pod_sets if p.reasons)

    def pinned(self) -> dict[str, dict[str, str]]:
        """The flavors, by pod set and resource."""
        return {p.shape.name: {r: c.flavor for r, c in p.choices.items()} for p in self.pod_sets}

    def memory(self, cycle: int, queue: Queue, ask: Ask) -> ScanMemory:
        tried = tuple((p.shape.name, p.last_tried) for p in self.pod_sets if p.choices)
        return ScanMemory(tried, cycle, queue.generation, ask.shape, ask.priority)


class Scan(NamedTuple):
    """The outcome of trying the flavors of one resource group."""

    choices: dict[str, Choice] | None
    reasons: tuple[FlavorReason, ...]
    last_tried: int
    word: NoFitWord


class Oracle(NamedTuple):
    """The last answer to whether preemption would help."""

    cell: Cell
    amount: int
    targets: list[Target]

    def answers(self, demand: Demand) -> bool:
        """Whether the same was asked: then the victims are the same."""
        return demand.has_place is None and demand.amounts == {self.cell: self.amount}


@dataclass(slots=True)
class Assigner:
    """One workload and one queue; ``assign`` may be called for several sizes of the workload."""

    state: State
    queue: Queue
    ask: Ask
    replaced: Holding | None = None
    """The slice of the same job that this workload replaces."""
    pinned: Mapping[str, Mapping[str, str]] | None = None
    """Flavors to stay with, by pod set and resource."""
    memory: ScanMemory | None = None
    oracle: Oracle | None = None

    def assign(self, counts: Sequence[int]) -> Assignment:
        """Flavors for all pod sets, each seeing what the earlier ones would take."""
        result = Assignment()
        shapes = self.ask.shape.pod_sets
        for indices in self.ask.shape.groups:
            answers = [self._answer(shapes[i], counts[i]) for i in indices]
            failure = self._assign_group(answers, result)
            result.pod_sets += answers
            if failure is not None:
                result.mode = Mode.NO_FIT
                result.word = failure
                break
            if not self._book(answers, result):
                break
        result.pod_sets.sort(key=lambda answer: shapes.index(answer.shape))
        return result

    def _answer(self, shape: PodSetShape, count: int) -> PodSetAnswer:
        requests = shape.requests(count)
        if PODS in self.queue.group_by_resource:
            requests = {**requests, PODS: count}
        return PodSetAnswer(shape, count, requests)

    def _book(self, answers: Sequence[PodSetAnswer], result: Assignment) -> bool:
        """Add what the pod sets take; False where the walk over the pod sets ends early."""
        for answer in answers:
            for resource, choice in answer.choices.items():
                amount = answer.requests[resource] - self._replaced_usage(answer.shape.name, resource)
                result.usage[choice.cell] = result.usage.get(choice.cell, 0) + amount
                if answer.reasons:
                    # Where a flavor was taken as fitting there are none, even if one of its resources has to be
                    # preempted for: under PreemptionOverBorrowing that counts as better than one that borrows.
                    result.mode = min(result.mode, choice.mode)
            if answer.reasons and not answer.choices:
                # It asks for nothing, but belongs to others who have to preempt: Kueue finds no flavor for it.
                result.mode, result.word = Mode.NO_FIT, "WaitingForQuota"
        # A quirk that decisions depend on: pod sets after one whose requests are all uncounted are left out.
        return all(answer.choices or not answer.requests for answer in answers)

    def _assign_group(self, answers: Sequence[PodSetAnswer], result: Assignment) -> NoFitWord | None:
        """One flavor per resource for pod sets that stay together. The kind of failure, or None."""
        requests = _sum_requests(answers)
        choices: dict[str, Choice] = {}
        reasons: list[FlavorReason] = []
        last_tried: dict[str, int] = {}
        for resource in sorted(requests, key=_place_in_requests):
            if resource in choices:
                continue
            group = self.queue.group_by_resource.get(resource)
            if group is None:
                if requests[resource] == 0 or self.state.options.ignore_undeclared:
                    continue
                _refuse(answers, (ResourceNotCovered(resource),))
                return "NoMatchingFlavor"
            scan = self._scan(group, resource, requests, answers, result.usage)
            if scan.choices is None:
                # What was said about other resources does not matter any more.
                _refuse(answers, scan.reasons)
                return scan.word
            reasons += scan.reasons
            choices.update(scan.choices)
            last_tried.update(dict.fromkeys(scan.choices, scan.last_tried))
        for answer in answers:
            answer.reasons = tuple(reasons)
            own: Collection[str] = answer.requests
            if not own:
                # A pod set without requests, placed together with others, goes where they are.
                own = [r for r, choice in choices.items() if self.state.cluster.has_topology(choice.flavor)]
            answer.choices = {r: _copy(choices[r]) for r in own if r in choices}
            answer.last_tried = {r: last_tried[r] for r in answer.choices}
            if not answer.requests:
                answer.requests = dict.fromkeys(answer.choices, 0)
        return None

    def _scan(
        self,
        group: Group,
        resource: str,
        requests: Mapping[str, int],
        answers: Sequence[PodSetAnswer],
        assumed: Mapping[Cell, int],
    ) -> Scan:
        options = self.state.options
        over_borrowing = self.queue.spec.flavor_fungibility.preference == "PreemptionOverBorrowing"
        wanted = {name: amount for name, amount in requests.items() if name in group.resources}
        best, best_choices = WORST, None
        reasons: list[FlavorReason] = []
        word: NoFitWord | None = None
        index = start = self._start(answers[0].shape.name, resource)
        for index in range(start, len(group.flavors)):
            flavor = group.flavors[index]
            refusal = self._why_skipped(flavor, resource, answers)
            if refusal is not None:
                reasons.append(refusal)
                continue
            problem = self._why_not(group, flavor, answers)
            if problem is not None:
                reasons.append(problem)
                word = _least(word, "NoMatchingFlavor")
                continue
            verdict, choices, more, flavor_word = self._try(flavor, wanted, answers, assumed, over_borrowing)
            reasons += more
            word = _least(word, flavor_word)
            if self._is_better(verdict, best, over_borrowing):
                best, best_choices = verdict, choices
            if self._stops(verdict):
                # Worse flavors that were looked at on the way do not matter.
                best, best_choices = verdict, choices
                break
        last_tried = index if index < len(group.flavors) - 1 else -1
        if not options.flavor_fungibility:
            # Another quirk: without the gate it always looks as if flavors remained, so the workload keeps its turn.
            last_tried = 0
        if best.inner is Inner.FIT:
            reasons = []
        return Scan(best_choices, tuple(reasons), last_tried, word or "NoMatchingFlavor")

    def _start(self, pod_set: str, resource: str) -> int:
        if self.memory is None or not self.state.options.flavor_fungibility:
            return 0
        return self.memory.next_flavor(pod_set, resource)

    def _is_better(self, verdict: Verdict, best: Verdict, over_borrowing: bool) -> bool:
        if not self.state.options.flavor_fungibility:
            return verdict.inner > best.inner
        return prefers(verdict, best, preemption_over_borrowing=over_borrowing)

    def _stops(self, verdict: Verdict) -> bool:
        """Whether this flavor is good enough not to look at the next."""
        if not self.state.options.flavor_fungibility:
            return verdict.inner is Inner.FIT
        if verdict.inner in (Inner.NO_FIT, Inner.NO_CANDIDATES):
            return False
        policy = self.queue.spec.flavor_fungibility
        if verdict.inner is not Inner.FIT and policy.when_can_preempt == "TryNextFlavor":
            return False
        return verdict.level == 0 or policy.when_can_borrow != "TryNextFlavor"

    def _why_skipped(self, flavor: Flavor, resource: str, answers: Sequence[PodSetAnswer]) -> FlavorSkipped | None:
        if self.pinned:
            pinned = (self.pinned.get(answer.shape.name, {}).get(resource) for answer in answers)
            if flavor.name not in pinned:
                return FlavorSkipped(flavor.name, resource)
        allowed = self.ask.special.allowed_flavor
        if allowed and flavor.name not in allowed.split(","):
            return FlavorSkipped(flavor.name)
        return None

    def _why_not(self, group: Group, flavor: Flavor, answers: Sequence[PodSetAnswer]) -> FlavorReason | None:
        for answer in answers:
            problem = eligibility.why_not(self.state, self.queue, group, flavor, answer.shape)
            if problem is not None:
                return problem
        return None

    def _try(
        self,
        flavor: Flavor,
        wanted: Mapping[str, int],
        answers: Sequence[PodSetAnswer],
        assumed: Mapping[Cell, int],
        over_borrowing: bool,
    ) -> tuple[Verdict, dict[str, Choice], list[FlavorReason], NoFitWord]:
        """The verdict of all resources about one flavor: that of the worst."""
        worst = BEST
        choices: dict[str, Choice] = {}
        reasons: list[FlavorReason] = []
        word: NoFitWord = "TopologyPlacementFailed"
        for resource, amount in wanted.items():
            cell = flavor.cells[resource]
            mismatch = self._slice_mismatch(flavor, resource, answers)
            net = amount
            if mismatch is None:
                net -= sum(self._replaced_usage(a.shape.name, resource) for a in answers)
            verdict, reason = self._test(cell, assumed.get(cell, 0), net)
            if mismatch is not None:
                verdict, word = WORST, "NoMatchingFlavor"
                reasons.append(mismatch)
            if reason is not None:
                reasons.append(reason)
                word = _most(word, "ExceedsMaxQuota" if isinstance(reason, ExceedsQuota) else "WaitingForQuota")
            if prefers(worst, verdict, preemption_over_borrowing=over_borrowing):
                worst = verdict
            choices[resource] = Choice(flavor.name, cell, verdict.inner.mode, verdict.level)
        return worst, choices, reasons, word

    def _test(self, cell: Cell, considered: int, requested: int) -> tuple[Verdict, FlavorReason | None]:
        """Does this much fit here, might it after preemption, or can it never?"""
        amount = considered + requested
        flavor, resource = cell.key
        if amount > cell.potential:
            return WORST, ExceedsQuota(flavor, resource, considered, requested, cell.potential)
        level = quota.borrowing_level(cell, amount)
        free = max(0, quota.available(cell))
        if amount <= free:
            return Verdict(Inner.FIT, level.height), None
        reason = InsufficientQuota(flavor, resource, amount, free)
        policies = self.queue.policies
        if not (
            cell.nominal >= amount
            or level.inside
            or policies.may_preempt_while_borrowing(fair_sharing=self.state.options.fair_sharing)
        ):
            return Verdict(Inner.NO_FIT, level.height), reason
        return self._ask_oracle(cell, amount, level.height), reason

    def _ask_oracle(self, cell: Cell, amount: int, height: int) -> Verdict:
        """Would preemption help, for this resource alone?"""
        targets = self.state.find_targets(
            self.state,
            Demand(self.queue, self.ask, {cell: amount}, (cell.key,), head_start=self.state.options.head_start),
        )
        self.oracle = Oracle(cell, amount, targets)
        if not targets:
            return Verdict(Inner.NO_CANDIDATES, height)
        with quota.without([charge for target in targets for charge in target.holding.charges]):
            height = quota.borrowing_level(cell, amount).height
        if any(target.queue is self.queue for target in targets):
            return Verdict(Inner.PREEMPT, height)
        return Verdict(Inner.RECLAIM, height)

    def _slice_mismatch(
        self, flavor: Flavor, resource: str, answers: Sequence[PodSetAnswer]
    ) -> SliceFlavorMismatch | None:
        if self.replaced is None:
            return None
        flavors = {assigned.name: assigned.flavors for assigned in self.replaced.assigned}
        for answer in answers:
            had = flavors.get(answer.shape.name, {}).get(resource, "")
            if had != flavor.name:
                return SliceFlavorMismatch(flavor.name, had)
        return None

    def _replaced_usage(self, pod_set: str, resource: str) -> int:
        if self.replaced is None:
            return 0
        return next((a.usage.get(resource, 0) for a in self.replaced.assigned if a.name == pod_set), 0)


def _sum_requests(answers: Sequence[PodSetAnswer]) -> Mapping[str, int]:
    if len(answers) == 1:
        return answers[0].requests
    total: dict[str, int] = {}
    for answer in answers:
        for resource, amount in answer.requests.items():
            total[resource] = total.get(resource, 0) + amount
    return total


@cache
def _place_in_requests(resource: str) -> tuple[int, str]:
    """Kueue keeps requests in the order of a hash of their names (FNV-1a): of several that fail, the first is told."""
    value = 0xCBF29CE484222325
    for byte in resource.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value, resource


def _refuse(answers: Sequence[PodSetAnswer], reasons: tuple[FlavorReason, ...]) -> None:
    for answer in answers:
        answer.reasons = reasons


def _copy(choice: Choice) -> Choice:
    return Choice(choice.flavor, choice.cell, choice.mode, choice.level)


def _least(a: NoFitWord | None, b: NoFitWord) -> NoFitWord:
    return b if a is None else min(a, b, key=NO_FIT_SEVERITY.index)


def _most(a: NoFitWord, b: NoFitWord) -> NoFitWord:
    return max(a, b, key=NO_FIT_SEVERITY.index)
