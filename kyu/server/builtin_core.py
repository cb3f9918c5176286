"""
The smaller built-in kinds: what is filled in and what is refused, a few lines for each.

Called by: builtin.py, which says which function belongs to which kind.
Kubernetes: pkg/apis/*/v1/defaults.go, pkg/apis/*/validation, pkg/registry/*/strategy.go
"""

from __future__ import annotations

import base64
from typing import Final

import msgspec

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.server.builtin_limits import BOUNDS
from kyu.server.builtin_metadata import IMMUTABLE, validate_label_selector
from kyu.server.builtin_names import config_key, label_key, subdomain
from kyu.server.builtin_pods import SYSTEM_PRIORITIES, default_template, round_up

NAME_LABEL: Final = "kubernetes.io/metadata.name"
MAX_DATA_BYTES: Final = 1024 * 1024
MAX_USER_PRIORITY: Final = 1_000_000_000
CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
RBAC_GROUP: Final = "rbac.authorization.k8s.io"
# Who can be given a role, and in which group such a subject is.
SUBJECT_GROUPS: Final = {"ServiceAccount": "", "User": RBAC_GROUP, "Group": RBAC_GROUP}
# The keys that a Secret of these types must have.
SECRET_KEYS: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
# Of these, one is enough.
BASIC_AUTH_KEYS: Final = ("username", "password")
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
HIDDEN: Final = "<secret contents redacted>"


# ConfigMap and Secret


def validate_config_map(config_map: Json) -> list[FieldError]:
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    found: list[FieldError] = []
    for key in data:
        found += [fields.invalid(f"data[{key}]", key, text) for text in config_key(key)]
        if key in binary:
            found.append(fields.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        found += [fields.invalid(f"binaryData[{key}]", key, text) for text in config_key(key)]
    size = sum(len(value.encode()) for value in data.values())
    size += sum(len(base64.b64decode(value)) for value in binary.values())
    if size > MAX_DATA_BYTES:
        # Kubernetes blames the object as a whole, and writes its path so.
        found.append(fields.too_long("[]", "", MAX_DATA_BYTES))
    return found


def validate_config_map_update(new: Json, old: Json) -> list[FieldError]:
    return _validate_frozen(new, old, ("data", "binaryData")) + validate_config_map(new)


def _validate_frozen(new: Json, old: Json, names: tuple[str, ...]) -> list[FieldError]:
    """An object that was once immutable stays so."""
    if not old.get("immutable"):
        return []
    detail = "field is immutable when `immutable` is set"
    changed = [name for name in names if new.get(name) != old.get(name)]
    found = [fields.forbidden(name, detail) for name in changed]
    return found if new.get("immutable") else [fields.forbidden("immutable", detail), *found]


def default_secret(secret: Json) -> None:
    """Text is folded into the data, so that it is never stored or shown twice."""
    secret.setdefault("type", "Opaque")
    for key, value in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def validate_secret(secret: Json) -> list[FieldError]:
    data = secret.get("data") or {}
    found: list[FieldError] = []
    for key in data:
        found += [fields.invalid(f"data[{key}]", key, text) for text in config_key(key)]
    if sum(len(base64.b64decode(value)) for value in data.values()) > MAX_DATA_BYTES:
        found.append(fields.too_long("data", "", MAX_DATA_BYTES))
    return found + _validate_secret_type(secret, data)


def _validate_secret_type(secret: Json, data: Json) -> list[FieldError]:
    """What the type of a Secret promises."""
    kind = secret.get("type", "")
    if kind == "kubernetes.io/service-account-token":
        named = (secret["metadata"].get("annotations") or {}).get(ACCOUNT_NAME)
        return [] if named else [fields.required(f"metadata.annotations[{ACCOUNT_NAME}]")]
    if kind == "kubernetes.io/basic-auth":
        has_one = any(key in data for key in BASIC_AUTH_KEYS)
        return [] if has_one else [fields.required(f"data[{key}]") for key in BASIC_AUTH_KEYS]
    found: list[FieldError] = []
    for key in SECRET_KEYS.get(kind, ()):
        if key not in data:
            found.append(fields.required(f"data[{key}]"))
        elif key.startswith(".docker") and not _is_json(base64.b64decode(data[key])):
            found.append(fields.invalid(f"data[{key}]", HIDDEN, "it is no JSON"))
    return found


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def validate_secret_update(new: Json, old: Json) -> list[FieldError]:
    found: list[FieldError] = []
    if new.get("type") != old.get("type"):
        found.append(fields.invalid("type", new.get("type"), IMMUTABLE))
    return found + _validate_frozen(new, old, ("data",)) + validate_secret(new)


# Namespace


def default_namespace(namespace: Json) -> None:
    """The label with the name is always there: selectors of namespaces rely on it."""
    metadata = namespace.setdefault("metadata", {})
    if name := metadata.get("name"):
        metadata.setdefault("labels", {})[NAME_LABEL] = name
    status = namespace.setdefault("status", {})
    status["phase"] = status.get("phase") or "Active"


def prepare_namespace(namespace: Json) -> None:
    """With the name, which may have been generated since the defaults."""
    default_namespace(namespace)
    finalizers = (namespace.get("spec") or {}).get("finalizers") or []
    namespace["spec"] = {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def validate_namespace(namespace: Json) -> list[FieldError]:
    found: list[FieldError] = []
    for name in (namespace.get("spec") or {}).get("finalizers") or ():
        found += [fields.invalid("spec.finalizers", name, text) for text in label_key(name)]
        if "/" not in name and name != "kubernetes":
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(fields.invalid("spec.finalizers", name, detail))
    return found


def validate_namespace_status(new: Json, old: Json) -> list[FieldError]:
    """Whether it stays or goes is decided by the mark of its deletion."""
    is_going = new["metadata"].get("deletionTimestamp") is not None
    wanted, phase = "Terminating" if is_going else "Active", (new.get("status") or {}).get("phase", "")
    if phase == wanted:
        return []
    state = "is not empty" if is_going else "is empty"
    return [fields.invalid("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` {state}")]


def prepare_namespace_update(new: Json, old: Json) -> None:
    new["spec"], new["status"] = old.get("spec") or {}, old.get("status") or {}


# Lease


def default_lease(lease: Json) -> None:
    """What coordinated elections would write is off in Kubernetes if nobody turns it on."""
    for name in ("strategy", "preferredHolder"):
        lease.get("spec", {}).pop(name, None)


def validate_lease(lease: Json) -> list[FieldError]:
    spec, found = lease.get("spec") or {}, list[FieldError]()
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        found.append(fields.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(fields.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found


# PriorityClass


def default_priority_class(priority_class: Json) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def validate_priority_class(priority_class: Json) -> list[FieldError]:
    name, value = priority_class["metadata"].get("name", ""), priority_class.get("value", 0)
    found: list[FieldError] = []
    if name.startswith("system-") and SYSTEM_PRIORITIES.get(name) != value:
        detail = "priority class names with 'system-' prefix are reserved for system use only. error:"
        detail += f" {name} is not a known system priority class"
        found.append(fields.forbidden("metadata.name", detail))
    elif value > MAX_USER_PRIORITY and name not in SYSTEM_PRIORITIES:
        detail = f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"
        found.append(fields.forbidden("value", detail))
    policy = priority_class.get("preemptionPolicy")
    if policy not in (None, "Never", "PreemptLowerPriority"):
        supported = ("PreemptLowerPriority", "Never")
        found.append(fields.not_supported("preemptionPolicy", policy, supported))
    return found


def validate_priority_class_update(new: Json, old: Json) -> list[FieldError]:
    found: list[FieldError] = []
    if new.get("value") != old.get("value"):
        found.append(fields.forbidden("value", "may not be changed in an update."))
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        found.append(fields.invalid("preemptionPolicy", new.get("preemptionPolicy"), IMMUTABLE))
    return found


# Storage


def default_volume_claim(claim: Json) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    if not (claim.get("status") or {}).get("phase"):
        claim.setdefault("status", {})["phase"] = "Pending"


def prepare_volume_claim(claim: Json) -> None:
    """Nobody takes a volume away under a running pod: the claim stays until it is not used."""
    claim["status"] = {"phase": "Pending"}
    finalizers = claim["metadata"].setdefault("finalizers", [])
    if CLAIM_FINALIZER not in finalizers:
        finalizers.append(CLAIM_FINALIZER)


def default_storage_class(storage_class: Json) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


# Limits of a namespace


def default_limit_range(limit_range: Json) -> None:
    """Of a container: the default limit is the maximum, the default request is the default limit, else the minimum."""
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        for bound in BOUNDS:
            round_up(item.get(bound) or {})
        if item.get("type") != "Container":
            continue
        limits = {**(item.get("max") or {}), **(item.get("default") or {})}
        requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
        if limits:
            item["default"] = limits
        if requests:
            item["defaultRequest"] = requests


# RBAC


def default_binding(binding: Json) -> None:
    reference = binding.setdefault("roleRef", {})
    if not reference.get("apiGroup"):
        reference["apiGroup"] = RBAC_GROUP
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = RBAC_GROUP


def validate_binding(binding: Json) -> list[FieldError]:
    reference, found = binding.get("roleRef") or {}, list[FieldError]()
    if reference.get("apiGroup") != RBAC_GROUP:
        found.append(fields.not_supported("roleRef.apiGroup", reference.get("apiGroup"), (RBAC_GROUP,)))
    if reference.get("kind") not in ("Role", "ClusterRole"):
        found.append(fields.not_supported("roleRef.kind", reference.get("kind", ""), ("Role", "ClusterRole")))
    if not reference.get("name"):
        found.append(fields.required("roleRef.name"))
    for index, subject in enumerate(binding.get("subjects") or ()):
        path = f"subjects[{index}]"
        kind, name, group = (subject.get(part, "") for part in ("kind", "name", "apiGroup"))
        if not name:
            found.append(fields.required(f"{path}.name"))
        elif kind == "ServiceAccount":
            found += [fields.invalid(f"{path}.name", name, text) for text in subdomain(name)]
        if kind not in SUBJECT_GROUPS:
            found.append(fields.not_supported(f"{path}.kind", kind, SUBJECT_GROUPS))
        elif group != SUBJECT_GROUPS[kind]:
            found.append(fields.not_supported(f"{path}.apiGroup", group, (SUBJECT_GROUPS[kind],)))
    return found


def validate_cluster_binding(binding: Json) -> list[FieldError]:
    """Across namespaces an account has to say where it lives, and only roles of the cluster can be given."""
    found = validate_binding(binding)
    if (binding.get("roleRef") or {}).get("kind") == "Role":
        found.append(fields.not_supported("roleRef.kind", "Role", ("ClusterRole",)))
    return found + [
        fields.required(f"subjects[{index}].namespace")
        for index, subject in enumerate(binding.get("subjects") or ())
        if subject.get("kind") == "ServiceAccount" and not subject.get("namespace")
    ]


def validate_binding_update(new: Json, old: Json) -> list[FieldError]:
    found = validate_binding(new)
    if new.get("roleRef") != old.get("roleRef"):
        found.append(fields.invalid("roleRef", new.get("roleRef"), "cannot change roleRef"))
    return found


def validate_role(role: Json) -> list[FieldError]:
    return _validate_rules(role, is_namespaced=True)


def validate_cluster_role(role: Json) -> list[FieldError]:
    found = _validate_rules(role, is_namespaced=False)
    if role.get("aggregationRule") is None:
        return found
    path, chosen = "aggregationRule.clusterRoleSelectors", role["aggregationRule"].get("clusterRoleSelectors") or ()
    if not chosen:
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        found.append(fields.required(path, detail))
    for index, selector in enumerate(chosen):
        found += validate_label_selector(selector, f"{path}[{index}]")
    return found


def _validate_rules(role: Json, *, is_namespaced: bool) -> list[FieldError]:
    found: list[FieldError] = []
    for index, rule in enumerate(role.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            found.append(fields.required(f"{path}.verbs", "verbs must contain at least one value"))
        if urls := rule.get("nonResourceURLs"):
            if is_namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                found.append(fields.invalid(f"{path}.nonResourceURLs", urls, detail))
            if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                found.append(fields.invalid(f"{path}.nonResourceURLs", urls, detail))
            continue
        for name in ("apiGroups", "resources"):
            if not rule.get(name):
                what = "supply at least one " + ("api group" if name == "apiGroups" else "resource")
                found.append(fields.required(f"{path}.{name}", f"resource rules must {what}"))
    return found


# Admission configurations are stored; see builtin.py for what is said about them.


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


def default_pod_template(template: Json) -> None:
    default_template(template.setdefault("template", {}))
