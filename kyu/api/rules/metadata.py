"""
Rules that hold for names, labels, annotations and selectors wherever they occur.

Kubernetes: apimachinery api/validation, meta/v1/validation
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kyu.api import names
from kyu.api.errors import FieldError, forbidden, invalid, not_supported, required, too_long
from kyu.api.meta import Json, LabelSelector

MAX_ANNOTATIONS_BYTES = 256 * 1024
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def validate_metadata(object_: Json) -> Iterator[FieldError]:
    """Validate the name, the namespace, labels and annotations of a top-level object."""
    metadata = object_.get("metadata") or {}
    name, generate_name = metadata.get("name"), metadata.get("generateName")
    if not name and not generate_name:
        yield required("metadata.name", "name or generateName is required")
    if name and (reason := names.why_not_dns_subdomain(name)):
        yield invalid("metadata.name", name, reason)
    namespace = metadata.get("namespace")
    if namespace and (reason := names.why_not_dns_label(namespace)):
        yield invalid("metadata.namespace", namespace, reason)
    yield from validate_labels(metadata.get("labels") or {}, "metadata.labels")
    yield from validate_annotations(metadata.get("annotations") or {}, "metadata.annotations")


def validate_labels(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, value in labels.items():
        if reason := names.why_not_qualified_name(key):
            yield invalid(path, key, reason)
        if reason := names.why_not_label_value(value):
            yield invalid(path, value, reason)


def validate_annotations(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key in annotations:
        # The prefix may have capitals, for the sake of old objects.
        if reason := names.why_not_qualified_name(key.lower()):
            yield invalid(path, key, reason)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > MAX_ANNOTATIONS_BYTES:
        yield too_long(path, "", MAX_ANNOTATIONS_BYTES)


def validate_selector(selector: LabelSelector | None, path: str) -> Iterator[FieldError]:
    if selector is None:
        return
    yield from validate_labels(selector.match_labels, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.match_expressions):
        here = f"{path}.matchExpressions[{index}]"
        match requirement.operator:
            case "In" | "NotIn" if not requirement.values:
                yield required(f"{here}.values", f"must be specified when operator is {requirement.operator}")
            case "Exists" | "DoesNotExist" if requirement.values:
                yield forbidden(f"{here}.values", f"may not be specified when operator is {requirement.operator}")
            case operator if operator not in _OPERATORS:
                yield not_supported(f"{here}.operator", operator, _OPERATORS)
        if reason := names.why_not_qualified_name(requirement.key):
            yield invalid(f"{here}.key", requirement.key, reason)
        for position, value in enumerate(requirement.values):
            if reason := names.why_not_label_value(value):
                yield invalid(f"{here}.values[{position}]", value, reason)
