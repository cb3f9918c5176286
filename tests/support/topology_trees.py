"""Small clusters and requests for the tests of placement, written as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from hypothesis import settings

from kyu.api.placement import Domain
from kyu.engine.topology import search
from kyu.engine.topology.failures import render_failure
from kyu.engine.topology.forest import Forest
from kyu.engine.topology.types import (
    HOSTNAME,
    DomainUsage,
    FlavorInfo,
    Gates,
    NodeInfo,
    Placement,
    PlacementRequest,
    SliceLayer,
    TopologyRequest,
)

LEVELS = ("block", "rack", HOSTNAME)


def examples(count: int) -> settings:
    """So many examples, the same ones in every run."""
    return settings(max_examples=count, deadline=None, derandomize=True)


def node(text: str, levels: tuple[str, ...] = LEVELS, **changes: Any) -> NodeInfo:
    """``b1/r1/x1 cpu=4 gpu=1 zone:a``: the values of the levels, amounts (100 pods by default), further labels."""
    path, *parts = text.split()
    amounts = {"pods": 100} | {key: int(value) for key, value in (p.split("=") for p in parts if "=" in p)}
    labels = dict(zip(levels, path.split("/"), strict=True)) | dict(p.split(":") for p in parts if ":" in p)
    return NodeInfo(**{"name": path, "labels": labels, "allocatable": amounts} | changes)


def forest(
    *nodes: str | NodeInfo,
    gates: Gates | None = None,
    levels: tuple[str, ...] = LEVELS,
    flavors: Iterable[str] = ("f",),
) -> Forest:
    made = Forest(gates)
    for name in flavors:
        made.put_flavor(FlavorInfo(name, "default", levels))
    for number, each in enumerate(nodes):
        made.put_node(node(each, levels, name=f"node-{number}") if isinstance(each, str) else each)
    return made


def request(count: int, name: str = "main", flavor: str = "f", cpu: int = 1, **changes: Any) -> PlacementRequest:
    """``required=``, ``slice_level=`` and so on go to the topology request, other words to the pod set."""
    words = {field.name for field in fields(TopologyRequest)}
    topology_words = {key: changes.pop(key) for key in list(changes) if key in words}
    if "layers" in topology_words:
        topology_words["layers"] = tuple(SliceLayer(level, size) for level, size in topology_words["layers"])
    values = {"requests": (("cpu", cpu),), "topology": TopologyRequest(**topology_words)} | changes
    return PlacementRequest(name=name, flavor=flavor, count=count, **values)


def placement(text: str) -> Placement:
    """``x1:2 x3:1``: hosts with their pods."""
    pairs = (part.split(":") for part in text.split())
    return Placement((HOSTNAME,), tuple(Domain((host,), int(count)) for host, count in pairs))


def show(placed: Placement) -> str:
    return " ".join(f"{'/'.join(domain.values)}:{domain.count}" for domain in placed.domains)


def outcome_text(outcome: search.PlacementOutcome) -> str:
    """``x1:2 x3:1`` for one pod set, ``leader x1:1, workers x2:4`` for several, else the words of the failure."""
    if outcome.failure is not None:
        return render_failure(outcome.failure)
    shown = {name: show(placed) for name, placed in outcome.placements.items()}
    if len(shown) == 1:
        return next(iter(shown.values()))
    return ", ".join(f"{name} {text}" for name, text in sorted(shown.items()))


def place_text(trees: Forest, *requests: PlacementRequest, **how: Any) -> str:
    return outcome_text(search.place(trees, requests, **how))


def usage(host: str, count: int, flavor: str = "f", cpu: int = 1) -> DomainUsage:
    return DomainUsage(flavor, tuple(host.split("/")), count, (("cpu", cpu),))
