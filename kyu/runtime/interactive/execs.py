"""
Starts further commands in the containers of a pod, for ``kubectl exec``. A part of the pod's supervisor.

The supervisor listens on a socket in the pod's folder, bound before it becomes the pod's user: no process of a tenant
can reach it. A request names the container and the command, and brings the descriptors of its streams. The command is
started as the container's own program is: with its mounts, environment, user, limits and filter of system calls.
It ends with its container. If the server goes, the command gets SIGHUP, as from a terminal that is closed.

Called by: supervisor.py. Answers: commands.py. Standard library only.
"""

from __future__ import annotations

# socket.recv_fds imports it, and a supervisor loads nothing more once it is the pod's user.
import array  # noqa: F401
import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kyu.runtime import cgroups, spawn
from kyu.runtime.interactive.attaching import Attaching
from kyu.runtime.podman import engine
from kyu.runtime.sandbox.namespaces import Sandbox

SOCKET = "exec.sock"
BACKLOG = 16
MOST_COMMANDS = 64
LONGEST_REQUEST = 256 * 1024
# Standard input, output and error of a command. A terminal is all three.
MOST_DESCRIPTORS = 3
FAMILIES = {4: (socket.AF_INET, "127.0.0.1"), 6: (socket.AF_INET6, "::1")}


class NotDone(Exception):
    """The request is refused. The exit code is that of a shell in the same case; 0 if the request was no command."""

    def __init__(self, message: str, exit_code: int = 0) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class ExecChild:
    """A command that runs, and the connection that waits for its end."""

    pid: int
    container: str
    connection: socket.socket
    # The variable by which its process in the container is known, where podman runs it.
    mark: str = ""

    def signal(self, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, which)
        if self.mark:
            engine.signal_marked(self.mark, which)


def listen() -> socket.socket | None:
    """Bind the socket in the working directory, the pod's folder; None if the disk refuses it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = os.umask(0o177)
    try:
        listener.bind(SOCKET)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        return None
    finally:
        os.umask(before)
    listener.setblocking(False)
    return listener


@dataclass(slots=True)
class Execs:
    """The commands that were started in a pod beside its containers."""

    listener: socket.socket | None
    plans: Mapping[str, dict[str, Any]]
    # Returns whether a container runs.
    is_running: Callable[[str], bool]
    sandbox: Sandbox = field(default_factory=Sandbox)
    groups: Mapping[str, cgroups.Group] = field(default_factory=dict)
    engine: engine.Engine | None = None
    # The number of the present start of each container.
    numbers: Callable[[str], int] = lambda name: 0
    attaching: Attaching = field(default_factory=Attaching)
    # Connections by descriptor: without a request yet, and with a command.
    waiting: dict[int, socket.socket] = field(default_factory=dict)
    by_descriptor: dict[int, ExecChild] = field(default_factory=dict)
    by_pid: dict[int, ExecChild] = field(default_factory=dict)

    def register(self, poll: select.poll) -> None:
        self.attaching.poll = poll
        if self.listener is not None:
            poll.register(self.listener, select.POLLIN)

    def handle(self, descriptor: int, poll: select.poll) -> bool:
        """Take note of an event; return False if the descriptor is not one of these."""
        if self.listener is not None and descriptor == self.listener.fileno():
            self._accept(poll)
        elif descriptor in self.waiting:
            poll.unregister(descriptor)
            self._serve(self.waiting.pop(descriptor), poll)
        elif descriptor in self.by_descriptor:
            self._hang_up(self.by_descriptor[descriptor], poll)
        else:
            return self.attaching.handle(descriptor)
        return True

    def _accept(self, poll: select.poll) -> None:
        assert self.listener is not None
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        self.waiting[connection.fileno()] = connection
        poll.register(connection, select.POLLIN)

    def _serve(self, connection: socket.socket, poll: select.poll) -> None:
        descriptors: list[int] = []
        answered: list[int] = []
        try:
            data, descriptors, flags, _ = socket.recv_fds(connection, LONGEST_REQUEST, MOST_DESCRIPTORS)
            if not data or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                connection.close()
                return
            request = json.loads(data)
            if request["do"] == "connect":
                answered = [connect(request["port"], request["family"])]
                send(connection, {}, answered)
                connection.close()
            elif request["do"] == "attach":
                self._attach(request, descriptors, connection)
            else:
                self._start(request, descriptors, connection, poll)
        except NotDone as error:
            send(connection, {"refused": str(error), "exitCode": error.exit_code})
            connection.close()
        except OSError as error:
            send(connection, {"refused": error.strerror or str(error), "exitCode": 0})
            connection.close()
        finally:
            for descriptor in (*descriptors, *answered):
                os.close(descriptor)

    def _start(
        self, request: dict[str, Any], descriptors: list[int], connection: socket.socket, poll: select.poll
    ) -> None:
        name = request["container"]
        plan = self.plans.get(name)
        if plan is None or not self.is_running(name):
            raise NotDone(f'container not found ("{name}")')
        if len(self.by_pid) >= MOST_COMMANDS:
            raise NotDone(f"{MOST_COMMANDS} commands run in this pod already")
        is_terminal = bool(request["tty"])
        if len(descriptors) != (1 if is_terminal else MOST_DESCRIPTORS):
            raise NotDone("the streams of the command are missing")
        if self.engine is not None:
            command = self.engine.command(plan, self.numbers(name), request["argv"], is_terminal=is_terminal)
        else:
            environment = {**plan["env"], "TERM": "xterm"} if is_terminal else plan["env"]
            command = {**plan, "argv": request["argv"], "env": environment}
        streams = tuple(descriptors * 3) if is_terminal else tuple(descriptors)
        child = spawn.fork_with(command, self.sandbox, streams, is_terminal=is_terminal)
        try:
            if name in self.groups:
                self.groups[name].enter(child.pid)
            spawn.release(child)
        except (spawn.StartFailed, OSError) as error:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            code = error.exit_code if isinstance(error, spawn.StartFailed) else spawn.NOT_RUNNABLE_EXIT_CODE
            raise NotDone(str(error), code) from error
        started = ExecChild(child.pid, name, connection, command.get("mark", ""))
        self.by_pid[child.pid] = self.by_descriptor[connection.fileno()] = started
        send(connection, {"started": True})
        # The server sends nothing more: the next event is its end.
        poll.register(connection, select.POLLIN)

    def _attach(self, request: dict[str, Any], descriptors: list[int], connection: socket.socket) -> None:
        if len(descriptors) != MOST_DESCRIPTORS:
            raise NotDone("the streams of the client are missing")
        if refusal := self.attaching.attach(request["container"], connection, descriptors, has_input=request["stdin"]):
            raise NotDone(refusal)
        send(connection, {"started": True})

    def _hang_up(self, child: ExecChild, poll: select.poll) -> None:
        """End a command whose client has gone."""
        poll.unregister(child.connection)
        del self.by_descriptor[child.connection.fileno()]
        child.signal(signal.SIGHUP)

    def exited(self, pid: int, exit_code: int, poll: select.poll) -> None:
        """Tell the server the exit code of a command, if the process was one."""
        child = self.by_pid.pop(pid, None)
        if child is None:
            return
        if self.by_descriptor.pop(child.connection.fileno(), None) is not None:
            poll.unregister(child.connection)
        send(child.connection, {"exitCode": exit_code})
        child.connection.close()

    def end_container(self, name: str) -> None:
        """Kill the commands of a container that has ended."""
        for child in self.by_pid.values():
            if child.container == name:
                child.signal(signal.SIGKILL)


def connect(port: int, family: int) -> int:
    """Return a socket that connects to a port of the pod's own network. The server waits until it is connected."""
    kind, host = FAMILIES[family]
    connecting = socket.socket(kind, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connecting.connect((host, port))
    except OSError:
        connecting.close()
        raise
    return connecting.detach()


def send(connection: socket.socket, document: dict[str, Any], descriptors: list[int] | None = None) -> None:
    """Send a short message. The server reads each, so the socket always has room unless the server has gone."""
    with contextlib.suppress(OSError):
        socket.send_fds(connection, [json.dumps(document).encode()], descriptors or [])
