"""
The answers of an API server that says no: one exception, and a constructor for each reason.

Every refusal is an ``StatusError``; its ``status()`` is the Status object that goes over the wire. What a reason has in
its details (an empty object, none at all, name and kind) is fixed by what the clients of Kubernetes expect, so it is
decided here and nowhere else.

Raised by: every module of the server; rendered by: server/routing/routes.py.
Kubernetes: apimachinery/pkg/api/errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kyu.api.errors import FieldError
from kyu.api.meta import Json, Kind

# Errors that one answer tells of.
MOST_CAUSES = 100


class StatusError(Exception):
    """A Status of failure: what the client is told, and nothing else."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        # Sent beside the Status, as they would be beside an object.
        self.warnings: tuple[str, ...] = ()

    def status(self) -> Json:
        answer: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            answer["reason"] = self.reason
        if self.details is not None:
            answer["details"] = self.details
        answer["code"] = self.code
        return answer


class Warned:
    """A context that adds warnings to a refusal which is raised in it, so that the client is told of both."""

    __slots__ = ("_warnings",)

    def __init__(self, warnings: tuple[str, ...]) -> None:
        self._warnings = warnings

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, type_: object, error: BaseException | None, trace: object) -> None:
        if self._warnings and isinstance(error, StatusError):
            error.warnings = (*self._warnings, *error.warnings)


def qualified(kind: Kind, subresource: str = "") -> str:
    """``widgets.example.com``, or ``pods/binding``: how messages name a resource."""
    plural = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return f"{plural}.{kind.group}" if kind.group else plural


def details_of(kind: Kind, name: str, *, subresource: str = "", causes: Iterable[Json] = ()) -> Json:
    details: Json = {}
    if name:
        details["name"] = name
    if kind.group:
        details["group"] = kind.group
    if kind.plural:
        details["kind"] = f"{kind.plural}/{subresource}" if subresource else kind.plural
    if listed := list(causes):
        details["causes"] = listed
    return details


def cause(reason: str, message: str, field: str = "") -> Json:
    return {"reason": reason, "message": message, "field": field} if field else {"reason": reason, "message": message}


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(
    kind: Kind, name: str, message: str, *, subresource: str = "", causes: Iterable[Json] = ()
) -> StatusError:
    """``pods "p" is forbidden: MESSAGE``; without a name the quotes go too."""
    what = f'{qualified(kind, subresource)} "{name}"' if name else qualified(kind, subresource)
    details = details_of(kind, name, subresource=subresource, causes=causes)
    return StatusError(403, "Forbidden", f"{what} is forbidden: {message}", details)


def forbidden_path(message: str) -> StatusError:
    """Return a 403 for a path that is no resource, such as ``/metrics``."""
    return StatusError(403, "Forbidden", f"forbidden: {message}", {})


def not_found(kind: Kind, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{qualified(kind)} "{name}" not found', details_of(kind, name))


def no_such_resource() -> StatusError:
    """Return a 404 for a resource or subresource that a served group does not have."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unsupported_verb(kind: Kind, verb: str) -> StatusError:
    """405 for a subresource of a custom kind."""
    message = f'{verb} is not supported on resources of kind "{qualified(kind)}"'
    return StatusError(405, "MethodNotAllowed", message, details_of(kind, ""))


def not_acceptable(media_types: Sequence[str]) -> StatusError:
    message = f"only the following media types are accepted: {', '.join(media_types)}"
    return StatusError(406, "NotAcceptable", message)


def wrong_form(message: str) -> StatusError:
    """Return a 406 for a form that is served, but not of this object."""
    return StatusError(406, "NotAcceptable", message)


def unknown_form(media_types: Sequence[str], *, is_list: bool) -> StatusError:
    """Return a 406 for an unknown Accept header. Lists have more forms, because they can be watched."""
    watched = [f"{name};stream=watch" for name in media_types if "yaml" not in name] if is_list else []
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join([*media_types, *watched])}"
    return StatusError(406, "NotAcceptable", message, {})


def unsupported_media_type(media_types: Sequence[str]) -> StatusError:
    """Return a 415 for the body of a POST or PUT."""
    listed = ", ".join(media_types)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return StatusError(415, "UnsupportedMediaType", message)


def unsupported_patch_type() -> StatusError:
    """Return a 415 for a PATCH of a built-in kind whose Content-Type is no patch type."""
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def already_exists(kind: Kind, name: str, *, being_deleted: bool = False) -> StatusError:
    prefix = "object is being deleted: " if being_deleted else ""
    message = f'{prefix}{qualified(kind)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details_of(kind, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(kind: Kind, name: str, message: str = MODIFIED, *, subresource: str = "") -> StatusError:
    what = f'{qualified(kind, subresource)} "{name}"'
    details = details_of(kind, name, subresource=subresource)
    return StatusError(409, "Conflict", f"Operation cannot be fulfilled on {what}: {message}", details)


def apply_conflict(message: str, causes: Iterable[Json]) -> StatusError:
    """Another manager owns what an apply wants to change; each field is a cause."""
    return StatusError(409, "Conflict", message, {"causes": list(causes)})


def expired(message: str, *, continue_token: str = "") -> StatusError:
    """410: the version is forgotten. A token, where there is one, goes on from the newest state."""
    error = StatusError(410, "Expired", message)
    return _Expired(error, continue_token) if continue_token else error


class _Expired(StatusError):
    """The one Status with something in its metadata."""

    def __init__(self, error: StatusError, continue_token: str) -> None:
        super().__init__(error.code, error.reason, error.message)
        self.continue_token = continue_token

    def status(self) -> Json:
        return {**super().status(), "metadata": {"continue": self.continue_token}}


def too_large(message: str) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def invalid(kind: Kind, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422 with one cause per error. ``details.kind`` is the Kind here, not the plural.

    An error that two checks found is one part of the message, and two causes.
    """
    described = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    if len(errors) > MOST_CAUSES:
        # The answer to a hundred thousand faults would be larger than any object.
        more = FieldError("TooMany", "metadata", detail=f"{len(errors) - MOST_CAUSES} more errors are not shown")
        errors = [*errors[:MOST_CAUSES], more]
    message = f'{described} "{name}" is invalid: {listed(errors)}'
    named = Kind(kind.group, kind.version, kind.kind, kind.kind)
    return StatusError(422, "Invalid", message, details_of(named, name, causes=map(cause_of, errors)))


def denied(kind: Kind, errors: Sequence[FieldError]) -> StatusError:
    """Return the 403 of an API server whose validating webhook of Kueue refused an object."""
    message = f'admission webhook "v{kind.kind.lower()}.kb.io" denied the request: {listed(errors[:MOST_CAUSES])}'
    return StatusError(403, "Forbidden", message)


def listed(errors: Sequence[FieldError]) -> str:
    """Join errors as Kubernetes does: one stands alone, several stand in brackets without repetitions."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return f"[{', '.join(texts)}]" if len(texts) > 1 else "".join(texts)


def cause_of(error: FieldError) -> Json:
    return cause(error.reason, error.message, error.field)


def rejected_patch() -> StatusError:
    """Return a 422 for a JSON patch that does not apply."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def too_many_requests(message: str, *, retry_after_seconds: int = 1) -> StatusError:
    """Return a 429: the same request will do later, when the caller has fewer in progress."""
    return StatusError(429, "TooManyRequests", message, {"retryAfterSeconds": retry_after_seconds})


def internal(message: str) -> StatusError:
    """500 without a reason, as Kubernetes answers where a request fails below its own checks."""
    return StatusError(500, "", message)


def internal_error(detail: str) -> StatusError:
    """500 with a reason, for what Kubernetes finds out too late."""
    return StatusError(500, "InternalError", f"Internal error occurred: {detail}", {"causes": [{"message": detail}]})


def not_implemented(message: str) -> StatusError:
    """Known by name, and not served on purpose."""
    return StatusError(501, "NotImplemented", message)


def unavailable(message: str, *, retry_after_seconds: int = 1) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message, {"retryAfterSeconds": retry_after_seconds})


def timeout(message: str, *, causes: Iterable[Json] = (), retry_after_seconds: int = 1) -> StatusError:
    details: Json = {"causes": list(causes), "retryAfterSeconds": retry_after_seconds}
    return StatusError(504, "Timeout", message, {key: value for key, value in details.items() if value})
