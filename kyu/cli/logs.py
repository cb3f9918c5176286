"""
Print what a job wrote. With several pods each line starts with the name of its pod.

    kyu logs train            what there is
    kyu logs -f train         and what comes, until the job ends, also of pods that are still to be made
    kyu logs pod/train-x7k2p  of one pod

With -f it goes on where it was when the server was away meanwhile; after two minutes it ends with exit code 75.
The pods of a job that another cluster runs are there: a manager of clusters tells which it is.
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from functools import partial

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, key_of
from kyu.cli import connection, jobs, jobs_pods, lookup, output
from kyu.cli.connection import Server
from kyu.cli.logs_place import Place
from kyu.cli.main import Failed
from kyu.cli.patience import Lost, Patience, is_away
from kyu.kinds.pod import POD
from kyu.kube.blocking import Unreachable
from kyu.kube.errors import ApiError

POLL_SECONDS = 0.5
# How many pods are read at the same time. Those of a large array wait their turn, and lose nothing by it: a log is read
# from its start.
MOST_STREAMS = 32
MOST_LINES = 10_000
BROKEN = 0.0
OVER = ("Succeeded", "Failed", "Stopped")


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("job", metavar="JOB", help="name of the job, or pod/NAME")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each pod")
    parser.add_argument("--timestamps", action="store_true", help="start each line with its time")
    parser.add_argument("-p", "--previous", action="store_true", help="of the container before its last restart")
    parser.add_argument("-c", "--container", default="", help="of this container")


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    options = {
        "follow": "true" if args.follow else "",
        "tailLines": "" if args.tail is None else str(args.tail),
        "timestamps": "true" if args.timestamps else "",
        "previous": "true" if args.previous else "",
        "container": args.container,
    }
    query = {name: value for name, value in options.items() if value}
    kind, _, name = args.job.rpartition("/")
    if kind in ("pod", "pods"):
        pod = server.client.find(POD, Key(server.namespace, name))
        if pod is None:
            raise Failed(f"no pod {name!r} in namespace {server.namespace}; `kyu get pods` lists them")
        print_pods(server, [pod], query)
    elif args.follow:
        try:
            Following(server, args.job, query).run()
        except Unreachable as error:
            raise Lost(str(error)) from error
    else:
        workload = lookup.find_workload(server, args.job)
        if not print_pods(server, started_pods(server, args.job, workload), query):
            for trouble in jobs_pods.troubles(jobs_pods.pods_of(server, workload)):
                output.note(f"nothing was written; {trouble}")
    return 0


def started_pods(server: Server, name: str, workload: Json) -> list[Json]:
    pods = [pod for pod in jobs_pods.pods_of(server, workload) if is_started(pod)]
    if not pods:
        check_place(name, workload)
        state = jobs.full_state(server, workload)
        why = f": {state.why}" if state.why else ""
        raise Failed(f"{name} has no pods ({state.word.lower()}{why})")
    return pods


def check_place(name: str, workload: Json) -> None:
    """Failed for a job whose pods are in another cluster, where this one may not be able to ask."""
    if there := jobs.where_pods_are(workload):
        raise Failed(f"{name} has no pods here; {there}")


def is_started(pod: Json) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName"))


def is_running(pod: Json) -> bool:
    """Whether there may be more of its log."""
    return (pod.get("status") or {}).get("phase") == "Running"


def print_pods(server: Server, pods: list[Json], query: Mapping[str, str]) -> bool:
    """One after the other; whether there was anything to print."""
    is_printed = False
    for pod in pods:
        start = f"{pod['metadata']['name']}  " if len(pods) > 1 else ""
        for line in server.client.logs(key_of(pod), query):
            write(start, line)
            is_printed = True
    return is_printed


def write(start: str, line: bytes) -> None:
    """As it came: what a job writes may be no text."""
    sys.stdout.buffer.write(start.encode() + line)
    sys.stdout.flush()


class Following:
    """The lines of all pods of a job as they come. Each stream has a thread, and only so many are open at a time."""

    def __init__(self, server: Server, job: str, query: Mapping[str, str]) -> None:
        self._server = server
        self._job = job
        self._query = query
        # Bounded, so that who reads faster than a terminal prints waits for it.
        self._lines: queue.Queue[tuple[str, bytes] | None] = queue.Queue(MOST_LINES)
        self._seen: set[str] = set()
        self._places: dict[str, Place] = {}
        # Streams that ended: when, or at once if they broke.
        self._ended: dict[str, float] = {}
        self._patience = Patience(output.note)
        self._absences = 0
        self._waiting: deque[Json] = deque()
        self._open = 0
        self._is_told = False

    def run(self) -> None:
        workload: Json | None = lookup.find_workload(self._server, self._job)
        told = ""
        while workload is not None:
            # Before its pods are asked for: those of a job that is over are all there.
            state = self._patience.ask(partial(jobs.full_state, self._server, workload))
            self._read_new_pods(workload)
            line = f"{state.word.lower()}{': ' + state.why if state.why else ''}"
            if not self._seen and line != told:
                output.note(line)
                check_place(self._job, workload)
            told = line
            if state.word in OVER and not self._open:
                return
            self._print(is_single=lookup.pod_count(workload) == 1)
            found = self._patience.ask(partial(self._server.client.find, Workload.KIND, key_of(workload)))
            workload = found and self._patience.ask(partial(lookup.in_force, self._server, found))
        raise Failed(f"{self._job} was deleted")

    def _read_new_pods(self, workload: Json) -> None:
        pods = self._patience.ask(partial(jobs_pods.pods_of, self._server, workload))
        if self._patience.absences > self._absences:
            # A server that is stopped in order ends its streams as if their pods had ended.
            self._absences = self._patience.absences
            self._ended = dict.fromkeys(self._ended, BROKEN)
        for pod in pods:
            if is_started(pod) and (pod["metadata"]["uid"] not in self._seen or self._is_cut_off(pod)):
                self._seen.add(pod["metadata"]["uid"])
                self._ended.pop(pod["metadata"]["uid"], None)
                self._waiting.append(pod)
        self._read_waiting()
        if self._waiting and not self._is_told:
            output.note(f"{self._open} pods are read at a time, {len(self._waiting)} wait until others have ended")
            self._is_told = True

    def _is_cut_off(self, pod: Json) -> bool:
        """Whether its stream broke, or ended some time ago although the pod has not: the server went away."""
        ended = self._ended.get(pod["metadata"]["uid"])
        if ended is None:
            return False
        return ended == BROKEN or (is_running(pod) and time.monotonic() > ended + POLL_SECONDS)

    def _read_waiting(self) -> None:
        while self._waiting and self._open < MOST_STREAMS:
            self._open += 1
            threading.Thread(target=self._read, args=(self._waiting.popleft(),), daemon=True).start()

    def _read(self, pod: Json) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        place = self._places.setdefault(uid, Place(self._query))
        try:
            for line in self._server.client.logs(key_of(pod), place.start_again()):
                if news := place.news(line):
                    self._lines.put((name, news))
            self._ended[uid] = time.monotonic()
        except (ApiError, Unreachable) as error:
            if is_away(error):
                self._ended[uid] = BROKEN
            else:
                self._lines.put((name, f"({error})\n".encode()))
        finally:
            self._lines.put(None)

    def _print(self, *, is_single: bool) -> None:
        """What comes, until it is time to look for other pods: of a job with one, that is when its stream has ended."""
        ends = time.monotonic() + POLL_SECONDS
        while True:
            left = None if is_single and self._open else ends - time.monotonic()
            try:
                item = self._lines.get(timeout=None if left is None else max(left, 0.0))
            except queue.Empty:
                return
            if item is None:
                self._open -= 1
                self._read_waiting()
                if not self._open:
                    return
                continue
            name, line = item
            start = "" if is_single and len(self._seen) == 1 else f"{name}  "
            write(start, line)
