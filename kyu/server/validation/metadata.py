"""
Validation of the metadata of every kind: names, labels, annotations, owners, finalizers and immutable fields.

Kubernetes: apimachinery/pkg/api/validation/objectmeta.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json, LabelSelector, selects
from kyu.api.names import label_key, label_value
from kyu.server.errors import MOST_CAUSES
from kyu.server.validation.checks import IMMUTABLE
from kyu.server.validation.object_names import NameRule, name_is_label, name_is_subdomain

MAX_ANNOTATION_BYTES: Final = 256 * 1024
IMMUTABLE_FIELDS: Final = (
    "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip
# Old finalizers without a domain.
PLAIN_FINALIZERS: Final = frozenset({"orphan", "foregroundDeletion", "kubernetes"})


def validate_metadata(obj: Json, *, namespaced: bool, name_rule: NameRule = name_is_subdomain) -> list[FieldError]:
    """Validate the metadata of a new object, whose name is generated already."""
    metadata: Json = obj.get("metadata") or {}
    found: list[FieldError] = []
    if prefix := metadata.get("generateName"):
        found += [fields.invalid("metadata.generateName", prefix, text) for text in name_rule(prefix, True)]
    if name := metadata.get("name"):
        found += [fields.invalid("metadata.name", name, text) for text in name_rule(name, False)]
    else:
        found.append(fields.required("metadata.name", "name or generateName is required"))
    namespace = metadata.get("namespace")
    if namespaced and namespace:
        found += [fields.invalid("metadata.namespace", namespace, text) for text in name_is_label(namespace, False)]
    elif namespaced:
        found.append(fields.required("metadata.namespace"))
    elif namespace:
        found.append(fields.forbidden("metadata.namespace", "not allowed on this type"))
    if (generation := metadata.get("generation") or 0) < 0:
        found.append(fields.invalid("metadata.generation", generation, "must be greater than or equal to 0"))
    found += _validate_parts(metadata)
    return found + _validate_finalizers(metadata) if metadata.get("finalizers") else found


@dataclass(frozen=True, slots=True)
class RepeatedChecks:
    """How often Kubernetes runs each check of the metadata of an update.

    Most kinds run a check more than once, and the Status has a cause for each time that it fails.
    """

    # Immutable fields.
    immutable: int
    # The checks of a new object.
    whole: int
    # Finalizers have a domain, or are known.
    finalizers: int


THOROUGH: Final = RepeatedChecks(immutable=2, whole=2, finalizers=2)
USUAL: Final = RepeatedChecks(immutable=2, whole=1, finalizers=1)
ANY_FINALIZER: Final = RepeatedChecks(immutable=2, whole=1, finalizers=0)
BRIEF: Final = RepeatedChecks(immutable=1, whole=1, finalizers=0)


def validate_metadata_update(new: Json, old: Json, checks: RepeatedChecks) -> list[FieldError]:
    after, before = new.get("metadata") or {}, old.get("metadata") or {}
    found: list[FieldError] = []
    if before.get("deletionTimestamp"):
        extra = sorted(set(after.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if extra:
            listed = ", ".join(f'"{name}"' for name in extra)
            detail = "no new finalizers can be added if the object is being deleted, found new finalizers"
            found.append(fields.forbidden("metadata.finalizers", f"{detail} []string{{{listed}}}"))
    found += [
        fields.invalid(f"metadata.{name}", after.get(name), IMMUTABLE)
        for name in IMMUTABLE_FIELDS
        if after.get(name) is not before.get(name) and (after.get(name) or "") != (before.get(name) or "")
    ]
    found = found * checks.immutable + _validate_parts(after) * (checks.immutable + checks.whole)
    if after.get("finalizers"):
        found += _validate_finalizers(after) * checks.whole + validate_plain_finalizers(new) * checks.finalizers
    return found


def _validate_parts(metadata: Json) -> list[FieldError]:
    found: list[FieldError] = []
    if labels := metadata.get("labels"):
        found += validate_labels(labels, "metadata.labels")
    if annotations := metadata.get("annotations"):
        found += _validate_annotations(annotations)
    if owners := metadata.get("ownerReferences"):
        found += _validate_owners(owners)
    return found


def _validate_annotations(annotations: Mapping[str, str]) -> list[FieldError]:
    found: list[FieldError] = []
    for key in annotations:
        found += [fields.invalid("metadata.annotations", key, text) for text in label_key(key.lower())]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MAX_ANNOTATION_BYTES:
        found.append(fields.too_long("metadata.annotations", "", MAX_ANNOTATION_BYTES))
    return found


def validate_labels(labels: Mapping[str, str], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for key, value in labels.items():
        found += [fields.invalid(path, key, text) for text in label_key(key)]
        found += [fields.invalid(path, value, text) for text in label_value(value)]
    return found


def validate_label_selector(selector: Json | None, path: str) -> list[FieldError]:
    """Validate a label selector in a spec."""
    if not selector:
        return []
    found = validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, rule in enumerate(selector.get("matchExpressions") or ()):
        here, key, values = f"{path}.matchExpressions[{index}]", rule.get("key", ""), rule.get("values") or ()
        match rule.get("operator", ""):
            case "In" | "NotIn":
                if not values:
                    detail = "must be specified when `operator` is 'In' or 'NotIn'"
                    found.append(fields.required(f"{here}.values", detail))
            case "Exists" | "DoesNotExist":
                if values:
                    detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    found.append(fields.forbidden(f"{here}.values", detail))
            case operator:
                found.append(fields.invalid(f"{here}.operator", operator, "not a valid selector operator"))
        found += [fields.invalid(f"{here}.key", key, text) for text in label_key(key)]
        for number, value in enumerate(values):
            found += [fields.invalid(f"{here}.values[{number}]", value, text) for text in label_value(value)]
    return found


def selector_matches(selector: Json, labels: Mapping[str, str]) -> bool:
    return selects(msgspec.convert(selector, LabelSelector), labels)


def _validate_owners(owners: Sequence[Json]) -> list[FieldError]:
    path, found, controller = "metadata.ownerReferences", list[FieldError](), ""
    for owner in owners:
        version = owner.get("apiVersion") or ""
        if not version or version.count("/") > 1:
            found.append(fields.invalid(f"{path}.apiVersion", version, "version must not be empty"))
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                found.append(fields.invalid(f"{path}.{name}", "", "must not be empty"))
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            found.append(fields.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            this = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller and len(found) < MOST_CAUSES // 10:
                detail = 'Only one reference can have Controller set to true. Found "true" in references for'
                found.append(fields.invalid(path, list(owners), f"{detail} {controller} and {this}"))
            controller = controller or this
    return found


def _validate_finalizers(metadata: Json) -> list[FieldError]:
    path, found = "metadata.finalizers", list[FieldError]()
    finalizers: list[Any] = metadata["finalizers"]
    for name in finalizers:
        found += [fields.invalid(path, name, text) for text in label_key(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        found.append(fields.invalid(path, finalizers, detail))
    return found


def validate_plain_finalizers(obj: Json) -> list[FieldError]:
    """Reject finalizers of a built-in kind that have no domain."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        fields.invalid(f"metadata.finalizers[{index}]", name, detail)
        for index, name in enumerate((obj.get("metadata") or {}).get("finalizers") or ())
        if "/" not in name and name not in PLAIN_FINALIZERS
    ]


def finalizer_warnings(new: Json, old: Json | None) -> list[str]:
    """Warn about new finalizers of a custom kind that have no domain."""
    finalizers = (new.get("metadata") or {}).get("finalizers")
    if not finalizers:
        return []
    before = ((old or {}).get("metadata") or {}).get("finalizers") or ()
    advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    return [
        f'metadata.finalizers: "{name}": {advice}'
        for name in finalizers
        if "/" not in name and name not in PLAIN_FINALIZERS and name not in before
    ]
