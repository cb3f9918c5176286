"""
Call a function of the SDK inside its job, and write down the outcome of each call.

    python worker.py FOLDER

A copy of this file travels with the function, so a job needs no installation of Kyu. It uses the standard library only;
the function itself may need cloudpickle.

The folder holds the file ``call``: a header in JSON, a line feed, then the pickled function and the pickled tasks. The
environment variable JOB_COMPLETION_INDEX names the task. An outcome is a signature and a pickled list with an entry per
call of the task: ``("value", pickle)`` or ``("error", class, message, traceback, pickle)``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib
import json
import os
import pickle
import sys
import traceback
from typing import Any

CALL = "call"
OUTCOMES = "outcomes"
PACKAGES = "packages.zip"
# The start of the lines of a log that hold an outcome. Every part fits a line of a container's log file.
MARK = b"kyu-outcome:"
PART_BYTES = 6000
SIGNATURE_BYTES = 32


def sign(key: bytes, task: int, body: bytes) -> bytes:
    """Return the signature of the outcome of a task."""
    return hmac.new(key, b"%d:" % task + body, hashlib.sha256).digest()


def read_call(path: str, task: int) -> tuple[dict[str, Any], bytes, bytes]:
    """Return the header, the pickled function, and the pickled arguments of one task.

    The header has the offset, the length and the number of calls of each task.
    """
    with open(path, "rb") as file:
        header = json.loads(file.readline())
        start = file.tell()

        def part(place: list[int]) -> bytes:
            file.seek(start + place[0])
            return file.read(place[1])

        return header, part(header["function"]), part(header["tasks"][task])


def import_as_sender(header: dict[str, Any], folder: str) -> None:
    """Import modules from where the sender does, on its own machine; elsewhere from the current folder."""
    if header["path"] is None:
        sys.path[0] = os.getcwd()
        if os.path.exists(os.path.join(folder, PACKAGES)):
            sys.path.append(os.path.join(folder, PACKAGES))
    else:
        sys.path[:] = header["path"]


def run_task(header: dict[str, Any], function: bytes, task: bytes, calls: int) -> tuple[int, list[tuple[Any, ...]]]:
    """Call the function for each element of the task; return the exit code and the entries."""
    theirs, ours = tuple(header["python"]), sys.version_info[:2]
    if theirs != ours:
        names = ["{}.{}".format(*version) for version in (ours, theirs)]
        message = f"the job runs Python {names[0]}, but Python {names[1]} has sent the function"
        return 1, [("error", "RuntimeError", message, "", b"")] * calls
    try:
        call, elements = pickle.loads(function), pickle.loads(task)
    except BaseException as error:
        return 1, [error_entry(error, header["limit"])] * calls
    entries: list[tuple[Any, ...]] = []
    code = 0
    for args, kwargs in elements:
        try:
            entries.append(value_entry(call(*args, **kwargs), header["limit"]))
        except BaseException as error:
            code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
            entries.append(error_entry(error, header["limit"]))
            print(entries[-1][3], end="", file=sys.stderr)
    return code if any(entry[0] == "error" for entry in entries) else 0, entries


def value_entry(value: object, limit: int) -> tuple[Any, ...]:
    body = dumps(value)
    if len(body) > limit:
        raise ValueError(f"the result has {len(body)} bytes, and at most {limit} come back; write it to a file")
    return "value", body


def error_entry(error: BaseException, limit: int) -> tuple[Any, ...]:
    place = error.__traceback__
    # The first frame is that of this file.
    text = "".join(traceback.format_exception(type(error), error, place.tb_next if place else None))
    try:
        body = dumps(error.with_traceback(None))
        pickle.loads(body)
    except BaseException:
        # An exception that does not survive the way comes back as text.
        body = b""
    return "error", type(error).__name__, str(error), text, body if len(body) <= limit else b""


def dumps(value: object) -> bytes:
    try:
        return pickle.dumps(value, protocol=4)
    except Exception:
        # The value may be defined in the sender's script.
        return bytes(importlib.import_module("cloudpickle").dumps(value, protocol=4))


def write_file(folder: str, task: int, outcome: bytes) -> None:
    """Write the outcome in one step, so that the sender never reads a half."""
    path = os.path.join(folder, OUTCOMES, str(task))
    draft = f"{path}.{os.getpid()}.new"
    with open(draft, "wb") as file:
        file.write(outcome)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def write_log(descriptor: int, outcome: bytes) -> None:
    """Write the outcome to the log, in numbered parts."""
    text = base64.b64encode(outcome)
    parts = [text[start : start + PART_BYTES] for start in range(0, len(text), PART_BYTES)]
    with open(descriptor, "wb") as log:
        log.write(b"\n")
        for number, part in enumerate(parts, 1):
            log.write(b"%s%d/%d:%s\n" % (MARK, number, len(parts), part))


def main(folder: str) -> int:
    log = os.dup(1)
    task = int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
    header, function, arguments = read_call(os.path.join(folder, CALL), task)
    import_as_sender(header, folder)
    code, entries = run_task(header, function, arguments, calls=header["tasks"][task][2])
    body = pickle.dumps(entries, protocol=4)
    sys.stdout.flush()
    outcome = sign(bytes.fromhex(header["key"]), task, body) + body
    if header["log"]:
        write_log(log, outcome)
    else:
        write_file(folder, task, outcome)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
