"""
Print what a job wrote. With several pods each line starts with the name of its pod.

    kyu logs train            what there is
    kyu logs -f train         and what comes, until it ends
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
import time

from kyu.api.meta import Json, key_of
from kyu.cli import connection, jobs, lookup, output
from kyu.cli.main import Failed
from kyu.kube.errors import ApiError


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    parser.add_argument("job", help="name of the job, or pod/NAME")
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
    pods = find_pods(server, args.job, wait=args.follow)
    if len(pods) == 1:
        for line in server.client.logs(key_of(pods[0]), query):
            sys.stdout.write(line.decode(errors="replace"))
            sys.stdout.flush()
        return 0
    if args.follow:
        merge(server, pods, query)
        return 0
    for pod in pods:
        for line in server.client.logs(key_of(pod), query):
            sys.stdout.write(f"{pod['metadata']['name']}  {line.decode(errors='replace')}")
    return 0


def find_pods(server: connection.Server, name: str, *, wait: bool) -> list[Json]:
    """Its pods; with ``wait`` as soon as there are any."""
    told = ""
    while True:
        workload = lookup.find_workload(server, name)
        pods = [pod for pod in lookup.pods_of(server, workload) if (pod.get("spec") or {}).get("nodeName")]
        state = jobs.state_of(workload)
        if pods:
            return pods
        if not wait or state.word in ("Succeeded", "Failed", "Stopped"):
            why = f": {state.why}" if state.why else ""
            raise Failed(f"{name} has no pods ({state.word.lower()}{why})")
        if state.word != told:
            output.note(f"{state.word.lower()}{': ' + state.why if state.why else ''}")
            told = state.word
        time.sleep(0.3)


def merge(server: connection.Server, pods: list[Json], query: dict[str, str]) -> None:
    """Lines of all pods as they come; a thread for each, since each is a stream of its own."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read(pod: Json) -> None:
        try:
            for line in server.client.logs(key_of(pod), query):
                lines.put(f"{pod['metadata']['name']}  {line.decode(errors='replace')}")
        except ApiError as error:
            lines.put(f"{pod['metadata']['name']}  ({error})\n")
        finally:
            lines.put(None)

    for pod in pods:
        threading.Thread(target=read, args=(pod,), daemon=True).start()
    open_streams = len(pods)
    while open_streams:
        line = lines.get()
        if line is None:
            open_streams -= 1
            continue
        sys.stdout.write(line)
        sys.stdout.flush()
