"""
The smallest changes that would admit a pending workload, each tried by the scheduler itself.

For each kind of change the smallest one is searched: the engine runs with the change until nothing more is decided,
with all other pending workloads, and everything is undone (``trial.py``). A change is offered only if the workload
holds quota then. Where larger changes cannot do worse, the search halves the range, and first tries the amount that
the quota suggests.

Called by: cli/batch/why.py, cli/admin/decide.py. Calls: engine/what_if/trial.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd, inf
from typing import Final, Literal

from kyu.api import quantity
from kyu.api.meta import Key, Object
from kyu.api.queues import ClusterQueue, LocalQueue
from kyu.api.workloads import Workload
from kyu.engine.decisions import Admit, Preempt
from kyu.engine.flavors.compiled import Charge, find_compiled
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.quota.amounts import FlavorResource
from kyu.engine.reasons import NodeAffinityMismatch, UntoleratedTaint
from kyu.engine.state import State
from kyu.engine.tree import Queue
from kyu.engine.what_if import changes
from kyu.engine.what_if.changes import (
    Change,
    FewerPods,
    HigherPriority,
    Later,
    MoreQuota,
    OtherQueue,
    QuotaField,
    QuotaRaise,
    Resume,
    SmallerRequest,
)
from kyu.engine.what_if.trial import StateTrial

# The most trials of one answer. A trial costs about as much as a scheduling cycle.
MOST_TRIALS: Final = 1000
# Ranges up to this size are tried one by one, from the smallest change on.
TRIED_ONE_BY_ONE: Final = 16
# The same for raises of quota, which other workloads may take first, so that more quota is not always better.
QUOTA_STEPS: Final = 100
FEW_PENDING: Final = 500
MOST_PASSES: Final = 4
QUOTA_FIELDS: Final[tuple[QuotaField, ...]] = ("nominalQuota", "borrowingLimit")
MOST_QUEUES: Final = 20
MOST_FLAVORS: Final = 8
# The most ends of other workloads that are waited for.
MOST_ENDS: Final = 200
NO_END: Final[tuple[float, str, None]] = (inf, "", None)
HIGHEST_PRIORITY: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A change that would admit the workload, as the engine found by trying it."""

    change: Change
    admit: Admit
    """The admission that follows."""
    preempts: tuple[Preempt, ...] = ()
    """The preemptions that the workload needs for it."""


@dataclass(frozen=True, slots=True)
class Prospects:
    """The answer for a pending workload: its admission without a change, or the smallest changes."""

    admit: Admit | None
    """The admission that comes without a change: in its turn, or when preempted workloads have stopped."""
    preempts: tuple[Preempt, ...]
    counterfactuals: tuple[Counterfactual, ...]


@dataclass(slots=True)
class WhatIf:
    """The what-ifs of a pending workload, on a state that nothing else uses."""

    state: State
    objects: Sequence[Object]
    """The objects of the state; of Workloads, at least the pending one and those that are being evicted."""
    now: float
    _queues: dict[str, ClusterQueue] = field(init=False)
    _local_queues: dict[Key, LocalQueue] = field(init=False)
    _workloads: dict[Key, Workload] = field(init=False)
    _trials: int = 0

    def __post_init__(self) -> None:
        self._queues = {o.metadata.name: o for o in self.objects if isinstance(o, ClusterQueue)}
        self._local_queues = {o.key: o for o in self.objects if isinstance(o, LocalQueue)}
        self._workloads = {o.key: o for o in self.objects if isinstance(o, Workload)}

    def find(self, key: Key) -> Prospects:
        """Return what admits a workload without a change, or else the smallest changes that would."""
        StateTrial(self.state, self.now).stop_evicted(k for k, w in self._workloads.items() if not w.spec.active)
        pending = self.state.find_pending(key)
        if pending is None:
            return Prospects(None, (), ())
        with StateTrial(self.state, self.now) as unchanged:
            unchanged.run()
            if unchanged.holds_quota(key):
                admit = [found for found in unchanged.admitted if found.key == key][-1]
                return Prospects(admit, _own(unchanged, key), ())
        return Prospects(None, (), tuple(self._search(self._workloads[key], self.state.pending.workloads[key])))

    def _search(self, workload: Workload, pending: PendingWorkload) -> Iterator[Counterfactual]:
        queue = self.state.pending.find_queue(pending)
        if queue is None or not queue.active:
            yield from self._resumes(workload)
        yield from self._other_queues(workload)
        if queue is None or not queue.active:
            return
        yield from self._fewer_pods(workload, pending, queue)
        yield from self._smaller_requests(workload, pending, queue)
        yield from self._other_flavors(workload, pending, queue)
        yield from self._higher_priority(workload, pending, queue)
        yield from self._more_quota(workload, pending, queue)
        # The last, because a state does not forget that time went on: backoffs end, and past usage decays.
        yield from self._later(workload.key, queue)

    # Trials

    def _try(self, change: Change, new: Object, old: Object, key: Key) -> Counterfactual | None:
        """Return the admission that follows from a change; None if the workload still waits."""
        return self._try_step(change, key, lambda trial: trial.put(new, old))

    def _try_step(self, change: Change, key: Key, step: Callable[[StateTrial], None]) -> Counterfactual | None:
        self._trials += 1
        with StateTrial(self.state, self.now) as trial:
            step(trial)
            trial.run()
            if not trial.holds_quota(key):
                return None
            admit = [found for found in trial.admitted if found.key == key][-1]
            return Counterfactual(change, admit, _own(trial, key))

    def _smallest(
        self,
        low: int,
        high: int,
        attempt: Callable[[int], Counterfactual | None],
        guesses: Iterable[int] = (),
        one_by_one: int = TRIED_ONE_BY_ONE,
    ) -> Counterfactual | None:
        """Return the outcome of the smallest number that works, if larger numbers work, too."""
        if low > high:
            return None
        if high - low < one_by_one:
            return next((found for n in range(low, high + 1) if (found := attempt(n)) is not None), None)
        best = attempt(high)
        if best is None:
            return None
        # A guess and the number below it settle the search, if the guess is right.
        waiting = [n for guess in sorted(set(guesses)) for n in (guess, guess - 1) if low <= n < high]
        while low < high and self._trials < MOST_TRIALS:
            middle = waiting.pop(0) if waiting else (low + high) // 2
            if low <= middle < high:
                found = attempt(middle)
                low, high, best = (middle + 1, high, best) if found is None else (low, middle, found)
        return best if low == high else None

    # Kinds of changes

    def _resumes(self, workload: Workload) -> Iterator[Counterfactual]:
        local = self._local_queues.get(Key(workload.metadata.namespace, workload.spec.queue_name))
        if local is None:
            return
        stopped: list[tuple[Literal["LocalQueue", "ClusterQueue"], ClusterQueue | LocalQueue]] = [("LocalQueue", local)]
        if (queue := self._queues.get(local.spec.cluster_queue)) is not None:
            stopped.append(("ClusterQueue", queue))
        for kind, obj in stopped:
            if obj.spec.stop_policy != "None":
                change = Resume(kind, obj.metadata.name)
                found = self._try(change, changes.resumed(obj), obj, workload.key)
                if found is not None:
                    yield found

    def _other_queues(self, workload: Workload) -> Iterator[Counterfactual]:
        namespace, own = workload.metadata.namespace, workload.spec.queue_name
        others = sorted(key for key in self._local_queues if key.namespace == namespace and key.name != own)
        for key in others[:MOST_QUEUES]:
            change = OtherQueue(key.name, self._local_queues[key].spec.cluster_queue)
            found = self._try(change, changes.with_queue(workload, key), workload, workload.key)
            if found is not None:
                yield found

    def _fewer_pods(self, workload: Workload, pending: PendingWorkload, queue: Queue) -> Iterator[Counterfactual]:
        ways = self._ways(pending, queue)
        for pod_set, shape in zip(workload.spec.pod_sets, pending.shape.pod_sets, strict=True):
            count, name = pod_set.count, pod_set.name

            def attempt(less: int, name: str = name, count: int = count) -> Counterfactual | None:
                change = FewerPods(name, count, count - less)
                return self._try(change, changes.with_count(workload, name, count - less), workload, workload.key)

            guesses = [
                max(-(-(amount - quota.available()) // shape.per_pod[quota.key.resource]) for quota, amount in short)
                for way in ways
                if (short := [(q, a) for q, a in way if not q.fits(a) and shape.per_pod.get(q.key.resource)])
            ]
            found = self._smallest(1, count - 1, attempt, guesses)
            if found is not None:
                yield found

    def _smaller_requests(self, workload: Workload, pending: PendingWorkload, queue: Queue) -> Iterator[Counterfactual]:
        ways = self._ways(pending, queue)
        for pod_set, shape in zip(workload.spec.pod_sets, pending.shape.pod_sets, strict=True):
            for resource, total in shape.per_pod.items():
                found = changes.main_container(pod_set.template.spec, resource)
                if found is None or not shape.count:
                    continue

                def attempt(
                    less: int, name: str = pod_set.name, resource: str = resource, total: int = total
                ) -> Counterfactual | None:
                    change = SmallerRequest(name, resource, total, total - less)
                    new = changes.with_request(workload, name, resource, less)
                    return self._try(change, new, workload, workload.key)

                guesses = [
                    -(-(amount - quota.available()) // shape.count)
                    for way in ways
                    for quota, amount in way
                    if quota.key.resource == resource and not quota.fits(amount)
                ]
                smallest = self._smallest(1, found[1] - 1, attempt, guesses)
                if smallest is not None:
                    yield smallest

    def _other_flavors(self, workload: Workload, pending: PendingWorkload, queue: Queue) -> Iterator[Counterfactual]:
        compiled = find_compiled(self.state, queue, pending.shape, None, pending.rare.allowed_flavor)
        rejected = [
            reason.flavor
            for sets in compiled.together
            for group in sets.groups
            for _, reason in group.rejected
            if isinstance(reason, UntoleratedTaint | NodeAffinityMismatch)
        ]
        for name in list(dict.fromkeys(rejected))[:MOST_FLAVORS]:
            new, change = changes.with_flavor(workload, name, self.state.cluster.flavors[name])
            found = self._try(change, new, workload, workload.key)
            if found is not None and any(name in pod_set.flavors.values() for pod_set in found.admit.pod_sets):
                yield found

    def _higher_priority(self, workload: Workload, pending: PendingWorkload, queue: Queue) -> Iterator[Counterfactual]:
        spec, current = workload.spec.priority or 0, pending.priority
        boost = current - spec
        known: set[int] = set()
        for member in self.state.hierarchy.members(self.state.hierarchy.find_root(queue)):
            known.update(reserved.priority for _, reserved in member.reserved_workloads)
            known.update(place[3].first.priority for place in member.pending.places if place[3].first is not None)
        # Only the order of priorities decides, so other numbers make no difference.
        candidates = sorted({p for k in known for p in (k, k + 1) if current < p <= HIGHEST_PRIORITY + boost})
        candidates = candidates or [current + 1]

        def attempt(index: int) -> Counterfactual | None:
            priority = candidates[index] - boost
            change = HigherPriority(spec, priority)
            return self._try(change, changes.with_priority(workload, priority), workload, workload.key)

        found = self._smallest(0, len(candidates) - 1, attempt)
        if found is not None:
            yield found

    def _more_quota(self, workload: Workload, pending: PendingWorkload, queue: Queue) -> Iterator[Counterfactual]:
        obj = self._queues.get(queue.name)
        if obj is None:
            return
        for way in self._ways(pending, queue)[:MOST_FLAVORS]:
            if self.state.pending_count() > FEW_PENDING:
                found = self._raise_by_missing(obj, way, workload)
                if found is not None:
                    yield found
                continue
            for name in QUOTA_FIELDS:
                found = self._raise_quota(obj, name, way, workload)
                if found is not None:
                    yield found

    def _raise_quota(
        self, obj: ClusterQueue, name: QuotaField, way: Sequence[Charge], workload: Workload
    ) -> Counterfactual | None:
        """Raise each quota of a combination of flavors as little as possible."""
        limits = [(q, q.nominal if name == "nominalQuota" else q.borrowing_limit, a) for q, a in way if a > 0]
        before = {q.key: limit for q, limit, _ in limits if limit is not None and limit < quantity.UNLIMITED}
        missing = {q.key: max(0, amount - q.available()) for q, _, amount in limits}
        amounts = {key: self._amounts(key) for key in before}
        unit = {key: gcd(*found, before[key]) or 1 for key, found in amounts.items()}
        most = {key: sum(found) + missing[key] for key, found in amounts.items()}
        raised = {key: most[key] // unit[key] * unit[key] for key in before}
        best = self._try_raise(obj, name, before, raised, workload)
        for _ in range(MOST_PASSES):
            if best is None:
                return None
            known = dict(raised)
            for key in before:

                def attempt(
                    units: int, key: FlavorResource = key, known: Mapping[FlavorResource, int] = known
                ) -> Counterfactual | None:
                    wanted = {**known, key: units * unit[key]}
                    return self._try_raise(obj, name, before, wanted, workload)

                guesses = (0, -(-missing[key] // unit[key]))
                found = self._smallest(0, known[key] // unit[key], attempt, guesses, one_by_one=QUOTA_STEPS)
                if found is None:
                    return None
                best, after = found, {r.key: r.after for r in _raises(found)}
                known[key] = after.get(key, before[key]) - before[key]
            if known == raised:
                break
            raised = known
        return best

    def _raise_by_missing(self, obj: ClusterQueue, way: Sequence[Charge], workload: Workload) -> Counterfactual | None:
        """Raise quotas by what is missing, if no workload takes it before. With many pending, nothing else is tried."""
        raised = {quota.key: amount - quota.available() for quota, amount in way if not quota.fits(amount)}
        before = {quota.key: quota.nominal for quota, _ in way if quota.key in raised}
        if not raised:
            return None
        raises = tuple(QuotaRaise(key, before[key], before[key] + amount) for key, amount in raised.items())
        change = MoreQuota(obj.metadata.name, "nominalQuota", raises)
        return self._try_step(change, workload.key, lambda trial: trial.grow(obj.metadata.name, raised))

    def _amounts(self, key: FlavorResource) -> list[int]:
        """Return all amounts of a resource that decisions may add up. A raise between two sums changes nothing."""
        found = [
            amount * count
            for workload in self.state.pending.workloads.values()
            for pod_set in workload.shape.pod_sets
            if (amount := pod_set.per_pod.get(key.resource, 0)) and (count := pod_set.count)
        ]
        found += [amount for r in self.state.reserved.by_key.values() for q, amount in r.charges if q.key == key]
        nodes = [*self.state.queues.values(), *self.state.hierarchy.cohorts.values()]
        quotas = [quota for node in nodes if (quota := node.quotas.get(key)) is not None]
        limits = [limit for q in quotas for limit in (q.nominal, q.borrowing_limit, q.lending_limit)]
        return [*found, *(limit for limit in limits if limit is not None and limit < quantity.UNLIMITED)]

    def _try_raise(
        self,
        obj: ClusterQueue,
        name: QuotaField,
        before: Mapping[FlavorResource, int],
        raised: Mapping[FlavorResource, int],
        workload: Workload,
    ) -> Counterfactual | None:
        after = {key: before[key] + amount for key, amount in raised.items() if amount}
        if not after:
            return None
        raises = tuple(QuotaRaise(key, before[key], amount) for key, amount in after.items())
        change = MoreQuota(obj.metadata.name, name, raises)
        return self._try(change, changes.with_quota(obj, name, after), obj, workload.key)

    def _later(self, key: Key, queue: Queue) -> Iterator[Counterfactual]:
        """Let the workloads of the tree reach their maximum execution times, in order, until this one is admitted."""
        members = self.state.hierarchy.members(self.state.hierarchy.find_root(queue))
        with StateTrial(self.state, self.now) as trial:
            trial.run()
            for ended in range(1, MOST_ENDS + 1):
                end, _, reserved = min((ends[0] for q in members if (ends := q.expected_ends())), default=NO_END)
                if reserved is None or end == inf:
                    return
                trial.now = max(trial.now, end)
                trial.end(reserved)
                trial.run()
                if trial.holds_quota(key):
                    admit = [found for found in trial.admitted if found.key == key][-1]
                    yield Counterfactual(Later(trial.now, ended), admit, _own(trial, key))
                    return

    def _ways(self, pending: PendingWorkload, queue: Queue) -> list[tuple[Charge, ...]]:
        """Return the charges of each combination of flavors that suits the workload."""
        compiled = find_compiled(self.state, queue, pending.shape, None, pending.rare.allowed_flavor)
        return list(compiled.ways or ())


def _raises(found: Counterfactual) -> tuple[QuotaRaise, ...]:
    return found.change.raises if isinstance(found.change, MoreQuota) else ()


def _own(trial: StateTrial, key: Key) -> tuple[Preempt, ...]:
    return tuple(found for found in trial.preempted if found.preemptor == key)
