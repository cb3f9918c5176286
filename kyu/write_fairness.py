"""
Fair sharing of the event loop between requests and decisions.

A round of the event loop runs everything that is ready. A hundred writes that become ready together would be one long
round, without answers, watch events or anything that the first writes cause. So only a few begin in each round: half
are decisions of the scheduler, which must not wait behind a hundred submissions, and half are requests of users, many
of which report the end of a pod. A half that is not used goes to the other. Within each half the flows (namespaces,
users) take turns, and a flow that was idle comes first. So the flood of one user delays the others by one request.

Kubernetes: API priority and fairness, with its levels, seats and flows.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Fewer make shorter rounds but more transactions and scheduling cycles, which costs CPU.
PER_ROUND = 16
# The time that the requests of one round should take together. One alone may take longer.
ROUND_SECONDS = 0.01
# Calls of one flow that may wait; more are refused.
MOST_WAITING = 256
NEGLIGIBLE_SECONDS = 0.0001
# Work that goes on for long is charged in parts of this size, or it would look cheap until its end.
CHARGED_SECONDS = 0.002


class Begun(Generic[T]):
    """A call that has begun and may be awaited for its result.

    A coroutine would begin when it is awaited, and warn if it never is. ``rest`` makes the coroutine that waits.
    """

    __slots__ = ("_rest",)

    def __init__(self, rest: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._rest = rest

    def __await__(self) -> Generator[Any, None, T]:
        return self._rest().__await__()


class Full(Exception):
    """A flow has too many calls waiting."""


class WriteFairness:
    """A limit on the work that begins in each round of the event loop. ``flow`` names the origin of the work.

    Requests are charged for the time that they take. The flow that has used least of it recently comes first, and a
    round begins only as many requests as fit into ``ROUND_SECONDS``, judged by the last ones of their flow. If one
    takes longer than expected, the others of its round wait for the next.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._begun_seconds = 0.0
        self._round_seconds = 0.0
        self._decisions = _FlowQueue()
        self._requests = _FlowQueue()

    def decision(self, flow: str, begin: Callable[[], None]) -> None:
        """Call ``begin`` in its turn, which may be now."""
        if self._is_free(0.0):
            begin()
        else:
            self._decisions.add(flow, begin)

    async def request(self, flow: str) -> None:
        """Wait for the caller's turn; raise Full if too many calls of the flow wait already."""
        if self._requests.count(flow) >= MOST_WAITING:
            raise Full
        await self.turn(flow)

    async def turn(self, flow: str) -> None:
        """Wait for the caller's turn, however many calls of the flow wait: for clients in the same process."""
        if self._is_free(self._requests.expected_seconds(flow)):
            return
        add = self._requests.add
        while True:
            turn = asyncio.get_running_loop().create_future()
            add(flow, partial(_wake, turn))
            await turn
            if self._round_seconds < ROUND_SECONDS:
                return
            add = self._requests.add_first

    def charged(self, flow: str, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Return the work of a request, which counts its time for the flow when it is awaited."""
        return _Charged(work, partial(self._charge, flow))

    def _charge(self, flow: str, seconds: float) -> None:
        self._round_seconds += seconds
        self._requests.charge(flow, seconds)

    def _is_free(self, seconds: float) -> bool:
        """Return whether one more may begin in this round, and count it."""
        used = max(self._begun_seconds + seconds, self._round_seconds)
        if self._begun and (self._begun >= PER_ROUND or used > ROUND_SECONDS):
            return False
        if not self._begun:
            self._begun_seconds = self._round_seconds = 0.0
            asyncio.get_running_loop().call_soon(self._next_round)
        self._begun += 1
        self._begun_seconds += seconds
        return True

    def _next_round(self) -> None:
        self._begun_seconds = self._round_seconds = 0.0
        begun = self._begin_requests(PER_ROUND // 2)
        begun += self._decisions.begin(PER_ROUND - begun, ROUND_SECONDS)[0]
        begun += self._begin_requests(PER_ROUND - begun)
        self._begun = begun
        if begun:
            asyncio.get_running_loop().call_soon(self._next_round)

    def _begin_requests(self, most: int) -> int:
        left = ROUND_SECONDS - self._begun_seconds
        begun, seconds = self._requests.begin(most, left) if left > 0 else (0, 0.0)
        self._begun_seconds += seconds
        return begun


class _Charged(Generic[T]):
    """A coroutine whose time of the processor is reported: in parts while it goes on, and the rest in the end."""

    __slots__ = ("_charge", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], charge: Callable[[float], None]) -> None:
        self._work = work
        self._charge = charge

    def __await__(self) -> Generator[Any, Any, T]:
        work = self._work
        step: Callable[[], Any] = partial(work.send, None)
        seconds = 0.0
        try:
            while True:
                start = time.thread_time()
                try:
                    waited_for = step()
                except StopIteration as end:
                    result: T = end.value
                    return result
                finally:
                    seconds += time.thread_time() - start
                if seconds >= CHARGED_SECONDS:
                    self._charge(seconds)
                    seconds = 0.0
                try:
                    step = partial(work.send, (yield waited_for))
                except BaseException as error:
                    step = partial(work.throw, error)
        finally:
            self._charge(seconds)


class _FlowQueue:
    """Waiting calls by flow: new flows first, then those served before, in rotation.

    A served flow stays in the rotation until it comes to the front with nothing waiting. Otherwise flows with one call
    at a time would always precede a flow with many. Linux: the queueing discipline fq_codel. Where calls are charged,
    the flow with the least use precedes the others.
    """

    def __init__(self) -> None:
        self._new: dict[str, deque[Callable[[], None]]] = {}
        self._served: dict[str, deque[Callable[[], None]]] = {}
        # Seconds that each flow has used, halved every second, and those of one call.
        self._used: dict[str, float] = {}
        self._usual: dict[str, float] = {}
        self._halved = time.monotonic()

    def add(self, flow: str, begin: Callable[[], None]) -> None:
        waiting = self._queue(flow)
        if waiting is None:
            flows = self._served if flow in self._used else self._new
            waiting = flows[flow] = deque()
        waiting.append(begin)

    def add_first(self, flow: str, begin: Callable[[], None]) -> None:
        """Add a call that had its turn already, before the others of its flow."""
        self.add(flow, begin)
        waiting = self._queue(flow)
        assert waiting is not None
        waiting.rotate(1)

    def _queue(self, flow: str) -> deque[Callable[[], None]] | None:
        """Return the queue of a flow. A new flow that was charged meanwhile is still among the new ones."""
        waiting = self._new.get(flow)
        return self._served.get(flow) if waiting is None else waiting

    def count(self, flow: str) -> int:
        return len(self._queue(flow) or ())

    def expected_seconds(self, flow: str) -> float:
        return self._usual.get(flow, 0.0)

    def charge(self, flow: str, seconds: float) -> None:
        now = time.monotonic()
        if now - self._halved > 1.0:
            self._halved = now
            self._used = {each: used / 2 for each, used in self._used.items() if used > NEGLIGIBLE_SECONDS}
            self._usual = {each: self._usual[each] for each in self._used if each in self._usual}
        self._used[flow] = self._used.get(flow, 0.0) + seconds
        usual = self._usual.get(flow, seconds)
        self._usual[flow] = usual + (seconds - usual) / 8

    def begin(self, most: int, seconds: float) -> tuple[int, float]:
        """Begin at most this many calls, at least one, for about so long; return their number and time."""
        begun, spent = 0, 0.0
        while begun < most and (flows := self._new or self._served):
            flow = self._first(flows)
            expected = self._usual.get(flow, 0.0)
            if begun and spent + expected > seconds:
                break
            waiting = flows.pop(flow)
            if waiting:
                waiting.popleft()()
                begun, spent = begun + 1, spent + expected
                self._served[flow] = waiting
        return begun, spent

    def _first(self, flows: dict[str, deque[Callable[[], None]]]) -> str:
        if not self._used or len(flows) == 1:
            return next(iter(flows))
        return min(flows, key=lambda flow: self._used.get(flow, 0.0))


def _wake(turn: asyncio.Future[None]) -> None:
    # The waiting request may be cancelled.
    if not turn.done():
        turn.set_result(None)
