"""The audit finds pods that run without quota, and Workloads whose pods request more than was admitted."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from kyu.api.actions import Action, Event
from kyu.api.meta import Json, Key
from kyu.controllers.audit import QuotaAudit
from kyu.controllers.metrics import kueue as metrics
from kyu.plans.quota import audit
from tests.plans.test_coverage import FLAVOR, SETTINGS, job, pod, workload
from tests.support.memory_view import MemoryView

QUEUE: Json = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "q", "namespace": "team"},
    "spec": {"clusterQueue": "c"},
}
CPU = audit.QuotaKey("c", "spot", "cpu")


def running(name: str, cpu: str = "1", **meta: object) -> Json:
    return pod(name, cpu, on="spot", phase="Running", **meta)


def view(*objects: Json) -> MemoryView:
    return MemoryView([QUEUE, FLAVOR, *objects], SETTINGS)


def report(*objects: Json, namespace: str = "team") -> audit.Report:
    seen = view(*objects)
    running_audit = audit.Audit(seen)
    for key in audit.pods_to_audit(seen, namespace):
        running_audit.note(key)
    return running_audit.finish()


def test_pods_within_their_quota_are_no_finding() -> None:
    found = report(job(), workload(), running("a"), running("b"), pod("c"))
    assert (found.running[CPU], found.uncovered, found.excess) == (2000, [], [])


def test_pods_beyond_their_quota_are_found() -> None:
    found = report(job(), workload(), running("a"), running("b", "6"))
    assert [(one.workload, one.quota, one.amount) for one in found.excess] == [(Key("team", "w"), CPU, 5000)]
    assert audit.events(found, None) == []
    assert [event.reason for event in audit.events(found, found)] == ["ExceedsAdmittedQuota"]


def test_pods_without_quota_are_found() -> None:
    """The Workload of one is finished; the other is not queued."""
    done = {"type": "Finished", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    found = report(job(), workload(conditions=[done]), running("a"), running("free", ownerReferences=[]))
    assert {one.key.name: one.reason for one in found.uncovered} == {"a": "NoReservation", "free": "NotQueued"}
    assert audit.events(found, None) == []
    told = audit.events(found, found)
    assert [(event.regarding.key.name, event.reason) for event in told] == [("a", "RunsWithoutQuota")]


def test_other_namespaces_are_left_out() -> None:
    found = report(running("x", namespace="elsewhere", ownerReferences=[]), namespace="elsewhere")
    assert found == audit.Report()


def test_the_findings_are_metrics_and_events() -> None:
    registry = CollectorRegistry()
    objects = (job(), workload(count=1), running("a"), running("b"), running("free", ownerReferences=[]))
    written: list[Action] = []

    async def write(actions: list[Action]) -> None:
        written.extend(actions)

    auditing = QuotaAudit(view(*objects), write)
    registry.register(auditing)
    asyncio.run(auditing.audit())
    asyncio.run(auditing.audit())
    lines = metrics.render(registry).decode().splitlines()
    assert 'kyu_pods_without_quota{namespace="team",reason="NotQueued"} 1.0' in lines
    assert 'kyu_running_requests{cluster_queue="c",flavor="spot",resource="cpu"} 2.0' in lines
    assert 'kyu_requests_above_quota{cluster_queue="c",flavor="spot",resource="cpu"} 1.0' in lines
    assert [action.reason for action in written if isinstance(action, Event)] == ["ExceedsAdmittedQuota"]
