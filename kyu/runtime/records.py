"""
The files in a pod's folder, through which Kyu and the pod's supervisor speak.

Each file is written whole (a temporary file, then a rename) by one side and read by the other, so a reader sees the
old text or the new one, never a part. A process is known by its pid, its start in clock ticks and the boot it belongs
to: a pid alone may have been given to someone else meanwhile.

Used by: supervisor.py (writes claim and record), processes.py (writes plan and stop). Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from typing import Any, NamedTuple

# What is to run, resolved to plain words. Written by Kyu before the folder gets its final name.
PLAN = "plan.json"
# Who runs it. Made once, with a link that fails if it is there: this is what keeps a pod from running twice.
CLAIM = "claim.json"
# What happened so far. Written by the supervisor; by Kyu only when the supervisor is gone.
RECORD = "record.json"
# The wish that it ends, with the grace period. Written by Kyu.
STOP = "stop.json"
LOGS = "logs"
VOLUMES = "volumes"
HOME = "home"
SCRATCH = "scratch"
# The pipe beside the folders: a supervisor writes its pod's uid there after each change.
NOTICES = "notices"


def log_file(container: str, number: int) -> str:
    """The log of the container's start of this number, below the pod's folder."""
    return f"{LOGS}/{container}.{number}.log"


def message_file(container: str) -> str:
    """Where the container may leave a last message, below the pod's folder."""
    return f"{HOME}/.termination-log.{container}"


class Process(NamedTuple):
    pid: int
    start_ticks: int
    boot_id: str


def write(path: str, document: object, *, durable: bool = False) -> None:
    """Replace the file. Durable: on disk before this returns, also after a power cut."""
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        rest = json.dumps(document, separators=(",", ":")).encode()
        # On a disk that is nearly full, a part may be written before the error comes.
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    if durable:
        sync_folder(os.path.dirname(path))


def write_once(path: str, document: object) -> bool:
    """Make the file with its whole content, or return False if it exists."""
    temporary = f"{path}.{os.getpid()}.tmp"
    write(temporary, document)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True


def find(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
    except (FileNotFoundError, ValueError):
        # An empty or torn file is what a power cut leaves of a file that was not durable: as good as none.
        return None
    return document if isinstance(document, dict) else None


def sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def find_process(pid: int) -> Process | None:
    ticks = find_start_ticks(pid)
    return None if ticks is None else Process(pid, ticks, boot_id())


def find_start_ticks(pid: int) -> int | None:
    """When the process started, in ticks since boot; None if it is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field, the name, is in parentheses and may hold anything, also spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(process: Process) -> bool:
    return process.boot_id == boot_id() and find_start_ticks(process.pid) == process.start_ticks


def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def notify(pipe: str, uid: str) -> bool:
    """Tell Kyu that the pod's record has changed. False: the pipe is full, try again. Nobody listening is fine."""
    with contextlib.suppress(FileNotFoundError):
        try:
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            # No reader: Kyu is down. It reads all records when it comes back.
            return True
        try:
            os.write(descriptor, f"{uid}\n".encode())
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True
        finally:
            os.close(descriptor)
    return True
