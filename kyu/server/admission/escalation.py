"""
Privilege escalation: users cannot grant rights that they do not have.

A user who writes a role must have every right in it. A user who binds a role must have every right of that role. The
verbs ``escalate`` and ``bind`` on the role lift this. Otherwise the permission to write bindings in one namespace would
grant everything.

Kubernetes: pkg/registry/rbac/{role,rolebinding}/policybased, component-helpers/auth/rbac.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kyu.api.meta import Json, Kind
from kyu.server import errors, representations
from kyu.server.admission.request import AdmissionRequest
from kyu.server.auth import auth, rbac
from kyu.server.builtin.rbac import GROUP
from kyu.server.exchange import User
from kyu.server.storage.store import Store

ROLES = (rbac.ROLES, rbac.CLUSTER_ROLES)
BINDINGS = (rbac.BINDINGS, rbac.CLUSTER_BINDINGS)
GUARDED = ROLES + BINDINGS


def check(request: AdmissionRequest, store: Store, authorizer: rbac.Authorizer) -> None:
    """Reject the write of a role or binding that grants more than its user has."""
    storage = request.resource.storage
    if storage not in GUARDED or auth.MASTERS in request.user.groups:
        return
    kind, metadata = request.resource.kind, request.new["metadata"]
    namespace = metadata.get("namespace", "")
    if storage in ROLES:
        verb, plural, name = "escalate", kind.plural, metadata.get("name", "")
        given: list[rbac.PolicyRule] | None = _rules(request.new)
    else:
        reference = request.new.get("roleRef") or {}
        plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
        verb, name = "bind", reference.get("name", "")
        given = None
    wanted = rbac.Attributes(verb, GROUP, plural, "", namespace, name)
    if authorizer.is_allowed(request.user, wanted):
        return
    if given is None:
        given = _rules_of_role(store, plural, namespace, name)
    missing = [rule for rule in given if not covers(authorizer.rules(request.user, namespace), rule)]
    if missing:
        text = _refusal(request.user, missing)
        raise errors.forbidden(kind, metadata.get("name", ""), text)


def covers(owned: Sequence[rbac.PolicyRule], rule: rbac.PolicyRule) -> bool:
    """Return whether every right of the rule is in one of the owned rules."""
    return all(any(rbac.allows(each, right) for each in owned) for right in rights(rule))


def rights(rule: rbac.PolicyRule) -> Iterator[rbac.Attributes]:
    """Yield the single rights of a rule. A star stays a star: only a star covers it."""
    for verb in rule.verbs:
        for path in rule.non_resource_urls:
            yield rbac.Attributes(verb, path=path)
        for group in rule.api_groups:
            for resource in rule.resources:
                plural, _, subresource = resource.partition("/")
                for name in rule.resource_names or ("",):
                    yield rbac.Attributes(verb, group, plural, subresource, "", name)


def _rules_of_role(store: Store, plural: str, namespace: str, name: str) -> list[rbac.PolicyRule]:
    """Return the rules of a role; 404 if there is none, because its rights are not known before it exists."""
    record = store.latest(f"{plural}.{GROUP}", namespace if plural == "roles" else "", name)
    if record is None:
        raise errors.not_found(Kind(GROUP, "v1", "", plural), name)
    return _rules(representations.decode(record.value))


def _rules(role: Json) -> list[rbac.PolicyRule]:
    if role.get("aggregationRule"):
        # The rules of an aggregated role are not known yet, so only a user with all rights may write or bind it.
        return [rbac.PolicyRule(("*",), ("*",), ("*",))]
    # Admission comes before validation: a rule may still have fields that are null.
    given = [rule or {} for rule in role.get("rules") or ()]
    whole = [{key: value for key, value in rule.items() if value is not None} for rule in given]
    return msgspec.convert(whole, list[rbac.PolicyRule])


def _refusal(user: User, missing: Sequence[rbac.PolicyRule]) -> str:
    shown = "; ".join(
        f"{', '.join(rule.verbs)} on {', '.join(rule.resources or rule.non_resource_urls)}" for rule in missing[:5]
    )
    return f'User "{user.name}" is attempting to grant RBAC permissions not currently held: {shown}'
