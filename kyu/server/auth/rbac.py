"""
Authorization: Roles, ClusterRoles and their bindings, evaluated as Kubernetes does.

The bindings are compiled to rules per subject when one of the objects has changed, and verdicts are kept until then, so
that asking costs a look into a dictionary.

Kubernetes: plugin/pkg/auth/authorizer/rbac.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from kyu.api import meta
from kyu.server.auth import auth
from kyu.server.builtin.rbac import GROUP
from kyu.server.exchange import User
from kyu.server.storage.records import Change
from kyu.server.storage.store import Store

ROLES = f"roles.{GROUP}"
CLUSTER_ROLES = f"clusterroles.{GROUP}"
BINDINGS = f"rolebindings.{GROUP}"
CLUSTER_BINDINGS = f"clusterrolebindings.{GROUP}"
KEPT_VERDICTS = 10_000


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a request. For a path that is no resource, ``path`` is set and the rest is empty."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class PolicyRule(meta.Wire, frozen=True):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")


class _Aggregation(meta.Wire, frozen=True):
    cluster_role_selectors: tuple[meta.LabelSelector, ...] = ()


class _Role(meta.Wire, frozen=True):
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    rules: tuple[PolicyRule, ...] | None = ()
    aggregation_rule: _Aggregation | None = None


class _Subject(meta.Wire, frozen=True):
    kind: str
    name: str
    namespace: str = ""


class _RoleRef(meta.Wire, frozen=True):
    kind: str
    name: str


class _Binding(meta.Wire, frozen=True):
    role_ref: _RoleRef
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    subjects: tuple[_Subject, ...] | None = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """Rules that hold in one namespace, or, with None, everywhere."""

    namespace: str | None
    rules: tuple[PolicyRule, ...]


class Authorizer:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._grants: dict[tuple[str, str], list[Grant]] | None = None
        self._verdicts: dict[tuple[User, Attributes], bool] = {}
        store.listen(self._heard, ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS)

    def is_allowed(self, user: User, attributes: Attributes) -> bool:
        if auth.MASTERS in user.groups:
            return True
        key = (user, attributes)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= KEPT_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[key] = self._decide(user, attributes)
        return verdict

    def rules(self, user: User, namespace: str) -> list[PolicyRule]:
        """Return the rules of the user in a namespace, with those of the whole cluster."""
        if auth.MASTERS in user.groups:
            return [PolicyRule(("*",), ("*",), ("*",)), PolicyRule(verbs=("*",), non_resource_urls=("*",))]
        return [rule for grant in self.grants(user) if grant.namespace in (None, namespace) for rule in grant.rules]

    def grants(self, user: User) -> Iterator[Grant]:
        if self._grants is None:
            self._grants = self._compile()
        yield from self._grants.get(("User", user.name), ())
        for group in user.groups:
            yield from self._grants.get(("Group", group), ())

    def _decide(self, user: User, attributes: Attributes) -> bool:
        return any(
            allows(rule, attributes)
            for grant in self.grants(user)
            if grant.namespace is None or (grant.namespace == attributes.namespace and not attributes.path)
            for rule in grant.rules
        )

    def _heard(self, change: Change) -> None:
        self._grants = None
        self._verdicts.clear()

    def _compile(self) -> dict[tuple[str, str], list[Grant]]:
        cluster_roles = [_decode_role(r.value) for r in self._store.objects(CLUSTER_ROLES)]
        rules = {("", role.metadata.name): _rules(role, cluster_roles) for role in cluster_roles}
        for record in self._store.objects(ROLES):
            rules[record.key] = _decode_role(record.value).rules or ()
        grants: dict[tuple[str, str], list[Grant]] = defaultdict(list)
        for resource in (CLUSTER_BINDINGS, BINDINGS):
            for record in self._store.objects(resource):
                binding = _decode_binding(record.value)
                namespace = record.namespace or None
                where = record.namespace if binding.role_ref.kind == "Role" else ""
                given = rules.get((where, binding.role_ref.name), ())
                for subject in binding.subjects or ():
                    grants[_subject_key(subject, record.namespace)].append(Grant(namespace, given))
        return grants


_decode_role = msgspec.json.Decoder(_Role).decode
_decode_binding = msgspec.json.Decoder(_Binding).decode


def _rules(role: _Role, all_roles: list[_Role]) -> tuple[PolicyRule, ...]:
    """Return the rules of a role; an aggregated one has those of all roles that its selectors choose."""
    if role.aggregation_rule is None:
        return role.rules or ()
    selectors = role.aggregation_rule.cluster_role_selectors
    return tuple(
        rule
        for other in all_roles
        if other is not role and any(meta.selects(selector, other.metadata.labels) for selector in selectors)
        for rule in other.rules or ()
    )


def _subject_key(subject: _Subject, namespace: str) -> tuple[str, str]:
    if subject.kind == "ServiceAccount":
        return "User", f"system:serviceaccount:{subject.namespace or namespace}:{subject.name}"
    return subject.kind, subject.name


def allows(rule: PolicyRule, attributes: Attributes) -> bool:
    if not _has(rule.verbs, attributes.verb):
        return False
    if attributes.path:
        return any(_covers(url, attributes.path) for url in rule.non_resource_urls)
    return (
        _has(rule.api_groups, attributes.group)
        and _has_resource(rule.resources, attributes)
        and (not rule.resource_names or attributes.name in rule.resource_names)
    )


def _has(values: tuple[str, ...], value: str) -> bool:
    return "*" in values or value in values


def _has_resource(resources: tuple[str, ...], attributes: Attributes) -> bool:
    if "*" in resources:
        return True
    if not attributes.subresource:
        return attributes.resource in resources
    both = f"{attributes.resource}/{attributes.subresource}"
    return both in resources or f"*/{attributes.subresource}" in resources


def _covers(url: str, path: str) -> bool:
    return url == "*" or url == path or (url.endswith("*") and path.startswith(url[:-1]))
