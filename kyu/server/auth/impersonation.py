"""
Impersonation: ``kubectl --as ana --as-group team``, for users with the right to it.

Kubernetes: apiserver/pkg/endpoints/filters/impersonation.go.
"""

from __future__ import annotations

import msgspec

from kyu.api.meta import Kind
from kyu.server import errors
from kyu.server.auth import account_tokens, rbac
from kyu.server.auth.auth import AUTHENTICATED
from kyu.server.exchange import ANONYMOUS, Request, User

PREFIX = "impersonate-"
USER = "impersonate-user"
GROUP = "impersonate-group"
SERVED = (USER, GROUP)


def effective(request: Request, authorizer: rbac.Authorizer) -> Request:
    """Return the request as one of the impersonated user."""
    if PREFIX not in "".join(request.headers):
        # One look at all names together, for every request.
        return request
    wanted = [name for name in request.headers if name.startswith(PREFIX)]
    if not wanted:
        return request
    if unknown := [name for name in wanted if name not in SERVED]:
        raise errors.bad_request(
            f"the header {unknown[0]} is not supported: users have no uid and no extra fields here"
        )
    name = request.headers.get(USER, "")
    if not name:
        raise errors.bad_request("requested groups without impersonating a user")
    groups = tuple(group.strip() for group in request.headers.get(GROUP, "").split(",") if group.strip())
    for group in groups:
        _authorize(request, authorizer, "groups", group)
    if (account := account_tokens.account_of(name)) is not None:
        _authorize(request, authorizer, "serviceaccounts", account.name, account.namespace)
        # Its own groups come with it, unless others are asked for.
        groups = groups or account_tokens.groups_of(account.namespace)
    else:
        _authorize(request, authorizer, "users", name)
    if name != ANONYMOUS.name and AUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return msgspec.structs.replace(request, user=User(name, groups))


def _authorize(request: Request, authorizer: rbac.Authorizer, resource: str, name: str, namespace: str = "") -> None:
    attributes = rbac.Attributes("impersonate", "", resource, namespace=namespace, name=name)
    if not authorizer.is_allowed(request.user, attributes):
        who = f'User "{request.user.name}"'
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        text = f'{who} cannot impersonate resource "{resource}" in API group "" {where}'
        raise errors.forbidden(Kind("", "v1", "", resource), name, text)
