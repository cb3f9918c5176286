"""
The process that owns the processes of one control plane, and ends them when its owner is gone.

It does what it is told on standard input, one JSON object a line (``start``, ``poll``, ``kill``), and answers each with
one line. End of input means that the owner closed the pipe or died, however hard: then everything is killed and the
folder removed. Should the guard itself be killed, the kernel kills its children (PR_SET_PDEATHSIG). That signal is
bound to the parent's *thread*, so children started straight from a test's worker thread would die with that thread:
this is why the guard is a process of its own, with one thread.

Called by: processes.py, as a program. Standard library only; Linux.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal, TypedDict

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Request(TypedDict, total=False):
    """``name`` always; the rest for ``start``."""

    action: Literal["start", "poll", "kill"]
    name: str
    command: list[str]
    environment: dict[str, str]
    folder: str
    log: str


class Reply(TypedDict):
    pid: int
    exit_code: int | None


def main(folder: Path) -> None:
    children: dict[str, subprocess.Popen[bytes]] = {}
    for line in sys.stdin:
        print(json.dumps(answer(children, json.loads(line))), flush=True)
    for child in children.values():
        end(child)
    shutil.rmtree(folder, ignore_errors=True)


def answer(children: dict[str, subprocess.Popen[bytes]], request: Request) -> Reply:
    name = request["name"]
    match request["action"]:
        case "start":
            children[name] = start(request)
        case "poll":
            children[name].poll()
        case "kill":
            end(children[name])
    return {"pid": children[name].pid, "exit_code": children[name].returncode}


def start(request: Request) -> subprocess.Popen[bytes]:
    with open(request["log"], "ab") as log:
        return subprocess.Popen(
            request["command"],
            cwd=request["folder"],
            env=request["environment"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def die_with_parent() -> None:
    if LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def end(child: subprocess.Popen[bytes]) -> None:
    """At once: what the process would save on a gentler signal is thrown away anyhow."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
