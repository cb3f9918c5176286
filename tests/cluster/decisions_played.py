"""
Scenarios as Kueue plays them on a control plane, and as Kyu's engine plays them by itself.

There are no jobs: workloads are created bare, and what a job's controller would do after an eviction (end the pods,
give back the quota) is done here. After each arrival both must have admitted the same workloads, with the same counts
in the same flavors.

Called by: test_decisions.py. Calls: decisions.py, kyu.engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kyu.api import codec
from kyu.api.kueue import Workload
from kyu.api.meta import Key
from kyu.engine.options import Options
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from kyu.engine.tree import TreeNode
from tests.cluster.client import PATIENCE_SECONDS, ApiError, Client, Manifest, condition, has
from tests.cluster.decisions import KUEUE, Scenario

# Kueue wakes what was parked a second after quota became free; when nothing happens for longer, it is done, or the
# machine stood still: what differs then is played again, with the longer of the two.
QUIET_SECONDS = 2.0
LONG_QUIET_SECONDS = 8.0
# Queues can take the same quota from each other for ever. Kueue is not waited for longer than this.
RESTLESS_EVENTS = 600
RESTLESS_ROUNDS = 50
# What a workload got: by pod set, how many pods, and the flavor of each resource.
Got = dict[str, tuple[int, dict[str, str]]]
# Of all workloads; None where queues take the same quota from each other for ever.
Outcome = dict[str, Got] | None


@dataclass(slots=True)
class Kyu:
    """The engine with the history of one scenario."""

    state: State
    manifest_by_key: dict[Key, Manifest] = field(default_factory=dict)
    restless: bool = False

    @classmethod
    def start(cls, options: Options, stored: list[Manifest]) -> Kyu:
        state = State(options)
        for manifest in stored:
            state.put(codec.decode(manifest))
        return cls(state)

    def arrive(self, workload: Manifest) -> None:
        """The workload is there; decide until nothing more is decided, and whoever is preempted leaves at once."""
        self.manifest_by_key[Key(workload["metadata"]["namespace"], workload["metadata"]["name"])] = workload
        self.state.put(codec.decode(workload))
        now = datetime.fromisoformat(workload["metadata"]["creationTimestamp"])
        seen: set[frozenset[Key]] = set()
        while touched := self._decide(now):
            # A second after quota became free Kueue asks once more whoever it had parked, also those it parked since.
            self._ask_again(touched)
            holders = frozenset(reserved.key for reserved in self.state.all_reserved())
            if holders in seen:
                self.restless = True
                return
            seen.add(holders)
            now += timedelta(seconds=1)

    def _decide(self, now: datetime) -> set[TreeNode]:
        """Returns the trees in which somebody gave back quota."""
        touched: set[TreeNode] = set()
        for _ in range(RESTLESS_ROUNDS):
            leaving = [preempt.victim for preempt in schedule(self.state, now).preempted()]
            if not leaving:
                return touched
            for key in leaving:
                touched.add(self.state.queues[self.state.reserved.by_key[key].cluster_queue].root)
                self.state.release(key)
        self.restless = True
        return set()

    def _ask_again(self, trees: set[TreeNode]) -> None:
        for key in [workload.key for workload in self.state.all_pending()]:
            spec = self.manifest_by_key[key]["spec"]
            if self.state.queues[f"{key.namespace}-{spec['queueName']}"].root in trees:
                self.state.delete(Workload.KIND, key)
                self.state.put(codec.decode(self.manifest_by_key[key]))

    def outcome(self) -> Outcome:
        if self.restless:
            return None
        return {
            reserved.key.name: {a.name: (a.count, dict(a.flavors)) for a in reserved.assigned}
            for reserved in self.state.all_reserved()
        }


@dataclass(slots=True)
class Kueue:
    """Upstream's scheduler on a control plane, with any number of scenarios."""

    admin: Client
    quiet_seconds: float = QUIET_SECONDS
    restless: set[str] = field(default_factory=set)
    """Namespaces in which it did not come to rest."""

    def set_up(self, scenario: Scenario) -> list[Manifest]:
        """Create the queues. Returns them as they are stored, with the namespace."""
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scenario.name}}
        return [self.admin.create(space), *(self.admin.create(queue) for queue in scenario.queues)]

    def settle(self) -> None:
        """Do what jobs would do, until nothing happens any more."""
        changes: dict[str, int] = {}
        for event in self._events():
            found = event["object"]
            namespace = found["metadata"]["namespace"]
            changes[namespace] = changes.get(namespace, 0) + 1
            if changes[namespace] > RESTLESS_EVENTS:
                self.restless.add(namespace)
            if has("Evicted")(found) and found["status"].get("admission") and namespace not in self.restless:
                self._release(found)

    def outcome(self, namespace: str) -> Outcome:
        if namespace in self.restless:
            return None
        found: dict[str, Got] = {}
        for workload in self.admin.list(KUEUE, "Workload", namespace):
            admission = workload.get("status", {}).get("admission")
            if admission:
                found[workload["metadata"]["name"]] = {
                    a["name"]: (a["count"], a.get("flavors") or {}) for a in admission["podSetAssignments"]
                }
        return found

    def _events(self) -> Iterator[Manifest]:
        """Changes of workloads, beginning with those that are there, until none comes for a while."""
        path = self.admin.path(KUEUE, "Workload", None, None)
        with closing(self.admin.connect(PATIENCE_SECONDS)) as connection:
            connection.request("GET", f"{path}?watch=true", headers=self.admin.headers)
            response = connection.getresponse()
            connection.sock.settimeout(self.quiet_seconds)
            try:
                for line in response:
                    yield json.loads(line)
            except TimeoutError:
                return

    def _release(self, workload: Manifest) -> None:
        """The pods of an evicted workload are gone: it gives back its quota and queues again."""
        now = condition(workload, "Evicted")["lastTransitionTime"]
        changed = {
            "QuotaReserved": ("False", "Pending"),
            "Admitted": ("False", "NoReservation"),
            "Requeued": ("True", "Preempted"),
        }
        conditions = [entry for entry in workload["status"]["conditions"] if entry["type"] not in changed]
        for name, (status, reason) in changed.items():
            entry = {"type": name, "status": status, "reason": reason, "message": "", "lastTransitionTime": now}
            conditions.append(entry)
        metadata = workload["metadata"]
        body = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {"admission": None, "conditions": conditions},
        }
        try:
            self.admin.patch(KUEUE, "Workload", metadata["name"], body, metadata["namespace"], "status")
        except ApiError as error:
            # Somebody changed it meanwhile: the next event shows how it is now.
            if error.reason != "Conflict":
                raise
