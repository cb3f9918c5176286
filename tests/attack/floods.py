"""
Floods of connections, and how the server fares meanwhile: its memory, and how soon a new caller is served.

    python -m tests.attack.floods --data DIR --kind idle --count 2000 --addresses many
    python -m tests.attack --floods         all kinds at once, on a server of its own
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import resource
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kyu import lock
from kyu.kube import kubeconfig

CALLERS = 20
THREADS = 32
FLOOD_SECONDS = 3.0
MOST_MEGABYTES = 150
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
        # The server reads no more of what it refuses.
        plain.settimeout(FLOOD_SECONDS)
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
        threads = [threading.Thread(target=self._make, daemon=True) for _ in range(THREADS)]
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


def measure(target: Target, counts: Mapping[str, int], how: str, seconds: float) -> FloodResult:
    """Run floods of these kinds at once, and call from other addresses meanwhile."""
    before = target.memory_megabytes()
    floods = [Flood(target, kind, count, how) for kind, count in counts.items()]
    peak = [before]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            peak.append(target.memory_megabytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(len(floods)) as pool:
        list(pool.map(Flood.run, floods))
    calls: list[tuple[int, float]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or len(calls) < CALLERS:
        for flood in floods:
            flood.trickle()
        try:
            calls.append(target.call(f"127.9.9.{len(calls) % 250 + 1}"))
        except OSError:
            calls.append((0, 20.0))
        time.sleep(0.1)
    for flood in floods:
        flood.close()
    time.sleep(1)
    ended.set()
    watcher.join()
    return FloodResult(dict(counts), how, before, max(peak), target.memory_megabytes(), calls)


@dataclass(frozen=True, slots=True)
class FloodResult:
    """Memory in megabytes before, at most and afterwards; codes and seconds of the calls of others."""

    counts: dict[str, int]
    how: str
    before: float
    peak: float
    after: float
    calls: list[tuple[int, float]]

    @property
    def served(self) -> int:
        return sum(code == 200 for code, _ in self.calls)

    def text(self) -> str:
        seconds = [duration for _, duration in self.calls]
        what = " + ".join(f"{count} {kind}" for kind, count in self.counts.items())
        return (
            f"{what} from {self.how}: memory {self.before:.0f} MB, at most +{self.peak - self.before:.0f} MB,"
            f" afterwards {self.after - self.before:+.0f} MB; new callers served {self.served}/{len(self.calls)},"
            f" median {statistics.median(seconds) * 1000:.0f} ms, slowest {max(seconds) * 1000:.0f} ms"
        )

    def problems(self) -> list[str]:
        found = []
        if self.served < len(self.calls):
            found.append(f"{len(self.calls) - self.served} callers from other addresses were not served")
        if self.peak - self.before > MOST_MEGABYTES:
            found.append(f"the memory grew by {self.peak - self.before:.0f} MB")
        return found


def usual_counts(kind: str, count: int = 0) -> dict[str, int]:
    """Return the connections of a kind, or of all kinds at once."""
    kinds = KINDS if kind == "at-once" else (kind,)
    return {each: count or (700 if "body" in each else 2000) for each in kinds}


def raise_descriptor_limit() -> None:
    """Let this process open as many connections as the floods have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run_all(target: Target, kinds: Iterable[str], ways: Iterable[str], *, count: int = 0, seconds: float = 5.0) -> int:
    """Run and print the floods; return the number of problems."""
    raise_descriptor_limit()
    problems = 0
    for kind in kinds:
        for how in ways:
            result = measure(target, usual_counts(kind, count), how, seconds)
            print(result.text(), flush=True)
            for problem in result.problems():
                problems += 1
                print(f"PROBLEM: {problem}", flush=True)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kind", choices=(*KINDS, "at-once", "all"), default="all")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--addresses", choices=("one", "many", "both"), default="both")
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    kinds = (*KINDS, "at-once") if args.kind == "all" else (args.kind,)
    ways = ("many", "one") if args.addresses == "both" else (args.addresses,)
    return bool(run_all(Target(args.data), kinds, ways, count=args.count, seconds=args.seconds))


if __name__ == "__main__":
    raise SystemExit(main())
