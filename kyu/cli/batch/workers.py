"""
Connections to the worker clusters of a hub, with the credentials of the hub.

The kubeconfig of a cluster is in a Secret of the hub. A user who may not read it gets no connection.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from kyu.api.kueue import MultiKueueCluster
from kyu.api.meta import Json, Key, Kind
from kyu.cli.connection import ServerConnection
from kyu.kube import kubeconfig
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import ApiError

# The namespace of Kueue. It is fixed in the embedded server.
NAMESPACE = "kueue-system"
SECRET = Kind("", "v1", "Secret", "secrets")


def connect_to(server: ServerConnection, cluster: str) -> ServerConnection | None:
    """Return a connection to the cluster, or None if this user has no credentials for it."""
    if not cluster:
        return None
    try:
        found = server.client.find(MultiKueueCluster.KIND, Key("", cluster))
        source = (found or {}).get("spec", {}).get("clusterSource", {}).get("kubeConfig") or {}
        if source.get("locationType", "Secret") != "Secret" or not source.get("location"):
            return None
        secret = server.client.find(SECRET, Key(NAMESPACE, source["location"]))
        text = base64.b64decode(((secret or {}).get("data") or {}).get("kubeconfig", "")).decode()
        credentials = kubeconfig.parse_foreign(text, source["location"])
    except (ApiError, ValueError, kubeconfig.BadKubeconfig):
        return None
    description = f"{credentials.server} (cluster {cluster})"
    return ServerConnection(BlockingClient(credentials), server.namespace, description)


def connect_to_all(server: ServerConnection) -> Mapping[str, ServerConnection | None]:
    """Return a connection to each worker cluster, or None where there are no credentials."""
    names = sorted(str(one["metadata"]["name"]) for one in clusters(server))
    return {name: connect_to(server, name) for name in names}


def clusters(server: ServerConnection) -> list[Json]:
    return list(server.listed(MultiKueueCluster.KIND, None))
