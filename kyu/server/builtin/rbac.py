"""
Roles and their bindings: defaults and validation. server/auth/rbac.py evaluates them.

Kubernetes: pkg/apis/rbac/{v1/defaults.go,validation}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json
from kyu.api.names import subdomain
from kyu.server.validation.checks import objections
from kyu.server.validation.metadata import validate_label_selector

GROUP: Final = "rbac.authorization.k8s.io"
# Kinds of subjects, with their API group.
SUBJECT_GROUPS: Final = {"ServiceAccount": "", "User": GROUP, "Group": GROUP}


def default_binding(binding: Json) -> None:
    reference = binding.setdefault("roleRef", {})
    if not reference.get("apiGroup"):
        reference["apiGroup"] = GROUP
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = GROUP


def validate_binding(binding: Json) -> Iterator[FieldError]:
    reference = binding.get("roleRef") or {}
    if reference.get("apiGroup") != GROUP:
        yield fields.not_supported("roleRef.apiGroup", reference.get("apiGroup"), (GROUP,))
    if reference.get("kind") not in ("Role", "ClusterRole"):
        yield fields.not_supported("roleRef.kind", reference.get("kind", ""), ("Role", "ClusterRole"))
    if not reference.get("name"):
        yield fields.required("roleRef.name")
    for index, subject in enumerate(binding.get("subjects") or ()):
        path = f"subjects[{index}]"
        kind, name, group = (subject.get(part, "") for part in ("kind", "name", "apiGroup"))
        if not name:
            yield fields.required(f"{path}.name")
        elif kind == "ServiceAccount":
            yield from objections(f"{path}.name", name, subdomain)
        if kind not in SUBJECT_GROUPS:
            yield fields.not_supported(f"{path}.kind", kind, SUBJECT_GROUPS)
        elif group != SUBJECT_GROUPS[kind]:
            yield fields.not_supported(f"{path}.apiGroup", group, (SUBJECT_GROUPS[kind],))


def validate_cluster_binding(binding: Json) -> Iterator[FieldError]:
    """Validate a ClusterRoleBinding: it binds a ClusterRole, and its ServiceAccounts have a namespace."""
    yield from validate_binding(binding)
    if (binding.get("roleRef") or {}).get("kind") == "Role":
        yield fields.not_supported("roleRef.kind", "Role", ("ClusterRole",))
    for index, subject in enumerate(binding.get("subjects") or ()):
        if subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
            yield fields.required(f"subjects[{index}].namespace")


def validate_binding_update(new: Json, old: Json) -> Iterator[FieldError]:
    yield from validate_binding(new)
    if new.get("roleRef") != old.get("roleRef"):
        yield fields.invalid("roleRef", new.get("roleRef"), "cannot change roleRef")


def validate_role(role: Json) -> Iterator[FieldError]:
    yield from _rule_faults(role, is_namespaced=True)


def validate_cluster_role(role: Json) -> Iterator[FieldError]:
    yield from _rule_faults(role, is_namespaced=False)
    if role.get("aggregationRule") is None:
        return
    path, chosen = "aggregationRule.clusterRoleSelectors", role["aggregationRule"].get("clusterRoleSelectors") or ()
    if not chosen:
        yield fields.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
    for index, selector in enumerate(chosen):
        yield from validate_label_selector(selector, f"{path}[{index}]")


def _rule_faults(role: Json, *, is_namespaced: bool) -> Iterator[FieldError]:
    for index, rule in enumerate(role.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield fields.required(f"{path}.verbs", "verbs must contain at least one value")
        if urls := rule.get("nonResourceURLs"):
            if is_namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                yield fields.invalid(f"{path}.nonResourceURLs", urls, detail)
            if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                yield fields.invalid(f"{path}.nonResourceURLs", urls, detail)
            continue
        for name, what in (("apiGroups", "api group"), ("resources", "resource")):
            if not rule.get(name):
                yield fields.required(f"{path}.{name}", f"resource rules must supply at least one {what}")
