"""Read the objects and settings of a server that the engine decides on."""

from __future__ import annotations

from kyu.api.config import file
from kyu.api.config.config import Configuration
from kyu.api.core import CONFIG_MAP, LimitRange, Namespace, Node, Pod, PriorityClass, RuntimeClass
from kyu.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from kyu.api.meta import Json, Object
from kyu.cli.connection import ServerConnection
from kyu.kube.errors import ApiError

TYPES: tuple[type[Object], ...] = (
    Namespace,
    LimitRange,
    RuntimeClass,
    PriorityClass,
    WorkloadPriorityClass,
    Topology,
    ResourceFlavor,
    AdmissionCheck,
    Cohort,
    ClusterQueue,
    LocalQueue,
)
# Nodes and pods matter only to topology-aware scheduling.
NODE_TYPES: tuple[type[Object], ...] = (Node, Pod)


def read_objects(server: ServerConnection) -> list[Json]:
    """Return the objects that decisions depend on, in an order that the engine accepts."""
    placing = NODE_TYPES if server.client.list(Topology.KIND) else ()
    types: tuple[type[Object], ...] = (*TYPES, *placing, Workload)
    return [
        {"apiVersion": type_.KIND.api_version, "kind": type_.KIND.kind, **obj}
        for type_ in types
        for obj in server.client.list(type_.KIND)
    ]


def read_configuration(server: ServerConnection) -> Configuration:
    """Return the settings of the server, or the defaults if they cannot be read."""
    try:
        found = server.client.find(CONFIG_MAP, file.SETTINGS)
        return file.load_config_map(found or {}).configuration
    except (ApiError, ValueError):
        return Configuration()
