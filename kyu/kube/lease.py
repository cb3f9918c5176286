"""
One of several: whoever holds a Lease acts, the others wait. Leader election as all of Kubernetes does it.

Clocks of two machines are not compared: a Lease has run out when it did not change for its duration, as seen from here.
Its holder gives up before that, if it cannot renew the Lease.

Called by: on_cluster.py. Calls: kube/client.py. Kubernetes: client-go/tools/leaderelection.
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
    """Others may act by now, so this process must not."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Which Lease, for whom, and for how many seconds."""

    key: Key
    holder: str
    """Unlike anybody else's."""
    duration: float
    """Without a sign for so long others may take it."""
    renew_deadline: float
    """A holder that could not renew it for so long gives up; shorter than the duration."""
    retry: float


@dataclass(slots=True)
class Sight:
    """The Lease as it was last seen to change."""

    spec: Json
    at: float

    def look(self, spec: Json, now: float) -> None:
        if spec != self.spec:
            self.spec, self.at = spec, now

    def is_free_for(self, holder: str, now: float) -> bool:
        held_by = self.spec.get("holderIdentity")
        return not held_by or held_by == holder or now >= self.at + (self.spec.get("leaseDurationSeconds") or 0)


def claimed(spec: Json, terms: Terms, now: datetime) -> Json:
    """The Lease as its holder writes it, for the first time or again."""
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
        self._sight = Sight({}, 0.0)
        # Whether somebody else acts, and this one is there to take over.
        self.is_standing_by = False

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Wait for the Lease and keep it while the context is open, which ends with LeaseLost if that fails."""
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
        """The first try says whether there is a server that lets us; after that, one that is away is waited for."""
        told = None
        has_it = await self._try()
        while not has_it:
            self.is_standing_by = True
            if self._holder != told:
                told = self._holder
                log.info("waiting for the lease", lease=self._terms.key, holder=told)
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
        return str(self._sight.spec.get("holderIdentity") or "")

    async def _try(self) -> bool:
        """Take or renew the Lease; False if somebody else has it, or was first."""
        now = asyncio.get_running_loop().time()
        found = await self._client.find(LEASE, self._terms.key)
        self._sight.look((found or {}).get("spec") or {}, now)
        if not self._sight.is_free_for(self._terms.holder, now):
            return False
        spec = claimed(self._sight.spec, self._terms, self._clock())
        try:
            if found is None:
                await self._create(spec)
            else:
                await self._client.update(LEASE, {**found, "spec": spec})
        except (errors.Conflict, errors.AlreadyExists):
            return False
        self._sight.look(spec, now)
        return True

    async def _create(self, spec: Json) -> None:
        name, namespace = self._terms.key.name, self._terms.key.namespace
        lease = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        try:
            await self._client.create(LEASE, lease)
        except errors.NotFound:
            # The first thing of its kind in this cluster.
            await self._client.create(Namespace.KIND, {"metadata": {"name": namespace}})
            await self._client.create(LEASE, lease)

    async def _release(self) -> None:
        """Let others have it at once. If that fails, they wait until it has run out."""
        with contextlib.suppress(errors.ApiError, OSError, TimeoutError):
            async with asyncio.timeout(self._terms.renew_deadline):
                while True:
                    if await self._try_release():
                        return
                    await asyncio.sleep(self._terms.retry)

    async def _try_release(self) -> bool:
        """False if a last renewal was still on its way."""
        found = await self._client.get(LEASE, self._terms.key)
        if found["spec"].get("holderIdentity") == self._terms.holder:
            spec = {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
            try:
                await self._client.update(LEASE, {**found, "spec": spec})
            except errors.Conflict:
                return False
        return True
