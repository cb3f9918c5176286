"""The positions of steps in their queues, from the visibility API of Kyu or Kueue."""

from __future__ import annotations

import json
from collections.abc import Iterable

from kyu.api.meta import Json
from kyu.cli.connection import ServerConnection
from kyu.kinds import fields
from kyu.kube.errors import ApiError

PATHS = tuple(f"/apis/visibility.kueue.x-k8s.io/{version}" for version in ("v1beta2", "v1beta1"))
MOST_WORKLOADS = 4000


def read_positions(server: ServerConnection, queues: Iterable[str]) -> dict[str, int]:
    """Return the position of each pending object, from 1, by its name. Without the API or the right, nothing."""
    found: dict[str, int] = {}
    for queue in sorted(set(queues)):
        for item in pending(server, queue):
            position = fields.int_at(item, ("positionInLocalQueue",)) + 1
            found[fields.text_at(item, ("metadata", "name"))] = position
            for owner in fields.list_at(item, ("metadata", "ownerReferences")):
                found[str(owner.get("name"))] = position
    return found


def pending(server: ServerConnection, queue: str) -> list[Json]:
    for path in PATHS:
        where = f"{path}/namespaces/{server.namespace}/localqueues/{queue}/pendingworkloads"
        try:
            answer = json.loads(server.client.raw(where, {"limit": str(MOST_WORKLOADS)}))
        except (ApiError, ValueError):
            continue
        return fields.list_at(answer, ("items",))
    return []
