"""
Registers nodes with the API and keeps them alive: the Node, its status, and the Lease that is renewed.

Called by: embedded.py. Calls: kube. Kubernetes: the kubelet's registration and pkg/kubelet/nodelease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from kyu import log
from kyu.api.core import Node
from kyu.api.meta import Json, Key
from kyu.kube import errors
from kyu.kube.client import Client
from kyu.kube.lease import LEASE
from kyu.runtime.nodes.node import LEASE_NAMESPACE, make_lease

RENEW_SECONDS = 10.0
# Put on new nodes by the API server; it goes when the node says that it is ready.
NOT_READY = "node.kubernetes.io/not-ready"


async def register(client: Client, nodes: Sequence[Json]) -> None:
    """Create the nodes, or bring those that exist up to date. What a user has set (taints, labels) stays."""
    for body in nodes:
        key = Key("", body["metadata"]["name"])
        try:
            stored = await client.create(Node.KIND, body)
        except errors.AlreadyExists:
            stored = await client.patch(Node.KIND, key, {"metadata": {"labels": body["metadata"]["labels"]}})
        taints = [taint for taint in stored.get("spec", {}).get("taints") or () if taint.get("key") != NOT_READY]
        if taints != (stored.get("spec", {}).get("taints") or []):
            await client.patch(Node.KIND, key, {"spec": {"taints": taints or None}})
        await client.patch(Node.KIND, key, {"status": body["status"]}, subresource="status")


async def keep_alive(client: Client, name: str, clock: Callable[[], datetime]) -> None:
    """Renew the Lease until cancelled. A renewal that fails is tried again with the next one."""
    while True:
        try:
            await renew(client, name, clock())
        except errors.ApiError as error:
            log.warning("lease not renewed", node=name, error=error)
        await asyncio.sleep(RENEW_SECONDS)


async def renew(client: Client, name: str, now: datetime) -> None:
    lease = make_lease(name, now)
    try:
        await client.patch(LEASE, Key(LEASE_NAMESPACE, name), {"spec": lease["spec"]})
    except errors.NotFound:
        await client.create(LEASE, lease)
