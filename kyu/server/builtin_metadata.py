"""
The rules of metadata that hold for every kind: names, labels, annotations, owners, finalizers, and what never changes.

Called by: server/builtin_kind.py, server/custom.py. Kubernetes: apimachinery/pkg/api/validation/objectmeta.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.builtin_checks import IMMUTABLE
from kyu.server.builtin_names import NameRule, label_key, label_value, name_is_label, name_is_subdomain

MAX_ANNOTATION_BYTES: Final = 256 * 1024
IMMUTABLE_FIELDS: Final = (
    "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip
# Finalizers of old that have no domain.
PLAIN_FINALIZERS: Final = frozenset({"orphan", "foregroundDeletion", "kubernetes"})


def validate_metadata(obj: Json, *, namespaced: bool, name_rule: NameRule = name_is_subdomain) -> list[FieldError]:
    """What a new object must obey; the name is generated already where it has to be."""
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
class Looks:
    """How often Kubernetes runs each check of the metadata of an update.

    It does so more than once for most kinds, and a fault is a cause in the Status each time that it is found.
    """

    # What may not change.
    changes: int
    # All of it, as if the object were new.
    whole: int
    # Whether the finalizers say whose they are.
    finalizers: int


THOROUGH: Final = Looks(2, 2, 2)
USUAL: Final = Looks(2, 1, 1)
PLAIN: Final = Looks(2, 1, 0)
SHORT: Final = Looks(1, 1, 0)


def validate_metadata_update(new: Json, old: Json, looks: Looks) -> list[FieldError]:
    """What an update must obey."""
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
    found = found * looks.changes + _validate_parts(after) * (looks.changes + looks.whole)
    if after.get("finalizers"):
        found += _validate_finalizers(after) * looks.whole + validate_plain_finalizers(new) * looks.finalizers
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
    """Of what chooses objects by their labels, in a spec."""
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
            if controller:
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
    """Only on built-in kinds must a finalizer say whose it is."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        fields.invalid(f"metadata.finalizers[{index}]", name, detail)
        for index, name in enumerate((obj.get("metadata") or {}).get("finalizers") or ())
        if "/" not in name and name not in PLAIN_FINALIZERS
    ]


def finalizer_warnings(new: Json, old: Json | None) -> list[str]:
    """Custom kinds may have finalizers without a domain, and are told that this is unwise when one is added."""
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
