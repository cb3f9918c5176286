"""
Run a command in a container of a job that runs, and return its exit code.

    kyu exec train -- nvidia-smi
    kyu exec -it train -- bash          a shell, with this terminal
    kyu exec -i train -- sh < fix.sh    with standard input
    kyu exec sweep --task 7 -- ps ax    in the pod of one task

The command has the environment, folders, user and limits of the container. It ends with the pod.
"""

from __future__ import annotations

import argparse

from kyu.api.meta import key_of
from kyu.cli import connection
from kyu.cli.batch.interactive import pods
from kyu.cli.batch.interactive.session import SessionRequest, has_terminal, run_session


def arguments(parser: argparse.ArgumentParser) -> None:
    connection.arguments(parser)
    pods.arguments(parser)
    parser.add_argument("-i", "--stdin", action="store_true", help="pass standard input to the command")
    parser.add_argument("-t", "--tty", action="store_true", help="give the command a terminal")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the command, after `--`")
    parser.usage = "kyu exec [OPTION …] JOB -- COMMAND [ARGUMENT …]"


def run(args: argparse.Namespace) -> int:
    server = connection.connect(args)
    pod = pods.find_running(server, args.job, args.task)
    is_terminal = args.tty and has_terminal()
    request = SessionRequest(
        key_of(pod), "exec", args.container, stdin=args.stdin, tty=is_terminal, command=args.command
    )
    return run_session(server.client.credentials, request)
