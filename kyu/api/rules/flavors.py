"""
Rules for ResourceFlavor and Topology, and for taints and tolerations wherever they occur.

Kueue: pkg/webhooks/resourceflavor_webhook.go
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kyu.api import names
from kyu.api.config.features import FeatureGates
from kyu.api.core import Taint, Toleration
from kyu.api.errors import FieldError, broken_rule, invalid, not_supported
from kyu.api.kueue import HOSTNAME_LABEL, ResourceFlavor, Topology
from kyu.api.rules.metadata import validate_labels

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")


def validate_resource_flavor(
    flavor: ResourceFlavor, old: ResourceFlavor | None, gates: FeatureGates
) -> Iterator[FieldError]:
    spec = flavor.spec
    yield from validate_labels(spec.node_labels, "spec.nodeLabels")
    yield from validate_taints(spec.node_taints, "spec.nodeTaints")
    yield from validate_tolerations(spec.tolerations, "spec.tolerations")
    if spec.topology_name is not None and not spec.node_labels:
        yield broken_rule("spec.nodeLabels", "at least one node label is needed with topologyName")
    before = old.spec.topology_name if old is not None else None
    if before is not None and spec.topology_name != before:
        yield broken_rule("spec.topologyName", "field is immutable")


def validate_taints(taints: Sequence[Taint], path: str) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        here = f"{path}[{index}]"
        if reason := names.why_not_qualified_name(taint.key):
            yield invalid(f"{here}.key", taint.key, reason)
        if reason := names.why_not_label_value(taint.value):
            yield invalid(f"{here}.value", taint.value, reason)
        if taint.effect not in _EFFECTS:
            yield not_supported(f"{here}.effect", taint.effect, _EFFECTS)
        if (taint.key, taint.effect) in seen:
            yield FieldError("Duplicate", here, msgspec.to_builtins(taint), "key and effect must be unique together")
        seen.add((taint.key, taint.effect))


def validate_tolerations(tolerations: Sequence[Toleration], path: str) -> Iterator[FieldError]:
    for index, toleration in enumerate(tolerations):
        here = f"{path}[{index}]"
        if toleration.key and (reason := names.why_not_qualified_name(toleration.key)):
            yield invalid(f"{here}.key", toleration.key, reason)
        if not toleration.key and toleration.operator != "Exists":
            yield invalid(f"{here}.operator", toleration.operator, "must be Exists when key is empty")
        if toleration.operator and toleration.operator not in _OPERATORS:
            yield not_supported(f"{here}.operator", toleration.operator, _OPERATORS)
        if toleration.operator == "Exists" and toleration.value:
            yield invalid(f"{here}.value", toleration.value, "must be empty when operator is Exists")
        if toleration.effect and toleration.effect not in _EFFECTS:
            yield not_supported(f"{here}.effect", toleration.effect, _EFFECTS)
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            yield invalid(f"{here}.effect", toleration.effect, "must be NoExecute when tolerationSeconds is set")


def validate_topology(topology: Topology, old: Topology | None, gates: FeatureGates) -> Iterator[FieldError]:
    levels = [level.node_label for level in topology.spec.levels]
    if len(set(levels)) != len(levels):
        yield broken_rule("spec.levels", "must be unique")
    if HOSTNAME_LABEL in levels[:-1]:
        yield broken_rule("spec.levels", f"{HOSTNAME_LABEL} may only be the lowest level")
    if old is None:
        return
    before = [level.node_label for level in old.spec.levels]
    if before != levels and not (before[-1:] == levels[-1:] == [HOSTNAME_LABEL]):
        detail = f"levels may only be changed while {HOSTNAME_LABEL} is and stays the lowest level"
        yield broken_rule("spec.levels", detail)
