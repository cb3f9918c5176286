"""The connection of a command to its server, with the checks and messages that commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kyu.api.core import Namespace
from kyu.api.kueue import LocalQueue, WorkloadPriorityClass
from kyu.api.meta import Json, Key, Kind
from kyu.cli import output, target
from kyu.cli.main import BadInput, Failed
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import Forbidden


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """A client, the namespace of the command, and a description of the server for messages."""

    client: BlockingClient
    namespace: str
    description: str

    def listed(self, kind: Kind, namespace: str | None, labels: str = "") -> Sequence[Json]:
        """Return the objects of a namespace, or of all; raise BadInput if the namespace does not exist."""
        with self.explain_forbidden(kind, namespace):
            found = self.client.list(kind, namespace, labels=labels)
        if not found and kind.namespaced and namespace:
            self.check_namespace(namespace)
        return found

    def check_namespace(self, wanted: str) -> None:
        """Raise BadInput if the namespace does not exist. Do nothing if the user may not read namespaces."""
        try:
            if self.client.find(Namespace.KIND, Key("", wanted)) is not None:
                return
            names = sorted(str(item["metadata"]["name"]) for item in self.client.list(Namespace.KIND))
        except Forbidden:
            return
        raise BadInput(f"there is no namespace {wanted!r}; there are: {output.short_list(names)}")

    def check_queue(self, wanted: str, namespace: str | None) -> None:
        """Raise BadInput if the LocalQueue does not exist."""
        names = sorted({str(item["metadata"]["name"]) for item in self.listed(LocalQueue.KIND, namespace)})
        if wanted not in names:
            place = f"namespace {namespace} has no" if namespace else "there is no"
            raise BadInput(f"{place} queue {wanted!r}; there are: {output.short_list(names)}")

    @contextmanager
    def explain_forbidden(self, kind: Kind, namespace: str | None) -> Iterator[None]:
        """Turn Forbidden into a message that says which command the user may use instead."""
        try:
            yield
        except Forbidden as error:
            own = self.client.credentials.namespace
            if not kind.namespaced:
                place, remedy = "", f"`kyu queues` and `kyu jobs` show what is in namespace {self.namespace}"
            elif namespace is None:
                place, remedy = " of all namespaces", f"without -A you see those of namespace {self.namespace}"
            elif namespace != own:
                place = f" of namespace {namespace}, if there is one"
                remedy = f"without -n you see those of namespace {own}"
            else:
                place, remedy = f" of namespace {namespace}", "an administrator can give you a role there"
            raise Failed(f"you may not see the {kind.plural}{place}; {remedy}") from error

    def find_queue(self, wanted: str) -> str:
        """Return the LocalQueue that the user named; else `default`, or the only one of the namespace."""
        names = sorted(str(item["metadata"]["name"]) for item in self.listed(LocalQueue.KIND, self.namespace))
        if wanted in names:
            return wanted
        if wanted and names:
            raise BadInput(f"namespace {self.namespace} has no queue {wanted!r}; there are: {', '.join(names)}")
        if "default" in names:
            return "default"
        if len(names) == 1:
            return names[0]
        if not names:
            raise BadInput(
                f"namespace {self.namespace} has no queue; an administrator can create one: kyu ctl create localqueue"
            )
        raise BadInput(f"choose a queue with -q: {', '.join(names)}")

    def why_no_priority(self, wanted: str) -> str:
        """Return a message if the WorkloadPriorityClass is missing; nothing if the user may not list them."""
        try:
            names = sorted(str(item["metadata"]["name"]) for item in self.client.list(WorkloadPriorityClass.KIND))
        except Forbidden:
            return ""
        there_are = f"there is no WorkloadPriorityClass {wanted!r}; there are: {', '.join(names) or 'none'}"
        return "" if wanted in names else there_are


def arguments(parser: argparse.ArgumentParser, *, all_namespaces: bool = False) -> None:
    target.arguments(parser)
    parser.add_argument("-n", "--namespace", default="", help="namespace (default: the namespace of the kubeconfig)")
    if all_namespaces:
        parser.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces")


def connect(args: argparse.Namespace) -> ServerConnection:
    chosen = target.choose(args)
    namespace = args.namespace or chosen.credentials.namespace
    description = f"{chosen.credentials.server} ({chosen.origin})"
    return ServerConnection(BlockingClient(chosen.credentials), namespace, description)
