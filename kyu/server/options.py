"""
The options of a request, from its query or its body, with the refusals of wrong ones.

Kubernetes: meta/v1 ListOptions, CreateOptions,
UpdateOptions, PatchOptions, DeleteOptions and their validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec

from kyu.api import duration
from kyu.api import errors as fields
from kyu.api.errors import FieldError
from kyu.api.meta import Json, Kind
from kyu.server import errors
from kyu.server.bounds import MOST_SECONDS
from kyu.server.exchange import Request

FieldValidation = Literal["Ignore", "Warn", "Strict"]
Propagation = Literal["Background", "Foreground", "Orphan"]
VALIDATIONS: dict[str, FieldValidation] = {"": "Warn", "Ignore": "Ignore", "Warn": "Warn", "Strict": "Strict"}
PROPAGATIONS: dict[str, Propagation] = {
    "Foreground": "Foreground",
    "Background": "Background",
    "Orphan": "Orphan",
}
MAXIMAL_MANAGER_BYTES = 128


@dataclass(frozen=True, slots=True)
class ListOptions:
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    token: str = ""
    version: str = ""
    version_match: str = ""
    is_watch: bool = False
    bookmarks: bool = False
    timeout_seconds: float | None = None
    initial_events: bool | None = None


def list_options(query: Mapping[str, str]) -> ListOptions:
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=_integer(query, "limit"),
        token=query.get("continue", ""),
        version=query.get("resourceVersion", ""),
        version_match=query.get("resourceVersionMatch", ""),
        is_watch=is_watch(query),
        bookmarks=is_true(query.get("allowWatchBookmarks", "")),
        timeout_seconds=float(_integer(query, "timeoutSeconds")) if query.get("timeoutSeconds") else None,
        initial_events=is_true(query["sendInitialEvents"]) if query.get("sendInitialEvents") else None,
    )
    if found := _list_problems(options):
        raise errors.invalid(Kind("meta.k8s.io", "v1", "ListOptions", ""), "", found)
    return options


def check_timeout(text: str) -> None:
    """Reject a timeout that is no duration. No request here takes so long that a valid one would matter."""
    if text:
        try:
            duration.parse(text)
        except duration.DurationError as error:
            raise errors.bad_request(f"invalid timeout specified in the request URL - {error.go_message}") from None


def is_watch(query: Mapping[str, str]) -> bool:
    """Return whether a request is a watch: any text but 0 and false watches, even an empty one."""
    return "watch" in query and query["watch"].lower() not in ("0", "false")


def _list_problems(options: ListOptions) -> list[FieldError]:
    if options.is_watch:
        return _watch_problems(options)
    events = "sendInitialEvents is forbidden for list"
    found = [fields.forbidden("sendInitialEvents", events)] if options.initial_events is not None else []
    match = options.version_match
    if not match:
        return found
    faults = (
        (not options.version, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        (bool(options.token), "resourceVersionMatch is forbidden when continue is provided"),
        (
            match == "Exact" and options.version == "0",
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
    )
    found += [fields.forbidden("resourceVersionMatch", text) for is_so, text in faults if is_so]
    if match not in ("Exact", "NotOlderThan"):
        found.append(fields.not_supported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
    return found


def _watch_problems(options: ListOptions) -> list[FieldError]:
    match, asks = options.version_match, options.initial_events is not None
    found: list[FieldError] = []
    if asks and match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        found.append(fields.forbidden("resourceVersionMatch", text))
    if match and not asks:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        found.append(fields.forbidden("resourceVersionMatch", text))
    if match not in ("", "NotOlderThan"):
        found.append(fields.not_supported("resourceVersionMatch", match, ("NotOlderThan",)))
    if options.token and not asks and options.version in ("", "0"):
        # Such a watch starts with what is there, as if it had asked for that.
        text = "resourceVersionMatch is forbidden when continue is provided"
        found.append(fields.forbidden("resourceVersionMatch", text))
    return found


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of create, update and patch."""

    manager: str
    dry_run: bool = False
    validation: FieldValidation = "Warn"
    force: bool | None = None


def write_options(request: Request, name: Literal["CreateOptions", "UpdateOptions", "PatchOptions"]) -> WriteOptions:
    is_apply = name == "PatchOptions" and request.content_type == "application/apply-patch+yaml"
    return _write_options(name, tuple(request.query.items()), request.headers.get("user-agent", ""), is_apply=is_apply)


@lru_cache(maxsize=1024)
def _write_options(name: str, given: tuple[tuple[str, str], ...], user_agent: str, *, is_apply: bool) -> WriteOptions:
    """Clients write with the same few options again and again."""
    query = dict(given)
    found: list[FieldError] = []
    manager = query.get("fieldManager", "")
    if len(manager.encode()) > MAXIMAL_MANAGER_BYTES:
        found.append(fields.too_long("fieldManager", manager, MAXIMAL_MANAGER_BYTES))
    if not manager.isprintable():
        position, bad = next((at, each) for at, each in enumerate(manager) if not each.isprintable())
        text = f"invalid character U+{ord(bad):04X} (at position {position})"
        found.append(fields.invalid("fieldManager", manager, text))
    found += _dry_run_problems(query)
    asked = query.get("fieldValidation", "")
    validation = VALIDATIONS.get(asked)
    if validation is None:
        found.append(fields.not_supported("fieldValidation", asked, ("", "Ignore", "Strict", "Warn")))
    force = is_true(query["force"]) if query.get("force") else None
    if is_apply and not manager:
        found.append(fields.required("fieldManager", "is required for apply patch"))
    if name == "PatchOptions" and not is_apply and force is not None:
        found.append(fields.forbidden("force", "may not be specified for non-apply patch"))
    if found:
        raise errors.invalid(Kind("meta.k8s.io", "v1", name, ""), "", found)
    return WriteOptions(
        manager=manager or default_manager(user_agent),
        dry_run="dryRun" in query,
        validation=validation or "Warn",
        force=force,
    )


def default_manager(user_agent: str) -> str:
    """Return the program's name in the User-Agent."""
    return user_agent.partition("/")[0][:MAXIMAL_MANAGER_BYTES] or "unknown"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_seconds: int | None = None
    propagation: Propagation | None = None
    uid: str | None = None
    version: str | None = None
    dry_run: bool = False
    # Dependents were asked to go first in the old way, which is answered in an old way.
    waits_for_dependents: bool = False


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteBody(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None


def delete_options(request: Request, body: Json) -> DeleteOptions:
    """Read the options from the body if there is one, else from the query."""
    query: Mapping[str, Any] = request.query
    try:
        given = msgspec.convert(body, _DeleteBody)
        if not body:
            policy = query.get("propagationPolicy")
            orphan = is_true(query["orphanDependents"]) if "orphanDependents" in query else None
            grace = _integer(request.query, "gracePeriodSeconds") if query.get("gracePeriodSeconds") else None
            given = _DeleteBody("", "", grace, policy, orphan)
    except msgspec.ValidationError as error:
        raise errors.bad_request(f"json: cannot unmarshal into Go value of type v1.DeleteOptions: {error}") from error
    if given.kind not in ("", "DeleteOptions"):
        raise errors.bad_request(f"expected DeleteOptions in the body, found {given.kind}")
    dry_run = given.dry_run if given.dry_run is not None else ([query["dryRun"]] if "dryRun" in query else [])
    found = _dry_run_problems({"dryRun": dry_run[0]} if dry_run else {})
    found += _propagation_problems(given)
    if (given.grace_period_seconds or 0) > MOST_SECONDS:
        detail = f"must be less than or equal to {MOST_SECONDS}"
        found.append(fields.invalid("gracePeriodSeconds", given.grace_period_seconds, detail))
    if found:
        raise errors.invalid(Kind("meta.k8s.io", "v1", "DeleteOptions", ""), "", found)
    propagation = PROPAGATIONS.get(given.propagation_policy or "")
    if given.orphan_dependents is not None:
        propagation = "Orphan" if given.orphan_dependents else "Background"
    before = given.preconditions or _Preconditions()
    return DeleteOptions(
        given.grace_period_seconds,
        propagation,
        before.uid,
        before.resource_version,
        bool(dry_run),
        waits_for_dependents=given.orphan_dependents is False,
    )


def _propagation_problems(given: _DeleteBody) -> list[FieldError]:
    policy = given.propagation_policy
    if policy is not None and given.orphan_dependents is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        return [fields.invalid("propagationPolicy", policy, text)]
    if policy is not None and policy not in PROPAGATIONS:
        return [fields.not_supported("propagationPolicy", policy, (*PROPAGATIONS, "nil"))]
    return []


def _dry_run_problems(query: Mapping[str, str]) -> list[FieldError]:
    if query.get("dryRun", "All") == "All":
        return []
    return [fields.not_supported("dryRun", [query["dryRun"]], ("All",))]


def _integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    try:
        number = int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    if not -(2**63) <= number < 2**63:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def is_true(text: str) -> bool:
    """Parse a boolean query parameter."""
    return text.lower() not in ("", "0", "false")
