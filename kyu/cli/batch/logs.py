"""
Print the output of a job. With several pods, each line starts with the name of its pod.

    kyu logs train              the output of the last attempt
    kyu logs train --attempt 1  the output before the job was preempted or tried again
    kyu logs sweep --task 7     the output of one task of an array
    kyu logs -f train           follow the output until the job ends, new pods included
    kyu logs pod/train-x7k2p    the output of one pod

A server of Kyu keeps the output of deleted pods, for two weeks and up to 1 GiB; see `kyu up --help`.

With -f, the command continues where it was after a restart of the server; without an answer for two minutes it returns
75. The output of a job in a worker cluster is read there, if you may read the Secret that the hub connects with.
Otherwise the message names the cluster.
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
from typing import NoReturn

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, key_of
from kyu.cli import connection, output
from kyu.cli.batch import attempts, jobs, jobs_pods, lookup, workers
from kyu.cli.batch.attempts import JobPod
from kyu.cli.batch.log_position import LogPosition
from kyu.cli.batch.reconnect import Reconnecting, ServerLost, is_away
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput, Failed
from kyu.kinds import arrays, metadata
from kyu.kube.blocking import Unreachable
from kyu.kube.errors import ApiError, NotFound

POLL_SECONDS = 0.5
# The number of pods that are read at the same time. The others wait and lose nothing: a log is read from its start.
MOST_STREAMS = 32
MOST_LINES = 10_000
BROKEN = 0.0
OVER = ("Succeeded", "Failed", "Stopped")


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("job", metavar="JOB", help="name of the job, or pod/NAME")
    parser.add_argument("-f", "--follow", action="store_true", help="follow the output until the job ends")
    parser.add_argument("--attempt", type=int, metavar="N", help="attempt N of each task (default: the last one)")
    parser.add_argument("--task", type=int, metavar="I", help="only task I of an array")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each pod")
    parser.add_argument("--timestamps", action="store_true", help="start each line with its time")
    parser.add_argument("-p", "--previous", action="store_true", help="the container before its last restart")
    parser.add_argument("-c", "--container", default="", help="the container of the pod")


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
        print_pod(server, name, query)
        return 0
    if args.follow and args.attempt is not None:
        raise BadInput("kyu logs: --attempt shows output of the past, so it cannot be combined with -f")
    try:
        print_job(server, args, query)
    except Unreachable as error:
        if args.follow:
            raise ServerLost(str(error)) from error
        raise
    return 0


def print_job(server: ServerConnection, args: argparse.Namespace, query: Mapping[str, str]) -> None:
    name = lookup.split(args.job)[1]
    try:
        workload = lookup.find_workload(server, args.job)
    except Failed:
        kept = attempts.kept_pods(server, name)
        if not kept:
            raise
        if not print_selected(server, args, attempts.of_last_job(kept), query):
            output.note(f"{args.job} was deleted; it wrote no output")
        return
    if (there := workers.connect_to(server, jobs.cluster_of(workload))) is not None:
        print_job_elsewhere(there, args, query, workload)
        return
    if args.follow:
        LogFollower(server, args.job, query, "" if args.task is None else str(args.task)).run()
        return
    # In this order: a pod that is deleted in between has its output kept.
    existing = attempts.existing_pods(server, workload)
    pods = attempts.all_pods(attempts.kept_pods(server, name), existing, workload)
    if not pods:
        explain_no_pods(server, args.job, workload)
    if not print_selected(server, args, pods, query):
        for trouble in jobs_pods.troubles(jobs_pods.pods_of(server, workload)):
            output.note(f"no output; {trouble}")


def print_job_elsewhere(
    there: ServerConnection, args: argparse.Namespace, query: Mapping[str, str], workload: Json
) -> None:
    """Print the output of a job in its worker cluster."""
    try:
        print_job(there, args, query)
    except Failed as error:
        raise Failed(f"{jobs.where_pods_are(workload)} ({error})") from error
    finally:
        there.client.close()


def print_pod(server: ServerConnection, name: str, query: Mapping[str, str]) -> None:
    """Print the output of one pod, also of a deleted one."""
    try:
        print_logs(server, [(name, Key(server.namespace, name))], query)
    except NotFound:
        raise Failed(f"no pod {name!r} in namespace {server.namespace}; `kyu get pods` lists them") from None


def explain_no_pods(server: ServerConnection, name: str, workload: Json) -> NoReturn:
    check_place(name, workload)
    state = jobs.full_state(server, workload)
    why = f": {state.why}" if state.why else ""
    raise Failed(f"{name} has no pods ({state.word.lower()}{why})")


def print_selected(
    server: ServerConnection, args: argparse.Namespace, pods: list[JobPod], query: Mapping[str, str]
) -> bool:
    """Print the attempt and task that the user chose, or the last attempt of all tasks."""
    numbered = attempts.numbered(pods)
    if args.task is not None:
        numbered = [(number, pod) for number, pod in numbered if pod.task == str(args.task)]
        if not numbered:
            tasks = sorted({int(pod.task) for pod in pods if pod.task})
            known = f"tasks {tasks[0]} to {tasks[-1]}" if tasks else "no tasks"
            raise Failed(f"{args.job} has no output of task {args.task}; it has {known}")
    most = max((number for number, _ in numbered), default=0)
    if args.attempt is None:
        selected = attempts.last_attempts(numbered)
        if most > 1:
            output.note(f"the last of {most} attempts; --attempt 1 to {most - 1} shows the others")
    else:
        selected = [pod for number, pod in numbered if number == args.attempt]
        if not selected:
            raise Failed(f"{args.job} has no attempt {args.attempt}; it has {most}")
    return print_logs(server, [(pod.name, pod.log) for pod in selected], query)


def check_place(name: str, workload: Json) -> None:
    """Raise Failed for a job whose pods are in a worker cluster."""
    if there := jobs.where_pods_are(workload):
        raise Failed(f"{name} has no pods here; {there}")


def is_running(pod: Json) -> bool:
    """Return whether the pod may write more output."""
    return (pod.get("status") or {}).get("phase") == "Running"


def print_logs(server: ServerConnection, logs: list[tuple[str, Key]], query: Mapping[str, str]) -> bool:
    """Print the logs of pods one after the other; return whether there was any output."""
    is_printed = False
    for name, key in logs:
        start = f"{name}  " if len(logs) > 1 else ""
        for line in server.client.logs(key, query):
            write(start, line)
            is_printed = True
    return is_printed


def write(start: str, line: bytes) -> None:
    """Write the bytes as they are: the output of a job need not be text."""
    sys.stdout.buffer.write(start.encode() + line)
    sys.stdout.flush()


def is_array(server: ServerConnection, workload: Json) -> bool:
    """Return whether the job is an array, whose pods are deleted when their task has succeeded."""
    kind, name = jobs.owner_of(workload)
    job = server.client.find(jobs.JOB, Key(workload["metadata"]["namespace"], name)) if kind == "Job" else None
    return job is not None and arrays.of_job(job) is not None


class LogFollower:
    """A reader of the logs of all pods of a job. Each open stream has a thread, and their number is bounded."""

    def __init__(self, server: ServerConnection, job: str, query: Mapping[str, str], task: str = "") -> None:
        self._server = server
        self._job = job
        self._query = query
        self._task = task
        # Bounded, so that the threads do not read faster than the terminal prints.
        self._lines: queue.Queue[tuple[str, bytes] | None] = queue.Queue(MOST_LINES)
        self._seen: set[str] = set()
        self._places: dict[str, LogPosition] = {}
        # The time at which each stream ended, or BROKEN.
        self._ended: dict[str, float] = {}
        self._requests = Reconnecting(output.note)
        self._absences = 0
        self._waiting: deque[Json] = deque()
        self._open = 0
        self._is_told = False
        self._is_array = False

    def run(self) -> None:
        found = lookup.find_workload(self._server, self._job)
        told = ""
        self._is_array = self._requests.ask(partial(is_array, self._server, found))
        workload: Json | None = found
        while workload is not None:
            # The state is read before the pods: a finished job gets no further pods.
            state = self._requests.ask(partial(jobs.full_state, self._server, workload))
            self._read_new_pods(workload)
            line = f"{state.word.lower()}{': ' + state.why if state.why else ''}"
            if not self._seen and line != told:
                output.note(line)
                check_place(self._job, workload)
            told = line
            if state.word in OVER and not self._open:
                return
            self._print(is_single=lookup.pod_count(workload) == 1)
            now = self._requests.ask(partial(self._server.client.find, Workload.KIND, key_of(workload)))
            workload = now and self._requests.ask(partial(lookup.current_workload, self._server, now))
        raise Failed(f"{self._job} was deleted")

    def _read_new_pods(self, workload: Json) -> None:
        pods = self._requests.ask(partial(jobs_pods.pods_of, self._server, workload))
        if self._requests.absences > self._absences:
            # A server that shuts down ends its streams as if the pods had ended.
            self._absences = self._requests.absences
            self._ended = dict.fromkeys(self._ended, BROKEN)
        for pod in (*self._deleted_pods(workload, {metadata.uid_of(pod) for pod in pods}), *pods):
            if self._is_wanted(pod) and (pod["metadata"]["uid"] not in self._seen or self._is_cut_off(pod)):
                self._seen.add(pod["metadata"]["uid"])
                self._ended.pop(pod["metadata"]["uid"], None)
                self._waiting.append(pod)
        self._read_waiting()
        if self._waiting and not self._is_told:
            output.note(f"reading {self._open} pods at a time; {len(self._waiting)} more follow when others have ended")
            self._is_told = True

    def _deleted_pods(self, workload: Json, existing: set[str]) -> list[Json]:
        """Return the tasks of an array that were over before they were read. Their output is kept."""
        if not self._is_array:
            return []
        kept = self._requests.ask(partial(attempts.kept_pods, self._server, jobs.owner_of(workload)[1]))
        return [
            attempts.as_pod(pod)
            for pod in attempts.of_workload(kept, workload)
            if pod.uid not in existing and pod.has_succeeded
        ]

    def _is_wanted(self, pod: Json) -> bool:
        is_of_task = not self._task or arrays.task_of(pod) == self._task
        return is_of_task and attempts.is_started(pod)

    def _is_cut_off(self, pod: Json) -> bool:
        """Return whether the stream of a pod broke, or ended although the pod still runs."""
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
        place = self._places.setdefault(uid, LogPosition(self._query))
        try:
            for line in self._server.client.logs(attempts.log_of(pod), place.start_again()):
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
        """Print lines until it is time to look for new pods, or to the end of the stream of a single pod."""
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
