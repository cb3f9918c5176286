"""
The process that all supervisors are forked from: it has loaded what they need, so a pod starts in a millisecond.

It reads one pod a line from its standard input, with its namespaces and its folder, and forks a supervisor. It ends
when the input does, that is, with Kyu; the supervisors stay. Its first line of output says how pods can be isolated on
this machine: it tries the sandboxes that its argument lists, in order, with a folder like that of a pod.

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

from kyu.runtime import records, supervisor
from kyu.runtime.podman import entering
from kyu.runtime.sandbox import files, kernel, mounts, namespaces, seccomp
from kyu.runtime.sandbox.namespaces import Sandbox


def main() -> None:
    namespaces.close_descriptors()
    wanted, folder = json.loads(sys.argv[1]), sys.argv[2]
    refused = [namespaces.why_not_permitted(Sandbox(**sandbox), folder, entering.enter) for sandbox in wanted]
    mounts_refused = mounts.why_not_permitted()
    print(json.dumps({"refused": refused, "mountsRefused": mounts_refused}), flush=True)
    # Built once, before the forks.
    seccomp.build_filter(namespaces.MACHINE)
    # Orphans of a supervisor that was killed come here, and the kernel reaps them.
    kernel.become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Ctrl-C in a terminal is for Kyu.
    os.setsid()
    # A supervisor makes no cycles worth a search, which would copy the memory that all of them share.
    gc.disable()
    for line in sys.stdin.buffer:
        flags, _, name = line.rstrip(b"\n").decode().partition(" ")
        launch(name, int(flags))


def launch(folder: str, flags: int) -> None:
    """Fork the supervisor of the pod in this folder, into the namespaces of these flags."""
    if namespaces.fork(flags) != 0:
        return
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        leave_pipes()
        supervisor.supervise(folder)
    except BaseException:
        keep_traceback(folder)
        # Kyu finds a pod without a supervisor, and says so.
        records.notify(
            os.path.join(os.path.dirname(os.path.dirname(folder)), records.NOTICES), os.path.basename(folder)
        )
    finally:
        os._exit(0)


def leave_pipes() -> None:
    """Close all pipes of the launcher in a supervisor: they belong to Kyu."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    namespaces.close_descriptors()


def keep_traceback(folder: str) -> None:
    """Write the error of a supervisor to a file. The working directory is the pod's folder, or the launcher's."""
    with contextlib.suppress(OSError):
        os.chdir(folder)
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with open(files.open_regular(records.TRACEBACK, flags), "a", encoding="utf-8") as file:
            traceback.print_exc(file=file)


if __name__ == "__main__":
    main()
