"""The lines of `kyu status` about the quota audit."""

from __future__ import annotations

from kyu.cli.local.status import audit_findings

METRICS = """\
# TYPE kyu_pods_without_quota gauge
kyu_pods_without_quota{namespace="team",reason="NotQueued"} 3.0
kyu_pods_without_quota{namespace="team",reason="NoReservation"} 2.0
kyu_running_requests{cluster_queue="c",flavor="spot",resource="cpu"} 32.0
kyu_requests_above_quota{cluster_queue="c",flavor="spot",resource="cpu"} 12.0
"""


def test_findings_are_told_and_unqueued_work_is_not() -> None:
    assert audit_findings(METRICS) == [
        "quota audit: 2 pods in namespace team run without quota",
        "quota audit: running pods request 12.0 cpu above ClusterQueue c, flavor spot",
    ]
    assert audit_findings("") == []
