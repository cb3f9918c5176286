"""
Passes signals of this command on to the program of a job.

There is no API for signals, so a shell in the pod sends them. It finds the program by a variable that only the job has:
the first process with it is the program, and leads a process group.

Called by: run.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from kyu.api.meta import Key
from kyu.cli import output
from kyu.cli.batch.interactive.session import SessionRequest
from kyu.kube.blocking import Unreachable
from kyu.kube.errors import ApiError
from kyu.kube.interactive import open_stream
from kyu.kube.kubeconfig import Credentials

# The variable of a job of `kyu run`, with a value of its own.
MARK = "KYU_RUN"
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
SCRIPT = """
first=
for folder in /proc/[0-9]*; do
  pid=${folder#/proc/}
  if [ "$pid" != $$ ] && grep -qsz "^$1\\$" "$folder/environ"; then
    if [ -z "$first" ] || [ "$pid" -lt "$first" ]; then first=$pid; fi
  fi
done
if [ "$first" = 1 ]; then kill -s "$2" 1; elif [ -n "$first" ]; then kill -s "$2" -- "-$first"; fi
"""


@contextlib.contextmanager
def forwarded(credentials: Credentials, key: Key, mark: str) -> Iterator[None]:
    """Forward signals to the program of the pod while the context is open."""

    def forward(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name.removeprefix("SIG")
        # The handler interrupts the session, which must go on meanwhile.
        threading.Thread(target=send, args=(credentials, key, mark, name), daemon=True).start()

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def send(credentials: Credentials, key: Key, mark: str, name: str) -> None:
    command = ("sh", "-c", SCRIPT, "sh", f"{MARK}={mark}", name)
    try:
        asyncio.run(run_silently(credentials, SessionRequest(key, "exec", command=command)))
    except (ApiError, Unreachable, OSError) as error:
        output.note(f"SIG{name} not forwarded: {error}")


async def run_silently(credentials: Credentials, request: SessionRequest) -> None:
    connection = await open_stream(credentials, request.path, request.query)
    try:
        async with contextlib.aclosing(connection.messages()) as messages:
            async for _ in messages:
                pass
    finally:
        connection.close()
