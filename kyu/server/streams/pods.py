"""
The subresources of Pods that are streams: exec, attach and portforward. START HERE.

A request becomes an answer with status 101 and a tunnel. Rights are checked as Kubernetes does: the verb of the HTTP
method, and ``create`` also for a WebSocket, which begins with a GET. Each user has a bounded number of streams.

Kubernetes: pkg/registry/core/pod/rest/subresources.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from urllib.parse import parse_qsl

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.admission import submitters
from kyu.server.auth import auth, rbac
from kyu.server.exchange import Request, Response, TunnelBytes
from kyu.server.options import is_true
from kyu.server.paths import Target
from kyu.server.routing.routes import refusal
from kyu.server.streams import negotiate
from kyu.server.streams.channels import CommandChannels, SpdyChannels, WebSocketChannels
from kyu.server.streams.command import CommandTunnel, PodProcess, Start
from kyu.server.streams.portforward import ChannelForwards, ForwardTunnel, PodConnection, SpdyForwards, WebSocketBytes
from kyu.server.verbs.objects import Objects
from kyu.server.verbs.pod_subresources import choose_container

OVER = ("Succeeded", "Failed")
# A stream costs a few descriptors and buffers of some 300 KiB at most.
MOST_PER_USER = 64
MOST_IN_ALL = 512
# The number of a channel is one byte, and each port has two.
MOST_PORTS = 64


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The streams of a command that a client asks for, and the container."""

    container: str
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    @property
    def outputs(self) -> list[str]:
        return [name for name in ("stdout", "stderr") if getattr(self, name)]

    @property
    def names(self) -> frozenset[str]:
        """The streams that a SPDY client opens."""
        inputs = [name for name, is_wanted in (("stdin", self.stdin), ("resize", self.tty)) if is_wanted]
        return frozenset((*inputs, *self.outputs, "error"))


class PodStreams(Protocol):
    """The processes and ports of pods, given by the runtime. Each raises StatusError if the pod is not reachable."""

    def check_streams(self, pod: Json, container: str) -> None:
        """Raise if the container does not run here."""

    async def run_command(self, pod: Json, command: list[str], wanted: StreamOptions) -> PodProcess:
        """Start a command in a container. Raise CannotRun if that fails."""

    async def attach(self, pod: Json, wanted: StreamOptions) -> PodProcess:
        """Connect with the program of a container. Raise CannotRun if that fails."""

    async def connect(self, pod: Json, port: int) -> PodConnection:
        """Connect with a port of the pod. Raise CannotRun if that fails."""


class StreamLimits:
    """The streams that are open, by user."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def enter(self, user: str) -> Callable[[], None]:
        """Count a stream; return the function that ends it."""
        if self._open[user] >= MOST_PER_USER or self._open.total() >= MOST_IN_ALL:
            raise errors.too_many_requests("too many interactive streams are open")
        self._open[user] += 1
        return partial(self._leave, user)

    def _leave(self, user: str) -> None:
        self._open[user] -= 1
        if not self._open[user]:
            del self._open[user]


class StreamVerbs:
    """The verbs of streams. ``streams`` is None on a server that runs no pods."""

    def __init__(self, objects: Objects, authorizer: rbac.Authorizer, streams: PodStreams | None) -> None:
        self._objects = objects
        self._authorizer = authorizer
        self._streams = streams
        self._limits = StreamLimits()

    async def exec(self, request: Request, target: Target) -> Response:
        command = [value for name, value in parse_qsl(request.query_text, keep_blank_values=True) if name == "command"]
        if not command:
            raise errors.bad_request("you must specify at least 1 command for the container")
        pod, wanted, streams = self._prepare(request, target)
        return self._answer(request, wanted, partial(streams.run_command, pod, command, wanted))

    async def attach(self, request: Request, target: Target) -> Response:
        pod, wanted, streams = self._prepare(request, target)
        return self._answer(request, wanted, partial(streams.attach, pod, wanted))

    async def forward(self, request: Request, target: Target) -> Response:
        streams, pod = self._find(request, target)
        streams.check_streams(pod, pod["spec"]["containers"][0]["name"])
        connect = partial(streams.connect, pod)
        ports = forwarded_ports(request)
        protocols = (negotiate.TUNNELLED_FORWARD, *((negotiate.FORWARD_CHANNELS,) if ports else ()))
        chosen = negotiate.negotiate(request, protocols, (negotiate.FORWARD_PROTOCOL,))
        done = self._limits.enter(request.user.name)

        async def run(wire: TunnelBytes) -> None:
            if chosen.protocol == negotiate.FORWARD_CHANNELS:
                await ChannelForwards(wire, ports, connect).run()
                return
            carrier = wire if chosen.transport == "spdy" else WebSocketBytes(wire)
            await SpdyForwards(carrier, connect).run()

        return Response(101, ForwardTunnel(run, done), content_type="", headers=chosen.headers)

    def _prepare(self, request: Request, target: Target) -> tuple[Json, StreamOptions, PodStreams]:
        streams, pod = self._find(request, target)
        wanted = stream_options(request, pod)
        streams.check_streams(pod, wanted.container)
        return pod, wanted, streams

    def _find(self, request: Request, target: Target) -> tuple[PodStreams, Json]:
        self._authorize(request, target)
        _, pod = self._objects.latest(target.resource, *target.key)
        if self._streams is None:
            raise errors.not_implemented("this server runs no pods")
        submitters.check_access(request.user, pod, target.resource.kind)
        check_pod(pod)
        return self._streams, pod

    def _authorize(self, request: Request, target: Target) -> None:
        """Require ``create`` for every stream: the right to read must not be enough to run commands."""
        if auth.MASTERS in request.user.groups:
            return
        kind = target.resource.kind
        attributes = rbac.Attributes(
            "create", kind.group, kind.plural, target.subresource, target.namespace or "", target.name
        )
        if not self._authorizer.is_allowed(request.user, attributes):
            raise errors.forbidden(kind, target.name, refusal(request.user.name, attributes))

    def _answer(self, request: Request, wanted: StreamOptions, start: Start) -> Response:
        chosen = negotiate.negotiate(request, negotiate.COMMAND_PROTOCOLS, negotiate.SPDY_COMMAND_PROTOCOLS)
        channels: Callable[..., CommandChannels] = WebSocketChannels
        if chosen.transport == "spdy":
            channels = partial(SpdyChannels, expected=wanted.names)
        done = self._limits.enter(request.user.name)
        tunnel = CommandTunnel(channels, start, wanted.outputs, done, has_terminal=wanted.tty)
        return Response(101, tunnel, content_type="", headers=chosen.headers)


def stream_options(request: Request, pod: Json) -> StreamOptions:
    query = request.query
    flags = {name: is_true(query.get(name, "")) for name in ("stdin", "stdout", "stderr", "tty")}
    if not (flags["stdin"] or flags["stdout"] or flags["stderr"]):
        raise errors.bad_request("you must specify at least one of stdin, stdout, stderr")
    if flags["tty"]:
        # A terminal has one output.
        flags["stderr"] = False
    return StreamOptions(choose_container(pod, query.get("container", "")), **flags)


def forwarded_ports(request: Request) -> list[int]:
    """Return the ports that a client of channels names in its query."""
    texts = [value for name, value in parse_qsl(request.query_text) if name == "ports"]
    words = [word.strip() for text in texts for word in text.split(",")]
    if len(words) > MOST_PORTS or not all(word.isdecimal() and 0 < int(word) < 65536 for word in words):
        raise errors.bad_request(f"ports must be at most {MOST_PORTS} numbers between 1 and 65535")
    return list(map(int, words))


def check_pod(pod: Json) -> None:
    name = pod["metadata"]["name"]
    if not (pod.get("spec") or {}).get("nodeName"):
        raise errors.bad_request(f"pod {name} does not have a host assigned")
    if (phase := (pod.get("status") or {}).get("phase")) in OVER:
        raise errors.bad_request(f"cannot use a container of a completed pod; current phase is {phase}")
