"""
Nodes that do not exist, from a file: Node manifests, of any size, with labels, taints and GPUs, one or many at a time.

The annotation ``kyu.dev/count: "100"`` makes a hundred of one manifest, named ``name-0`` to ``name-99``; in labels and
annotations ``{index}`` becomes the number. Every fault is reported with its file, line and field, all at once.

Called by: app.py, before the control plane starts. What the pods of these nodes do: simulate.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from kyu.api import codec, names, quantity
from kyu.api.core import TaintEffect
from kyu.api.meta import Json
from kyu.runtime.nodes import node

COUNT = "kyu.dev/count"
SIMULATED_LABEL = "kyu.dev/simulated"
MOST_NODES = 100_000
EFFECTS: tuple[TaintEffect, ...] = ("NoSchedule", "PreferNoSchedule", "NoExecute")
KNOWN_FIELDS = {"apiVersion", "kind", "metadata", "spec", "status"}
# A node that says nothing about pods has room for as many as a kubelet's default.
DEFAULT_PODS = "110"


class BadNodes(ValueError):
    """The file has faults, one a line."""


def read(text: str, source: str, now: datetime) -> list[Json]:
    """Return the Nodes of the file, ready to be created."""
    try:
        manifests = codec.read(text, source)
    except codec.DecodeError as error:
        raise BadNodes(str(error)) from error
    faults = [str(manifest.fault(detail, field)) for manifest in manifests for field, detail in find_faults(manifest)]
    if faults:
        raise BadNodes("\n".join(faults))
    nodes = [body for manifest in manifests for body in expand(manifest.object, now)]
    counts = Counter(body["metadata"]["name"] for body in nodes)
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise BadNodes(f"{source}: there are several nodes named {', '.join(repeated)}")
    return nodes


def find_faults(manifest: codec.Manifest) -> Iterator[tuple[str, str]]:
    """Field and fault."""
    body = manifest.object
    if (manifest.api_version, manifest.kind) != ("v1", "Node"):
        yield "kind", f"expected a v1 Node, got {manifest.api_version} {manifest.kind}"
        return
    for key in sorted(set(body) - KNOWN_FIELDS):
        yield key, "a Node has no such field"
    meta = body.get("metadata") or {}
    if why := names.why_not_dns_subdomain(str(meta.get("name") or "")):
        yield "metadata.name", why
    count = (meta.get("annotations") or {}).get(COUNT)
    if count is not None and not is_count(count):
        yield f"metadata.annotations[{COUNT}]", f'expected a text such as "100", at most {MOST_NODES}, got {count!r}'
    for key, value in (meta.get("labels") or {}).items():
        if not isinstance(value, str):
            yield f"metadata.labels[{key}]", f"expected a text, got {value!r}"
        elif why := names.why_not_qualified_name(str(key)):
            yield f"metadata.labels[{key}]", why
    yield from find_resource_faults(body.get("status") or {})
    yield from find_taint_faults(body.get("spec") or {})


def is_count(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit() and 0 < int(value) <= MOST_NODES


def find_resource_faults(status: Json) -> Iterator[tuple[str, str]]:
    given = [key for key in ("capacity", "allocatable") if status.get(key)]
    if not given:
        yield "status.capacity", 'must be set, such as {cpu: "64", memory: 256Gi}'
    for key in given:
        if not isinstance(status[key], dict):
            yield f"status.{key}", "expected an object"
            continue
        for resource, value in status[key].items():
            try:
                if quantity.parse(value).nanos < 0:
                    yield f"status.{key}[{resource}]", "must not be negative"
            except quantity.QuantityError as error:
                yield f"status.{key}[{resource}]", str(error)


def find_taint_faults(spec: Json) -> Iterator[tuple[str, str]]:
    for position, taint in enumerate(spec.get("taints") or ()):
        field = f"spec.taints[{position}]"
        if not isinstance(taint, dict) or not taint.get("key"):
            yield field, "expected an object with key and effect"
        elif taint.get("effect") not in EFFECTS:
            yield f"{field}.effect", f"expected one of {', '.join(EFFECTS)}, got {taint.get('effect')!r}"


def expand(body: Json, now: datetime) -> Iterator[Json]:
    meta = body["metadata"]
    annotations = dict(meta.get("annotations") or {})
    count = annotations.pop(COUNT, None)
    for index in range(int(count or 1)):
        name = f"{meta['name']}-{index}" if count is not None else meta["name"]
        yield make_node(body, name, index, annotations, now)


def make_node(body: Json, name: str, index: int, annotations: dict[str, str], now: datetime) -> Json:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        SIMULATED_LABEL: "true",
        **(body["metadata"].get("labels") or {}),
    }
    status = body.get("status") or {}
    allocatable = {"pods": DEFAULT_PODS, **(status.get("allocatable") or status["capacity"])}
    capacity = {"pods": DEFAULT_PODS, **(status.get("capacity") or allocatable)}
    ready = node.condition("Ready", "True", "Simulated", "this node is simulated", now)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {key: value.replace("{index}", str(index)) for key, value in labels.items()},
            "annotations": {key: value.replace("{index}", str(index)) for key, value in annotations.items()},
        },
        "spec": body.get("spec") or {},
        "status": {
            "capacity": {key: str(value) for key, value in capacity.items()},
            "allocatable": {key: str(value) for key, value in allocatable.items()},
            "conditions": [ready],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }
