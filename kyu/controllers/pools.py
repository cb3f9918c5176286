"""
Listens for pools, and puts what they say in the view: messages become PoolReports, connections become PoolSources.

Each group of NATS pools of each MasterQueue has an ear. Ears of equal connectors share a connection. A message that
cannot be believed is counted and changes nothing. A message that says the same as the one before only moves the time
of its report, which no controller reacts to; so a pool may speak as often as it likes.

Called by: plane.py, pool_plane.py. Calls: pool_expressions.py; bus/nats.py, through a connection.
Read by: plans/pools.py, through the view.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from kyu.api import pool_messages
from kyu.api.meta import Json, Key, Kind
from kyu.api.pool_messages import Announcement, Refused, Seen
from kyu.api.pools import MasterQueue, NatsFlavor, PoolReport, PoolSource
from kyu.bus import signing
from kyu.bus.connector import BadConnector, Bus, Connect, Connector, State
from kyu.controllers.pool_expressions import Expressions, Question
from kyu.controllers.pool_refusals import Refusals
from kyu.controllers.pool_secrets import find_connector
from kyu.kube.cache import Cache
from kyu.kube.client import Client

# More pools than this in one group are not listened to.
MOST_POOLS = 512
# How often it is said that messages are being missed.
DEAF_SECONDS = 1.0
# Pauses that a period is guessed from, and the longest that counts, in timeouts.
PAUSES = 3
LONGEST_PAUSE = 2.5
# A pool that was silent for so many timeouts is not remembered where others need its place.
FORGOTTEN_AFTER = 10.0
SECRETS_AGAIN_SECONDS = 30.0
# How often it is noted that this process runs, and from which gap on it did not.
PULSE_SECONDS = 1.0
STANDSTILL_SECONDS = 3.0


@dataclass(slots=True)
class Heard:
    """What is remembered of one pool between two messages."""

    payload: bytes
    body: Json
    at: float
    seen: Seen = field(default_factory=Seen)
    pauses: deque[float] = field(default_factory=lambda: deque(maxlen=PAUSES))


class Ear:
    """One group of one MasterQueue."""

    def __init__(self, pools: PoolListener, queue: str, flavor: str, nats: NatsFlavor) -> None:
        self._pools = pools
        self._key = {"namespace": queue, "name": flavor}
        self._flavor = flavor
        self.nats = nats
        self._heard: dict[str, Heard] = {}
        self._waiting: dict[str, bytes] = {}
        self._refusals = Refusals(self._tell, pools.now)
        self._expression_error = ""
        self._excluded: tuple[str, ...] = ()
        self._state = State(connected=False)
        self._since = pools.now()
        self.end: Callable[[], None] = lambda: None
        # Nothing is told any more: the group is gone, or another ear has taken its place.
        self.is_deaf = False

    # Messages.

    def on_message(self, subject: str, payload: bytes, reply: str) -> None:
        pool = subject.rpartition(".")[2]
        known = self._heard.get(pool)
        if known is not None and known.payload == payload and known.seen == Seen():
            self._report(pool, known, self._pools.now())
            return
        announcement = pool_messages.parse(pool, payload)
        if isinstance(announcement, Refused):
            self._refusals.add(announcement, pool)
            return
        selected = self._selects(pool)
        if selected is None:
            self._ask_later(pool, payload)
        elif selected:
            self._accept(pool, payload, announcement)

    def on_missed(self) -> None:
        """Messages came faster than they can be read, and one was dropped: from silence nothing follows for now."""
        self._refusals.add(Refused("TooFast"), "")
        if self._pools.now() - self._since >= DEAF_SECONDS:
            self.was_deaf()

    def was_deaf(self) -> None:
        """Until now nobody could be heard, so nobody was silent."""
        self._since = self._pools.now()
        self._tell()

    def _selects(self, pool: str) -> bool | None:
        """None: it has to be found out first."""
        if self.nats.pools:
            return pool in self.nats.pools
        verdict = self._pools.expressions.find(self._question(pool))
        return None if verdict is None else verdict.selected

    def _question(self, pool: str) -> Question:
        return Question(self.nats.pool_reg_exp, self.nats.pool_match == "full", pool)

    def _ask_later(self, pool: str, payload: bytes) -> None:
        """The newest message of the pool is looked at again when the answer is there."""
        if pool in self._waiting:
            self._waiting[pool] = payload
        elif len(self._waiting) >= MOST_POOLS:
            self._refusals.add(Refused("TooManyPools"), pool)
        else:
            self._waiting[pool] = payload
            self._pools.spawn(self._ask(pool))

    async def _ask(self, pool: str) -> None:
        verdict = await self._pools.expressions.ask(self._question(pool))
        payload = self._waiting.pop(pool)
        if verdict.error and verdict.error != self._expression_error:
            self._expression_error = verdict.error
            self._tell()
        if verdict.selected:
            self.on_message(pool, payload, "")

    def _accept(self, pool: str, payload: bytes, announcement: Announcement) -> None:
        known, now = self._heard.get(pool), self._pools.now()
        refused = self._why_not_believed(pool, payload, announcement, known.seen if known else Seen(), now)
        if refused is None and known is None and not self._has_room(now):
            refused = Refused("TooManyPools")
        if refused is not None:
            self._refusals.add(refused, pool)
            return
        body: Json = {
            "flavor": self._flavor,
            "pool": pool,
            "quotas": pool_messages.canonical_quotas(announcement),
            "labels": announcement.labels,
            "taints": announcement.taints,
            "runs": announcement.runs,
        }
        if known is None:
            known = self._heard[pool] = Heard(payload, body, now)
        known.payload, known.body = payload, body
        known.seen = Seen(announcement.seq, announcement.ts)
        self._report(pool, known, now, declared=announcement.period)

    def _has_room(self, now: float) -> bool:
        """For one more pool; the one that has been silent longest makes room, if that is long enough."""
        if len(self._heard) < MOST_POOLS:
            return True
        pool, oldest = min(self._heard.items(), key=lambda item: item[1].at)
        if now - oldest.at <= FORGOTTEN_AFTER * self.nats.pool_timeout:
            return False
        del self._heard[pool]
        self._pools.take(PoolReport.KIND, self._named(pool))
        return True

    def _why_not_believed(
        self, pool: str, payload: bytes, announcement: Announcement, seen: Seen, now: float
    ) -> Refused | None:
        key = self.nats.public_keys.get(pool)
        if key is not None:
            signed = pool_messages.signed_part(msgspec.json.decode(payload), pool)
            if not signing.is_signed(signed, announcement.signature, key):
                return Refused("BadSignature")
        return pool_messages.why_replayed(announcement, seen, now)

    def _report(self, pool: str, known: Heard, now: float, declared: float | None = None) -> None:
        if self.is_deaf:
            return
        pause = now - known.at
        if 0 < pause <= LONGEST_PAUSE * self.nats.pool_timeout:
            known.pauses.append(pause)
        known.at = now
        if declared is not None and 0 < declared <= LONGEST_PAUSE * self.nats.pool_timeout:
            known.body["period"] = declared
        elif known.pauses:
            known.body["period"] = max(known.pauses)
        self._pools.put(PoolReport.KIND, {**self._named(pool), "at": now, **known.body})

    def _named(self, pool: str) -> Json:
        """The name of its report."""
        return {"metadata": {"namespace": self._key["namespace"], "name": f"{self._flavor}.{pool}"}}

    # The source.

    def on_state(self, state: State) -> None:
        if state.connected != self._state.connected:
            self._since = self._pools.now()
        self._state = state
        self._tell()

    def fail(self, error: str) -> None:
        self.on_state(State(connected=False, error=error))

    async def find_excluded(self, known: list[str]) -> None:
        """Pools of the status that another expression had selected."""
        verdicts = {pool: await self._pools.expressions.ask(self._question(pool)) for pool in known}
        self._excluded = tuple(sorted(pool for pool, verdict in verdicts.items() if not verdict.selected))
        errors = [verdict.error for verdict in verdicts.values() if verdict.error]
        if errors:
            self._expression_error, self._excluded = errors[0], ()
        self._tell()

    def _tell(self) -> None:
        if self.is_deaf:
            return
        body = {
            "connected": self._state.connected,
            "since": self._since,
            "error": self._state.error,
            "expressionError": self._expression_error,
            "excluded": list(self._excluded),
            "refused": self._refusals.told,
        }
        self._pools.put(PoolSource.KIND, {"metadata": dict(self._key), **body})

    def forget(self) -> None:
        """The group is gone, and all that was heard with it."""
        self.is_deaf = True
        self.end()
        for pool in self._heard:
            self._pools.take(PoolReport.KIND, self._named(pool))
        self._pools.take(PoolSource.KIND, {"metadata": dict(self._key)})


class PoolListener:
    """All ears of this process. ``changed`` follows the MasterQueues; ``run`` runs until it is cancelled."""

    def __init__(self, cache: Cache, client: Client, clock: Callable[[], datetime], connect: Connect) -> None:
        self._cache = cache
        self._client = client
        self._clock = clock
        self._ran_at = clock()
        self._connect_bus = connect
        self._versions = itertools.count(1)
        self._ears: dict[tuple[str, str], tuple[NatsFlavor, Ear, Connector | None]] = {}
        self._connections: dict[Connector, tuple[Bus, asyncio.Task[None]]] = {}
        self._due: dict[str, None] = {}
        self._wakeup = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.expressions = Expressions()

    def changed(self, kind: Kind, old: Json | None, new: Json | None) -> None:
        obj = new or old
        if kind == MasterQueue.KIND and obj is not None:
            before, after = (old or {}).get("spec"), (new or {}).get("spec")
            if old is None or before != after:
                self._due[obj["metadata"]["name"]] = None
                self._wakeup.set()

    async def run(self) -> None:
        self.spawn(self._pulse())
        try:
            while True:
                await self._wakeup.wait()
                self._wakeup.clear()
                while self._due:
                    name = next(iter(self._due))
                    del self._due[name]
                    await self._listen(name)
        finally:
            for task in [*self._tasks, *(task for _, task in self._connections.values())]:
                task.cancel()
            await asyncio.gather(*self._tasks, *(t for _, t in self._connections.values()), return_exceptions=True)
            await self.expressions.close()

    async def _pulse(self) -> None:
        """Somebody asks for the time, also where nobody plans."""
        while True:
            self.clock()
            await asyncio.sleep(PULSE_SECONDS)

    def clock(self) -> datetime:
        """
        The time, for those who judge by it who is silent.

        A process that was stopped, or whose machine slept, would find all pools silent before it has read what they
        said meanwhile. Whoever is the first to ask for the time afterwards learns that nobody was.
        """
        now, before = self._clock(), self._ran_at
        self._ran_at = now
        if (now - before).total_seconds() > STANDSTILL_SECONDS:
            for _, ear, _ in self._ears.values():
                ear.was_deaf()
        return now

    async def _listen(self, name: str) -> None:
        """Make the ears of the MasterQueue as its spec says; those whose group has not changed stay."""
        queue = self._cache.get(MasterQueue, Key("", name))
        groups = {group.name: group.nats_flavor for group in queue.spec.flavors} if queue else {}
        for (owner, flavor), (nats, ear, _) in list(self._ears.items()):
            if owner == name and groups.get(flavor) != nats:
                del self._ears[owner, flavor]
                ear.forget()
        for flavor, wanted in groups.items():
            if wanted is not None and (name, flavor) not in self._ears:
                ear = Ear(self, name, flavor, wanted)
                self._ears[name, flavor] = (wanted, ear, await self._connect(ear, name))
                known = [pool.name for pool in queue.status.pools if pool.flavor == flavor] if queue else []
                if wanted.pool_reg_exp and known:
                    self.spawn(ear.find_excluded(known))
        self._close_unused()

    async def _connect(self, ear: Ear, name: str) -> Connector | None:
        try:
            connector = await find_connector(self._client, ear.nats)
        except (BadConnector, LookupError) as error:
            ear.fail(str(error))
            # A Secret that is missing may be made later.
            asyncio.get_running_loop().call_later(SECRETS_AGAIN_SECONDS, self._again, name, ear)
            return None
        if connector not in self._connections:
            connection = self._connect_bus(connector, "kyu", lambda state: self._on_state(connector, state))
            self._connections[connector] = (connection, asyncio.create_task(connection.run()))
        connection = self._connections[connector][0]
        ear.end = connection.listen(f"{ear.nats.nats_subject}.*", ear.on_message, ear.on_missed)
        ear.on_state(connection.state)
        return connector

    def _again(self, name: str, ear: Ear) -> None:
        for place, (_, one, _) in list(self._ears.items()):
            if one is ear:
                ear.is_deaf = True
                del self._ears[place]
                self._due[name] = None
                self._wakeup.set()

    def _on_state(self, connector: Connector, state: State) -> None:
        for _, ear, its_connector in self._ears.values():
            if its_connector == connector:
                ear.on_state(state)

    def _close_unused(self) -> None:
        used = {connector for _, _, connector in self._ears.values()}
        for connector in [one for one in self._connections if one not in used]:
            self._connections.pop(connector)[1].cancel()

    def find_connection(self, queue: str, flavor: str) -> Bus | None:
        """The connection of a group, for those who talk back to its pools."""
        found = self._ears.get((queue, flavor))
        known = self._connections.get(found[2]) if found and found[2] else None
        return known[0] if known else None

    # For the ears.

    def now(self) -> float:
        return self._clock().timestamp()

    def put(self, kind: Kind, obj: Json) -> None:
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        self._cache.observe(kind, obj)

    def take(self, kind: Kind, obj: Json) -> None:
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        self._cache.forget(kind, obj)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
