"""
Subscriptions to pools: messages become PoolReports in the view, connections become PoolSources.

Each NATS flavor of each MasterQueue has a subscription, and equal connectors share a connection. An invalid message is
counted and changes nothing. A message with unchanged content only moves the time of its report, which wakes no
controller, so the period of announcements costs nothing.
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
from kyu.bus.connector import BadConnector, Bus, Connect, ConnectionState, Connector
from kyu.controllers.pools.expressions import ExpressionQuery, Expressions
from kyu.controllers.pools.refusals import Refusals
from kyu.controllers.pools.secrets import find_connector
from kyu.kube.cache import Cache
from kyu.kube.client import Client

# The limit of pools in one flavor.
MOST_POOLS = 512
# The least interval between reports of missed messages.
MISSED_SECONDS = 1.0
# The period is estimated from this many pauses; the next constant is the longest that counts, in timeouts.
PAUSES = 3
LONGEST_PAUSE = 2.5
# A pool that was silent for this many timeouts is dropped when another one needs its place.
FORGOTTEN_AFTER = 10.0
SECRETS_AGAIN_SECONDS = 30.0
# The period in which the process notes that it runs, and the gap that shows that it was suspended.
PULSE_SECONDS = 1.0
STANDSTILL_SECONDS = 3.0


@dataclass(slots=True)
class KnownPool:
    """The state of one pool between two messages."""

    payload: bytes
    body: Json
    at: float
    seen: Seen = field(default_factory=Seen)
    pauses: deque[float] = field(default_factory=lambda: deque(maxlen=PAUSES))


class PoolSubscription:
    """The subscription of one flavor of a MasterQueue."""

    def __init__(self, pools: PoolListener, queue: str, flavor: str, nats: NatsFlavor) -> None:
        self._pools = pools
        self._key = {"namespace": queue, "name": flavor}
        self._flavor = flavor
        self.nats = nats
        self._known: dict[str, KnownPool] = {}
        self._waiting: dict[str, bytes] = {}
        self._refusals = Refusals(self._put_source, pools.now)
        self._expression_error = ""
        self._excluded: tuple[str, ...] = ()
        self._state = ConnectionState(connected=False)
        self._since = pools.now()
        self.end: Callable[[], None] = lambda: None
        # The flavor is gone, or another subscription has replaced this one.
        self.is_replaced = False

    def on_message(self, subject: str, payload: bytes, reply: str) -> None:
        pool = subject.rpartition(".")[2]
        known = self._known.get(pool)
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
        """Note a dropped message; silence of a pool means nothing for now."""
        self._refusals.add(Refused("TooFast"), "")
        if self._pools.now() - self._since >= MISSED_SECONDS:
            self.reset_silence()

    def reset_silence(self) -> None:
        """Reset the silence of all pools, because no message could arrive until now."""
        self._since = self._pools.now()
        self._put_source()

    def _selects(self, pool: str) -> bool | None:
        """Return whether the expression selects the pool; None if that is not known yet."""
        if self.nats.pools:
            return pool in self.nats.pools
        verdict = self._pools.expressions.find(self._question(pool))
        return None if verdict is None else verdict.selected

    def _question(self, pool: str) -> ExpressionQuery:
        return ExpressionQuery(self.nats.pool_reg_exp, self.nats.pool_match == "full", pool)

    def _ask_later(self, pool: str, payload: bytes) -> None:
        """Match the expression in the background, and handle the pool's newest message after that."""
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
            self._put_source()
        if verdict.selected:
            self.on_message(pool, payload, "")

    def _accept(self, pool: str, payload: bytes, announcement: Announcement) -> None:
        known, now = self._known.get(pool), self._pools.now()
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
            known = self._known[pool] = KnownPool(payload, body, now)
        known.payload, known.body = payload, body
        known.seen = Seen(announcement.seq, announcement.ts)
        self._report(pool, known, now, declared=announcement.period)

    def _has_room(self, now: float) -> bool:
        """Return whether one more pool can be kept, after dropping the one that was silent longest if needed."""
        if len(self._known) < MOST_POOLS:
            return True
        pool, oldest = min(self._known.items(), key=lambda item: item[1].at)
        if now - oldest.at <= FORGOTTEN_AFTER * self.nats.pool_timeout:
            return False
        del self._known[pool]
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

    def _report(self, pool: str, known: KnownPool, now: float, declared: float | None = None) -> None:
        if self.is_replaced:
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
        """Return the metadata of the pool's report."""
        return {"metadata": {"namespace": self._key["namespace"], "name": f"{self._flavor}.{pool}"}}

    def on_state(self, state: ConnectionState) -> None:
        if state.connected != self._state.connected:
            self._since = self._pools.now()
        self._state = state
        self._put_source()

    def fail(self, error: str) -> None:
        self.on_state(ConnectionState(connected=False, error=error))

    async def find_excluded(self, known: list[str]) -> None:
        """Find pools in the status that another expression had selected."""
        verdicts = {pool: await self._pools.expressions.ask(self._question(pool)) for pool in known}
        self._excluded = tuple(sorted(pool for pool, verdict in verdicts.items() if not verdict.selected))
        errors = [verdict.error for verdict in verdicts.values() if verdict.error]
        if errors:
            self._expression_error, self._excluded = errors[0], ()
        self._put_source()

    def _put_source(self) -> None:
        if self.is_replaced:
            return
        body = {
            "connected": self._state.connected,
            "since": self._since,
            "error": self._state.error,
            "expressionError": self._expression_error,
            "excluded": list(self._excluded),
            "refused": self._refusals.reported,
        }
        self._pools.put(PoolSource.KIND, {"metadata": dict(self._key), **body})

    def forget(self) -> None:
        """Remove the reports of a deleted flavor."""
        self.is_replaced = True
        self.end()
        for pool in self._known:
            self._pools.take(PoolReport.KIND, self._named(pool))
        self._pools.take(PoolSource.KIND, {"metadata": dict(self._key)})


class PoolListener:
    """All subscriptions of this process. ``changed`` follows MasterQueues."""

    def __init__(self, cache: Cache, client: Client, clock: Callable[[], datetime], connect: Connect) -> None:
        self._cache = cache
        self._client = client
        self._clock = clock
        self._ran_at = clock()
        self._connect_bus = connect
        self._versions = itertools.count(1)
        self._subscriptions: dict[tuple[str, str], tuple[NatsFlavor, PoolSubscription, Connector | None]] = {}
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
        """Read the clock regularly, so that a suspension is noticed even without plans."""
        while True:
            self.clock()
            await asyncio.sleep(PULSE_SECONDS)

    def clock(self) -> datetime:
        """
        Return the time, for plans that judge the silence of pools.

        After a suspension of the process or machine all pools would seem silent, before their messages are read. The
        first call after it resets the silence of all pools.
        """
        now, before = self._clock(), self._ran_at
        self._ran_at = now
        if (now - before).total_seconds() > STANDSTILL_SECONDS:
            for _, subscription, _ in self._subscriptions.values():
                subscription.reset_silence()
        return now

    async def _listen(self, name: str) -> None:
        """Make the subscriptions of the MasterQueue's spec; unchanged ones stay."""
        queue = self._cache.get(MasterQueue, Key("", name))
        groups = {group.name: group.nats_flavor for group in queue.spec.flavors} if queue else {}
        for (owner, flavor), (nats, subscription, _) in list(self._subscriptions.items()):
            if owner == name and groups.get(flavor) != nats:
                del self._subscriptions[owner, flavor]
                subscription.forget()
        for flavor, wanted in groups.items():
            if wanted is not None and (name, flavor) not in self._subscriptions:
                subscription = PoolSubscription(self, name, flavor, wanted)
                self._subscriptions[name, flavor] = (wanted, subscription, await self._connect(subscription, name))
                known = [pool.name for pool in queue.status.pools if pool.flavor == flavor] if queue else []
                if wanted.pool_reg_exp and known:
                    self.spawn(subscription.find_excluded(known))
        self._close_unused()

    async def _connect(self, subscription: PoolSubscription, name: str) -> Connector | None:
        try:
            connector = await find_connector(self._client, subscription.nats)
        except (BadConnector, LookupError) as error:
            subscription.fail(str(error))
            # A missing Secret may be created later.
            asyncio.get_running_loop().call_later(SECRETS_AGAIN_SECONDS, self._again, name, subscription)
            return None
        if connector not in self._connections:
            connection = self._connect_bus(connector, "kyu", lambda state: self._on_state(connector, state))
            self._connections[connector] = (connection, asyncio.create_task(connection.run()))
        connection = self._connections[connector][0]
        subscription.end = connection.listen(
            f"{subscription.nats.nats_subject}.*", subscription.on_message, subscription.on_missed
        )
        subscription.on_state(connection.state)
        return connector

    def _again(self, name: str, subscription: PoolSubscription) -> None:
        for place, (_, one, _) in list(self._subscriptions.items()):
            if one is subscription:
                subscription.is_replaced = True
                del self._subscriptions[place]
                self._due[name] = None
                self._wakeup.set()

    def _on_state(self, connector: Connector, state: ConnectionState) -> None:
        for _, subscription, its_connector in self._subscriptions.values():
            if its_connector == connector:
                subscription.on_state(state)

    def _close_unused(self) -> None:
        used = {connector for _, _, connector in self._subscriptions.values()}
        for connector in [one for one in self._connections if one not in used]:
            self._connections.pop(connector)[1].cancel()

    def find_connection(self, queue: str, flavor: str) -> Bus | None:
        """Return the connection of a flavor, for requests to its pools."""
        found = self._subscriptions.get((queue, flavor))
        known = self._connections.get(found[2]) if found and found[2] else None
        return known[0] if known else None

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
