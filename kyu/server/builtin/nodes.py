"""
Nodes: defaults and validation of taints and pod networks.

Kubernetes: pkg/apis/core/{v1/defaults.go,validation}, pkg/registry/core/node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import label_key, label_value
from kyu.server.builtin.network import NETWORK, network_of
from kyu.server.builtin.pods.placement import EFFECTS
from kyu.server.validation.checks import objections, one_of

NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
# Fields that can be set once, with their names in the message.
GIVEN_ONCE: Final = {"podCIDRs": "podCIDR", "providerID": "providerID"}


def default_node(node: Json) -> None:
    status, spec = node.setdefault("status", {}), node.get("spec") or {}
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    # podCIDR is the first of podCIDRs. If they differ, podCIDR counts.
    first, several = spec.get("podCIDR"), spec.get("podCIDRs") or []
    if first and several[:1] != [first]:
        spec["podCIDRs"] = [first]
    elif several:
        spec["podCIDR"] = several[0]


def prepare_node(node: Json) -> None:
    """Taint a new node: no pod runs on it before it is ready."""
    taints = node.setdefault("spec", {}).setdefault("taints", [])
    if NOT_READY not in taints:
        taints.append(dict(NOT_READY))


def validate_node(node: Json) -> Iterator[FieldError]:
    yield from _taint_faults(node)
    yield from _network_faults(node)


def validate_node_update(new: Json, old: Json) -> Iterator[FieldError]:
    """Validate an update. Kubernetes checks the taints twice, so their errors are reported twice."""
    yield from validate_node(new)
    yield from _taint_faults(new)
    after, before = new.get("spec") or {}, old.get("spec") or {}
    for name, called in GIVEN_ONCE.items():
        if before.get(name) and after.get(name) != before[name]:
            detail = f'node updates may not change {called} except from "" to valid'
            yield fields.forbidden(f"spec.{name}", detail)


def _taint_faults(node: Json) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        path = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(name, "") for name in ("key", "value", "effect"))
        yield from objections(f"{path}.key", key, label_key)
        yield from objections(f"{path}.value", value, label_value)
        if not effect:
            yield fields.required(f"{path}.effect")
        else:
            yield from one_of(f"{path}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            yield FieldError("Duplicate", path, taint, "taints must be unique by key and effect pair")
        seen.add((key, effect))


def _network_faults(node: Json) -> Iterator[FieldError]:
    given = (node.get("spec") or {}).get("podCIDRs") or []
    networks = [network_of(text) for text in given]
    for index, network in enumerate(networks):
        if network is None:
            yield fields.invalid(f"spec.podCIDRs[{index}]", given[index], NETWORK)
    versions = [network.version for network in networks if network is not None]
    if len(versions) > len(set(versions)):
        yield fields.invalid("spec.podCIDRs", given, "may specify no more than one CIDR for each IP family")
