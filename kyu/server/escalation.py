"""
Roles and bindings: nobody gives away rights that they do not have.

Who writes a role must have every right in it, and who binds a role every right of that role, unless they are allowed to
``escalate`` or to ``bind`` it. Otherwise the right to write bindings in one namespace would be the right to everything.

Called by: server/admission.py.
Kubernetes: pkg/registry/rbac/{role,rolebinding}/policybased, component-helpers/auth/rbac.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kyu.api.meta import Json
from kyu.server import auth, errors, forms, rbac
from kyu.server.attempts import Attempt
from kyu.server.exchange import User
from kyu.server.store import Store

ROLES = (rbac.ROLES, rbac.CLUSTER_ROLES)
BINDINGS = (rbac.BINDINGS, rbac.CLUSTER_BINDINGS)
GUARDED = ROLES + BINDINGS


def check(attempt: Attempt, store: Store, authorizer: rbac.Authorizer) -> None:
    """403 if the write of a role or binding gives more than its user has."""
    storage = attempt.resource.storage
    if storage not in GUARDED or auth.MASTERS in attempt.user.groups:
        return
    kind, metadata = attempt.resource.kind, attempt.new["metadata"]
    namespace = metadata.get("namespace", "")
    if storage in ROLES:
        verb, plural, name = "escalate", kind.plural, metadata.get("name", "")
        given = _rules(attempt.new)
    else:
        reference = attempt.new.get("roleRef") or {}
        plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
        verb, name = "bind", reference.get("name", "")
        given = _rules_of_role(store, plural, namespace, name)
    wanted = rbac.Attributes(verb, rbac.GROUP, plural, "", namespace, name)
    if authorizer.is_allowed(attempt.user, wanted):
        return
    missing = [rule for rule in given if not covers(authorizer.rules(attempt.user, namespace), rule)]
    if missing:
        text = _refusal(attempt.user, missing)
        raise errors.forbidden(kind, metadata.get("name", ""), text)


def covers(owned: Sequence[rbac.Rule], rule: rbac.Rule) -> bool:
    """Every single right of the rule is in one of the owned ones."""
    return all(any(rbac.allows(each, right) for each in owned) for right in rights(rule))


def rights(rule: rbac.Rule) -> Iterator[rbac.Attributes]:
    """The rule, taken apart. A star stays a star: only a star covers it."""
    for verb in rule.verbs:
        for path in rule.non_resource_urls:
            yield rbac.Attributes(verb, path=path)
        for group in rule.api_groups:
            for resource in rule.resources:
                plural, _, subresource = resource.partition("/")
                for name in rule.resource_names or ("",):
                    yield rbac.Attributes(verb, group, plural, subresource, "", name)


def _rules_of_role(store: Store, plural: str, namespace: str, name: str) -> list[rbac.Rule]:
    resource = f"{plural}.{rbac.GROUP}"
    record = store.latest(resource, namespace if plural == "roles" else "", name)
    return _rules(forms.decode(record.value)) if record is not None else []


def _rules(role: Json) -> list[rbac.Rule]:
    if role.get("aggregationRule"):
        # What it will hold is not known yet, so only who has everything may write or bind it.
        return [rbac.Rule(("*",), ("*",), ("*",))]
    return msgspec.convert(role.get("rules") or [], list[rbac.Rule])


def _refusal(user: User, missing: Sequence[rbac.Rule]) -> str:
    shown = "; ".join(
        f"{', '.join(rule.verbs)} on {', '.join(rule.resources or rule.non_resource_urls)}" for rule in missing[:5]
    )
    return f'User "{user.name}" is attempting to grant RBAC permissions not currently held: {shown}'
