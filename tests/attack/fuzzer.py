"""The fuzzer: mutated requests of hostile tenants, and the measurements of a quiet one."""

from __future__ import annotations

import contextlib
import copy
import http.client
import multiprocessing
import random
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kyu.api.meta import Json
from kyu.kube import kubeconfig
from tests.attack import hostile
from tests.attack.answers import is_fault
from tests.attack.floods import Target

TENANTS = ("eve", "mallory")
THREADS_PER_TENANT = 3
QUIET = "quinn"
PAUSE_SECONDS = 0.05
START_SECONDS = 60.0
# The last of the measurements.
END = (0, 0.0)
encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values of a report that are still good."""

    p99_seconds: float = 0.2
    growth: float = 1.1
    # A short run has not filled the windows yet.
    growth_megabytes: float = 150.0


@dataclass
class Report:
    """The result of a run."""

    codes: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    quiet_codes: Counter[int] = field(default_factory=Counter)
    megabytes: list[float] = field(default_factory=list)

    def p99(self) -> float:
        return statistics.quantiles(self.waits, n=100)[98] if len(self.waits) > 2 else 0.0

    def text(self) -> str:
        first = self.megabytes[len(self.megabytes) // 3]
        return (
            f"{sum(self.codes.values())} hostile requests: {dict(sorted(self.codes.items()))}\n"
            f"{len(self.waits)} requests of the quiet tenant {dict(self.quiet_codes)}: median"
            f" {statistics.median(self.waits) * 1000:.0f} ms, p99 {self.p99() * 1000:.0f} ms,"
            f" longest {max(self.waits) * 1000:.0f} ms\n"
            f"memory {self.megabytes[0]:.0f} MB at the start, {first:.0f} MB after a third,"
            f" {self.megabytes[-1]:.0f} MB at the end; {len(self.faults)} faults"
        )

    def problems(self, bounds: Bounds) -> list[str]:
        found = self.faults[:10]
        if self.p99() > bounds.p99_seconds:
            found.append(f"the quiet tenant waited {self.p99():.2f} s (p99)")
        if set(self.quiet_codes) - {200, 201, 404}:
            found.append(f"the quiet tenant was refused: {dict(self.quiet_codes)}")
        first, last = self.megabytes[len(self.megabytes) // 3], self.megabytes[-1]
        if last > bounds.growth * first and last - first > bounds.growth_megabytes:
            found.append(f"the memory grew from {first:.0f} to {last:.0f} MB")
        return found


def kyu(data: Path, *words: str) -> str:
    """Run a command of Kyu and return its output."""
    command = [sys.executable, "-m", "kyu", *words, "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Fuzzer:
    """One server, its tenants, and the threads that act for them."""

    def __init__(self, folder: Path, chance: random.Random, *, server_only: bool) -> None:
        self._data = folder / "data"
        self._chance = chance
        self._server_only = server_only
        self._lock = threading.Lock()
        self.report = Report()

    def run(self, seconds: float) -> Report:
        flags = ["--server-only", "--bare"] if self._server_only else ["--trust-users"]
        kyu(self._data, "up", "-d", *flags)
        try:
            self._target = Target(self._data)
            tokens = {name: self._add_user(name) for name in (*TENANTS, QUIET)}
            prepared = list(hostile.requests())
            until = time.monotonic() + seconds
            seeds = [self._chance.random() for _ in range(THREADS_PER_TENANT * len(TENANTS))]
            # In a process of its own, so that it does not wait for the threads of the others.
            processes = multiprocessing.get_context("spawn")
            waits: multiprocessing.Queue[tuple[int, float]] = processes.Queue()
            quiet = processes.Process(target=be_quiet, args=(self._data, tokens[QUIET], until, waits))
            quiet.start()
            threads: list[threading.Thread] = []
            for number, seed in enumerate(seeds):
                name = TENANTS[number % len(TENANTS)]
                arguments = (Tenant(name, tokens[name], random.Random(seed), prepared), until)
                threads.append(threading.Thread(target=self._attack, args=arguments))
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                self.report.megabytes.append(self._target.memory_megabytes())
                time.sleep(0.5)
            while (measured := waits.get(timeout=START_SECONDS)) != END:
                self.report.quiet_codes[measured[0]] += 1
                self.report.waits.append(measured[1])
            quiet.join()
        finally:
            kyu(self._data, "down", *([] if self._server_only else ["--stop-jobs", "--grace", "0"]))
        log = (self._data / "server.log").read_text(errors="replace")
        self.report.faults += [line for line in log.splitlines() if "request failed" in line or "Traceback" in line]
        return self.report

    def _add_user(self, name: str) -> str:
        admin = self._connect()
        headers = {"authorization": f"Bearer {self._target.token}", "content-type": "application/json"}
        admin.request("POST", "/api/v1/namespaces", encode({"metadata": {"name": name}}), headers)
        assert admin.getresponse().read()
        admin.close()
        path = self._data / f"{name}.kubeconfig"
        path.write_text(kyu(self._data, "user", "add", name, "--namespace", name, "--role", "admin"))
        return kubeconfig.load(path).token

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self._target.host, self._target.port, timeout=30, context=self._target.context
        )

    # The hostile ones.

    def _attack(self, tenant: Tenant, until: float) -> None:
        connection = self._connect()
        while time.monotonic() < until:
            request = tenant.request()
            try:
                code, text = self._send(connection, tenant, request)
            except (OSError, http.client.HTTPException, ssl.SSLError):
                connection.close()
                connection = self._connect()
                continue
            with self._lock:
                self.report.codes[code] += 1
                if is_fault(request.method, code, text):
                    self.report.faults.append(f"{code} {request.method} {request.path} {request.name}: {text[:300]}")
        connection.close()

    def _send(
        self, connection: http.client.HTTPSConnection, tenant: Tenant, request: hostile.Hostile
    ) -> tuple[int, str]:
        headers = {"authorization": f"Bearer {tenant.token}", "content-type": request.content_type}
        headers["accept"] = tenant.accept()
        connection.request(request.method, request.path, request.body, headers)
        answer = connection.getresponse()
        if answer.getheader("transfer-encoding") == "chunked":
            # A stream has no end: some of it is read, or nothing.
            code = answer.status
            with contextlib.suppress(OSError):
                answer.read1(tenant.chance.choice((0, 100, 100_000)))
            connection.close()
            return code, ""
        return answer.status, answer.read(2_000_000).decode(errors="replace")


def be_quiet(data: Path, token: str, until: float, waits: multiprocessing.Queue[tuple[int, float]]) -> None:
    """Write and read a few objects now and then, and report how long each request took."""
    target = Target(data)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    path = f"/api/v1/namespaces/{QUIET}/configmaps"
    connection = http.client.HTTPSConnection(target.host, target.port, timeout=30, context=target.context)
    number = 0
    while time.monotonic() < until:
        number += 1
        name = f"m-{number % 50}"
        body = encode({"metadata": {"name": name}, "data": {"k": str(number)}})
        requests = (("POST", path, body), ("GET", f"{path}/{name}", None), ("GET", path, None))
        for method, where, sent in (*requests, ("DELETE", f"{path}/{name}", None)):
            start = time.monotonic()
            connection.request(method, where, sent, headers)
            answer = connection.getresponse()
            answer.read()
            waits.put((answer.status, time.monotonic() - start))
        time.sleep(PAUSE_SECONDS)
    connection.close()
    waits.put(END)


class Tenant:
    """A hostile user, and the requests that it makes up."""

    def __init__(self, name: str, token: str, chance: random.Random, prepared: list[hostile.Hostile]) -> None:
        self.name, self.token, self.chance = name, token, chance
        self._prepared = prepared

    def accept(self) -> str:
        table = "application/json;as=Table;v=v1;g=meta.k8s.io"
        return self.chance.choice(("application/json", "*/*", table, "application/yaml", "text/html", "a;b=c," * 50))

    def request(self) -> hostile.Hostile:
        if self.chance.random() < 0.2:
            found = self.chance.choice(self._prepared)
            return found._replace(path=found.path.replace("/default/", f"/{self.name}/"))
        return self._mutated()

    def _mutated(self) -> hostile.Hostile:
        chance = self.chance
        path, body = chance.choice(list(self._objects()))
        path = path.replace("/default/", f"/{self.name}/")
        name = f"o-{chance.randrange(30)}"
        for _ in range(chance.choice((0, 1, 1, 2, 5))):
            mutate(body, chance)
        if isinstance(body.get("metadata"), dict):
            body["metadata"]["name"] = name
        method = chance.choice(("POST", "POST", "PUT", "PATCH", "DELETE", "GET"))
        kind = "application/json"
        if method == "PATCH":
            kind = chance.choice((hostile.MERGE, hostile.STEPS, hostile.STRATEGIC, hostile.APPLY, "application/x"))
        sent = encode(self._steps() if kind == hostile.STEPS else body)
        if chance.random() < 0.05:
            sent = damaged(sent, chance)
        where = path if method == "POST" else f"{path}/{name}"
        if chance.random() < 0.1:
            where += chance.choice(("/status", "/scale", "/log", "/binding", "/eviction", "/x/y"))
        return hostile.Hostile("mutated", method, where + self._query(method), sent if method != "GET" else b"", kind)

    def _objects(self) -> Iterator[tuple[str, Json]]:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {**hostile.pod_spec(command=["true"])}}
        yield hostile.MAPS, hostile.config_map("a", labels={"a": "b"}, annotations={"c": "d"})
        yield hostile.PODS, {"metadata": {"labels": {"a": "b"}}, "spec": hostile.pod_spec(command=["true"])}
        yield hostile.JOBS, {"metadata": {}, "spec": {"template": template, "parallelism": 1, "suspend": True}}
        cron = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": template}}}
        yield hostile.CRON_JOBS, {"metadata": {}, "spec": cron}
        yield hostile.ROLES, {"metadata": {}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
        queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {}}
        yield hostile.WORKLOADS.replace("workloads", "localqueues"), {**queue, "spec": {"clusterQueue": "local"}}

    def _steps(self) -> list[Json]:
        places = ("/data/k", "/metadata/labels", "/metadata/labels/a", "/spec", "/spec/template", "/x/-", "", "/")
        chance = self.chance
        return [
            {
                "op": chance.choice(("add", "remove", "replace", "move", "copy", "test", "x")),
                "path": chance.choice(places),
                "from": chance.choice(places),
                "value": evil(chance),
            }
            for _ in range(chance.choice((1, 3, 50)))
        ]

    def _query(self, method: str) -> str:
        chance = self.chance
        if chance.random() < 0.6:
            return "?fieldManager=f" if method == "PATCH" else ""
        names = ("limit", "continue", "labelSelector", "fieldSelector", "watch", "timeoutSeconds", "dryRun", "force",
                 "resourceVersion", "fieldManager", "fieldValidation", "gracePeriodSeconds", "propagationPolicy",
                 "resourceVersionMatch", "sendInitialEvents", "allowWatchBookmarks", "tailLines")  # fmt: skip
        values = ("0", "1", "-1", "true", "All", "a", "%00", "a%3Db", "9" * 30, "Orphan", "Exact", "", "NotOlderThan")
        return "?" + "&".join(f"{chance.choice(names)}={chance.choice(values)}" for _ in range(chance.randrange(1, 5)))


EVIL: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63 - 1, -(2**63), 1.5, 1e308, "", "a", "A" * 300, "\0", "\ud7ff", "é" * 100, "../../x",
    "0001-01-01T00:00:00+10:00", "9" * 400, "1e99999", "-5", "100m", "$(A)", "a" * 100_000, [], {}, [None], [[]],
    {"": ""},
    {"a": {"b": {"c": []}}}, ["a"] * 1_001, {f"k{n}": n for n in range(1_500)}, [{"name": "c"}] * 50,
)  # fmt: skip


def evil(chance: random.Random) -> Any:
    """Return a strange value that the caller may change."""
    return copy.deepcopy(chance.choice(EVIL))


def mutate(value: Json, chance: random.Random) -> None:
    """Put something strange at a place of the object."""
    node: Any = value
    if not node:
        return
    for _ in range(chance.randrange(8)):
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        inner = [key for key in keys if isinstance(node[key], dict | list) and node[key]]
        if not inner:
            break
        node = node[chance.choice(inner)]
    key = chance.choice(list(node) if isinstance(node, dict) else list(range(len(node))))
    where = chance.choice(("x", "spec", "status", "ownerReferences", "finalizers", "labels", "\0"))
    match chance.randrange(4):
        case 0 if isinstance(node, dict):
            node[where] = evil(chance)
        case 1:
            del node[key]
        case _:
            node[key] = evil(chance)


def damaged(text: bytes, chance: random.Random) -> bytes:
    """Cut, repeat or change some bytes."""
    place = chance.randrange(len(text))
    match chance.randrange(3):
        case 0:
            return text[:place]
        case 1:
            return text[:place] + text
        case _:
            return text[:place] + bytes([chance.randrange(256)]) + text[place + 1 :]
