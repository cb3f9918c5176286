"""
Who runs, where, instead of whom. START READING HERE.

``schedule`` runs one cycle exactly as Kueue does (``turn.py``), or decides all that cycles would decide until there is
nothing more to decide. In cycles, every queue gives one head a turn in each, and most heads are parked again with the
answer that they had. A pass knows who is worth asking (``watch.py``) and how many others have their turn before them,
so it goes from one turn that matters to the next, and takes that turn as the cycle would: the decisions are those of
the cycles that it skips. Trees in which nothing has changed are not visited at all.

Called by: controllers/scheduler.py, cli/decide.py, bench. Kueue: pkg/scheduler/scheduler.go
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Literal

from kyu.api.meta import Key
from kyu.engine import reach
from kyu.engine.decisions import Cycle, Wait
from kyu.engine.queues import Peers, Place, Reach, place
from kyu.engine.state import State
from kyu.engine.tree import Queue, TreeNode, queues_of
from kyu.engine.turn import heads_of, run_cycle
from kyu.engine.workload import Ask, Holding


def schedule(state: State, now: datetime, *, cycles: Literal[1] | None = None) -> Cycle:
    """
    Decide who gets quota now; afterwards the state has assumed its admissions.

    With ``cycles=1`` one cycle as Kueue's: one head of every queue. Without, all that cycles would decide until one of
    them changes nothing.
    """
    moment = now.timestamp()
    state.begin(moment)
    if cycles == 1:
        heads = heads_of(by_name(state.queues.values()))
        return run_cycle(state, heads, moment, list(state.second_passes.values()))
    result = Cycle()
    while state.waiting.awake and not result.blocked:
        # What was a root when it was woken may have got a parent since.
        roots = {state.hierarchy.find_root(node) for node in state.waiting.awake}
        state.waiting.awake = set()
        for arena in arenas(state, roots):
            _Pass(state, by_name(q for root in arena for q in queues_of(root) if q.active), moment, result).run()
            state.waiting.awake.difference_update(arena)
        if state.has_wakes:
            state.begin(moment)
    return result


def by_name(queues: Iterable[Queue]) -> list[Queue]:
    return sorted(queues, key=lambda queue: queue.name)


def arenas(state: State, roots: Iterable[TreeNode]) -> Iterator[list[TreeNode]]:
    """Trees to be looked at together: those whose workloads share nodes, or all if admission is one at a time."""
    together: list[TreeNode] = []
    for root in sorted(roots, key=lambda node: node.name):
        shares = any(queue.placed for queue in queues_of(root))
        if shares or state.options.block_admission:
            together.append(root)
        else:
            yield [root]
    if together:
        yield together


@dataclass(slots=True, eq=False)
class _Turns:
    """One queue in a pass."""

    queue: Queue
    todo: list[Place]
    """Where those stand who are worth asking, in order."""
    reach: Reach
    by_turns: bool
    """Its order is not that of the line, or its head blocks it: then its head has every turn."""
    settled: bool = False
    """The head that keeps its place was asked, and nothing has changed since."""
    head: Ask | None = None
    """Who has the turn now."""
    from_the_start: bool = True
    """It looks at all flavors, not only at those after a remembered one."""
    asked: Peers | None = None
    """Its peers, where others of them may have the next turn."""

    @property
    def keeps_head(self) -> bool:
        return self.by_turns or self.queue.line.has_sticky

    def distance(self) -> int | None:
        """In how many turns somebody is due who is worth asking; None if nobody is."""
        line, todo = self.queue.line, self.todo
        if self.keeps_head:
            return None if self.settled or line.head() is None else 0
        while todo:
            peers = line.peers_by_place.get(todo[0])
            if peers is not None and not line.is_parked(peers) and not self.is_hopeless(peers):
                return line.turns_before(todo[0])
            del todo[0]
        return None

    def is_hopeless(self, peers: Peers) -> bool:
        """What was within reach when the pass began has been taken by others, and what they wait for is known."""
        if peers.watches is None:
            return False
        first = peers.first()
        if first is None or _resumes(first):
            return False
        for cell, amount in peers.watches:  # noqa: SIM110 - a generator costs as much again
            if amount <= self.reach(cell, peers.priority):
                return False
        return True

    def _tidy(self) -> None:
        """Forget those in front who were parked with others, or have gone."""
        line, todo = self.queue.line, self.todo
        while todo and (todo[0] not in line.peers_by_place or line.is_parked(line.peers_by_place[todo[0]])):
            del todo[0]

    def matters(self) -> bool:
        """Whether the head has to be asked whenever others are, for what it holds back from them."""
        return (self.keeps_head or self.queue.policies.reclaim != "Any") and self.queue.line.head() is not None

    def begin(self) -> None:
        self.head = self.queue.line.head()
        self.from_the_start = self.head is None or not _resumes(self.head)
        where = None if self.keeps_head else self.queue.line.next_place()
        self.asked = None if where is None else self.queue.line.peers_by_place[where]
        if where is not None:
            index = bisect_left(self.todo, where)
            if self.todo[index : index + 1] == [where]:
                del self.todo[index]

    def repeats(self, lost: set[Key]) -> bool:
        """Whether the head would get the same answer again, whoever else has a turn; not if it lost to another."""
        head = self.queue.line.head()
        if head is None or head is not self.head:
            return head is self.head
        return head.key not in lost and self.from_the_start and not _resumes(head)

    def end(self, sticky_before: Ask | None) -> None:
        """Whoever is still worth asking after the turn comes up again."""
        line, asked = self.queue.line, self.asked
        if self.by_turns:
            return
        again = [asked] if asked is not None and asked.size else []
        if sticky_before is not None and sticky_before is not line.sticky:
            # Who was sticky may have gone back to its peers, and is then their first.
            self.todo = [where for where in self.todo if where in line.peers_by_place]
            joined = line.peers_by_place.get(place(sticky_before))
            again += [*line.unknown, *([joined] if joined is not None else [])]
        for peers in again:
            if peers.place is not None and not line.is_parked(peers):
                index = bisect_left(self.todo, peers.place)
                if self.todo[index : index + 1] != [peers.place]:
                    self.todo.insert(index, peers.place)

    def close(self) -> None:
        """The pass is over: those who still wait for their turn are asked next time; without any, all had theirs."""
        line = self.queue.line
        self._tidy()
        for where in self.todo:
            if where in line.peers_by_place:
                line.ask_again(line.peers_by_place[where])
        if not self.todo and not self.keeps_head:
            line.skip_all()


def _resumes(ask: Ask) -> bool:
    return ask.memory is not None and ask.memory.pending


@dataclass(slots=True)
class _Pass:
    """All turns of some queues until nothing more is decided."""

    state: State
    queues: list[Queue]
    now: float
    result: Cycle
    turns: list[_Turns] = field(default_factory=list)
    seen: set[tuple[object, ...]] = field(default_factory=set)
    """What turns that changed nothing looked like, since the last that did."""

    def run(self) -> None:
        self._line_up()
        second = self._second_passes()
        while True:
            distances = [turns.distance() for turns in self.turns]
            nearest = 0 if second else min((d for d in distances if d is not None), default=None)
            if nearest is None:
                break
            self._skip(nearest)
            due = [t for t, d in zip(self.turns, distances, strict=True) if d == nearest or t.matters()]
            if not self._take_turn(due, second):
                break
            second = self._second_passes()
        for turns in self.turns:
            turns.close()

    def _second_passes(self) -> list[Holding]:
        if not self.state.second_passes:
            return []
        names = {queue.name for queue in self.queues}
        return [h for h in self.state.second_passes.values() if h.cluster_queue in names and not h.evicted]

    def _line_up(self) -> None:
        options = self.state.options
        for queue in self.queues:
            line = queue.line
            if not line.size:
                continue
            by_turns = queue.strict or queue.by_usage or not options.scheduling_equivalence_hashing
            reach_of = self._reach(queue)
            turns = _Turns(queue, [] if by_turns else line.worth_asking(reach_of), reach_of, by_turns)
            if turns.todo or turns.matters():
                self.turns.append(turns)
            else:
                line.skip_all()

    def _reach(self, queue: Queue) -> Reach:
        return partial(reach.reach, queue, fair_sharing=self.state.options.fair_sharing)

    def _skip(self, count: int) -> None:
        """Cycles in which nothing would have happened."""
        if not count:
            return
        self.state.cycles += count
        for turns in self.turns:
            if not turns.keeps_head:
                turns.queue.line.skip(count)

    def _take_turn(self, chosen: list[_Turns], second: list[Holding]) -> bool:
        """One cycle, with everybody in it who matters; False when going on would repeat what was."""
        if len(chosen) < len(self.turns):
            for turns in self.turns:
                if turns not in chosen:
                    turns.queue.line.skip(1)
        stickies = [turns.queue.line.sticky for turns in chosen]
        for turns in chosen:
            turns.begin()
        heads = [(turns.queue, turns.head) for turns in chosen if turns.head is not None]
        cycle = run_cycle(self.state, heads, self.now, second, short_ways=True)
        for turns, sticky in zip(chosen, stickies, strict=True):
            turns.end(sticky)
        self.result.extend(cycle)
        return not cycle.blocked and self._goes_on(cycle, chosen)

    def _goes_on(self, cycle: Cycle, chosen: list[_Turns]) -> bool:
        for decision in cycle.decisions:
            if not isinstance(decision, Wait):
                self.seen.clear()
                for turns in self.turns:
                    turns.settled = False
                return True
            if decision.parked:
                self.seen.clear()
        for turns in chosen:
            turns.settled = turns.repeats(cycle.lost)
        signature = tuple(self._looks(turns) for turns in self.turns)
        if signature in self.seen:
            return False
        self.seen.add(signature)
        return True

    @staticmethod
    def _looks(turns: _Turns) -> object:
        """All that the next turn of a queue depends on, while nothing changes."""
        line = turns.queue.line
        head = line.head()
        memory = head.memory.last_tried if head is not None and head.memory is not None else ()
        return (head and head.uid, repr(memory), line.passed, turns.settled)
