"""
Queue a command, wait until it runs, and stay with it: its output comes here, and its exit code is returned.

    kyu run --cpu 4 -- make test
    kyu run -it --gpu 1 -- bash        an interactive shell, when a GPU is free
    sort < data | kyu run -i -- ./reduce

While the job waits, the reason is printed to standard error. Ctrl-C cancels a job that waits; signals to a job that
runs are passed on to it. With -t, keys go to the program as they are typed. The job stays in `kyu jobs`, and `kyu logs`
has its output. If the connection is lost, the job goes on and the command returns 75.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
from functools import partial
from types import FrameType

from kyu.api.meta import Json, Key, key_of
from kyu.cli import connection, output
from kyu.cli.batch import jobs, jobs_pods, lookup, submit, wait
from kyu.cli.batch.interactive import pods, signals
from kyu.cli.batch.interactive.attach import attach_request
from kyu.cli.batch.interactive.session import ConnectionBroke, has_terminal, run_session, write_all
from kyu.cli.batch.reconnect import Reconnecting, ServerLost
from kyu.cli.batch.submission.job import make_job
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput
from kyu.kube.blocking import Unreachable
from kyu.kube.errors import ApiError

POLL_SECONDS = 0.2
INTERRUPTED = 130
# Options of `kyu submit` that make no sense with one program and this terminal.
NOT_HERE = {"array": "", "count": 1, "output": "", "error": "", "dry_run": False, "print": "table"}


def arguments(parser: argparse.ArgumentParser) -> None:
    submit.arguments(parser)
    parser.add_argument("-i", "--stdin", action="store_true", help="pass standard input to the command")
    parser.add_argument("-t", "--tty", action="store_true", help="give the command a terminal")
    parser.usage = "kyu run [-i] [-t] [OPTION of kyu submit …] -- COMMAND [ARGUMENT …]"


def run(args: argparse.Namespace) -> int:
    for option, usual in NOT_HERE.items():
        if getattr(args, option) != usual:
            raise BadInput(f"kyu run: --{option.replace('_', '-')} is for `kyu submit`")
    is_terminal = args.tty and has_terminal()
    job = make_job(args, os.path.abspath(args.chdir))
    container = job["spec"]["template"]["spec"]["containers"][0]
    mark = secrets.token_hex(8)
    container |= {"stdin": True, "stdinOnce": True, "tty": is_terminal}
    container.setdefault("env", []).append({"name": signals.MARK, "value": mark})
    server = connection.connect(args)
    created = submit.create(server, args, job)
    name = created["metadata"]["name"]
    output.note(f"{name}: submitted to {submit.queue_of(created)} on {server.description}")
    try:
        signal.signal(signal.SIGTERM, interrupt)
        pod = wait_until_running(server, name)
    except KeyboardInterrupt:
        server.client.delete(jobs.JOB, Key(server.namespace, name), propagation="Background")
        output.note(f"{name}: cancelled")
        return INTERRUPTED
    if pod is not None:
        follow(server, name, pod, mark, stdin=args.stdin, is_terminal=is_terminal)
    workload = lookup.find_workload(server, f"job/{name}")
    return wait.exit_code_of(server, workload, None, lambda line: None)


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def wait_until_running(server: ServerConnection, name: str) -> Json | None:
    """Print each new reason until a pod of the job runs or has ended; None if the job ends without one."""
    requests = Reconnecting(output.note, None)
    told = ""
    while True:
        workload = requests.ask(partial(lookup.find_workload, server, f"job/{name}"))
        state = requests.ask(partial(jobs.full_state, server, workload))
        found = requests.ask(partial(jobs_pods.pods_of, server, workload))
        started = [pod for pod in found if pods.has_started(pod)]
        if started:
            return started[-1]
        line = f"{state.word.lower()}{': ' + state.why if state.why else ''}"
        if line != told:
            output.note(f"{name}: {line}")
        told = line
        if state.word in jobs.ENDED:
            for trouble in jobs_pods.troubles(found):
                output.note(f"{name}: {trouble}")
            return None
        time.sleep(POLL_SECONDS)


def follow(server: ServerConnection, name: str, pod: Json, mark: str, *, stdin: bool, is_terminal: bool) -> None:
    """Stay with the program until it ends."""
    credentials = server.client.credentials
    try:
        with signals.forwarded(credentials, key_of(pod), mark):
            run_session(credentials, attach_request(pod, stdin=stdin, tty=is_terminal))
    except (ConnectionBroke, Unreachable) as error:
        raise ServerLost(f"{error}; the job goes on: `kyu attach {name}`, `kyu logs -f {name}`") from error
    except ApiError:
        # A short program may have ended before this command could be attached to it.
        if pods.is_running(server.client.get(jobs_pods.POD, key_of(pod))):
            raise
        for line in server.client.logs(key_of(pod), {}):
            write_all(sys.stdout.fileno(), line)
