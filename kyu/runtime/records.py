"""
The files in a pod's folder, through which Kyu and the pod's supervisor speak.

Each file is written whole (a temporary file, then a rename) by one side and read by the other, so a reader sees the
old text or the new one, never a part. A process is known by its pid, its start in clock ticks and the boot it belongs
to: the kernel may have given the pid to another process meanwhile.

    pods/UID/            of the server's user
      plan.json, stop.json, claim.json
      state/             of the pod's user, for its supervisor: record.json, logs/, supervisor.log
      home/, volumes/    for the containers, and tmp/, which tenants see as /tmp
      engine/            of podman, where the containers come from images

Used by: supervisor.py (writes claim and record), processes.py (writes plan and stop). Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kyu.runtime.sandbox import files, namespaces

# The work, with all references resolved. Written by Kyu before the folder gets its final name.
PLAN = "plan.json"
# The process that runs it. Made once, with a link that fails if it is there: this keeps a pod from running twice.
CLAIM = "claim.json"
# The request that the pod ends, with its grace period. Written by Kyu.
STOP = "stop.json"
# The folder of the supervisor, which runs as the pod's user.
STATE = "state"
# The history of the pod so far. Written by the supervisor; by Kyu only when the supervisor is gone.
RECORD = f"{STATE}/record.json"
LOGS = f"{STATE}/logs"
# The error of a supervisor that failed; there is none unless Kyu has a fault.
TRACEBACK = f"{STATE}/supervisor.log"
HOME = namespaces.HOME
VOLUMES = namespaces.VOLUMES
TEMPORARY = namespaces.TEMPORARY
SCRATCH = namespaces.SCRATCH
ENGINE = namespaces.ENGINE
# The pipe beside the folders: a supervisor writes its pod's uid there after each change.
NOTICES = "notices"
# The containers of a pod have this variable, with the pod's uid.
MARK = "KYU_POD_UID"
# No file or link that is there already is written to.
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# More than a record of the largest pod; a file that is larger was not written by Kyu.
LONGEST_DOCUMENT = 64 * 1024 * 1024


def log_file(container: str, number: int) -> str:
    """Return the path of the log of the container's start of this number, below the pod's folder."""
    return f"{LOGS}/{container}.{number}.log"


def message_file(container: str) -> str:
    """Return the path of the file for the container's last message, below the pod's folder."""
    return f"{HOME}/.termination-log.{container}"


class Process(NamedTuple):
    """A process of this machine that cannot be taken for another one."""

    pid: int
    start_ticks: int
    boot_id: str


def write(path: str, document: object, *, durable: bool = False, mode: int = 0o600) -> None:
    """Replace the file. Durable: on disk before this returns, also after a power cut."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        descriptor = os.open(temporary, NEW_FILE, 0o600)
    except FileExistsError:
        # Left by a process of the same number that was killed.
        os.unlink(temporary)
        descriptor = os.open(temporary, NEW_FILE, 0o600)
    try:
        rest = json.dumps(document, separators=(",", ":")).encode()
        # On a disk that is nearly full, a part may be written before the error comes.
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if mode != 0o600:
            os.fchmod(descriptor, mode)
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
    """Return the document of a file; None if there is none."""
    try:
        with open(files.open_regular(path), "rb") as file:
            document = json.loads(file.read(LONGEST_DOCUMENT))
    except (FileNotFoundError, ValueError, RecursionError):
        # A power cut leaves an empty or torn file of one that was not durable: as good as none.
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


def find_self() -> Process | None:
    """Return this process as the machine knows it, also where it is process 1 of a namespace."""
    return find_process(int(os.readlink("/proc/self")))


def find_process(pid: int) -> Process | None:
    ticks = find_start_ticks(pid)
    return None if ticks is None else Process(pid, ticks, boot_id())


def find_start_ticks(pid: int) -> int | None:
    """Return when the process started, in ticks since boot; None if it is gone or only waits to be reaped."""
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
    """Tell Kyu that the pod's record has changed. False: the pipe is full, try again. Without a reader, all is told."""
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


def find_user(pid: int) -> int | None:
    """Return the user of a process."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
    return None
