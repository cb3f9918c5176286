"""
The pending workloads of a queue, with their positions.

A position is that in the order in which the queue is served, inadmissible workloads included. The priority is that of
the Workload's spec, as Kueue shows it.

Kueue: pkg/visibility/storage
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kyu.api.actions import View
from kyu.api.kueue import LocalQueue, Workload
from kyu.api.meta import Json, Key, Kind
from kyu.engine.queueing.pending_workload import PendingWorkload
from kyu.engine.state import State
from kyu.server import errors

GROUP = "visibility.kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
SUBRESOURCE = "pendingworkloads"
CLUSTER_QUEUES, LOCAL_QUEUES = "clusterqueues", "localqueues"
DEFAULT_LIMIT = 1000
MAXIMAL_LIMIT = 100_000
OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")


class Page(NamedTuple):
    """The part of a queue that a request asks for."""

    limit: int = DEFAULT_LIMIT
    offset: int = 0


class QueuePosition(NamedTuple):
    """A pending workload and its zero-based positions."""

    workload: PendingWorkload
    in_cluster_queue: int
    in_local_queue: int


class QueueVisibility:
    """The pending workloads of all queues: ``state`` returns the current engine state, or None at the start."""

    def __init__(self, state: Callable[[], State | None], view: View) -> None:
        self._state = state
        self._view = view

    def summary(self, version: str, plural: str, key: Key, query: Mapping[str, str]) -> Json:
        """Return the PendingWorkloadsSummary of a queue. Raise a StatusError if there is none."""
        page = read_page(query)
        state = self._state()
        if state is None:
            raise errors.unavailable("the objects of the cluster are still being read")
        if plural == CLUSTER_QUEUES:
            placed = self._of_cluster_queue(state, key.name, page)
        else:
            placed = self._of_local_queue(state, key, page)
        items = [item for one in placed if (item := self._item(one)) is not None]
        kind = {"kind": "PendingWorkloadsSummary", "apiVersion": f"{GROUP}/{version}"}
        return {**kind, "metadata": {"creationTimestamp": None}, "items": items}

    def _of_cluster_queue(self, state: State, name: str, page: Page) -> list[QueuePosition]:
        if not state.has_queue(name):
            raise errors.not_found(Kind(GROUP, "", "", "clusterqueue"), name)
        return list(place(state.pending_in(name, limit=page.offset + page.limit)))[page.offset :]

    def _of_local_queue(self, state: State, key: Key, page: Page) -> list[QueuePosition]:
        found = self._view.find_json(LocalQueue.KIND, key)
        if found is None:
            raise errors.not_found(Kind(GROUP, "", "", "localqueue"), key.name)
        name = (found.get("spec") or {}).get("clusterQueue", "")
        if not state.has_queue(name):
            return []
        all_placed = place(state.pending_in(name, limit=state.stats(name).pending))
        own = [one for one in all_placed if one.workload.local_queue == key]
        return own[page.offset : page.offset + page.limit]

    def _item(self, placed: QueuePosition) -> Json | None:
        """Return the item of a workload; None if it was deleted a moment ago."""
        found = self._view.find_json(Workload.KIND, placed.workload.key)
        if found is None:
            return None
        metadata, spec = found["metadata"], found["spec"]
        owners = [{name: owner.get(name, "") for name in OWNER_FIELDS} for owner in metadata.get("ownerReferences", ())]
        shown: Json = {"name": metadata["name"], "namespace": metadata["namespace"]}
        shown["creationTimestamp"] = metadata.get("creationTimestamp")
        if owners:
            shown["ownerReferences"] = owners
        return {
            "metadata": shown,
            "priority": spec.get("priority", 0),
            "localQueueName": spec.get("queueName", ""),
            "positionInClusterQueue": placed.in_cluster_queue,
            "positionInLocalQueue": placed.in_local_queue,
        }


def place(workloads: list[PendingWorkload]) -> Iterator[QueuePosition]:
    """Yield the workloads of a ClusterQueue with their positions in it and in their LocalQueues."""
    seen: Counter[Key] = Counter()
    for position, workload in enumerate(workloads):
        yield QueuePosition(workload, position, seen[workload.local_queue])
        seen[workload.local_queue] += 1


def read_page(query: Mapping[str, str]) -> Page:
    """Parse the limit and the offset, within their bounds. A limit of 0 means the default."""
    limit, offset = (read_integer(query, name) for name in ("limit", "offset"))
    return Page(min(max(limit or DEFAULT_LIMIT, 0), MAXIMAL_LIMIT), max(offset, 0))


def read_integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "") or "0"
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
