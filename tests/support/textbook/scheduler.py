"""The cycles of the textbook scheduler: heads, nomination, order, processing, requeueing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kyu.api.core import Namespace
from kyu.api.meta import Key, Kind, Object
from kyu.api.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from kyu.api.workloads import Workload
from kyu.engine import workloads
from kyu.engine.decisions import Admit, Cycle, Decision, Preempt
from kyu.engine.options import Options
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.request_shape import RequestShapes
from kyu.engine.workloads import AssignedPodSet
from tests.support.textbook.flavors import Assigner, Assignment
from tests.support.textbook.preemption import Search, Victim
from tests.support.textbook.quota import Node, Pair, read_cohort
from tests.support.textbook.world import Line, Memory, Reserved, Snapshot, World


@dataclass
class Entry:
    """A head in a cycle."""

    queue: Node
    workload: PendingWorkload
    assignment: Assignment
    victims: list[Victim] = field(default_factory=list)

    @property
    def works(self) -> bool:
        return self.assignment.mode == "Fit" or (self.assignment.mode == "Preempt" and bool(self.victims))


class Textbook:
    """All objects, and the cycles over them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.world = World()
        self.lines: dict[str, Line] = {}
        self.cycles = 0
        self._shapes = RequestShapes(options)
        self._queue_by_local: dict[Key, str] = {}
        self._pending: dict[Key, PendingWorkload] = {}
        self._changed = True

    # Objects

    def put(self, obj: Object) -> None:
        self._changed = True
        match obj:
            case Workload():
                workload = workloads.make_pending(obj, self._shapes.find(obj), self.options)
                self._pending[obj.key] = workload
                self._line(workload).push(workload)
            case ClusterQueue():
                node = self._node("queue", obj.metadata.name)
                node.spec = obj
                node.read(obj.spec.resource_groups)
                self._hang(node, obj.spec.cohort_name)
                self.lines.setdefault(obj.metadata.name, Line())
            case Cohort():
                node = self._node("cohort", obj.metadata.name)
                read_cohort(node, obj)
                self._hang(node, obj.spec.parent_name)
            case ResourceFlavor():
                self.world.flavors[obj.metadata.name] = obj.spec
            case LocalQueue():
                self._queue_by_local[obj.key] = obj.spec.cluster_queue
            case Namespace():
                pass
            case _:
                raise TypeError(f"the textbook does not know {type(obj).__name__}")

    def _node(self, kind: str, name: str) -> Node:
        return self.world.nodes.setdefault(f"{kind} {name}", Node(name))

    def _hang(self, node: Node, parent: str) -> None:
        if node.parent is not None:
            node.parent.children.remove(node)
        node.parent = self._node("cohort", parent) if parent else None
        if node.parent is not None:
            node.parent.children.append(node)
        for other in self.world.nodes.values():
            other.subtrees.clear()

    def _line(self, workload: PendingWorkload) -> Line:
        return self.lines[self._queue_by_local[workload.local_queue]]

    def delete(self, kind: Kind, key: Key) -> None:
        assert kind == Workload.KIND
        self._changed = True
        waiting = self._pending.pop(key, None)
        if waiting is not None:
            self._line(waiting).drop(waiting)
            self._wake(self._node("queue", self._queue_by_local[waiting.local_queue]))
        reserved = self.world.reserved.get(key)
        if reserved is not None:
            self._give_back(reserved)

    def release(self, key: Key) -> None:
        """Return the quota of a workload that was preempted, and queue it again."""
        reserved = self.world.reserved[key]
        self._changed = True
        self._give_back(reserved)
        self._pending[key] = reserved.workload
        self._line(reserved.workload).push(reserved.workload)

    def _give_back(self, reserved: Reserved) -> None:
        del self.world.reserved[reserved.workload.key]
        for pair, amount in reserved.usage.items():
            self.world.usage.remove(reserved.queue, pair, amount)
        self.lines[reserved.queue.name].generation += 1
        self._wake(reserved.queue)

    def _wake(self, queue: Node) -> None:
        for other in queue.root.queues():
            self.lines[other.name].wake()

    # Cycles

    def schedule(self, now: datetime) -> Cycle:
        """Run cycles until one decides nothing and the next would look at the same heads; none if nothing changed."""
        result = Cycle()
        if not self._changed:
            return result
        self._changed = False
        seen: set[tuple[object, ...]] = set()
        while True:
            decided = self._run_cycle(now.timestamp(), result.decisions)
            result.cycles += 1
            if decided:
                seen.clear()
                continue
            looks = tuple(self._looks())
            if looks in seen:
                return result
            seen.add(looks)

    def _looks(self) -> Iterator[object]:
        for name, line in self.lines.items():
            head = line.head()
            if head is not None:
                memory = line.memories.get(head.key)
                yield name, head.uid, repr(memory.tried) if memory else "", line.preemptor and line.preemptor.uid

    def _run_cycle(self, now: float, decisions: list[Decision]) -> bool:
        snapshot = self.world.snapshot()
        entries: list[Entry] = []
        for name in sorted(self.lines):
            head = self.lines[name].head()
            if head is not None:
                entries.append(self._nominate(snapshot, self._node("queue", name), head))
        cycle = _Processing(self, snapshot, now)
        for entry in self._in_order(snapshot, entries):
            cycle.process(entry)
        cycle.finish()
        decisions += cycle.decisions
        self.cycles += 1
        return bool(cycle.decisions)

    def _nominate(
        self,
        snapshot: Snapshot,
        queue: Node,
        workload: PendingWorkload,
        pinned: dict[str, dict[str, str]] | None = None,
    ) -> Entry:
        memory = None if pinned is not None else self._valid_memory(queue, workload)

        def try_counts(counts: list[int]) -> Entry:
            assigner = Assigner(snapshot, self.options, queue, workload, counts, memory, pinned)
            entry = Entry(queue, workload, assigner.assign())
            if entry.assignment.mode == "Preempt":
                demand = {p: v for p, v in entry.assignment.usage.items() if v and p[1] != "pods"}
                entry.victims = Search(snapshot, self.options, queue, workload, demand, entry.assignment.needed).find()
            return entry

        pod_sets = workload.shape.pod_sets
        full = try_counts([p.count for p in pod_sets])
        spare = [p.spec_count - p.min_count if p.min_count is not None else 0 for p in pod_sets]
        total = sum(spare)
        if full.works or not total:
            return full
        best, low, high = full, 0, total + 1
        while low < high:
            middle = (low + high) // 2
            found = try_counts([p.spec_count - s * middle // total for p, s in zip(pod_sets, spare, strict=True)])
            if found.works:
                best, high = found, middle
            else:
                low = middle + 1
        return best

    def _valid_memory(self, queue: Node, workload: PendingWorkload) -> Memory | None:
        line = self.lines[queue.name]
        memory = line.memories.get(workload.key)
        if memory is None:
            return None
        if self.options.flavor_fungibility_preserve_scan_progress and memory.cycle >= self.cycles - 1:
            return memory
        return memory if memory.generation == line.generation else None

    # Order

    def _in_order(self, snapshot: Snapshot, entries: list[Entry]) -> Iterator[Entry]:
        if not self.options.fair_sharing:
            yield from sorted(entries, key=self._rank)
            return
        remaining = list(entries)
        while remaining:
            root = remaining[0].queue.root
            best = self._tournament(snapshot, root, [e for e in remaining if e.queue.root is root])
            assert best is not None
            remaining.remove(best)
            yield best

    def _is_preemptor(self, entry: Entry) -> bool:
        return self.lines[entry.queue.name].preemptor is entry.workload

    def _rank(self, entry: Entry) -> tuple[Any, ...]:
        options, workload = self.options, entry.workload
        return (
            options.prioritize_preemptor_workloads and not self._is_preemptor(entry),
            entry.assignment.level,
            -workload.priority if options.priority_sorting_within_cohort else 0,
            workload.time,
            entry.queue.name,
            workload.uid,
        )

    def _tournament(self, snapshot: Snapshot, node: Node, entries: list[Entry]) -> Entry | None:
        """Return the winner of a cohort: the best of its child cohorts' winners and of its queues' heads."""
        if node.spec is not None:
            return next((entry for entry in entries if entry.queue is node), None)
        children = sorted(node.children, key=lambda child: (child.spec is not None, child.name))
        winners = [(child, found) for child in children if (found := self._tournament(snapshot, child, entries))]
        return min(winners, key=lambda winner: self._fair_rank(snapshot, *winner), default=(None, None))[1]

    def _fair_rank(self, snapshot: Snapshot, child: Node, entry: Entry) -> tuple[Any, ...]:
        usage, wanted = snapshot.usage.copy(), entry.assignment.usage
        for pair, amount in wanted.items():
            usage.add(entry.queue, pair, amount)
        borrows = any(v > 0 and usage.of(child, pair) > child.subtree(pair) for pair, v in wanted.items())
        options, workload = self.options, entry.workload
        return (
            options.prioritize_preemptor_workloads and not self._is_preemptor(entry),
            options.fair_sharing_prioritize_non_borrowing and borrows,
            usage.share(child),
            -workload.priority if options.priority_sorting_within_cohort else 0,
            workload.time,
        )


class _Processing:
    """The second half of a cycle: entries one by one, on the snapshot."""

    def __init__(self, textbook: Textbook, snapshot: Snapshot, now: float) -> None:
        self.textbook = textbook
        self.options = textbook.options
        self.snapshot = snapshot
        self.now = now
        self.decisions: list[Decision] = []
        self.victims: dict[Key, Reserved] = {}
        self.evicted: list[Reserved] = []
        self.admitted: list[tuple[Entry, tuple[AssignedPodSet, ...]]] = []

    def process(self, entry: Entry) -> None:
        fits = self._fits(entry)
        if self._overlaps(entry) and self.options.recompute_assignment_upon_preemption_targets_overlap:
            for reserved in self.victims.values():
                self.snapshot.take_out(reserved)
            again = self.textbook._nominate(self.snapshot, entry.queue, entry.workload, entry.assignment.pinned())
            for reserved in self.victims.values():
                self.snapshot.put_back(reserved)
            entry.assignment, entry.victims = again.assignment, again.victims
            if entry.assignment.mode == "Fit":
                entry.assignment.mode = "DeferredFit"
            fits = self._fits(entry)
        mode = entry.assignment.mode
        keeps = self.options.flavor_fungibility_preserve_scan_progress
        if mode == "NoFit":
            self._requeue(entry, parked=True)
        elif mode == "Preempt" and not entry.victims:
            self._reserve(entry)
            self._requeue(entry, parked=True)
        elif mode == "DeferredFit":
            self._hold(entry.queue, entry.assignment.usage)
            self._requeue(entry, preempting=True, keeps=False)
        elif self._overlaps(entry) or not fits:
            self._requeue(entry, keeps=keeps)
        else:
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        for victim in entry.victims:
            self.victims[victim.reserved.workload.key] = victim.reserved
        self._hold(entry.queue, entry.assignment.usage)
        if entry.assignment.mode == "Preempt":
            for victim in entry.victims:
                self._evict(entry, victim)
            self._requeue(entry, preempting=True, keeps=False)
            return
        pod_sets = entry.assignment.assigned()
        self.admitted.append((entry, pod_sets))
        self.decisions.append(Admit(entry.workload.key, entry.queue.name, pod_sets))

    def _evict(self, entry: Entry, victim: Victim) -> None:
        reserved = victim.reserved
        if not reserved.evicted and reserved not in self.evicted:
            self.evicted.append(reserved)
            reason: Any = victim.reason
            self.decisions.append(
                Preempt(reserved.workload.key, entry.workload.key, reason, entry.workload.uid, entry.queue.name, "", "")
            )

    def _overlaps(self, entry: Entry) -> bool:
        return any(victim.reserved.workload.key in self.victims for victim in entry.victims)

    def _fits(self, entry: Entry) -> bool:
        gone = {**self.victims, **{v.reserved.workload.key: v.reserved for v in entry.victims}}
        for reserved in gone.values():
            self.snapshot.release(reserved)
        fits = self.snapshot.usage.fits(entry.queue, entry.assignment.usage)
        for reserved in gone.values():
            self.snapshot.charge(reserved)
        return fits

    def _hold(self, queue: Node, usage: dict[Pair, int]) -> None:
        for pair, amount in usage.items():
            self.snapshot.usage.add(queue, pair, amount)

    def _reserve(self, entry: Entry) -> None:
        """Hold back quota that the queue could not reclaim."""
        queue, line = entry.queue, self.textbook.lines[entry.queue.name]
        assert queue.spec is not None
        preemption = queue.spec.spec.preemption
        preemptor = self.options.prioritize_preemptor_workloads and line.preemptor is entry.workload
        if preemption is not None and preemption.reclaim_within_cohort == "Any" and not preemptor:
            return
        for pair, amount in entry.assignment.usage.items():
            used, nominal = self.snapshot.usage.of(queue, pair), queue.nominal.get(pair, 0)
            if entry.assignment.level == 0:
                amount = max(0, min(amount, nominal - used))
            elif pair in queue.borrowing:
                amount = min(amount, nominal + queue.borrowing[pair] - used)
            self.snapshot.usage.add(queue, pair, amount)

    def _requeue(self, entry: Entry, *, parked: bool = False, preempting: bool = False, keeps: bool = True) -> None:
        line, workload = self.textbook.lines[entry.queue.name], entry.workload
        assert entry.queue.spec is not None
        strict = entry.queue.spec.spec.queueing_strategy == "StrictFIFO"
        tried = entry.assignment.tried if keeps else {}
        pending = any(index != -1 for index in tried.values())
        line.memories.pop(workload.key, None)
        if pending:
            line.memories[workload.key] = Memory(tried, self.textbook.cycles, line.generation)
        if preempting:
            line.preemptor = workload
            if not strict:
                line.sticky = workload
        elif parked and not pending and not strict:
            line.park(workload, equivalents=self.options.scheduling_equivalence_hashing)

    def finish(self) -> None:
        """Assume the admissions in the state that the next cycle copies."""
        for reserved in self.evicted:
            reserved.evicted = True
        world = self.textbook.world
        for entry, pod_sets in self.admitted:
            workload = entry.workload
            self.textbook.lines[entry.queue.name].drop(workload)
            del self.textbook._pending[workload.key]
            world.reserved[workload.key] = Reserved(workload, entry.queue, pod_sets, entry.assignment.usage, self.now)
            for pair, amount in entry.assignment.usage.items():
                world.usage.add(entry.queue, pair, amount)


def schedule(textbook: Textbook, now: datetime) -> Cycle:
    """Run cycles until nothing more is decided."""
    return textbook.schedule(now)
