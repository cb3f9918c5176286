"""
The token subresource of ServiceAccounts, and the answers to TokenReviews.

Kubernetes: pkg/registry/core/serviceaccount/storage/token.go, pkg/registry/authentication/tokenreview.
"""

from __future__ import annotations

from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json, Kind
from kyu.server import errors, metadata, representations
from kyu.server.auth import auth, tokens
from kyu.server.auth.account_tokens import BOUND_KINDS, ISSUER, AccountTokens, BoundObject
from kyu.server.decode import body as bodies
from kyu.server.decode import object as decode_object
from kyu.server.exchange import Request, Response, User, json_response
from kyu.server.options import write_options
from kyu.server.paths import Target
from kyu.server.verbs.objects import Objects

TOKEN_REQUEST = Kind("authentication.k8s.io", "v1", "TokenRequest", "")
DEFAULT_SECONDS = 3600
LEAST_SECONDS = 600
MOST_SECONDS = 1 << 32


class ServiceAccounts:
    def __init__(self, objects: Objects, account_tokens: AccountTokens, user_tokens: auth.Tokens) -> None:
        self._objects = objects
        self._account_tokens = account_tokens
        self._user_tokens = user_tokens

    async def issue(self, request: Request, target: Target) -> Response:
        """Return a new token of the account. It is not stored."""
        options = write_options(request, "CreateOptions")
        body, _ = bodies.decode(request, TOKEN_REQUEST)
        if body.get("kind") not in (None, "", TOKEN_REQUEST.kind):
            raise decode_object.wrong_kind(TOKEN_REQUEST, body)
        _, account = self._objects.latest(target.resource, *target.key)
        spec = bodies.section(body, "spec")
        seconds = spec.get("expirationSeconds", DEFAULT_SECONDS)
        if found := _objections(seconds, spec):
            raise errors.invalid(TOKEN_REQUEST, target.name, found)
        bound = self._bound(target, bodies.section(spec, "boundObjectRef"))
        audiences = tuple(spec.get("audiences") or ())
        status: Json = {"token": "", "expirationTimestamp": None}
        if not options.dry_run:
            namespace = target.namespace or ""
            token, ends = self._account_tokens.sign(namespace, account, audiences, seconds, bound)
            status = {"token": token, "expirationTimestamp": metadata.timestamp(ends)}
        meta = {name: account["metadata"][name] for name in ("name", "namespace")}
        given = {**spec, "audiences": list(audiences or (ISSUER,)), "expirationSeconds": seconds}
        given.setdefault("boundObjectRef", None)
        typed = {"kind": TOKEN_REQUEST.kind, "apiVersion": TOKEN_REQUEST.api_version}
        return json_response(201, {**typed, "metadata": meta, "spec": given, "status": status})

    def _bound(self, target: Target, reference: Json) -> BoundObject | None:
        """Return the object that the token ends with. It must exist, and a Pod must use the account."""
        if not reference:
            return None
        kind, name = str(reference.get("kind")), str(reference.get("name") or "")
        storage = BOUND_KINDS.get(kind)
        if storage is None:
            known = ", ".join(BOUND_KINDS)
            raise errors.bad_request(
                f"cannot bind token for serviceaccount to a type {kind}; it must be one of {known}"
            )
        namespace = "" if kind == "Node" else target.namespace or ""
        found = self._objects.store.latest(storage, namespace, name)
        if found is None:
            raise errors.not_found(Kind("", "v1", kind, storage), name)
        if (uid := reference.get("uid")) and uid != found.uid:
            text = f"the UID in the bound object reference ({uid}) does not match the UID in record ({found.uid})"
            raise errors.conflict(Kind("", "v1", kind, storage), name, text)
        if kind == "Pod":
            self._check_pod(target, name)
        return BoundObject(kind, name, found.uid)

    def _check_pod(self, target: Target, name: str) -> None:
        record = self._objects.store.latest("pods", target.namespace or "", name)
        spec = representations.decode(record.value).get("spec") or {} if record is not None else {}
        if spec.get("serviceAccountName") != target.name:
            account = f"serviceaccount {target.name!r}"
            text = f"cannot bind token for {account} to pod running with different serviceaccount name"
            raise errors.forbidden(Kind("", "v1", "Pod", "pods"), name, text)

    def review(self, token: str, audiences: tuple[str, ...]) -> Json:
        """Return the status of a TokenReview: the user of a token, if it is for one of the audiences."""
        wanted = audiences or (ISSUER,)
        user: User | None
        if tokens.is_account_token(token):
            account = self._account_tokens.find(token)
            user, given, extra = (account.user, account.audiences, account.extra) if account else (None, (), {})
        else:
            user, given, extra = self._user_tokens.find(token), (ISSUER,), {}
        both = [audience for audience in wanted if audience in given]
        if user is None or not both:
            why = "invalid bearer token" if user is None else "the token is for other audiences"
            return {"user": {}, "error": why}
        info: Json = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
        return {"authenticated": True, "user": {key: value for key, value in info.items() if value}, "audiences": both}


def _objections(seconds: object, spec: Json) -> list[FieldError]:
    found: list[FieldError] = []
    if not isinstance(seconds, int) or seconds < LEAST_SECONDS:
        found.append(
            fields.invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        )
    elif seconds > MOST_SECONDS:
        detail = "may not specify a duration larger than 2^32 seconds"
        found.append(fields.invalid("spec.expirationSeconds", seconds, detail))
    audiences: object = spec.get("audiences") or []
    if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
        found.append(fields.invalid("spec.audiences", audiences, "must be a list of strings"))
    return found
