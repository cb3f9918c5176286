"""
Pod templates: what a job asks for, and what admission adds to it.

A pod set is some pods of one shape. When its Workload is admitted, a ``PodSetInfo`` says what the chosen flavors and
the admission checks add to the template; when it is stopped, the template of the Workload says what was there before.
Additions never overwrite: a key that already has another value is a ``Conflict``, and the job cannot start.

Kueue: pkg/podset/podset.go, pkg/controller/jobframework/tas.go
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kyu.api.meta import Json
from kyu.kinds import fields, metadata

# The image of pods that run commands of this machine. A container must name an image.
HOST_IMAGE = "kyu.dev/host"


@dataclass(frozen=True, slots=True)
class PodSetTemplate:
    """Some pods of one shape, as they stand in a Workload."""

    name: str
    template: Json
    count: int
    min_count: int | None = None
    topology_request: Json | None = None

    def to_json(self) -> Json:
        body: Json = {"name": self.name, "count": self.count, "template": self.template}
        if self.min_count is not None:
            body["minCount"] = self.min_count
        if self.topology_request is not None:
            body["topologyRequest"] = self.topology_request
        return body


@dataclass(frozen=True, slots=True)
class PodSetInfo:
    """The additions of admission to the template of one pod set, and the number of admitted pods."""

    name: str
    count: int
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    scheduling_gates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TemplateConflict:
    """The job already has another value where admission must write: it can never start as admitted."""

    pod_set: str
    field: str
    key: str
    present: str
    wanted: str

    def __str__(self) -> str:
        return (
            f"pod set {self.pod_set}: {self.field} {self.key!r} is {self.present!r} in the job,"
            f" and admission needs {self.wanted!r}"
        )


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The Workload has other pod sets than the job."""

    present: tuple[str, ...]
    wanted: tuple[str, ...]

    def __str__(self) -> str:
        return f"the job has the pod sets {list(self.present)}, its Workload {list(self.wanted)}"


# Only admission writes these, so a value that an earlier admission has left is replaced.
OWN_ANNOTATIONS = frozenset({metadata.WORKLOAD, metadata.SLICE_NAME})


def merged(template: Json, info: PodSetInfo) -> Json | TemplateConflict:
    """Return the template with the additions. Merging the same twice changes nothing."""
    meta, spec = dict(template.get("metadata") or {}), dict(template.get("spec") or {})
    places = (
        ("label", meta, "labels", info.labels),
        ("annotation", meta, "annotations", info.annotations),
        ("nodeSelector", spec, "nodeSelector", info.node_selector),
    )
    for what, holder, key, added in places:
        present = holder.get(key) or {}
        for name, value in added.items():
            if present.get(name, value) != value and not (what == "annotation" and name in OWN_ANNOTATIONS):
                return TemplateConflict(info.name, what, name, present[name], value)
        if added:
            holder[key] = {**present, **added}
    append_missing(spec, "tolerations", info.tolerations)
    append_missing(spec, "schedulingGates", ({"name": gate} for gate in info.scheduling_gates))
    return with_parts(template, meta, spec)


def additions(info: PodSetInfo) -> Json:
    """Return the additions of admission as a template of their own."""
    result = merged({}, info)
    assert not isinstance(result, TemplateConflict), "an empty template has no values to conflict with"
    return result


def restored(template: Json, original: Json) -> Json:
    """Return the template with all fields that admission may write as in the original."""
    meta, spec = dict(template.get("metadata") or {}), dict(template.get("spec") or {})
    before_meta, before_spec = original.get("metadata") or {}, original.get("spec") or {}
    for holder, before, keys in (
        (meta, before_meta, ("labels", "annotations")),
        (spec, before_spec, ("nodeSelector", "tolerations", "schedulingGates")),
    ):
        for key in keys:
            if (holder.get(key) or None) == (before.get(key) or None):
                continue
            holder.pop(key, None)
            if before.get(key):
                holder[key] = before[key]
    if not meta and "metadata" not in original:
        template = {key: value for key, value in template.items() if key != "metadata"}
    return with_parts(template, meta, spec)


def with_parts(template: Json, meta: Json, spec: Json) -> Json:
    parts = {key: value for key, value in template.items() if key not in ("metadata", "spec")}
    if meta or "metadata" in template:
        parts["metadata"] = meta
    if spec or "spec" in template:
        parts["spec"] = spec
    return parts


def append_missing(holder: Json, key: str, added: Iterable[Json]) -> None:
    present = list(holder.get(key) or ())
    if missing := [item for item in added if item not in present]:
        holder[key] = present + missing


def with_labels(template: Json, added: Mapping[str, str]) -> Json:
    if not added:
        return template
    return fields.with_value(template, ("metadata", "labels"), {**metadata.labels_of(template), **added})


def with_annotations(template: Json, added: Mapping[str, str]) -> Json:
    return fields.with_value(template, ("metadata", "annotations"), {**metadata.annotations_of(template), **added})


def without_annotation(template: Json, name: str) -> Json:
    annotations = metadata.annotations_of(template)
    if name not in annotations:
        return template
    kept = {key: value for key, value in annotations.items() if key != name}
    return fields.with_value(template, ("metadata", "annotations"), kept)


def with_command(template: Json, command: list[str]) -> Json:
    """Return the template with this command in its first container, unless that has one."""
    first = fields.json_at(template, ("spec", "containers", 0))
    if not first or first.get("command") or first.get("args"):
        return template
    return fields.with_value(template, ("spec", "containers", 0, "command"), command)


def with_gates(template: Json, *gates: str) -> Json:
    spec = dict(template.get("spec") or {})
    append_missing(spec, "schedulingGates", ({"name": gate} for gate in gates))
    return {**template, "spec": spec}


def without_gates(template: Json, *gates: str) -> Json:
    spec = dict(template.get("spec") or {})
    kept = [item for item in spec.pop("schedulingGates", None) or () if item.get("name") not in gates]
    if kept:
        spec["schedulingGates"] = kept
    return {**template, "spec": spec}


def has_gate(template: Json, gate: str) -> bool:
    gates = (template.get("spec") or {}).get("schedulingGates") or ()
    return any(item.get("name") == gate for item in gates)


def without_labels(template: Json, keys: Iterable[str]) -> Json:
    present = metadata.labels_of(template)
    if not any(key in present for key in keys):
        return template
    doomed = set(keys)
    kept = {key: value for key, value in present.items() if key not in doomed}
    return {**template, "metadata": {**template["metadata"], "labels": kept}}


def priority_class(template: Json) -> str:
    return str((template.get("spec") or {}).get("priorityClassName") or "")


@dataclass(frozen=True, slots=True)
class RankLabels:
    """The labels with the rank of a pod in its pod set, for placing neighbours together."""

    index_label: str = ""
    sub_group_label: str = ""
    sub_group_count: int = 0


NO_RANKS = RankLabels()


def topology_request(template: Json, ranks: RankLabels) -> Json | None:
    """Return the topology request of the template's annotations, or None."""
    asked = metadata.annotations_of(template)
    request: Json = {}
    if metadata.REQUIRED_TOPOLOGY in asked:
        request["required"] = asked[metadata.REQUIRED_TOPOLOGY]
    elif metadata.PREFERRED_TOPOLOGY in asked:
        request["preferred"] = asked[metadata.PREFERRED_TOPOLOGY]
    elif metadata.UNCONSTRAINED_TOPOLOGY in asked:
        request["unconstrained"] = asked[metadata.UNCONSTRAINED_TOPOLOGY] == "true"
    group = asked.get(metadata.POD_SET_GROUP_NAME)
    if group and ("required" in request or "preferred" in request):
        request["podSetGroupName"] = group
    request |= slice_request(asked)
    if not request:
        return None
    if ranks.index_label:
        request["podIndexLabel"] = ranks.index_label
    if ranks.sub_group_label:
        request |= {"subGroupIndexLabel": ranks.sub_group_label, "subGroupCount": ranks.sub_group_count}
    return request


def slice_request(asked: dict[str, str]) -> Json:
    """Return the request for slices: pods that must be near each other, in layers. Invalid text asks nothing;
    the validation of the kind has refused it before."""
    if layers := asked.get(metadata.SLICE_CONSTRAINTS):
        parsed = parse_layers(layers)
        return {"podsetSliceRequiredTopologyConstraints": parsed} if parsed else {}
    request: Json = {}
    if topology := asked.get(metadata.SLICE_REQUIRED_TOPOLOGY):
        request["podSetSliceRequiredTopology"] = topology
        if asked.get(metadata.SLICE_SIZE, "").isascii() and asked.get(metadata.SLICE_SIZE, "").isdigit():
            request["podSetSliceSize"] = int(asked[metadata.SLICE_SIZE])
    return request


def parse_layers(text: str) -> list[Json] | None:
    """Return the layers of a slice in the annotation, or None if the text is no list of {topology, size}."""
    try:
        layers = json.loads(text)
    except ValueError:
        return None
    if not isinstance(layers, list):
        return None
    right = all(
        isinstance(layer, dict)
        and isinstance(layer.get("topology"), str)
        and isinstance(layer.get("size"), int)
        and not isinstance(layer["size"], bool)
        for layer in layers
    )
    return layers if right else None


def nodes_within(part: object) -> Iterator[str]:
    """Yield every nodeName beside containers: kinds of jobs have pod templates in many places."""
    if isinstance(part, dict):
        if part.get("nodeName") and "containers" in part:
            yield str(part["nodeName"])
        for value in part.values():
            yield from nodes_within(value)
    elif isinstance(part, list):
        for value in part:
            yield from nodes_within(value)
