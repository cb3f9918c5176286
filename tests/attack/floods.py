"""
Floods of connections, and how the server fares meanwhile: its memory, and how soon a new caller is served.

    python -m tests.attack.floods --data DIR --kind idle --count 2000 --addresses many
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from kyu import lock
from kyu.kube import kubeconfig

CALLERS = 20
HALF_BODY = b"x" * (3 * 1024 * 1024 // 2)
HEAD = b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: a\r\n"


class Target:
    """A server that is attacked: its address, its process, and a token that is let in."""

    def __init__(self, data: Path) -> None:
        credentials = kubeconfig.load(data / "kubeconfig")
        address = urlsplit(credentials.server)
        self.host, self.port = address.hostname or "", address.port or 0
        self.token = credentials.token
        self.process = lock.holder(data / "lock") or 0
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE

    def connect(self, source: str) -> ssl.SSLSocket:
        plain = socket.create_connection((self.host, self.port), timeout=20, source_address=(source, 0))
        return self.context.wrap_socket(plain)

    def memory_megabytes(self) -> float:
        status = Path(f"/proc/{self.process}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def call(self, source: str, token: str = "") -> tuple[int, float]:
        """Return the code and the seconds of one request on a connection of its own."""
        start = time.monotonic()
        connection = http.client.HTTPSConnection(
            self.host, self.port, timeout=20, context=self.context, source_address=(source, 0)
        )
        try:
            headers = {"authorization": f"Bearer {token or self.token}"}
            connection.request("GET", "/api/v1/namespaces/default", headers=headers)
            response = connection.getresponse()
            response.read()
            return response.status, time.monotonic() - start
        finally:
            connection.close()


def addresses(how: str) -> Iterator[str]:
    if how == "one":
        return itertools.repeat("127.0.0.1")
    return (f"127.0.{number // 250 % 250 + 1}.{number % 250 + 1}" for number in itertools.count())


def idle(connection: ssl.SSLSocket, target: Target) -> None:
    """Send nothing."""


def slow(connection: ssl.SSLSocket, target: Target) -> None:
    """Send a head without an end."""
    connection.sendall(b"GET /api HTTP/1.1\r\nhost: ")


def half_body(connection: ssl.SSLSocket, target: Target) -> None:
    """Send half of a body, without a token."""
    connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % (2 * len(HALF_BODY)))
    connection.sendall(HALF_BODY)


def half_body_of_user(connection: ssl.SSLSocket, target: Target) -> None:
    """Send half of a body, as a user."""
    connection.sendall(HEAD + b"authorization: Bearer %b\r\n" % target.token.encode())
    connection.sendall(b"content-length: %d\r\n\r\n" % (2 * len(HALF_BODY)) + HALF_BODY)


KINDS: dict[str, Callable[[ssl.SSLSocket, Target], None]] = {
    "idle": idle,
    "slow": slow,
    "half-body": half_body,
    "half-body-of-user": half_body_of_user,
}


class Flood:
    """Many connections of one kind, made by a few threads; slow ones go on to trickle."""

    def __init__(self, target: Target, kind: str, count: int, how: str) -> None:
        self._target, self._kind, self._count = target, kind, count
        self._sources = addresses(how)
        self._lock = threading.Lock()
        self._open: list[ssl.SSLSocket] = []
        self._is_over = threading.Event()
        self.made = 0

    def run(self) -> None:
        threads = [threading.Thread(target=self._make, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _make(self) -> None:
        while True:
            with self._lock:
                if self.made >= self._count:
                    return
                self.made += 1
                source = next(self._sources)
            with contextlib.suppress(OSError):
                connection = self._target.connect(source)
                self._open.append(connection)
                KINDS[self._kind](connection, self._target)

    def trickle(self) -> None:
        """Send one byte more on each connection."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.send(b"x")

    def close(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.close()


def measure(target: Target, kind: str, count: int, how: str, seconds: float) -> str:
    """Run a flood and return one line about it."""
    before = target.memory_megabytes()
    flood = Flood(target, kind, count, how)
    peak = [before]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            peak.append(target.memory_megabytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    flood.run()
    calls: list[tuple[int, float]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or len(calls) < CALLERS:
        flood.trickle()
        try:
            calls.append(target.call(f"127.9.9.{len(calls) % 250 + 1}"))
        except OSError:
            calls.append((0, 20.0))
        time.sleep(0.1)
    flood.close()
    time.sleep(1)
    ended.set()
    watcher.join()
    served = sum(code == 200 for code, _ in calls)
    slowest = max(duration for _, duration in calls)
    return (
        f"{kind:18} {count:5} from {how:4}: memory {before:.0f} MB, at most +{max(peak) - before:.0f} MB, afterwards"
        f" {target.memory_megabytes() - before:+.0f} MB; new callers served {served}/{len(calls)},"
        f" median {statistics.median(d for _, d in calls) * 1000:.0f} ms, slowest {slowest * 1000:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--addresses", choices=("one", "many", "both"), default="both")
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    target = Target(args.data)
    for kind in KINDS if args.kind == "all" else (args.kind,):
        for how in ("many", "one") if args.addresses == "both" else (args.addresses,):
            count = args.count or (700 if "body" in kind else 2000)
            print(measure(target, kind, count, how, args.seconds), flush=True)


if __name__ == "__main__":
    main()
