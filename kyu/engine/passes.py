"""
A pass: all turns of the queues of a tree until nothing more is decided, without those that cannot matter.

A workload that was parked is worth asking again, that is, looking at for quota, only if what it waits for may have come
within reach since (``watch.py``). A pass knows who is, and in which turn: as many turns away as others stand before it
in its queue. It goes from one turn that matters to the next and takes it as the cycle would (``turn.py``), with
everybody in it who could change its outcome: those who are worth asking, heads that keep their place until they get
what they want (StrictFIFO, preemptors), and heads that hold back capacity while they wait.

Called by: cycle.py. Calls: turn.py, todo.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kyu.engine import plan
from kyu.engine.asks import Ask, Peers, resumes
from kyu.engine.todo import Todo
from kyu.engine.tree import Queue
from kyu.engine.turn import Head, Turn
from kyu.engine.workload import Holding

NEVER = 1 << 62


@dataclass(slots=True, eq=False)
class _Lane(Head):
    """One queue in a pass."""

    by_turns: bool = False
    """Its order is not that of the line, or its head blocks it: then its head has every turn."""
    todo: Todo = field(init=False)
    """Who is worth asking."""
    keeps_head: bool = False
    """Who is at the head stays there until it gets what it wants, or is parked."""
    due: int = NEVER
    """The turn in which somebody is to be asked: the first of these, or the head that keeps its place."""
    checked: int = 0
    """After how many decisions of the pass that was found out."""
    most_by_priority: dict[int, int] = field(default_factory=dict)
    """How much those of each priority could get at the most, after so many decisions."""
    at: int = 0
    """The turn that the line has come to; it is moved on only when that is needed."""
    asked: Peers | None = None
    """With whom it stands, where others of them may have the next turn."""
    sticky: Ask | None = None
    """Who kept the head of the line before the turn."""

    def __post_init__(self) -> None:
        self.todo = Todo(self.queue.line)
        if not self.by_turns:
            self.todo.collect()

    def look_ahead(self, decisions: int) -> None:
        """Find who is to be asked next, and when. What was within reach once may have been taken by others."""
        line = self.queue.line
        if self.checked != decisions:
            self.checked = decisions
            self.most_by_priority.clear()
        kept, self.keeps_head = self.keeps_head, self.by_turns or line.has_sticky
        if self.keeps_head:
            self.due = NEVER if line.head() is None else 0
            return
        # Who kept the head of the line may have been parked, and its peers with it.
        todo, again = self.todo, decisions or kept
        first = todo.first_with_hope(self.most_by_priority) if todo and again else todo.first()
        self.due = NEVER if first is None else self.at + line.turns_before(first)

    @property
    def holds_back(self) -> bool:
        """Whether the head may hold back capacity from others while it waits."""
        return (self.keeps_head or self.queue.policies.reclaim != "Any") and self.queue.line.head() is not None

    def begin(self, turn: int, *, short_ways: bool) -> None:
        line = self.queue.line
        self.catch_up(turn)
        self.entry = None
        self.sticky = line.sticky
        if self.keeps_head or self.due > turn:
            self.ask = line.head()
            self.asked = None if self.ask is None else self.ask.peers
            self.resumed = self.ask is not None and resumes(self.ask)
            if short_ways and not self.keeps_head and self.ask is not None:
                self.entry = plan.reserve(self.queue, self.ask)
        else:
            self.asked = self.todo.pop()
            self.ask = self.asked.first

    def catch_up(self, turn: int) -> None:
        """The line as it is in this turn: those who were not worth asking have had theirs."""
        if turn > self.at and not self.keeps_head:
            self.queue.line.skip(turn - self.at)
        self.at = turn

    def end(self, decisions: int) -> None:
        """Whoever is still worth asking after the turn comes up again."""
        self.at += 1
        if not self.by_turns:
            self._ask_again(self.asked)
            if self.sticky is not None and self.sticky is not self.queue.line.sticky:
                # It may have gone back to its peers, and is then their first.
                self._ask_again(self.sticky.peers)
        self.look_ahead(decisions)

    def _ask_again(self, peers: Peers | None) -> None:
        if peers is not None and peers.place is not None and not self.queue.line.is_parked(peers):
            self.todo.add(peers)

    def repeats(self, turn: Turn) -> bool:
        """Whether the head would get the same answer again, whoever else has a turn; not if it lost to another."""
        head = self.queue.line.head()
        if head is None or head is not self.ask:
            return head is self.ask
        return head.key not in turn.lost and not self.resumed and not resumes(head)

    def looks(self, turn: int) -> object:
        """All that the next turn of the queue depends on, while nothing changes."""
        line = self.queue.line
        head = line.head()
        memory = head.memory.last_tried if head is not None and head.memory is not None else ()
        return (head and head.uid, repr(memory), line.passed, None if self.due == NEVER else max(0, self.due - turn))

    def close(self, turn: int) -> None:
        """The pass is over: those who still wait for their turn are asked next time; without any, all had theirs."""
        line = self.queue.line
        if not self.todo and not self.keeps_head:
            line.skip_all()
            return
        self.catch_up(turn)
        for peers in self.todo:
            if peers.place is not None and not line.is_parked(peers):
                line.ask_again(peers)


@dataclass(slots=True)
class Pass:
    """All turns of some queues."""

    turn: Turn
    queues: list[Queue]
    lanes: list[_Lane] = field(default_factory=list)
    number: int = 0
    """Of the turn, skipped ones counted."""
    decisions: int = 0
    """In how many turns somebody was admitted, preempted or evicted."""
    seen: set[tuple[object, ...]] = field(default_factory=set)
    """What turns that changed nothing looked like, since the last that did."""

    def run(self) -> None:
        self._line_up()
        second = self._second_passes()
        while self._go_on(at_once=bool(second)) and self._take_turn(second):
            second = self._second_passes()
        for lane in self.lanes:
            lane.close(self.number)

    def _line_up(self) -> None:
        hashing = self.turn.state.options.scheduling_equivalence_hashing
        for queue in [queue for queue in self.queues if queue.line.size]:
            if not queue.active:
                continue
            line = queue.line
            by_turns = queue.strict or queue.by_usage or not hashing
            if not (by_turns or line.may_have_news or queue.policies.reclaim != "Any"):
                line.skip_all()
                continue
            lane = _Lane(queue, by_turns=by_turns)
            lane.look_ahead(0)
            if lane.due < NEVER or lane.holds_back:
                self.lanes.append(lane)
            else:
                line.skip_all()

    def _second_passes(self) -> list[Holding]:
        state = self.turn.state
        if not state.second_passes:
            return []
        names = {queue.name for queue in self.queues if queue.active}
        return [h for h in state.second_passes.values() if h.cluster_queue in names and not h.evicted]

    def _go_on(self, *, at_once: bool) -> bool:
        """To the next turn in which somebody is worth asking; False if there is none."""
        while True:
            nearest = min([lane.due for lane in self.lanes], default=NEVER)
            if at_once or nearest < self.number:
                nearest = self.number
            if nearest == NEVER:
                return False
            found = at_once
            for lane in self.lanes:
                if lane.due <= nearest:
                    if lane.checked != self.decisions and not lane.keeps_head:
                        lane.look_ahead(self.decisions)
                    found = found or lane.due <= nearest
            if found:
                # Cycles in which nothing would have happened.
                self.turn.state.cycles += nearest - self.number
                self.number = nearest
                return True

    def _take_turn(self, second: list[Holding]) -> bool:
        """One cycle, with everybody in it who matters; False when going on would repeat what was."""
        chosen = [lane for lane in self.lanes if lane.due <= self.number or lane.holds_back]
        for lane in chosen:
            lane.begin(self.number, short_ways=self.turn.short_ways)
        self.turn.take(chosen, second)
        self.number += 1
        self.decisions += self.turn.decided
        for lane in chosen:
            lane.end(self.decisions)
        return not self.turn.result.blocked and self._changes_something(chosen)

    def _changes_something(self, chosen: list[_Lane]) -> bool:
        if self.turn.decided or self.turn.reordered:
            self.seen.clear()
            settled = self.turn.sole_preemptor(self.queues)
            for lane in self.lanes:
                if lane.keeps_head:
                    lane.look_ahead(self.decisions)
                    if lane.ask is settled is not None and self._stays_first(lane):
                        lane.due = NEVER
            return True
        if self.turn.parked:
            self.seen.clear()
        for lane in chosen:
            if lane.keeps_head and lane.repeats(self.turn) and self._stays_first(lane):
                lane.due = NEVER
        signature = tuple([lane.looks(self.number) for lane in self.lanes])
        if signature in self.seen:
            return False
        self.seen.add(signature)
        return True

    def _stays_first(self, lane: _Lane) -> bool:
        """
        Whether no head that is still to come, and holds back capacity, could have its turn before that of this lane.

        Such a head may take what the victims were to free; whoever waits for them then names others.
        """
        coming = [other.queue.line.head() for other in self.lanes if not other.keeps_head and other.holds_back]
        if not coming:
            return True
        if lane.ask is None or lane.entry is None or lane.entry.level > 0:
            return False
        if not self.turn.state.options.priority_sorting_within_cohort:
            return False
        # Nobody in a line has a higher priority than its head.
        return all(head is not None and head.priority < lane.ask.priority for head in coming)
