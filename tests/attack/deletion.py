"""
The deletion of a namespace with thousands of jobs and their pods, while another tenant reads and writes.

    python -m tests.attack.deletion --jobs 5000

The pods are those of simulated nodes, so the machine has no processes to start.
"""

from __future__ import annotations

import argparse
import http.client
import os
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from tests.attack.floods import Target
from tests.attack.fuzzer import kyu

NODES = """
apiVersion: v1
kind: Node
metadata: {{name: simulated}}
status:
  allocatable: {{cpu: "{count}", memory: 100Ti, pods: "{count}"}}
  capacity: {{cpu: "{count}", memory: 100Ti, pods: "{count}"}}
"""
SUBMITTERS = 4
encode = msgspec.json.encode


class Caller:
    """One connection of the administrator."""

    def __init__(self, target: Target) -> None:
        self._headers = {"authorization": f"Bearer {target.token}", "content-type": "application/json"}
        self._connection = http.client.HTTPSConnection(target.host, target.port, timeout=120, context=target.context)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        self._connection.request(method, path, None if body is None else encode(body), self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        return answer.status, msgspec.json.decode(text) if text else None


def job(number: int) -> Any:
    container = {"name": "c", "image": "i", "command": ["true"], "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"annotations": {"kyu.dev/run-seconds": "100000"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "metadata": {"name": f"j-{number}", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"template": template},
    }


def fill(target: Target, count: int) -> None:
    caller = Caller(target)
    caller.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "crowd"}})
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "main"}}
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/crowd/localqueues"
    code, answer = caller.ask("POST", path, {**queue, "spec": {"clusterQueue": "local"}})
    assert code == 201, answer
    local = threading.local()

    def submit(number: int) -> None:
        if not hasattr(local, "caller"):
            local.caller = Caller(target)
        code, answer = local.caller.ask("POST", "/apis/batch/v1/namespaces/crowd/jobs", job(number))
        assert code == 201, answer

    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(submit, range(count)))
    while count_pods(caller) < count:
        time.sleep(2)


def count_pods(caller: Caller) -> int:
    """Return the number of pods: with a selector, the rest of a list is not counted."""
    listed = caller.ask("GET", "/api/v1/namespaces/crowd/pods?limit=1")[1]
    return int(listed["metadata"].get("remainingItemCount", 0)) + len(listed["items"])


def measure(target: Target, pauses: float = 0.02) -> str:
    """Delete the namespace, and return how long a third caller waited meanwhile."""
    caller, other = Caller(target), Caller(target)
    start = time.monotonic()
    assert caller.ask("DELETE", "/api/v1/namespaces/crowd")[0] == 200
    waits: list[float] = []
    number = 0
    while True:
        number += 1
        name = f"m-{number % 20}"
        path = "/api/v1/namespaces/default/configmaps"
        for method, where, body in (
            ("POST", path, {"metadata": {"name": name}, "data": {"k": "v"}}),
            ("GET", f"{path}/{name}", None),
            ("GET", path, None),
            ("DELETE", f"{path}/{name}", None),
        ):
            asked = time.monotonic()
            other.ask(method, where, body)
            waits.append(time.monotonic() - asked)
        if number % 10 == 0 and caller.ask("GET", "/api/v1/namespaces/crowd")[0] == 404:
            break
        time.sleep(pauses)
    seconds = time.monotonic() - start
    p99 = statistics.quantiles(waits, n=100)[98]
    return (
        f"deleted in {seconds:.1f} s; {len(waits)} requests of others: median {statistics.median(waits) * 1000:.0f} ms,"
        f" p99 {p99 * 1000:.0f} ms, longest {max(waits) * 1000:.0f} ms"
    )


def cpu_seconds(target: Target) -> float:
    fields = Path(f"/proc/{target.process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kyu-attack-") as folder:
        data = Path(folder, "data")
        nodes = Path(folder, "nodes.yaml")
        nodes.write_text(NODES.format(count=2 * args.jobs))
        kyu(data, "up", "-d", "--trust-users", "--nodes", str(nodes))
        try:
            target = Target(data)
            start = time.monotonic()
            fill(target, args.jobs)
            print(f"{args.jobs} jobs with running pods after {time.monotonic() - start:.0f} s", flush=True)
            before = cpu_seconds(target)
            print(measure(target))
            print(f"processor time of the server: {cpu_seconds(target) - before:.1f} s")
        finally:
            kyu(data, "down", "--stop-jobs", "--grace", "0")


if __name__ == "__main__":
    main()
