"""
The subresources of Pods: binding to a node, eviction, and logs.

Kubernetes: pkg/registry/core/pod/{storage,rest}.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Protocol

import msgspec

from kyu.api import errors as fields
from kyu.api.accounting import SUBMITTER, submitter_of, unix_account
from kyu.api.meta import Json, Kind
from kyu.server import errors, metadata, unserved
from kyu.server.admission import submitters
from kyu.server.decode import body as bodies
from kyu.server.decode import object
from kyu.server.exchange import Request, Response, ResponseStream, json_response
from kyu.server.options import delete_options, is_true, write_options
from kyu.server.paths import Target
from kyu.server.verbs.delete import Deletion
from kyu.server.verbs.objects import Objects

BINDING = Kind("", "v1", "Binding", "bindings")
EVICTION = Kind("policy", "v1", "Eviction", "evictions")
EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


@dataclass(frozen=True, slots=True)
class PodLogOptions:
    """The options of a request for the output of a container."""

    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    since_time: str = ""
    limit_bytes: int | None = None


class PodLogs(Protocol):
    """The output of containers, given by the runtime."""

    async def read_logs(self, pod: Json, wanted: PodLogOptions) -> bytes | ResponseStream:
        """Return the output of a container of this Pod, as far as it is there."""

    async def read_kept_logs(
        self, namespace: str, name: str, wanted: PodLogOptions, may_read: Callable[[str], bool]
    ) -> bytes | None:
        """Return the kept output of a deleted Pod, or None if there is none.

        ``may_read`` tells for the submitter of a Pod whether its output may be read.
        """


class Pods:
    def __init__(
        self, objects: Objects, deletion: Deletion, clock: Callable[[], datetime], logs: PodLogs | None
    ) -> None:
        self._objects = objects
        self._deletion = deletion
        self._clock = clock
        self._logs = logs

    async def bind(self, request: Request, target: Target) -> Response:
        options = write_options(request, "CreateOptions")
        body, _ = bodies.decode(request, BINDING)
        given = _check_name(body, BINDING, target)
        node = _node(bodies.section(body, "target"))
        record, pod = self._objects.latest(target.resource, *target.key)
        if given.get("uid") and given["uid"] != record.uid:
            text = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {record.uid}"
            raise errors.conflict(target.resource.kind, target.name, text)
        _check_bindable(target, pod)
        # A binding says where a pod runs, not as which user or how.
        annotations = {} if unix_account(submitter_of(pod)) else bodies.section(given, "annotations")
        annotations.pop(SUBMITTER, None)
        bound = self._bound(pod, node, annotations, bodies.section(given, "labels"))
        if not options.dry_run:
            await self._objects.put(target.resource, bound).done
        return json_response(201, _success(201))

    def _bound(self, pod: Json, node: str, annotations: Json, labels: Json) -> Json:
        meta = {**pod["metadata"]}
        for name, added in (("annotations", annotations), ("labels", labels)):
            if added:
                meta[name] = {**(meta.get(name) or {}), **added}
        bound = {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": node}}
        return self._with_condition(bound, {"type": "PodScheduled", "status": "True"})

    def _with_condition(self, pod: Json, condition: Json) -> Json:
        """Set a condition to True."""
        times = {"lastProbeTime": None, "lastTransitionTime": metadata.timestamp(self._clock())}
        status = pod.get("status") or {}
        others = [each for each in status.get("conditions") or [] if each.get("type") != condition["type"]]
        return {**pod, "status": {**status, "conditions": [*others, {**condition, **times}]}}

    async def refuse(self, request: Request, target: Target) -> Response:
        """Reject a write to a subresource that can only be read."""
        what = target.subresource
        raise errors.not_implemented(f"pods/{what} is not served: {unserved.why_not('', 'pods', what)}")

    async def evict(self, request: Request, target: Target) -> Response:
        body, _ = bodies.decode(request, EVICTION)
        _check_name(body, EVICTION, target)
        inner = msgspec.structs.replace(request, body=b"", query={})
        options = delete_options(inner, bodies.section(body, "deleteOptions"))
        if "dryRun" in request.query:
            options = replace(options, dry_run=True)
        record, pod = self._objects.latest(target.resource, *target.key)
        self._deletion.check(target.resource, record, pod, options, request.user)
        if not options.dry_run and not pod["metadata"].get("deletionTimestamp"):
            # Controllers that replace pods read the reason of a disruption.
            self._objects.put(target.resource, self._with_condition(pod, EVICTED))
            options = replace(options, version=None)
        deleted = self._deletion.delete_object(target.resource, *target.key, options, request.user)
        if deleted.done is not None:
            await deleted.done
        return json_response(201, _success(201))

    async def log(self, request: Request, target: Target) -> Response:
        try:
            _, pod = self._objects.latest(target.resource, *target.key)
        except errors.StatusError:
            # The runtime keeps the output of deleted Pods. Kubernetes does not, and answers 404.
            kept = await self._kept_log(request, target)
            if kept is None:
                raise
            return Response(200, kept, content_type="text/plain")
        submitters.check_access(request.user, pod, target.resource.kind)
        options = _log_options(request, pod)
        if not (pod.get("spec") or {}).get("nodeName"):
            return Response(204, b"", content_type="")
        if self._logs is None:
            raise errors.not_implemented("this server runs no pods, so it has no logs of them")
        return Response(200, await self._logs.read_logs(pod, options), content_type="text/plain")

    async def _kept_log(self, request: Request, target: Target) -> bytes | None:
        if self._logs is None:
            return None
        namespace, name = target.key
        wanted = _query_options(request, request.query.get("container", ""))
        return await self._logs.read_kept_logs(namespace, name, wanted, partial(submitters.may_act_for, request.user))


def _check_name(body: Json, kind: Kind, target: Target) -> Json:
    """Return the metadata of a body that must be of this kind and of this Pod."""
    if body.get("kind") not in (None, "", kind.kind):
        raise object.wrong_kind(kind, body)
    given = bodies.section(body, "metadata")
    if given.get("name") != target.name:
        raise errors.bad_request(f"name in URL does not match name in {kind.kind} object")
    return given


def _node(target: Json) -> str:
    if (kind := target.get("kind", "")) not in ("", "Node"):
        raise errors.internal(str(fields.not_supported("target.kind", kind, ("Node", "<empty>"))))
    if not (name := target.get("name")):
        raise errors.internal(str(fields.required("target.name")))
    return str(name)


def _check_bindable(target: Target, pod: Json) -> None:
    spec, name = pod.get("spec") or {}, target.name
    if pod["metadata"].get("deletionTimestamp"):
        raise _refused(target, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _refused(target, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _refused(target, f"pod {name} has non-empty .spec.schedulingGates")


def _refused(target: Target, text: str) -> errors.StatusError:
    return errors.conflict(target.resource.kind, target.name, text, subresource="binding")


def _log_options(request: Request, pod: Json) -> PodLogOptions:
    return _query_options(request, choose_container(pod, request.query.get("container", "")))


def choose_container(pod: Json, wanted: str) -> str:
    """Return the container that a request names, or the only one of the Pod."""
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    plain = [each["name"] for each in spec.get("containers") or ()]
    if not wanted:
        if len(plain) > 1:
            listed = " ".join(plain)
            text = f"a container name must be specified for pod {name}, choose one of: [{listed}]"
            raise errors.bad_request(text)
        return str(plain[0])
    if wanted not in (*plain, *(each["name"] for each in spec.get("initContainers") or ())):
        raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted


def _query_options(request: Request, container: str) -> PodLogOptions:
    query = request.query
    return PodLogOptions(
        container=container,
        follow=is_true(query.get("follow", "")),
        previous=is_true(query.get("previous", "")),
        timestamps=is_true(query.get("timestamps", "")),
        tail_lines=_count(query.get("tailLines", ""), "tailLines", 0),
        since_seconds=_count(query.get("sinceSeconds", ""), "sinceSeconds", 1),
        since_time=query.get("sinceTime", ""),
        limit_bytes=_count(query.get("limitBytes", ""), "limitBytes", 1),
    )


def _count(text: str, name: str, least: int) -> int | None:
    if not text:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if int(text) < least:
        bound = "greater than 0" if least else "greater than or equal to 0"
        found = [fields.invalid(name, int(text), f"must be {bound}")]
        raise errors.invalid(Kind("", "v1", "PodLogOptions", ""), "", found)
    return int(text)


def _success(code: int) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}
