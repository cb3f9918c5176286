"""
The command line of each Kubernetes process of a control plane.

Pure: a layout (folder, address, certificates on disk) in, arguments out. The flags say what differs from a cluster that
must last: no leader election, no fsync unless it is asked for, no limits that would make a test wait, and everything on
the loopback address.

Called by: controlplane.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.cluster import addresses, parts

# The controllers whose work a queue's users see. The others (volumes, cloud, certificates, service networking) only
# cost memory and noise here.
CONTROLLERS = (
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one control plane lives."""

    folder: Path
    address: str
    # Whether every write is on disk before its answer, as on a cluster that must last.
    fsync: bool = False

    @property
    def server(self) -> str:
        return f"https://{self.address}:{addresses.API_PORT}"

    @property
    def etcd(self) -> str:
        return f"http://{self.address}:{addresses.ETCD_PORT}"

    @property
    def kubeconfig(self) -> Path:
        """Of a user that may do everything."""
        return self.folder / "kubeconfig"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"


def etcd(layout: Layout) -> list[str]:
    peer = f"http://{layout.address}:{addresses.ETCD_PEER_PORT}"
    return [
        str(parts.binary("etcd")),
        "--name=test",
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={layout.etcd}",
        f"--advertise-client-urls={layout.etcd}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=test={peer}",
        *([] if layout.fsync else ["--unsafe-no-fsync"]),
        "--log-level=warn",
    ]


def kube_apiserver(layout: Layout) -> list[str]:
    return [
        str(parts.binary("kube-apiserver")),
        f"--etcd-servers={layout.etcd}",
        f"--bind-address={layout.address}",
        f"--secure-port={addresses.API_PORT}",
        f"--tls-cert-file={layout.certificate('server')}",
        f"--tls-private-key-file={layout.key('server')}",
        f"--client-ca-file={layout.certificate('authority')}",
        f"--service-account-key-file={layout.certificate('authority')}",
        f"--service-account-signing-key-file={layout.key('authority')}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        # What an aggregated API server (Kueue's visibility server) needs to believe that a request comes from here.
        f"--requestheader-client-ca-file={layout.certificate('authority')}",
        "--requestheader-allowed-names=aggregator",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={layout.certificate('aggregator')}",
        f"--proxy-client-key-file={layout.key('aggregator')}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        # The Endpoints of the Service "kubernetes" may not be loopback addresses, and no pod is there to use them.
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        "--profiling=false",
    ]


def kube_controller_manager(layout: Layout) -> list[str]:
    return [
        str(parts.binary("kube-controller-manager")),
        f"--kubeconfig={layout.kubeconfig}",
        f"--bind-address={layout.address}",
        f"--secure-port={addresses.CONTROLLER_MANAGER_PORT}",
        f"--cert-dir={layout.folder / 'kube-controller-manager'}",
        f"--controllers={','.join(CONTROLLERS)}",
        f"--service-account-private-key-file={layout.key('authority')}",
        f"--root-ca-file={layout.certificate('authority')}",
        "--leader-elect=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--profiling=false",
    ]


def kube_scheduler(layout: Layout) -> list[str]:
    return [
        str(parts.binary("kube-scheduler")),
        f"--kubeconfig={layout.kubeconfig}",
        f"--bind-address={layout.address}",
        f"--secure-port={addresses.SCHEDULER_PORT}",
        f"--cert-dir={layout.folder / 'kube-scheduler'}",
        "--leader-elect=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--profiling=false",
    ]
