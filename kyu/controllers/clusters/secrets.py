"""
The credentials of a worker cluster: the kubeconfig of a MultiKueueCluster, from a Secret or a file.

Kueue: pkg/controller/admissionchecks/multikueue/multikueuecluster.go
"""

from __future__ import annotations

import base64
from pathlib import Path

from kyu.api.config.config import Configuration
from kyu.api.core import SECRET
from kyu.api.kueue import MultiKueueCluster
from kyu.api.meta import Key
from kyu.kube.cache import Cache
from kyu.kube.kubeconfig import BadKubeconfig, Credentials, UnsafeKubeconfig, parse_foreign

SECRET_KEY = "kubeconfig"
# Only files below this folder: a user with the right to write MultiKueueClusters must not read any file.
FOLDER = Path("/etc/multikueue/kubeconfigs")


class Unusable(Exception):
    """A MultiKueueCluster without usable credentials; ``reason`` is that of its condition Active."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def find_credentials(cluster: MultiKueueCluster, secrets: Cache, settings: Configuration) -> Credentials:
    """Return the credentials, or raise Unusable."""
    source = cluster.spec.cluster_source.kube_config
    if source is None:
        raise Unusable("MultiKueueClusterProfileFeatureDisabled", "Kyu reads no ClusterProfiles; use kubeConfig")
    try:
        if source.location_type == "Path":
            text = read_file(Path(source.location), settings)
        else:
            text = read_secret(Key(settings.namespace, source.location), secrets)
        return parse_foreign(text, source.location)
    except UnsafeKubeconfig as error:
        raise Unusable("InsecureKubeConfig", str(error)) from error
    except Exception as error:
        # A malformed kubeconfig must not end more than this connection.
        raise Unusable("BadKubeConfig", str(error)) from error


def read_secret(key: Key, secrets: Cache) -> str:
    secret = secrets.find_json(SECRET, key)
    if secret is None:
        raise BadKubeconfig(f"Secret {key} does not exist")
    data = (secret.get("data") or {}).get(SECRET_KEY)
    if data is None:
        raise BadKubeconfig(f"Secret {key} has no {SECRET_KEY}")
    return base64.b64decode(data).decode()


def read_file(path: Path, settings: Configuration) -> str:
    if settings.gates.enabled("MultiKueueKubeConfigPathValidation"):
        path = path.resolve()
        if not path.is_relative_to(FOLDER.resolve()):
            raise BadKubeconfig(f"{path} is not below {FOLDER}")
    return path.read_text()
