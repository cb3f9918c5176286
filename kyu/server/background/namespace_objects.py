"""
Keeps the objects that every namespace has: the ServiceAccount ``default``, and the authority that pods trust.

Kubernetes: pkg/controller/serviceaccount, pkg/controller/certificates/rootcacertpublisher.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from kyu import log
from kyu.api.meta import Json, Key, Kind
from kyu.server.background.worklist import Worklist
from kyu.server.representations import decode
from kyu.server.storage.records import Change
from kyu.server.storage.store import Store

SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
DEFAULT_ACCOUNT = "default"
AUTHORITY = "kube-root-ca.crt"
MANAGER = "kyu"

Add = Callable[[Kind, Json, str], Awaitable[tuple[int, Json]]]
Merge = Callable[[Kind, Key, Json, Literal["", "status"], str], Awaitable[tuple[int, Json]]]
ALREADY_EXISTS = 409
GONE_OR_ENDING = (403, 404)


class NamespaceObjects:
    """The controller that keeps the objects of every namespace as they should be."""

    def __init__(self, store: Store, add: Add, merge: Merge, authority: str) -> None:
        self._store = store
        self._add = add
        self._merge = merge
        self._bodies: dict[tuple[str, str], tuple[Kind, Json]] = {
            ("serviceaccounts", DEFAULT_ACCOUNT): (SERVICE_ACCOUNT, {}),
            ("configmaps", AUTHORITY): (CONFIG_MAP, {"data": {"ca.crt": authority}}),
        }
        self._due: Worklist[str] = Worklist()
        for record in store.objects("namespaces"):
            self._due.put(record.name)
        self._stop = store.listen(self._heard, "namespaces", "serviceaccounts", "configmaps")

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await self._ensure(await self._due.take())
        finally:
            self._stop()

    def _heard(self, change: Change) -> None:
        record = change.record
        if record.resource == "namespaces":
            if change.type == "ADDED":
                self._due.put(record.name)
        elif change.type != "ADDED" and (record.resource, record.name) in self._bodies:
            self._due.put(record.namespace)

    async def _ensure(self, namespace: str) -> None:
        found = self._store.latest("namespaces", "", namespace)
        if found is None or found.is_ending:
            return
        for (storage, name), (kind, body) in self._bodies.items():
            present = self._store.latest(storage, namespace, name)
            if present is not None and body.items() <= decode(present.value).items():
                continue
            if present is not None:
                code, answer = await self._merge(kind, Key(namespace, name), body, "", MANAGER)
            else:
                metadata = {"name": name, "namespace": namespace}
                code, answer = await self._add(kind, {"metadata": metadata, **body}, MANAGER)
            if code >= 400 and code not in (ALREADY_EXISTS, *GONE_OR_ENDING):
                log.warning("object of namespace not created", namespace=namespace, name=name, error=answer["message"])
                self._due.put_later(namespace)
