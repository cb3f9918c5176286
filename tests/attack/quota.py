"""
A fuzzer of quota: a hostile batch user creates, edits and deletes work at random, and quota must hold all the time.

    python -m tests.attack.quota --seconds 120 --seed 7

The requests of the pods that run are added up several times a second, and compared with the quota of the only queue.
The exit code is 1 if they were ever above it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from kyu.api import codec
from kyu.api.core import Namespace, Pod
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor
from kyu.api.meta import Json, Kind, key_of
from kyu.kinds.job import JOB
from kyu.kinds.pod import POD
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import ApiError
from kyu.plans.quota.coverage import is_bound, pod_amounts
from tests.support.local_kyu import LocalKyu, local_kyu

TEAM, QUEUE = "team", "kueue.x-k8s.io/queue-name"
QUOTA_MILLI_CPU = 1000
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
JOB_SET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
KINDS = (JOB, POD, DEPLOYMENT, STATEFUL_SET, JOB_SET)
SCRIPTS = ("sleep 3", "sleep 30", "trap '' TERM; while :; do sleep 0.3; done", "exit 1")
ANNOTATIONS = (
    "workload", "pod-group-total-count", "role-hash", "job-min-parallelism", "elastic-job", "is-group-workload",
    "workload-slice-replacement-for", "pod-group-serving", "pod-group-fast-admission",
)  # fmt: skip
LABELS = ("pod-group-name", "podset", "managed", "prebuilt-workload-name", "priority-class", "max-exec-time-seconds")


class QuotaFuzzer:
    """A hostile user of one queue, and an administrator who counts what runs."""

    def __init__(self, kyu: LocalKyu, user: BlockingClient, rng: random.Random) -> None:
        self._kyu = kyu
        self._user = user
        self._rng = rng
        self.peak = 0
        self.answers: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        until, look_at = time.monotonic() + seconds, 0.0
        while time.monotonic() < until:
            try:
                self._step()
                self.answers["done"] += 1
            except ApiError as error:
                self.answers[type(error).__name__] += 1
            if time.monotonic() >= look_at:
                self.peak = max(self.peak, self.running_milli_cpu())
                look_at = time.monotonic() + 0.3

    def running_milli_cpu(self) -> int:
        pods = [pod for pod in self._kyu.client.list(POD, TEAM) if is_bound(pod)]
        return sum(pod_amounts(codec.decode_as(Pod, pod).spec).get("cpu", 0) for pod in pods)

    def _step(self) -> None:
        kind, dice = self._rng.choice(KINDS), self._rng.random()
        if dice < 0.4:
            self._user.create(kind, self._object(kind))
            return
        if not (found := self._user.list(kind, TEAM)):
            return
        chosen = self._rng.choice(found)
        if dice < 0.8:
            self._user.patch(kind, key_of(chosen), self._patch())
        else:
            self._user.delete(kind, key_of(chosen))

    def _object(self, kind: Kind) -> Json:
        rng, name = self._rng, f"o{self._rng.randrange(10**9)}"
        labels = {QUEUE: "main"} if rng.random() < 0.9 else {}
        template = {"metadata": {"labels": {"app": name}}, "spec": self._pod_spec()}
        served = {"replicas": rng.randint(0, 4), "selector": {"matchLabels": {"app": name}}, "template": template}
        job = {"parallelism": rng.randint(1, 4), "completions": 4, "template": template}
        spec: Json = {
            JOB: {**job, "suspend": rng.random() < 0.5},
            POD: template["spec"],
            DEPLOYMENT: served,
            STATEFUL_SET: {**served, "serviceName": name},
            JOB_SET: {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": job}}]},
        }[kind]
        if kind in (DEPLOYMENT, STATEFUL_SET):
            spec["template"]["spec"]["restartPolicy"] = "Always"
        meta: Json = {"name": name, "namespace": TEAM, "labels": labels, "annotations": self._annotations(kind)}
        if kind == POD and rng.random() < 0.5:
            labels["kueue.x-k8s.io/pod-group-name"] = f"group{rng.randrange(4)}"
        return {"metadata": meta, "spec": spec}

    def _annotations(self, kind: Kind) -> dict[str, str]:
        count = str(self._rng.randint(1, 3))
        known = {POD: "pod-group-total-count", JOB: self._rng.choice(("job-min-parallelism", "elastic-job"))}
        name = known.get(kind)
        return {f"kueue.x-k8s.io/{name}": "true" if name == "elastic-job" else count} if name else {}

    def _pod_spec(self) -> Json:
        rng = self._rng
        cpu = rng.choice(("100m", "300m", "500m", "900m"))
        command = ["sh", "-c", rng.choice(SCRIPTS)]
        container = {"image": "x", "command": command, "resources": {"requests": {"cpu": cpu}}}
        spec: Json = {"restartPolicy": "Never", "terminationGracePeriodSeconds": rng.choice((0, 1, 5))}
        spec["containers"] = [{"name": "main", **container}]
        if rng.random() < 0.2:
            spec["initContainers"] = [{"name": "side", **container, "restartPolicy": "Always"}]
        if rng.random() < 0.1:
            spec["schedulingGates"] = [{"name": "example.com/gate"}]
        return spec

    def _patch(self) -> Json:
        rng = self._rng
        others = self._user.list(kind := rng.choice(KINDS), TEAM)
        owner = rng.choice(others)["metadata"] if others else {"name": "none", "uid": "none"}
        reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": owner["name"], "uid": owner["uid"]}
        annotation, label = f"kueue.x-k8s.io/{rng.choice(ANNOTATIONS)}", f"kueue.x-k8s.io/{rng.choice(LABELS)}"
        patches: list[Json] = [
            {"metadata": {"labels": {QUEUE: rng.choice((None, "other", "main"))}}},
            {"metadata": {"labels": {label: rng.choice((None, "group1", "main", "7"))}}},
            {"metadata": {"annotations": {annotation: rng.choice((None, "5", "true", owner["name"]))}}},
            {"metadata": {"ownerReferences": rng.choice(([], [{**reference, "controller": True}], [reference]))}},
            {"metadata": {"finalizers": None}},
            {"spec": {"suspend": rng.random() < 0.5}},
            {"spec": {"parallelism": rng.randint(0, 9)}},
            {"spec": {"replicas": rng.randint(0, 9)}},
            {"spec": {"schedulingGates": []}},
            {"spec": {"template": {"spec": self._pod_spec()}}},
        ]
        return rng.choice(patches)


def make_queue(client: BlockingClient) -> None:
    flavors = [flavor["metadata"]["name"] for flavor in client.list(ResourceFlavor.KIND)]
    resources = [{"name": "cpu", "nominalQuota": f"{QUOTA_MILLI_CPU}m"}, {"name": "pods", "nominalQuota": 50}]
    group = {"coveredResources": ["cpu", "pods"], "flavors": [{"name": flavors[0], "resources": resources}]}
    client.create(Namespace.KIND, {"metadata": {"name": TEAM}})
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    client.create(ClusterQueue.KIND, {"metadata": {"name": TEAM}, "spec": spec})
    client.create(LocalQueue.KIND, {"metadata": {"name": "main", "namespace": TEAM}, "spec": {"clusterQueue": TEAM}})


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args(arguments)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}, {args.seconds:.0f} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="kyu-attack-") as folder:
        data = Path(folder) / "data"
        with local_kyu(data, "--trust-users", "--cpu", "64") as kyu:
            make_queue(kyu.client)
            config = Path(folder) / "eve.kubeconfig"
            config.write_text(kyu.kyu("user", "add", "eve", "--namespace", TEAM).stdout)
            with contextlib.closing(BlockingClient(kubeconfig.load(config))) as user:
                fuzzer = QuotaFuzzer(kyu, user, random.Random(seed))
                fuzzer.run(args.seconds)
    print(f"answers {dict(fuzzer.answers)}, at most {fuzzer.peak}m of {QUOTA_MILLI_CPU}m cpu ran")
    return int(fuzzer.peak > QUOTA_MILLI_CPU or not fuzzer.peak)


if __name__ == "__main__":
    sys.exit(main())
