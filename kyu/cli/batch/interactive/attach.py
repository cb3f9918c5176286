"""
Attach to a job that runs: its output from now on, and with -i your standard input.

    kyu attach train           watch standard output and standard error
    kyu attach -it shell       a job of `kyu run -it`, with its terminal

The command ends with the job's program. Ctrl-C without a terminal detaches; the job goes on. `kyu logs -f` shows the
output from the start.
"""

from __future__ import annotations

import argparse

from kyu.api.meta import Json, key_of
from kyu.cli import connection
from kyu.cli.batch.interactive import pods
from kyu.cli.batch.interactive.session import SessionRequest, has_terminal, run_session


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    pods.arguments(parser)
    parser.add_argument("-i", "--stdin", action="store_true", help="pass standard input to the program")
    parser.add_argument("-t", "--tty", action="store_true", help="use the terminal of the program")


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    pod = pods.find_running(server, args.job, args.task)
    request = SessionRequest(
        key_of(pod),
        "attach",
        args.container,
        stdin=args.stdin,
        tty=args.tty and has_terminal() and pods.has_terminal(pod, args.container),
    )
    return run_session(server.client.credentials, request)


def attach_request(pod: Json, *, stdin: bool, tty: bool) -> SessionRequest:
    """Return the request for the first container of a job of `kyu run`."""
    return SessionRequest(key_of(pod), "attach", stdin=True, tty=tty, ends_stdin=not stdin)
