"""
The smaller built-in kinds: defaults and validation.

Kubernetes: pkg/apis/*/v1/defaults.go, pkg/apis/*/validation, pkg/registry/*/strategy.go
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import config_key, label_key
from kyu.server.builtin.pods.pods import SYSTEM_PRIORITIES
from kyu.server.json_values import carry_over
from kyu.server.validation.checks import at_least_zero, immutable, objections, one_of

NAME_LABEL: Final = "kubernetes.io/metadata.name"
MAX_DATA_BYTES: Final = 1024 * 1024
MAX_USER_PRIORITY: Final = 1_000_000_000
PREEMPTION_POLICIES: Final = ("PreemptLowerPriority", "Never")
CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
# Required keys by the type of a Secret.
SECRET_KEYS: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
# One of these is required.
BASIC_AUTH_KEYS: Final = ("username", "password")
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
HIDDEN: Final = "<secret contents redacted>"


# ConfigMap and Secret


def validate_config_map(config_map: Json) -> Iterator[FieldError]:
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    for key in data:
        yield from objections(f"data[{key}]", key, config_key)
        if key in binary:
            yield fields.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in binary:
        yield from objections(f"binaryData[{key}]", key, config_key)
    size = sum(len(value.encode()) for value in data.values())
    size += sum(len(base64.b64decode(value)) for value in binary.values())
    if size > MAX_DATA_BYTES:
        # Kubernetes reports this error at the object, with this path.
        yield fields.too_long("[]", "", MAX_DATA_BYTES)


def validate_config_map_update(new: Json, old: Json) -> Iterator[FieldError]:
    yield from _frozen_faults(new, old, "data", "binaryData")
    yield from validate_config_map(new)


def _frozen_faults(new: Json, old: Json, *names: str) -> Iterator[FieldError]:
    """Reject changes of an immutable object."""
    if not old.get("immutable"):
        return
    detail = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield fields.forbidden("immutable", detail)
    for name in names:
        if new.get(name) != old.get(name):
            yield fields.forbidden(name, detail)


def default_secret(secret: Json) -> None:
    """Move stringData into data: it is write-only."""
    secret.setdefault("type", "Opaque")
    for key, value in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def validate_secret(secret: Json) -> Iterator[FieldError]:
    data = secret.get("data") or {}
    for key in data:
        yield from objections(f"data[{key}]", key, config_key)
    if sum(len(base64.b64decode(value)) for value in data.values()) > MAX_DATA_BYTES:
        yield fields.too_long("data", "", MAX_DATA_BYTES)
    yield from _secret_type_faults(secret, data)


def _secret_type_faults(secret: Json, data: Json) -> Iterator[FieldError]:
    """Check the keys that the type of a Secret requires."""
    kind = secret.get("type", "")
    account = (secret["metadata"].get("annotations") or {}).get(ACCOUNT_NAME)
    if kind == "kubernetes.io/service-account-token" and not account:
        yield fields.required(f"metadata.annotations[{ACCOUNT_NAME}]")
    if kind == "kubernetes.io/basic-auth" and not any(key in data for key in BASIC_AUTH_KEYS):
        yield from (fields.required(f"data[{key}]") for key in BASIC_AUTH_KEYS)
    for key in SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield fields.required(f"data[{key}]")
        elif key.startswith(".docker") and not _is_json(base64.b64decode(data[key])):
            yield fields.invalid(f"data[{key}]", HIDDEN, "it is no JSON")


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def validate_secret_update(new: Json, old: Json) -> Iterator[FieldError]:
    yield from immutable("", new, old, "type")
    yield from _frozen_faults(new, old, "data")
    yield from validate_secret(new)


# Namespace


def default_namespace(namespace: Json) -> None:
    """Set the label with the name, on which namespace selectors rely."""
    metadata = namespace.setdefault("metadata", {})
    if name := metadata.get("name"):
        metadata.setdefault("labels", {})[NAME_LABEL] = name
    status = namespace.setdefault("status", {})
    status["phase"] = status.get("phase") or "Active"


def prepare_namespace(namespace: Json) -> None:
    """Set finalizer, phase and label: the name may have been generated after the defaults."""
    default_namespace(namespace)
    finalizers = (namespace.get("spec") or {}).get("finalizers") or []
    namespace["spec"] = {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def validate_namespace(namespace: Json) -> Iterator[FieldError]:
    for name in (namespace.get("spec") or {}).get("finalizers") or ():
        yield from objections("spec.finalizers", name, label_key)
        if "/" not in name and name != "kubernetes":
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            yield fields.invalid("spec.finalizers", name, detail)


def validate_namespace_status(new: Json, old: Json) -> Iterator[FieldError]:
    """Check the phase against the deletionTimestamp."""
    is_going = new["metadata"].get("deletionTimestamp") is not None
    wanted, phase = "Terminating" if is_going else "Active", (new.get("status") or {}).get("phase", "")
    if phase != wanted:
        state = "is not empty" if is_going else "is empty"
        yield fields.invalid("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` {state}")


def prepare_namespace_update(new: Json, old: Json) -> None:
    new["spec"], new["status"] = old.get("spec") or {}, old.get("status") or {}


def prepare_namespace_finalize(new: Json, old: Json) -> None:
    """Keep all but the finalizers: this subresource writes nothing else."""
    finalizers = (new.get("spec") or {}).get("finalizers")
    new["spec"], new["status"] = dict(old.get("spec") or {}), old.get("status") or {}
    carry_over("finalizers", {"finalizers": finalizers} if finalizers else {}, new["spec"])


def prepare_namespace_deletion(namespace: Json, now: datetime) -> None:
    namespace["metadata"].pop("deletionGracePeriodSeconds", None)
    namespace["status"] = {**(namespace.get("status") or {}), "phase": "Terminating"}


# Lease


def default_lease(lease: Json) -> None:
    """Drop the fields of coordinated leader election, which Kubernetes disables by default."""
    for name in ("strategy", "preferredHolder"):
        lease.get("spec", {}).pop(name, None)


def validate_lease(lease: Json) -> Iterator[FieldError]:
    spec = lease.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield fields.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    yield from at_least_zero("spec.", spec, "leaseTransitions")


# PriorityClass


def default_priority_class(priority_class: Json) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def validate_priority_class(priority_class: Json) -> Iterator[FieldError]:
    name, value = priority_class["metadata"].get("name", ""), priority_class.get("value", 0)
    if name.startswith("system-") and SYSTEM_PRIORITIES.get(name) != value:
        detail = "priority class names with 'system-' prefix are reserved for system use only. error:"
        yield fields.forbidden("metadata.name", f"{detail} {name} is not a known system priority class")
    elif value > MAX_USER_PRIORITY and name not in SYSTEM_PRIORITIES:
        yield fields.forbidden("value", f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}")
    yield from one_of("preemptionPolicy", priority_class.get("preemptionPolicy"), PREEMPTION_POLICIES)


def validate_priority_class_update(new: Json, old: Json) -> Iterator[FieldError]:
    if new.get("value") != old.get("value"):
        yield fields.forbidden("value", "may not be changed in an update.")
    yield from immutable("", new, old, "preemptionPolicy")


# Storage


def default_volume_claim(claim: Json) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    if not (claim.get("status") or {}).get("phase"):
        claim.setdefault("status", {})["phase"] = "Pending"


def prepare_volume_claim(claim: Json) -> None:
    """Add the finalizer that keeps a claim while a pod uses it."""
    claim["status"] = {"phase": "Pending"}
    finalizers = claim["metadata"].setdefault("finalizers", [])
    if CLAIM_FINALIZER not in finalizers:
        finalizers.append(CLAIM_FINALIZER)


def default_storage_class(storage_class: Json) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


# Admission configurations are stored, but not called; see table.py.


def default_webhooks(configuration: Json) -> None:
    for hook in configuration.get("webhooks") or ():
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        hook.setdefault("timeoutSeconds", 10)
        if configuration.get("kind") == "MutatingWebhookConfiguration":
            hook.setdefault("reinvocationPolicy", "Never")
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")
