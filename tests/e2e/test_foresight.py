"""kyu doctor and backfill on a running control plane."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kyu.kinds.job import JOB
from tests.support.local_kyu import LocalKyu, local_kyu

STARTED = ("Starting", "Running")
QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: machine, annotations: {kyu.dev/queueing-strategy: Backfill}}
spec:
  queueingStrategy: StrictFIFO
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: node, resources: [{name: cpu, nominalQuota: 10}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: node}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: batch, namespace: default}
spec: {clusterQueue: machine}
"""


def submit(local: LocalKyu, name: str, cpu: int, limit: int) -> None:
    """Create a Job that holds so many cores, and declares a maximum execution time."""
    labels = {"kueue.x-k8s.io/queue-name": "batch", "kueue.x-k8s.io/max-exec-time-seconds": str(limit)}
    container = {"name": "c", "image": "i", "command": ["sleep", "600"], "resources": {"requests": {"cpu": str(cpu)}}}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    local.client.create(JOB, {"metadata": metadata, "spec": {"template": {"spec": pod}}})


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu"), "--bare", "--cpu", "64") as found:
        yield found


def findings(local: LocalKyu) -> list[dict[str, Any]]:
    found = json.loads(local.kyu("doctor", "-o", "json", check=False).stdout)["findings"]
    assert isinstance(found, list)
    return found


def test_the_doctor_looks_at_the_server(local: LocalKyu) -> None:
    assert findings(local) == []
    local.kyu("apply", "-f", "-", stdin=QUEUES.replace("clusterQueue: machine", "clusterQueue: mashine"))
    assert {f["code"] for f in findings(local)} == {"clusterqueue-missing", "localqueue-missing"}
    local.kyu("delete", "localqueue", "batch")


def test_short_workloads_pass_a_wide_one_that_has_a_reservation(local: LocalKyu) -> None:
    local.kyu("apply", "-f", "-", stdin=QUEUES)
    submit(local, "busy", 6, 36000)
    local.wait_for("busy", *STARTED)
    submit(local, "wide", 8, 36000)
    created = local.wait_for("wide", "Queued")["metadata"]["creationTimestamp"]
    # Workloads of one second have no order of age.
    local.wait("a later second", lambda: datetime.now(UTC) > datetime.fromisoformat(created) + timedelta(seconds=2))
    submit(local, "long", 4, 72000)
    local.wait_for("long", "Queued")
    submit(local, "short", 4, 3600)
    local.wait_for("short", *STARTED)
    why = json.loads(local.kyu("why", "wide", "-o", "json").stdout)
    assert why["reservation"]["workload"].startswith("default/job-wide-")
    assert why["reservation"]["start"]
    assert "may pass it" in local.kyu("why", "long").stdout
    assert "unless jobs come before it, it is admitted by" in local.kyu("why", "wide").stdout
    assert re.search(r"wide .* about .* UTC", local.kyu("jobs", "--eta", "-o", "wide").stdout)
    assert local.state("long") == local.state("wide") == "Queued"
