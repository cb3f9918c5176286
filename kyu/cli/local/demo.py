"""
Watch two teams share this machine for a minute: real jobs, borrowing, a preemption, a gang, an impossible job.

    kyu demo                 two teams, one machine
    kyu demo clusters        a hub and two clusters: one queue, and jobs that go where there is room

The demo starts a control plane of its own in a temporary folder, and removes it at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Json, key_of
from kyu.cli import output, target
from kyu.cli.batch import attempts, jobs, jobs_pods, preemptions, short_reasons
from kyu.cli.connection import ServerConnection
from kyu.cli.main import Failed
from kyu.kinds import metadata
from kyu.kinds.job import JOB
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import ApiError

# Quota of each team; small enough for any machine.
TEAM_CPU = "400m"
PACE_SECONDS = 3.0
OUTPUT_LINES = 3
NEXT = """What to try next:
  kyu up -d                       start a control plane that stays
  kyu submit -- python train.py   queue a command of your own
  kyu jobs                        see which jobs run, which wait, and why
  kyu why NAME                    see what a waiting job lacks, and which jobs hold it
  kyu logs -f NAME                follow the output of a job
  kyu down                        stop it; running jobs continue"""
# The limit for the whole demo. A busy machine needs longer than an idle one.
LONGEST_SECONDS = 120.0
# The width of lines if the output is no terminal.
NO_TERMINAL_WIDTH = 120


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("story", nargs="?", choices=("teams", "clusters"), default="teams", help="default: teams")
    parser.add_argument("--keep", action="store_true", help="leave the control plane running and print its address")
    parser.add_argument(
        "--pace", type=float, metavar="SECONDS", help="pause after each scene (default: 3, or 0 without a terminal)"
    )


def run(args: argparse.Namespace) -> int:
    pace: float = args.pace if args.pace is not None else (PACE_SECONDS if sys.stdout.isatty() else 0.0)
    with tempfile.TemporaryDirectory(prefix="kyu-demo-", ignore_cleanup_errors=True) as folder:
        data = Path(folder)
        if args.story == "clusters":
            from kyu.cli.local import demo_clusters

            return demo_clusters.tell(data, max(0.0, pace), keep=args.keep)
        with control_plane(data) as client:
            story = Story(client, max(0.0, pace))
            story.tell()
            print(f"\n{story.summary()}")
            print(f"\n{NEXT}")
            if args.keep:
                input(f"\nexport KUBECONFIG={data / 'kubeconfig'}\nPress Enter to end the demo.")
            return 0 if story.went_well() else 1


@contextlib.contextmanager
def control_plane(data: Path) -> Iterator[BlockingClient]:
    kyu = target.KYU
    say("Starting a control plane …")
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
    """The scenes of the demo in order. Each waits until the objects on the server show its result."""

    def __init__(self, client: BlockingClient, pace: float) -> None:
        self._client = client
        self._pace = pace
        self._ends = time.monotonic() + LONGEST_SECONDS
        self._preempted: Json | None = None

    def tell(self) -> None:
        self._share()
        self._borrow()
        self._reclaim()
        self._wait_for_impossible()
        say("Now the rest of the jobs run.")
        self._wait("all but the impossible one are done", lambda: len(self._in_state("Succeeded")) == 8)

    def _share(self) -> None:
        say("Two teams share a machine. Each owns 400m of cpu; quota that one team leaves idle, the other may borrow.")
        self._make_queues()
        self._pause()

    def _borrow(self) -> None:
        say("team-a submits six jobs of 200m. Two fit its own quota, two borrow from team-b, and two wait:")
        for number in range(6):
            self._submit("team-a", f"train-{number + 1}", "200m", seconds=14 if number < 4 else 3)
        self._wait("four jobs run", lambda: self._used("team-a") == 2 * millicores(TEAM_CPU))
        self._wait("two jobs wait", lambda: len(self._in_state("Queued")) == 2)
        self._show()
        say("The jobs are real processes. This is the output of train-1:")
        self._wait("train-1 writes", lambda: len(self._output("team-a", "train-1")) >= OUTPUT_LINES)
        self._print_output("team-a", "train-1")
        self._pause()

    def _reclaim(self) -> None:
        say("team-b comes back and submits report. Its own quota is lent out, so a job that borrows is preempted:")
        self._submit("team-b", "report", "200m", seconds=4)
        self._wait("a borrower is preempted", self._find_preempted)
        assert self._preempted is not None
        name = jobs.owner_of(self._preempted)[1]
        print(f"    {name} of {namespace_of(self._preempted)} was preempted by report; it waits and will run again")
        self._wait("its quota is back", lambda: self._used("team-b") > 0)
        self._wait("its output is kept", lambda: bool(self._output("team-a", name)))
        say(f"The output of {name} up to that moment is kept:")
        self._print_output("team-a", name)
        self._show()
        self._pause()

    def _wait_for_impossible(self) -> None:
        say("team-b also submits simulate, a gang: two pods that start together or not at all.")
        self._submit("team-b", "simulate", "100m", seconds=3, pods=2)
        say("And a job named impossible, which asks for 5 cores:")
        self._submit("team-b", "impossible", "5", seconds=1)
        self._wait("the impossible job says why", lambda: self._cannot_ever_fit("impossible"))
        total = 2 * millicores(TEAM_CPU)
        print(f"    5 cores are more than both teams own together ({total}m), so it can never start. `kyu jobs` says:")
        print(f"    {short_reasons.shorten(self._why('impossible'))}")
        self._pause()

    def _pause(self) -> None:
        time.sleep(self._pace)

    def _output(self, team: str, job: str) -> list[bytes]:
        """Return the output of a job of one pod; after its pod is deleted, the kept output."""
        selector = f"batch.kubernetes.io/job-name={job}"
        keys = [key_of(pod) for pod in self._client.list(jobs_pods.POD, team, labels=selector)]
        keys += [pod.log for pod in attempts.kept_pods(ServerConnection(self._client, team, ""), job)]
        with contextlib.suppress(ApiError):
            return list(self._client.logs(keys[-1], {})) if keys else []
        return []

    def _print_output(self, team: str, job: str) -> None:
        for line in self._output(team, job)[-OUTPUT_LINES:]:
            print(output.colour(f"    {job} | {line.decode(errors='replace').rstrip()}", "dim"))

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
                    short_reasons.shorten(state.why),
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
        script = f"for step in $(seq {seconds}); do echo step $step of {seconds}; sleep 1; done; echo done"
        container = {
            "name": "main",
            "image": "kyu.dev/host",
            "command": ["/bin/sh", "-c", script.replace("$(", "$$(")],
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
        """Return the millicores that the jobs of the team hold."""
        admissions = [(w.get("status") or {}).get("admission") for w in self._workloads() if team == namespace_of(w)]
        sets = [one for admission in admissions if admission for one in admission["podSetAssignments"]]
        return sum(millicores(one["resourceUsage"].get("cpu", "0")) for one in sets)

    def _why(self, name: str) -> str:
        return next((jobs.state_of(item).why for item in self._workloads() if jobs.owner_of(item)[1] == name), "")

    def _cannot_ever_fit(self, name: str) -> bool:
        told = [item.get("status") or {} for item in self._workloads() if jobs.owner_of(item)[1] == name]
        return any(c.get("reason") == "ExceedsMaxQuota" for status in told for c in status.get("conditions") or ())

    def _find_preempted(self) -> bool:
        self._preempted = next((item for item in self._workloads() if preemptions.find(item)), None)
        return self._preempted is not None

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
