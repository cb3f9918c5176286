"""The pods of a real Job controller never use more than the quota, while a job is preempted and its pods take long."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.cluster import kyu
from tests.cluster.client import Client, Manifest, has
from tests.cluster.controlplane import ControlPlane
from tests.cluster.nodes import RUN_FOR
from tests.cluster.test_controller import KUEUE, control, end, rights, until_told
from tests.support.manifests import flavor, job, queues

QUOTA = 4
HOLD = "example.com/hold"
PODS = "/api/v1/namespaces/default/pods"


class LivePods:
    """The largest number of pods that were there and not over at any instant, from a watch."""

    def __init__(self, client: Client) -> None:
        self.most = 0
        self._live: set[str] = set()
        self._client = client
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        for event in self._client.follow(PODS, {}, 300):
            pod = event["object"]
            uid, over = pod["metadata"]["uid"], pod["status"].get("phase") in ("Succeeded", "Failed")
            if event["type"] == "DELETED" or over:
                self._live.discard(uid)
            else:
                self._live.add(uid)
            self.most = max(self.most, len(self._live))


def a_job(name: str, priority: str, *finalizers: str) -> Manifest:
    """Return a Job that takes all quota. Its pods stay until their finalizers are removed, as with a long grace."""
    made = job(name, queue="team", cpu="1", namespace="default", pod_annotations={RUN_FOR: "1s"}, parallelism=QUOTA)
    made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
    made["spec"]["completions"] = QUOTA
    made["spec"]["template"]["metadata"]["finalizers"] = list(finalizers)
    if finalizers:
        made["spec"]["template"]["metadata"]["annotations"] = {RUN_FOR: "1h"}
    return made


def test_live_pods_stay_within_quota(plane: ControlPlane, tmp_path: Path) -> None:
    plane.add_nodes(["node"], {"cpu": "64", "memory": "64Gi", "pods": "110"})
    kyu.install(plane)
    preemption = {"withinClusterQueue": "LowerPriority"}
    plane.admin.apply([*rights(), flavor("team"), *queues("team", cpu=QUOTA, preemption=preemption)])
    for name, value in (("low", 0), ("high", 100)):
        body = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        plane.admin.create(body)
    live = LivePods(plane.admin)
    control(plane, "first", tmp_path)
    until_told(plane, "first", "holding the lease")
    plane.admin.create(a_job("low", "low", HOLD))
    plane.admin.until(lambda found: found.get("status", {}).get("active") == QUOTA, "batch/v1", "Job", "low")
    plane.admin.create(a_job("high", "high"))
    plane.admin.until(has("Suspended"), "batch/v1", "Job", "low")
    # Another controller finds the same pods.
    end(plane, "first")
    control(plane, "second", tmp_path)
    until_told(plane, "second", "holding the lease")
    time.sleep(3)
    assert plane.admin.get("batch/v1", "Job", "high")["spec"]["suspend"]
    assert len(plane.admin.list("v1", "Pod", "default")) == QUOTA
    for pod in plane.admin.list("v1", "Pod", "default"):
        change = {"metadata": {"finalizers": None}}
        plane.admin.patch("v1", "Pod", pod["metadata"]["name"], change)
    plane.admin.until(has("Complete"), "batch/v1", "Job", "high")
    end(plane, "second")
    assert live.most == QUOTA
