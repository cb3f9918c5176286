"""
Questions about rights: ``kubectl auth can-i``, ``whoami``, and what other servers ask about a user.

A review is created and answered, never stored.

Kubernetes: authorization.k8s.io/v1, authentication.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json, Kind
from kyu.server import errors
from kyu.server.auth import rbac
from kyu.server.decode import body as bodies
from kyu.server.exchange import User
from kyu.server.metadata import timestamp

Review = Callable[[rbac.Authorizer, User, Json], Json]
# The answer to a token and audiences.
TokenReview = Callable[[str, tuple[str, ...]], Json]
TOKEN_REVIEWS = "tokenreviews"


def _access(authorizer: rbac.Authorizer, user: User, spec: Json) -> Json:
    asked = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""))
    return _verdict(authorizer, asked, spec)


def _self_rules(authorizer: rbac.Authorizer, user: User, spec: Json) -> Json:
    if not spec.get("namespace"):
        raise errors.bad_request("no namespace on request")
    rules = authorizer.rules(user, spec["namespace"])
    return {
        "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
        "nonResourceRules": [
            {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.non_resource_urls)}
            for rule in rules
            if rule.non_resource_urls
        ],
        "incomplete": False,
    }


def _self_subject(authorizer: rbac.Authorizer, user: User, spec: Json) -> Json:
    info: Json = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    return {"userInfo": info}


def _resource_rule(rule: rbac.PolicyRule) -> Json:
    entry: Json = {"verbs": list(rule.verbs), "apiGroups": list(rule.api_groups), "resources": list(rule.resources)}
    if rule.resource_names:
        entry["resourceNames"] = list(rule.resource_names)
    return entry


def _verdict(authorizer: rbac.Authorizer, user: User, spec: Json) -> Json:
    resource, other = bodies.section(spec, "resourceAttributes"), bodies.section(spec, "nonResourceAttributes")
    names = ("verb", "group", "resource", "subresource", "namespace", "name") if resource else ("verb", "path")
    attributes = rbac.Attributes(**{name: (resource or other).get(name, "") for name in names})
    return {"allowed": authorizer.is_allowed(user, attributes)}


REVIEWS: dict[str, Review] = {
    "selfsubjectaccessreviews": _verdict,
    "subjectaccessreviews": _access,
    "localsubjectaccessreviews": _access,
    "selfsubjectrulesreviews": _self_rules,
    "selfsubjectreviews": _self_subject,
}


def answer(authorizer: rbac.Authorizer, review_token: TokenReview, kind: Kind, user: User, body: Json) -> Json:
    """Return the status of a review; the rest of it repeats the request."""
    spec = bodies.section(body, "spec")
    if kind.plural == TOKEN_REVIEWS:
        if not spec.get("token"):
            raise errors.bad_request("token is required for TokenReview in authentication")
        return review_token(spec["token"], tuple(spec.get("audiences") or ()))
    if found := _objections(kind, body, spec):
        raise errors.invalid(Kind(kind.group, kind.version, "", ""), "", found)
    return REVIEWS[kind.plural](authorizer, user, spec)


def _objections(kind: Kind, body: Json, spec: Json) -> list[FieldError]:
    if not kind.plural.endswith("accessreviews"):
        return []
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    found: list[FieldError] = []
    if resource is not None and other is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        found.append(fields.invalid("spec.nonResourceAttributes", other, detail))
    elif resource is None and other is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        found.append(fields.invalid("spec.resourceAttributes", None, detail))
    if not kind.plural.startswith("self") and not spec.get("user") and not spec.get("groups"):
        found.append(fields.invalid("spec.user", "", "at least one of user or group must be specified"))
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    namespace = metadata.pop("namespace", "")
    if kind.namespaced and resource is not None and resource.get("namespace", "") != namespace:
        where = "spec.resourceAttributes.namespace"
        found.append(fields.invalid(where, resource.get("namespace", ""), "must match metadata.namespace"))
    if metadata:
        found.append(fields.invalid("metadata", body["metadata"], "must be empty"))
    return found


def shown(kind: Kind, asked: Json, status: Json, now: datetime) -> Json:
    """Return the answer. The part of the request that it repeats differs by review, as in Kubernetes."""
    answer: Json = {"kind": kind.kind, "apiVersion": kind.api_version}
    match kind.plural:
        case "selfsubjectreviews":
            return {**answer, "metadata": {"creationTimestamp": timestamp(now)}, "status": status}
        case "selfsubjectrulesreviews":
            return {**answer, "metadata": {}, "spec": {}, "status": status}
        case _:
            return {**answer, "metadata": asked["metadata"], "spec": asked.get("spec", {}), "status": status}
