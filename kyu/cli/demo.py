"""
Two teams share this machine for half a minute: real jobs, borrowing, a preemption, a gang, a job that can never fit.

A control plane of its own is started in a temporary folder, and nothing of it is left at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Json
from kyu.cli import jobs, output, target
from kyu.cli.main import Failed
from kyu.kinds import metadata
from kyu.kinds.job import JOB
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient

# Quota of each team; small enough for any machine.
TEAM_CPU = "400m"
# It takes half a minute; on a machine with other things to do, longer.
LONGEST_SECONDS = 120.0
# Where nobody says how wide lines may be.
NO_TERMINAL_WIDTH = 120


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="leave the control plane running and say how to reach it")


def run(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="kyu-demo-", ignore_cleanup_errors=True) as folder:
        data = Path(folder)
        with control_plane(data) as client:
            story = Story(client)
            story.tell()
            print(f"\n{story.summary()}")
            if args.keep:
                input(f"\nexport KUBECONFIG={data / 'kubeconfig'}\nPress Enter to end the demo.")
            return 0 if story.went_well() else 1


@contextlib.contextmanager
def control_plane(data: Path) -> Iterator[BlockingClient]:
    kyu = target.KYU
    say("starting a control plane of our own …")
    started = subprocess.run([*kyu, "up", "-d", "--bare", "--data", str(data)], capture_output=True, text=True)
    if started.returncode:
        raise Failed(started.stderr.strip() or started.stdout.strip())
    client = BlockingClient(kubeconfig.load(data / "kubeconfig"))
    try:
        yield client
    finally:
        client.close()
        subprocess.run([*kyu, "down", "--stop-jobs", "--data", str(data)], capture_output=True, check=False)


class Story:
    """What happens, in order; each scene waits until the cluster shows what it is about."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._ends = time.monotonic() + LONGEST_SECONDS
        self._preempted = ""

    def tell(self) -> None:
        say("two teams, team-a and team-b, each with 400m of cpu, in one cohort: idle quota is lent")
        self._make_queues()
        say("team-a submits six jobs of 200m: two fit its own quota, two borrow from team-b, two wait")
        for number in range(6):
            self._submit("team-a", f"train-{number + 1}", "200m", seconds=12 if number < 4 else 3)
        self._wait("four jobs run", lambda: self._used("team-a") == 2 * millicores(TEAM_CPU))
        self._wait("two jobs wait", lambda: len(self._in_state("Queued")) == 2)
        self._show()
        say("team-b comes back: it submits a job, and takes its own quota back")
        self._submit("team-b", "report", "200m", seconds=4)
        self._wait("a borrower is preempted", self._find_preempted)
        say(f"preempted: {self._preempted}")
        self._wait("its quota is back", lambda: self._used("team-b") > 0)
        say("team-b submits a gang: two pods that must run together, or not at all")
        self._submit("team-b", "simulate", "100m", seconds=3, pods=2)
        say("and somebody asks for more than there is")
        self._submit("team-b", "impossible", "5", seconds=1)
        self._wait("the impossible job says why", lambda: self._cannot_ever_fit("impossible"))
        say(f"impossible: {self._why('impossible')}")
        self._show()
        say("now the rest runs")
        self._wait("all but the impossible one are done", lambda: len(self._in_state("Succeeded")) == 8)

    def went_well(self) -> bool:
        return len(self._in_state("Succeeded")) == 8 and bool(self._preempted)

    def summary(self) -> str:
        rows = []
        for item in self._workloads():
            state = jobs.state_of(item)
            stats = ((item.get("status") or {}).get("schedulingStats") or {}).get("evictions") or ()
            stopped = sum(entry["count"] for entry in stats)
            meta = item["metadata"]
            rows.append(
                [
                    meta["namespace"],
                    jobs.owner_of(item)[1],
                    jobs.pods(item),
                    state.word,
                    stopped,
                    state.why,
                ]
            )
        room = output.terminal_room() or NO_TERMINAL_WIDTH
        return output.table(["TEAM", "JOB", "PODS", "STATE", "PREEMPTED", "WHY"], rows, room)

    def _make_queues(self) -> None:
        self._client.create(ResourceFlavor.KIND, {"metadata": {"name": "machine"}})
        for team in ("team-a", "team-b"):
            self._client.create(Namespace.KIND, {"metadata": {"name": team}})
            quota = {"name": "machine", "resources": [{"name": "cpu", "nominalQuota": TEAM_CPU}]}
            spec: Json = {
                "cohortName": "demo",
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team}},
                "preemption": {"reclaimWithinCohort": "Any"},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
            }
            self._client.create(ClusterQueue.KIND, {"metadata": {"name": team}, "spec": spec})
            queue = {"metadata": {"name": "queue", "namespace": team}, "spec": {"clusterQueue": team}}
            self._client.create(LocalQueue.KIND, queue)

    def _submit(self, team: str, name: str, cpu: str, *, seconds: int, pods: int = 1) -> None:
        container = {
            "name": "main",
            "image": "kyu.dev/host",
            "command": ["/bin/sh", "-c", f"echo {name} of {team} runs; sleep {seconds}; echo done"],
            "resources": {"requests": {"cpu": cpu}},
        }
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
        spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {"spec": pod}}
        meta = {"name": name, "namespace": team, "labels": {metadata.QUEUE_NAME: "queue"}}
        self._client.create(JOB, {"metadata": meta, "spec": spec})

    def _wait(self, what: str, is_so: object) -> None:
        assert callable(is_so)
        while not is_so():
            if time.monotonic() > self._ends:
                raise Failed(f"{what}: not seen within {LONGEST_SECONDS:.0f} s\n{self.summary()}")
            time.sleep(0.2)

    def _workloads(self) -> list[Json]:
        found = list(self._client.list(Workload.KIND))
        return sorted(found, key=lambda item: (item["metadata"]["namespace"], jobs.owner_of(item)[1]))

    def _in_state(self, *words: str) -> list[Json]:
        return [item for item in self._workloads() if jobs.state_of(item).word in words]

    def _used(self, team: str) -> int:
        """Millicores that the team's jobs hold."""
        admissions = [(w.get("status") or {}).get("admission") for w in self._workloads() if team == namespace_of(w)]
        sets = [one for admission in admissions if admission for one in admission["podSetAssignments"]]
        return sum(millicores(one["resourceUsage"].get("cpu", "0")) for one in sets)

    def _why(self, name: str) -> str:
        return next((jobs.state_of(item).why for item in self._workloads() if jobs.owner_of(item)[1] == name), "")

    def _cannot_ever_fit(self, name: str) -> bool:
        told = [item.get("status") or {} for item in self._workloads() if jobs.owner_of(item)[1] == name]
        return any(c.get("reason") == "ExceedsMaxQuota" for status in told for c in status.get("conditions") or ())

    def _find_preempted(self) -> bool:
        for item in self._workloads():
            for condition in (item.get("status") or {}).get("conditions") or ():
                if condition["type"] == "Preempted" and condition["status"] == "True":
                    why = condition["message"].partition("due to ")[2].partition(";")[0]
                    self._preempted = f"{jobs.owner_of(item)[1]} of {namespace_of(item)} ({condition['reason']}: {why})"
        return bool(self._preempted)

    def _show(self) -> None:
        for team in ("team-a", "team-b"):
            used, own = self._used(team), millicores(TEAM_CPU)
            waiting = sum(namespace_of(w) == team for w in self._in_state("Queued"))
            borrowed = f", {used - own}m borrowed" if used > own else ""
            print(f"    {team} {output.bar(used / own)} {used}m of {TEAM_CPU}{borrowed}; {waiting} waiting")


def namespace_of(workload: Json) -> str:
    return str(workload["metadata"]["namespace"])


def millicores(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def say(text: str) -> None:
    width = output.terminal_room() or NO_TERMINAL_WIDTH
    print(output.colour("• ", "blue") + textwrap.fill(text, width - 2, subsequent_indent="  "), flush=True)
