"""
One control plane: a folder, a loopback address, and the processes of the parts that were asked for.

``ControlPlane.start`` returns when the API server is ready and every part answers; ``stop``, or the end of the test run
however it ends, leaves nothing behind. Kueue and YuniKorn are added to a running control plane by their own files.

Called by: conftest.py, __main__.py, measure.py, kueue.py, yunikorn.py.
"""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import yaml

from tests.cluster import addresses, certificates, client, commands, nodes
from tests.cluster.addresses import Claim
from tests.cluster.certificates import KeyPair
from tests.cluster.client import ApiError, Client
from tests.cluster.commands import Layout
from tests.cluster.processes import Processes

READY_SECONDS = 120.0
# How often an answer is asked for that cannot be watched.
POLL_SECONDS = 0.05

# What may be added to etcd and the API server.
COMMAND_BY_PART: dict[str, Callable[[Layout], list[str]]] = {
    "kube-controller-manager": commands.kube_controller_manager,
    "kube-scheduler": commands.kube_scheduler,
    "kwok": nodes.command,
}
HEALTH_BY_PART = {
    "kube-controller-manager": f"https://{{}}:{addresses.CONTROLLER_MANAGER_PORT}/healthz",
    "kube-scheduler": f"https://{{}}:{addresses.SCHEDULER_PORT}/readyz",
    "kwok": f"http://{{}}:{addresses.KWOK_PORT}/healthz",
}
EVERYTHING = tuple(COMMAND_BY_PART)


class NotReady(Exception):
    """A part runs but does not answer; the message carries the end of its log."""


@dataclass(slots=True)
class ControlPlane:
    """A running control plane. Use as a context manager, or call ``stop``."""

    claim: Claim
    layout: Layout
    processes: Processes
    authority: KeyPair
    admin: Client

    @classmethod
    def start(cls, *wanted: str, fsync: bool = False) -> ControlPlane:
        """etcd and the API server, and those of EVERYTHING that are named."""
        claim = addresses.claim()
        processes = Processes.begin()
        layout = Layout(processes.folder, claim.address, fsync)
        authority = write_certificates(layout)
        admin = write_user(layout, authority, "admin", ["system:masters"])
        plane = cls(claim, layout, processes, authority, admin)
        try:
            plane.start_server()
            for part in wanted:
                processes.start(part, COMMAND_BY_PART[part](layout))
            for part in wanted:
                plane.wait_until_healthy(part, HEALTH_BY_PART[part].format(claim.address))
            if "kube-controller-manager" in wanted:
                # Pods are refused in a namespace that does not have it yet.
                admin.until(lambda _: True, "v1", "ServiceAccount", "default")
        except BaseException:
            plane.stop()
            raise
        return plane

    def start_server(self) -> None:
        self.processes.start("etcd", commands.etcd(self.layout))
        self.processes.start("kube-apiserver", commands.kube_apiserver(self.layout))
        self.wait("kube-apiserver", self.is_served)

    def restart_server(self) -> None:
        """The API server dies and comes back: watches break, and it remembers no change from before."""
        self.processes.kill("kube-apiserver")
        self.admin.close()
        self.processes.start("kube-apiserver", commands.kube_apiserver(self.layout))
        self.wait("kube-apiserver", self.is_served)

    def is_served(self) -> bool:
        try:
            self.admin.text("GET", "/readyz")
            # The namespace comes from a start-up hook that readiness does not cover.
            self.admin.get("v1", "Namespace", "default")
        except (ApiError, OSError):
            return False
        return True

    def wait_until_healthy(self, part: str, url: str) -> None:
        self.wait(part, lambda: answers(url))

    def wait(self, part: str, is_ready: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not is_ready():
            self.processes.require_running(part)
            if time.monotonic() > deadline:
                raise NotReady(f"{part} is not ready after {seconds} s:\n{self.processes.log_tail(part)}")
            time.sleep(POLL_SECONDS)

    def user(self, name: str, groups: Sequence[str] = ()) -> Client:
        """A client that is this user; what it may do is up to RBAC. Its kubeconfig is in the folder."""
        return write_user(self.layout, self.authority, name, groups)

    def user_kubeconfig(self, name: str) -> Path:
        """For processes that are this user."""
        self.user(name).close()
        return user_file(self.layout, name)

    def add_nodes(
        self, names: Iterable[str], resources: Mapping[str, str], labels: Mapping[str, str] | None = None
    ) -> None:
        """KWOK nodes, ready when this returns."""
        names = list(names)
        for manifest in nodes.nodes(names, resources, labels):
            self.admin.create(manifest)
        self.admin.until_all(client.has("Ready"), "v1", "Node", names)

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig

    def stop(self) -> None:
        self.admin.close()
        self.processes.end()
        self.claim.release()

    def __enter__(self) -> ControlPlane:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def write_certificates(layout: Layout) -> KeyPair:
    authority = certificates.authority("kyu-tests")
    hosts = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", layout.address]
    write_pair(layout, "authority", authority)
    write_pair(layout, "server", certificates.server(authority, hosts))
    write_pair(layout, "aggregator", certificates.user(authority, "aggregator", []))
    return authority


def write_user(layout: Layout, authority: KeyPair, name: str, groups: Sequence[str]) -> Client:
    """The files by which a user is known, and a client that uses them."""
    path = user_file(layout, name)
    file_name = "admin" if name == "admin" else path.stem
    write_pair(layout, file_name, certificates.user(authority, name, groups))
    path.write_text(kubeconfig(layout, file_name))
    return client.client(
        layout.server, layout.certificate("authority"), layout.certificate(file_name), layout.key(file_name)
    )


def user_file(layout: Layout, name: str) -> Path:
    if name == "admin":
        return layout.kubeconfig
    return layout.folder / f"user-{name.replace(':', '-').replace('/', '-')}.kubeconfig"


def write_pair(layout: Layout, name: str, pair: KeyPair) -> None:
    layout.certificate(name).write_bytes(pair.certificate_pem())
    layout.key(name).write_bytes(pair.key_pem())
    layout.key(name).chmod(0o600)


def kubeconfig(layout: Layout, user: str) -> str:
    cluster = {"server": layout.server, "certificate-authority": str(layout.certificate("authority"))}
    identity = {"client-certificate": str(layout.certificate(user)), "client-key": str(layout.key(user))}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
        "current-context": "tests",
    }
    return yaml.safe_dump(content, sort_keys=False)


def answers(url: str) -> bool:
    """Whether a GET succeeds. The parts make their own certificates for this port, so there is nothing to verify."""
    context = ssl._create_unverified_context() if url.startswith("https") else None
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
