"""
What the engine needs to know of a server: its objects, and the settings in force.

Called by: cli/why.py, cli/decide.py.
"""

from __future__ import annotations

from kyu.api import config_file
from kyu.api.config import Configuration
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
from kyu.cli.connection import Server
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
# Only where pods are placed by topology do nodes and other pods matter.
NODE_TYPES: tuple[type[Object], ...] = (Node, Pod)


def read_objects(server: Server) -> list[Json]:
    """All that decisions depend on, in an order in which the engine can take it in."""
    placing = NODE_TYPES if server.client.list(Topology.KIND) else ()
    types: tuple[type[Object], ...] = (*TYPES, *placing, Workload)
    return [
        {"apiVersion": type_.KIND.api_version, "kind": type_.KIND.kind, **obj}
        for type_ in types
        for obj in server.client.list(type_.KIND)
    ]


def read_configuration(server: Server) -> Configuration:
    """The settings in force, where they can be read; else those that hold by default."""
    try:
        found = server.client.find(CONFIG_MAP, config_file.SETTINGS)
        return config_file.load_config_map(found or {}).configuration
    except (ApiError, ValueError):
        return Configuration()
