"""
Leader election with a Lease, as in Kubernetes.

Clocks of machines are not compared: a Lease has expired when it did not change for its duration, by the local clock.
Its holder stops before that if it cannot renew the Lease.

Kubernetes: client-go/tools/leaderelection.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from kyu import log
from kyu.api.core import Namespace
from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors
from kyu.kube.client import Client

LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")


class LeaseLost(Exception):
    """Another process may be the leader by now, so this one must stop."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The Lease to acquire, the name of its holder, and times in seconds."""

    key: Key
    holder: str
    """Unique among all candidates."""
    duration: float
    """The time without a renewal after which another candidate may take the Lease."""
    renew_deadline: float
    """The time without a renewal after which the holder stops; shorter than the duration."""
    retry: float


@dataclass(slots=True)
class ObservedLease:
    """The spec of the Lease at its last observed change, and the local time of that."""

    spec: Json
    at: float

    def observe(self, spec: Json, now: float) -> None:
        if spec != self.spec:
            self.spec, self.at = spec, now

    def is_free_for(self, holder: str, now: float) -> bool:
        held_by = self.spec.get("holderIdentity")
        return not held_by or held_by == holder or now >= self.at + (self.spec.get("leaseDurationSeconds") or 0)


def claimed(spec: Json, terms: Terms, now: datetime) -> Json:
    """Return the spec that the holder writes to acquire or renew the Lease."""
    written = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    is_ours = spec.get("holderIdentity") == terms.holder
    return {
        "holderIdentity": terms.holder,
        "leaseDurationSeconds": math.ceil(terms.duration),
        "acquireTime": spec["acquireTime"] if is_ours else written,
        "renewTime": written,
        "leaseTransitions": (spec.get("leaseTransitions") or 0) + (bool(spec) and not is_ours),
    }


class Lease:
    def __init__(self, client: Client, terms: Terms, clock: Callable[[], datetime]) -> None:
        self._client = client
        self._terms = terms
        self._clock = clock
        self._observed = ObservedLease({}, 0.0)
        # True while another process is the leader.
        self.is_standing_by = False

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Acquire the Lease and renew it while the context is open; raise LeaseLost in it if that fails."""
        await self._acquire()
        task = asyncio.current_task()
        assert task is not None
        keeping = asyncio.create_task(self._keep())
        keeping.add_done_callback(lambda done: None if done.cancelled() else task.cancel())
        try:
            yield
        except asyncio.CancelledError:
            if keeping.done() and (lost := keeping.exception()) is not None:
                raise lost from None
            raise
        finally:
            if not keeping.done():
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
                await self._release()

    async def _acquire(self) -> None:
        """Wait for the Lease. Errors of the first attempt are raised; later ones are retried."""
        logged = None
        has_it = await self._try()
        while not has_it:
            self.is_standing_by = True
            if self._holder != logged:
                logged = self._holder
                log.info("waiting for the lease", lease=self._terms.key, holder=logged)
            await asyncio.sleep(self._terms.retry)
            try:
                has_it = await self._try()
            except (errors.ApiError, OSError, TimeoutError) as error:
                log.warning("lease not read", lease=self._terms.key, error=error)
        self.is_standing_by = False
        log.info("holding the lease", lease=self._terms.key, holder=self._terms.holder)

    async def _keep(self) -> None:
        now = asyncio.get_running_loop().time
        renewed = now()
        while now() < renewed + self._terms.renew_deadline:
            await asyncio.sleep(self._terms.retry)
            with contextlib.suppress(errors.ApiError, OSError, TimeoutError):
                async with asyncio.timeout_at(renewed + self._terms.renew_deadline):
                    if await self._try():
                        renewed = now()
                    elif self._holder != self._terms.holder:
                        raise LeaseLost(f"{self._holder} has taken the lease {self._terms.key}")
        raise LeaseLost(f"the lease {self._terms.key} could not be renewed")

    @property
    def _holder(self) -> str:
        return str(self._observed.spec.get("holderIdentity") or "")

    async def _try(self) -> bool:
        """Acquire or renew the Lease; return False if another candidate holds it or was faster."""
        now = asyncio.get_running_loop().time()
        found = await self._client.find(LEASE, self._terms.key)
        self._observed.observe((found or {}).get("spec") or {}, now)
        if not self._observed.is_free_for(self._terms.holder, now):
            return False
        spec = claimed(self._observed.spec, self._terms, self._clock())
        try:
            if found is None:
                await self._create(spec)
            else:
                await self._client.update(LEASE, {**found, "spec": spec})
        except (errors.Conflict, errors.AlreadyExists):
            return False
        self._observed.observe(spec, now)
        return True

    async def _create(self, spec: Json) -> None:
        name, namespace = self._terms.key.name, self._terms.key.namespace
        lease = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        try:
            await self._client.create(LEASE, lease)
        except errors.NotFound:
            # The namespace may not exist yet.
            await self._client.create(Namespace.KIND, {"metadata": {"name": namespace}})
            await self._client.create(LEASE, lease)

    async def _release(self) -> None:
        """Give up the Lease, so that another candidate need not wait for it to expire."""
        with contextlib.suppress(errors.ApiError, OSError, TimeoutError):
            async with asyncio.timeout(self._terms.renew_deadline):
                while True:
                    if await self._try_release():
                        return
                    await asyncio.sleep(self._terms.retry)

    async def _try_release(self) -> bool:
        """Give up the Lease; return False if a late renewal caused a conflict."""
        found = await self._client.get(LEASE, self._terms.key)
        if found["spec"].get("holderIdentity") == self._terms.holder:
            spec = {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
            try:
                await self._client.update(LEASE, {**found, "spec": spec})
            except errors.Conflict:
                return False
        return True
