"""
Connects clients with the container's own program, for ``kubectl attach``. A part of the pod's supervisor.

A client gives the ends of pipes, as for a command. Output goes to the log first, then to each client. A client that
does not read holds the container back for a while, and is then let go: it must not stop the pod. A container with
``stdin`` or a terminal keeps its first output for the first client, which comes a moment after it has started.

Called by: supervisor.py, execs.py. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import struct
import termios
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

READ_BYTES = 64 * 1024
MOST_CLIENTS = 16
# The first output that is kept for the first client.
EARLY_BYTES = 256 * 1024
STALLED_SECONDS = 30.0
# The last output may take so long to be read when the container has ended.
LAST_SECONDS = 2.0
END_OF_TRANSMISSION = b"\x04"


@dataclass(slots=True)
class ContainerStreams:
    """The streams of a container's program that runs. ``stdin`` is -1 if it has none, or when it has ended."""

    name: str
    outputs: list[int]
    stdin: int = -1
    closes_stdin: bool = False
    is_terminal: bool = False
    keeps_early: bool = False
    early: list[tuple[str, bytes]] = field(default_factory=list)
    early_bytes: int = 0
    # Input that the program has not taken yet.
    unread: bytes = b""


@dataclass(slots=True)
class AttachedClient:
    """A client: its connection, the end of its input, and the ends of its outputs by name."""

    connection: socket.socket
    streams: ContainerStreams
    stdin: int
    outputs: dict[str, int]
    unsent: dict[str, bytes] = field(default_factory=dict)
    stalled_since: float | None = None


@dataclass(slots=True)
class Attaching:
    """All clients that are attached to containers of a pod."""

    poll: select.poll = field(default_factory=select.poll)
    containers: dict[str, ContainerStreams] = field(default_factory=dict)
    clients: list[AttachedClient] = field(default_factory=list)

    # Containers

    def add(self, streams: ContainerStreams) -> None:
        self.containers[streams.name] = streams

    def attach(
        self, name: str, connection: socket.socket, descriptors: Iterable[int], *, has_input: bool = True
    ) -> str:
        """Attach a client; return why not, or an empty text. The descriptors are copied."""
        streams = self.containers.get(name)
        if streams is None:
            return f'container not found ("{name}")'
        if len(self.clients) >= MOST_CLIENTS:
            return f"{MOST_CLIENTS} clients are attached to this pod already"
        stdin, stdout, stderr = (fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 3) for each in descriptors)
        for descriptor in (stdin, stdout, stderr):
            os.set_blocking(descriptor, False)
        client = AttachedClient(connection, streams, stdin, {"stdout": stdout, "stderr": stderr})
        self.clients.append(client)
        self.poll.register(connection, select.POLLIN)
        if has_input:
            self.poll.register(stdin, select.POLLIN)
        else:
            # A client that only watches does not end the input of the others.
            os.close(stdin)
            client.stdin = -1
        early, streams.early, streams.keeps_early = streams.early, [], False
        for output, data in early:
            self._send(client, output, data)
        return ""

    def output(self, name: str, output: str, data: bytes) -> None:
        """Pass output on. The log has it already."""
        streams = self.containers.get(name)
        if streams is None:
            return
        if streams.keeps_early:
            streams.early_bytes += len(data)
            streams.keeps_early = streams.early_bytes <= EARLY_BYTES
            streams.early = [*streams.early, (output, data)] if streams.keeps_early else []
        for client in list(self.clients):
            if client.streams is streams:
                self._send(client, output, data)

    def stop_reading(self, name: str) -> None:
        """Forget the descriptors of the outputs: they are about to be closed."""
        if name in self.containers:
            self.containers[name].outputs = []

    def ended(self, name: str) -> None:
        """Let the clients of a container go that has ended, after they have read its last output."""
        streams = self.containers.pop(name, None)
        until = time.monotonic() + LAST_SECONDS
        for client in [each for each in self.clients if each.streams is streams]:
            self._flush(client, until)
            self._tell_end(client)
            self._detach(client)
        if streams is not None:
            self._close_stdin(streams)

    # Events

    def handle(self, descriptor: int) -> bool:
        """Take note of an event; return False if the descriptor is not one of these."""
        for client in self.clients:
            if descriptor == client.connection.fileno():
                self._read_request(client)
                return True
            if descriptor == client.stdin:
                self._read_input(client)
                return True
            for output, number in client.outputs.items():
                if descriptor == number:
                    self._send(client, output, b"")
                    return True
        for streams in self.containers.values():
            if descriptor == streams.stdin:
                self._write_input(streams, b"")
                return True
        return False

    def drop_stalled(self) -> None:
        """Let clients go that have read nothing for too long."""
        now = time.monotonic()
        for client in list(self.clients):
            if client.stalled_since is not None and now - client.stalled_since > STALLED_SECONDS:
                self._detach(client)

    # Output

    def _send(self, client: AttachedClient, output: str, data: bytes) -> None:
        """Send what the client takes now, and hold the container back while something is left."""
        was_stalled = client.stalled_since is not None
        left = client.unsent.pop(output, b"") + data
        try:
            left = left[os.write(client.outputs[output], left) :] if left else b""
        except BlockingIOError:
            pass
        except OSError:
            # The client has closed this output; the rest of it is for the others.
            left = b""
        if left:
            client.unsent[output] = left
            self.poll.register(client.outputs[output], select.POLLOUT)
            client.stalled_since = time.monotonic()
        else:
            with contextlib.suppress(KeyError):
                self.poll.unregister(client.outputs[output])
            client.stalled_since = client.stalled_since if client.unsent else None
        if was_stalled != (client.stalled_since is not None):
            self._hold(client.streams)

    def _hold(self, streams: ContainerStreams) -> None:
        """Read the container's output only while no client is behind."""
        is_held = any(each.stalled_since is not None for each in self.clients if each.streams is streams)
        for descriptor in streams.outputs:
            if is_held:
                with contextlib.suppress(KeyError):
                    self.poll.unregister(descriptor)
            else:
                self.poll.register(descriptor, select.POLLIN)

    def _flush(self, client: AttachedClient, until: float) -> None:
        waiting = select.poll()
        for output in list(client.unsent):
            waiting.register(client.outputs[output], select.POLLOUT)
            while client.unsent.get(output) and (left := until - time.monotonic()) > 0 and waiting.poll(left * 1000):
                self._send(client, output, b"")
            waiting.unregister(client.outputs[output])

    # Input

    def _read_input(self, client: AttachedClient) -> None:
        streams = client.streams
        try:
            data = os.read(client.stdin, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data and streams.stdin >= 0:
            self._write_input(streams, data)
        elif not data:
            self._end_input(client)

    def _end_input(self, client: AttachedClient) -> None:
        if client.stdin < 0:
            return
        with contextlib.suppress(KeyError):
            self.poll.unregister(client.stdin)
        os.close(client.stdin)
        client.stdin = -1
        if client.streams.closes_stdin:
            self._close_stdin(client.streams)

    def _write_input(self, streams: ContainerStreams, data: bytes) -> None:
        """Write input, and read no more of it while the program does not take it."""
        had_unread = bool(streams.unread)
        streams.unread += data
        try:
            streams.unread = streams.unread[os.write(streams.stdin, streams.unread) :]
        except BlockingIOError:
            pass
        except OSError:
            streams.unread = b""
        if bool(streams.unread) == had_unread:
            return
        for client in self.clients:
            if client.streams is streams and client.stdin >= 0:
                if streams.unread:
                    self.poll.unregister(client.stdin)
                else:
                    self.poll.register(client.stdin, select.POLLIN)
        if streams.unread:
            self.poll.register(streams.stdin, select.POLLOUT)
        else:
            self.poll.unregister(streams.stdin)

    def _close_stdin(self, streams: ContainerStreams) -> None:
        if streams.stdin < 0:
            return
        if streams.is_terminal:
            with contextlib.suppress(OSError):
                os.write(streams.stdin, END_OF_TRANSMISSION)
        with contextlib.suppress(KeyError):
            self.poll.unregister(streams.stdin)
        os.close(streams.stdin)
        streams.stdin, streams.unread = -1, b""

    # Connections

    def _read_request(self, client: AttachedClient) -> None:
        try:
            data = client.connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._detach(client)
            return
        request = json.loads(data)
        if client.streams.is_terminal and client.streams.outputs and "resize" in request:
            width, height = request["resize"]
            with contextlib.suppress(OSError):
                fcntl.ioctl(client.streams.outputs[0], termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def _tell_end(self, client: AttachedClient) -> None:
        with contextlib.suppress(OSError):
            client.connection.send(b'{"exitCode": 0}')

    def _detach(self, client: AttachedClient) -> None:
        self.clients.remove(client)
        self._end_input(client)
        with contextlib.suppress(KeyError):
            self.poll.unregister(client.connection)
        client.connection.close()
        for descriptor in client.outputs.values():
            with contextlib.suppress(KeyError):
                self.poll.unregister(descriptor)
            os.close(descriptor)
        if client.stalled_since is not None and client.streams.name in self.containers:
            self._hold(client.streams)
