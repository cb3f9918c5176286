"""
The rules that Kueue's webhooks hold every job to, whatever its kind.

Two parts: rules on the labels and annotations of the object (what may be written, and what may change while it runs), a
table with one rule for each key; and rules on the topology annotations of its pod templates. A rule gives errors as
Kubernetes words them.

Kueue: pkg/controller/jobframework/validation.go, tas_validation.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from kyu.api import names
from kyu.api.errors import FieldError, forbidden, invalid, required, too_many
from kyu.api.meta import Json
from kyu.kinds import fields, metadata, templates

_GATE_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")

MAX_LABEL = 63
MAX_LAYERS = 3
GROUP_SIZE = 2
IMMUTABLE = "field is immutable"


class JobChange(msgspec.Struct, frozen=True):
    """An object, what it was before, and what its kind permits."""

    obj: Json
    old: Json | None
    running: bool
    was_running: bool
    may_be_prebuilt: bool
    may_be_elastic: bool
    has_default_queue: bool


class AnnotatedTemplate(msgspec.Struct, frozen=True):
    """A pod template, by where it stands and what its annotations ask for."""

    path: fields.Path
    asked: dict[str, str]
    count: int


def metadata_errors(facts: JobChange) -> list[FieldError]:
    """Return the errors of all rules whose key the object has or had."""
    sides = (facts.obj,) if facts.old is None else (facts.obj, facts.old)
    keys = {key for side in sides for held in (metadata.labels_of(side), metadata.annotations_of(side)) for key in held}
    return [error for key, rule in RULE_BY_KEY.items() if key in keys for error in rule(facts)]


def label_field(key: str) -> str:
    return f"metadata.labels[{key}]"


def annotation_field(key: str) -> str:
    return f"metadata.annotations[{key}]"


def queue_errors(facts: JobChange) -> Iterator[FieldError]:
    queue = metadata.queue_name(facts.obj)
    field = label_field(metadata.QUEUE_NAME)
    if queue:
        yield from subdomain_errors(field, queue)
    if facts.old is None:
        return
    before = metadata.queue_name(facts.old)
    if before and not queue and facts.has_default_queue:
        yield invalid(field, queue, "cannot be emptied where the namespace has a default queue")
    elif before != queue and facts.was_running and facts.running:
        yield invalid(field, queue, IMMUTABLE)


def prebuilt_errors(facts: JobChange) -> Iterator[FieldError]:
    name = metadata.identifier(facts.obj, metadata.PREBUILT_WORKLOAD)
    field = label_field(metadata.PREBUILT_WORKLOAD)
    if name:
        yield from subdomain_errors(field, name)
    if name and not facts.may_be_prebuilt:
        yield forbidden(field, f"{facts.obj.get('kind')} does not support prebuilt workloads")
    if facts.old is None or not (facts.was_running and facts.running):
        return
    if metadata.identifier(facts.old, metadata.PREBUILT_WORKLOAD) != name:
        yield invalid(field, name, IMMUTABLE)


def time_errors(facts: JobChange) -> Iterator[FieldError]:
    text = metadata.labels_of(facts.obj).get(metadata.MAX_EXEC_TIME_SECONDS)
    field = label_field(metadata.MAX_EXEC_TIME_SECONDS)
    if text is not None and positive(text) is None:
        yield invalid(field, text, "must be a whole number of seconds, 1 or more")
    if facts.old is None or not (facts.was_running or facts.running):
        return
    if metadata.labels_of(facts.old).get(metadata.MAX_EXEC_TIME_SECONDS) != text:
        yield invalid(field, text, IMMUTABLE)


def priority_errors(facts: JobChange) -> Iterator[FieldError]:
    if facts.old is None:
        return
    before = metadata.labels_of(facts.old).get(metadata.PRIORITY_CLASS, "")
    after = metadata.labels_of(facts.obj).get(metadata.PRIORITY_CLASS, "")
    field = label_field(metadata.PRIORITY_CLASS)
    if before and not after:
        yield invalid(field, after, "the class of a queued job cannot be removed, only changed")
    elif after and not before and facts.running:
        yield invalid(field, after, "cannot be set while the job runs")


def elastic_errors(facts: JobChange) -> Iterator[FieldError]:
    field = annotation_field(metadata.ELASTIC_JOB)
    value = metadata.annotations_of(facts.obj).get(metadata.ELASTIC_JOB)
    if metadata.is_elastic(facts.obj) and not facts.may_be_elastic:
        yield forbidden(field, f"{facts.obj.get('kind')} cannot be elastic")
    if facts.old is not None and metadata.is_elastic(facts.old) != metadata.is_elastic(facts.obj):
        yield invalid(field, value, IMMUTABLE)


def gate_errors(facts: JobChange) -> Iterator[FieldError]:
    """Yield errors of admission gates: names with a domain and a path, set at creation, then only removed."""
    field = annotation_field(metadata.ADMISSION_GATED_BY)
    text = metadata.annotations_of(facts.obj).get(metadata.ADMISSION_GATED_BY)
    gates = gate_names(text)
    for name in gates:
        if not is_gate(name):
            yield invalid(field, name, "must be a domain-prefixed path of at most 63 characters")
    if len(set(gates)) != len(gates):
        yield invalid(field, text, "must not name a gate twice")
    if facts.old is not None:
        before = gate_names(metadata.annotations_of(facts.old).get(metadata.ADMISSION_GATED_BY))
        for name in gates:
            if name not in before:
                yield forbidden(field, "a gate cannot be added after creation")


def gate_names(text: str | None) -> list[str]:
    return text.split(",") if text else []


def is_gate(name: str) -> bool:
    domain, slash, path = name.partition("/")
    return bool(
        slash and len(name) <= MAX_LABEL and not names.why_not_dns_subdomain(domain) and _GATE_PATH.fullmatch(path)
    )


RULE_BY_KEY: dict[str, Callable[[JobChange], Iterator[FieldError]]] = {
    metadata.QUEUE_NAME: queue_errors,
    metadata.PREBUILT_WORKLOAD: prebuilt_errors,
    metadata.MAX_EXEC_TIME_SECONDS: time_errors,
    metadata.PRIORITY_CLASS: priority_errors,
    metadata.ELASTIC_JOB: elastic_errors,
    metadata.ADMISSION_GATED_BY: gate_errors,
}


def topology_errors(pod_templates: Sequence[AnnotatedTemplate]) -> list[FieldError]:
    asking = [template for template in pod_templates if template.asked]
    errors = [error for template in asking for error in template_topology_errors(template)]
    return errors + list(group_errors(asking))


def template_topology_errors(template: AnnotatedTemplate) -> Iterator[FieldError]:
    asked = template.asked
    field = fields.show((*template.path, "metadata", "annotations"))
    kinds = (metadata.REQUIRED_TOPOLOGY, metadata.PREFERRED_TOPOLOGY, metadata.UNCONSTRAINED_TOPOLOGY)
    present = [key for key in kinds if key in asked]
    if len(present) > 1:
        yield invalid(field, None, f"must not contain more than one of {', '.join(kinds)}")
    for key in (metadata.REQUIRED_TOPOLOGY, metadata.PREFERRED_TOPOLOGY, metadata.SLICE_REQUIRED_TOPOLOGY):
        if key in asked and (reason := names.why_not_qualified_name(asked[key])):
            yield invalid(f"{field}[{key}]", asked[key], reason)
    unconstrained = asked.get(metadata.UNCONSTRAINED_TOPOLOGY)
    if unconstrained is not None and unconstrained not in ("true", "false"):
        yield invalid(f"{field}[{metadata.UNCONSTRAINED_TOPOLOGY}]", unconstrained, "must be true or false")
    yield from slice_errors(template, asked, field)
    yield from group_name_errors(asked, field)


def slice_errors(template: AnnotatedTemplate, asked: dict[str, str], field: str) -> Iterator[FieldError]:
    topology, size_text = asked.get(metadata.SLICE_REQUIRED_TOPOLOGY), asked.get(metadata.SLICE_SIZE)
    layers = asked.get(metadata.SLICE_CONSTRAINTS)
    if layers is not None:
        if topology is not None or size_text is not None:
            yield forbidden(field, f"{metadata.SLICE_CONSTRAINTS} stands alone")
        yield from layer_errors(layers, template.count, f"{field}[{metadata.SLICE_CONSTRAINTS}]")
        return
    if topology is not None and size_text is None:
        yield required(f"{field}[{metadata.SLICE_SIZE}]", "slice size is required with a slice topology")
    if size_text is None:
        return
    size_field = f"{field}[{metadata.SLICE_SIZE}]"
    size = positive(size_text)
    if topology is None:
        yield forbidden(size_field, "may not be set without a slice topology")
    if size is None:
        yield invalid(size_field, size_text, "must be greater than or equal to 1")
    elif size > template.count:
        yield invalid(size_field, size_text, f"must not be greater than pod set count {template.count}")


def layer_errors(text: str, count: int, field: str) -> Iterator[FieldError]:
    layers = templates.parse_layers(text)
    if not layers:
        yield invalid(field, text, "must be a JSON list of {topology, size}")
        return
    if len(layers) > MAX_LAYERS:
        yield too_many(field, len(layers), MAX_LAYERS)
    levels = [layer["topology"] for layer in layers]
    if len(set(levels)) != len(levels):
        yield invalid(field, text, "must not name a topology twice")
    for position, level in enumerate(levels):
        if reason := names.why_not_qualified_name(level):
            yield invalid(f"{field}[{position}].topology", level, reason)
    outer = count
    for position, layer in enumerate(layers):
        size, size_field = layer["size"], f"{field}[{position}].size"
        if size < 1:
            yield invalid(size_field, size, "must be greater than or equal to 1")
            return
        if position == 0 and size > count:
            yield invalid(size_field, size, f"must not be greater than pod set count {count}")
        elif position > 0 and outer % size:
            yield invalid(size_field, size, f"must divide the outer size {outer}")
        outer = size


def group_name_errors(asked: dict[str, str], field: str) -> Iterator[FieldError]:
    name = asked.get(metadata.POD_SET_GROUP_NAME)
    if name is None:
        return
    at = f"{field}[{metadata.POD_SET_GROUP_NAME}]"
    if name.isdigit():
        yield invalid(at, name, "must not be a number")
    if metadata.REQUIRED_TOPOLOGY not in asked and metadata.PREFERRED_TOPOLOGY not in asked:
        yield forbidden(at, "needs a required or preferred topology")
    if metadata.SLICE_REQUIRED_TOPOLOGY in asked or metadata.SLICE_CONSTRAINTS in asked:
        yield forbidden(at, "may not be combined with slices")


def group_errors(pod_templates: Sequence[AnnotatedTemplate]) -> Iterator[FieldError]:
    """Yield errors of groups of two pod sets that are placed together: a leader and its workers."""
    members_by_group: dict[str, list[AnnotatedTemplate]] = {}
    for template in pod_templates:
        name = template.asked.get(metadata.POD_SET_GROUP_NAME)
        if name is not None:
            members_by_group.setdefault(name, []).append(template)
    for name, members in members_by_group.items():
        field = fields.show((*members[0].path, "metadata", "annotations")) + f"[{metadata.POD_SET_GROUP_NAME}]"
        if len(members) != GROUP_SIZE:
            yield invalid(field, name, f"a group has {GROUP_SIZE} pod sets, not {len(members)}")
            continue
        if all(member.count != 1 for member in members):
            yield invalid(field, name, "one pod set of a group must have a single pod")
        one, other = (member.asked for member in members)
        if any(one.get(key) != other.get(key) for key in (metadata.REQUIRED_TOPOLOGY, metadata.PREFERRED_TOPOLOGY)):
            yield invalid(field, name, "both pod sets of a group must ask for the same topology")


def subdomain_errors(field: str, text: str) -> Iterator[FieldError]:
    if reason := names.why_not_dns_subdomain(text):
        yield invalid(field, text, reason)


def positive(text: str) -> int | None:
    """Return the number in the text, if it is a whole number above zero."""
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) or None
