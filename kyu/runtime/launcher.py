"""
The process that all supervisors are forked from: it has loaded what they need, so a pod starts in a millisecond.

It reads folders, one a line, from its standard input, and forks a supervisor for each. It ends when the input does,
that is, with Kyu; the supervisors stay. Its first line of output says whether mounts are permitted here.

Started by: processes.py. Calls: supervisor.py. Standard library only: ``python -S -E -s -m kyu.runtime.launcher``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import traceback

from kyu.runtime import mounts, records, supervisor


def main() -> None:
    print(json.dumps({"mountsRefused": mounts.why_not_permitted()}), flush=True)
    # Children are not waited for: the kernel forgets them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # A terminal's Ctrl-C is meant for Kyu.
    os.setsid()
    # A supervisor makes no cycles worth looking for, and looking would copy the memory that all of them share.
    gc.disable()
    for line in sys.stdin.buffer:
        launch(line.rstrip(b"\n").decode())


def launch(folder: str) -> None:
    if os.fork() != 0:
        return
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        keep_output(folder)
        supervisor.supervise(folder)
    except BaseException:
        traceback.print_exc()
        # Kyu finds a pod without a supervisor, and says so.
        records.notify(
            os.path.join(os.path.dirname(os.path.dirname(folder)), records.NOTICES), os.path.basename(folder)
        )
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(0)


def keep_output(folder: str) -> None:
    """The launcher's pipes belong to Kyu; what a supervisor has to say, at worst its last words, goes to a file."""
    null = os.open(os.devnull, os.O_RDWR)
    words = os.open(os.path.join(folder, "supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(words, 2)
    os.close(null)
    os.close(words)


if __name__ == "__main__":
    main()
