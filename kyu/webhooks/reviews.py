"""
The reviews that a Kubernetes API server sends to a webhook, and their answers.

Kubernetes: admission.k8s.io/v1, apiextensions.k8s.io/v1 (ConversionReview)
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from kyu.api.meta import Json

ADMISSION_API = "admission.k8s.io/v1"
CONVERSION_API = "apiextensions.k8s.io/v1"


class Caller(msgspec.Struct, frozen=True):
    """The user behind a request."""

    username: str = ""
    groups: tuple[str, ...] = ()


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A write that the API server asks about."""

    uid: str
    kind: GroupVersionKind
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    namespace: str = ""
    sub_resource: str = ""
    user_info: Caller = Caller()
    object: Json | None = None
    old_object: Json | None = None


class AdmissionReview(msgspec.Struct, frozen=True):
    request: ReviewRequest


class ConversionRequest(msgspec.Struct, frozen=True, rename={"desired_api_version": "desiredAPIVersion"}):
    """Objects to convert, and the version to convert them to."""

    uid: str
    desired_api_version: str
    objects: tuple[Json, ...] = ()


class ConversionReview(msgspec.Struct, frozen=True):
    request: ConversionRequest


def allow(request: ReviewRequest, patch: Sequence[Json] = (), warnings: Sequence[str] = ()) -> Json:
    """Return the answer that lets the write pass, changed by a JSON patch."""
    response: Json = {"uid": request.uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    if warnings:
        response["warnings"] = list(warnings)
    return {"apiVersion": ADMISSION_API, "kind": "AdmissionReview", "response": response}


def deny(request: ReviewRequest, message: str) -> Json:
    """Return the answer that refuses the write, with the code that controller-runtime uses."""
    status = {"code": 403, "reason": "Forbidden", "message": message}
    response = {"uid": request.uid, "allowed": False, "status": status}
    return {"apiVersion": ADMISSION_API, "kind": "AdmissionReview", "response": response}


def aggregate(messages: Sequence[str]) -> str:
    """Join messages as Kubernetes joins errors: one stands alone, several stand in brackets without repetitions."""
    unique = list(dict.fromkeys(messages))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def converted(request: ConversionRequest, objects: Sequence[Json]) -> Json:
    response = {"uid": request.uid, "convertedObjects": list(objects), "result": {"status": "Success"}}
    return {"apiVersion": CONVERSION_API, "kind": "ConversionReview", "response": response}


def not_converted(request: ConversionRequest, message: str) -> Json:
    response = {"uid": request.uid, "result": {"status": "Failure", "message": message}}
    return {"apiVersion": CONVERSION_API, "kind": "ConversionReview", "response": response}


def json_patch(old: Json, new: Json, path: str = "") -> Iterator[Json]:
    """Yield the operations that make ``new`` of ``old``. A changed list is replaced as a whole."""
    for name in old.keys() - new.keys():
        yield {"op": "remove", "path": f"{path}/{escape(name)}"}
    for name, value in new.items():
        where = f"{path}/{escape(name)}"
        before = old.get(name)
        if name not in old:
            yield {"op": "add", "path": where, "value": value}
        elif isinstance(value, dict) and isinstance(before, dict):
            yield from json_patch(before, value, where)
        elif value != before:
            yield {"op": "replace", "path": where, "value": value}


def escape(name: str) -> str:
    """Escape a field name for a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
