"""
The ServiceAccount of a pod: the volume that pods get without asking for it, and where they find the server.

Kubernetes adds the volume to the stored pod. Here it is part of the plan alone, so that objects stay small, and pods
that run elsewhere do not carry it. Jobs of ``kyu submit`` run commands of this machine, which expect no cluster: they
get it if they ask for it, or name an account.

Called by: agent.py, podplan.py, volumes.py. Kubernetes: plugin/pkg/admission/serviceaccount.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kyu.api.meta import Json

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME = "kube-api-access"
DEFAULT_ACCOUNT = "default"
# The ConfigMap of every namespace with the authority of the server.
AUTHORITY = "kube-root-ca.crt"
# The kubelet's number.
SECONDS = 3607
DEFAULT_SECONDS = 3600
# The image of pods that run commands of this machine.
HOST_IMAGE = "kyu.dev/host"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of the API server for pods."""

    host: str
    port: int

    def variables(self) -> dict[str, str]:
        port = str(self.port)
        return {
            "KUBERNETES_SERVICE_HOST": self.host,
            "KUBERNETES_SERVICE_PORT": port,
            "KUBERNETES_SERVICE_PORT_HTTPS": port,
        }


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """The needs of a pod that calls the server: its address, the ServiceAccount, and tokens by audience and seconds."""

    server: ServerAddress | None = None
    account: Json | None = None
    tokens: Mapping[tuple[str, int], str] = field(default_factory=dict)


NO_ACCESS = ServerAccess()


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a volume, and what to ask for when it is renewed."""

    volume: str
    path: str
    audience: str
    seconds: int


def account_name(pod: Json) -> str:
    return str(pod["spec"].get("serviceAccountName") or "")


def with_volume(pod: Json, access: ServerAccess) -> Json:
    """Return the pod with the volume of its account in each container, unless it is not wanted."""
    spec = pod["spec"]
    if not is_mounted(spec, access):
        return pod
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": SECONDS}},
        {"configMap": {"name": AUTHORITY, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    volume = {"name": VOLUME, "projected": {"defaultMode": 0o444, "sources": sources}}
    lists = {name: [_mounted(one) for one in spec[name]] for name in ("initContainers", "containers") if spec.get(name)}
    return {**pod, "spec": {**spec, **lists, "volumes": [*(spec.get("volumes") or ()), volume]}}


def is_mounted(spec: Json, access: ServerAccess) -> bool:
    """Return whether the pod gets the volume of its account."""
    if access.server is None or access.account is None:
        return False
    wish = spec.get("automountServiceAccountToken")
    if wish is None:
        wish = access.account.get("automountServiceAccountToken")
    if wish is None:
        return expects_server(spec)
    return bool(wish)


def expects_server(spec: Json) -> bool:
    """Return whether the programs of a pod may expect a cluster around them."""
    names_account = spec.get("serviceAccountName") not in (None, "", DEFAULT_ACCOUNT)
    return names_account or any(container.get("image") != HOST_IMAGE for container in spec["containers"])


def _mounted(container: Json) -> Json:
    mounts = container.get("volumeMounts") or []
    if any(mount.get("mountPath") == FOLDER for mount in mounts):
        return container
    return {**container, "volumeMounts": [*mounts, {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}]}


def token_files(pod: Json) -> Iterator[TokenFile]:
    """Yield the tokens in the volumes of a pod."""
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if token := source.get("serviceAccountToken"):
                seconds = token.get("expirationSeconds") or DEFAULT_SECONDS
                yield TokenFile(volume["name"], token["path"], token.get("audience") or "", seconds)
