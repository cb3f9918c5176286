"""
Start and end the processes of one control plane, and read what they logged.

The processes belong to a guard (see guard.py), which this side talks to over a pipe; when the pipe closes, for whatever
reason, they end and the folder is removed. One folder holds everything: certificates, data, and one log per process.

Called by: controlplane.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import guard
from tests.cluster.guard import Reply, Request

LOG_LINES = 20
LINE_CHARACTERS = 300


class ProcessEnded(Exception):
    """A part that should be running is not; the message carries the end of its log."""


@dataclass(slots=True)
class Processes:
    """The processes of one control plane, by name; the names are those of the parts."""

    folder: Path
    keeper: subprocess.Popen[str]
    lock: threading.Lock = field(default_factory=threading.Lock)
    pid_by_name: dict[str, int] = field(default_factory=dict)

    @classmethod
    def begin(cls) -> Processes:
        folder = Path(tempfile.mkdtemp(prefix="kyu-control-plane-"))
        # A session of its own: Ctrl-C in a terminal reaches the test run, which then closes the pipe in its own time.
        process = subprocess.Popen(
            [sys.executable, "-I", guard.__file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return cls(folder, process)

    def start(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        own = self.folder / name
        own.mkdir(exist_ok=True)
        request: Request = {
            "action": "start",
            "name": name,
            "command": command,
            "environment": {"PATH": os.environ["PATH"], "HOME": str(own)} | (environment or {}),
            "folder": str(own),
            "log": str(self.log(name)),
        }
        self.pid_by_name[name] = self.ask(request)["pid"]

    def require_running(self, name: str) -> None:
        exit_code = self.ask({"action": "poll", "name": name})["exit_code"]
        if exit_code is not None:
            raise ProcessEnded(f"{name} ended with exit code {exit_code}. Its log ends:\n{self.log_tail(name)}")

    def kill(self, name: str) -> None:
        self.ask({"action": "kill", "name": name})
        del self.pid_by_name[name]

    def ask(self, request: Request) -> Reply:
        assert self.keeper.stdin is not None
        assert self.keeper.stdout is not None
        with self.lock:
            with contextlib.suppress(BrokenPipeError):  # then there is no answer either
                self.keeper.stdin.write(json.dumps(request) + "\n")
                self.keeper.stdin.flush()
            line = self.keeper.stdout.readline()
        if not line:
            raise ProcessEnded(f"the guard of {self.folder} is gone, and so are its processes")
        reply: Reply = json.loads(line)
        return reply

    def end(self) -> None:
        """Everything is gone when this returns."""
        self.keeper.communicate()
        self.pid_by_name.clear()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def log_tail(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()
        return "\n".join(line[:LINE_CHARACTERS] for line in lines[-LOG_LINES:])

    def resident_bytes(self) -> dict[str, int]:
        """The memory that each process holds (VmRSS)."""
        return {name: resident_bytes(pid) for name, pid in self.pid_by_name.items()}

    def processor_seconds(self) -> float:
        """The processor time that the processes used so far, all together: says the same on a busy machine."""
        return sum(processor_seconds(pid) for pid in self.pid_by_name.values())


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def processor_seconds(pid: int) -> float:
    # After the name, which may hold anything but ends with the last parenthesis: utime and stime are fields 14 and 15.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
