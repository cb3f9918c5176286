"""
A command's connection to its server: the blocking client, the namespace, and words for people.

Called by: the commands for batch users and the Kubernetes ones. Calls: target.py (which server), kube/blocking.py.
"""

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
class Server:
    client: BlockingClient
    namespace: str
    description: str

    def listed(self, kind: Kind, namespace: str | None, labels: str = "") -> Sequence[Json]:
        """Those of the namespace, or of all; BadInput if there are none since there is no such namespace."""
        with self.telling_what_is_permitted(kind, namespace):
            found = self.client.list(kind, namespace, labels=labels)
        if not found and kind.namespaced and namespace:
            self.check_namespace(namespace)
        return found

    def check_namespace(self, wanted: str) -> None:
        """BadInput if there is no such namespace, as far as the user may know."""
        try:
            if self.client.find(Namespace.KIND, Key("", wanted)) is not None:
                return
            names = sorted(str(item["metadata"]["name"]) for item in self.client.list(Namespace.KIND))
        except Forbidden:
            return
        raise BadInput(f"there is no namespace {wanted!r}; there are: {output.some(names)}")

    def check_queue(self, wanted: str, namespace: str | None) -> None:
        """BadInput if there is no such LocalQueue."""
        names = sorted({str(item["metadata"]["name"]) for item in self.listed(LocalQueue.KIND, namespace)})
        if wanted not in names:
            place = f"namespace {namespace} has no" if namespace else "there is no"
            raise BadInput(f"{place} queue {wanted!r}; there are: {output.some(names)}")

    @contextmanager
    def telling_what_is_permitted(self, kind: Kind, namespace: str | None) -> Iterator[None]:
        """Who may not see what was asked for is told where to look instead."""
        try:
            yield
        except Forbidden as error:
            own = self.client.credentials.namespace
            if not kind.namespaced:
                place, remedy = "", f"`kyu queues` and `kyu jobs` show what is in namespace {self.namespace}"
            elif namespace is None:
                place, remedy = " of all namespaces", f"without -A those of namespace {self.namespace} are shown"
            elif namespace != own:
                place = f" of namespace {namespace}, if there is one"
                remedy = f"without -n those of namespace {own} are shown"
            else:
                place, remedy = f" of namespace {namespace}", "an administrator can give you a role there"
            raise Failed(f"you may not see the {kind.plural}{place}; {remedy}") from error

    def find_queue(self, wanted: str) -> str:
        """The LocalQueue that a user named; else `default`, or the only one that there is."""
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
                f"namespace {self.namespace} has no queue; an administrator makes one: kyu ctl create localqueue"
            )
        raise BadInput(f"which queue? Use -q with one of: {', '.join(names)}")

    def why_no_priority(self, wanted: str) -> str:
        """Words if there is no such class; users who may not see them are told by the job's events."""
        try:
            names = sorted(str(item["metadata"]["name"]) for item in self.client.list(WorkloadPriorityClass.KIND))
        except Forbidden:
            return ""
        there_are = f"there is no WorkloadPriorityClass {wanted!r}; there are: {', '.join(names) or 'none'}"
        return "" if wanted in names else there_are


def arguments(parser: argparse.ArgumentParser, *, all_namespaces: bool = False) -> None:
    target.arguments(parser)
    parser.add_argument("-n", "--namespace", default="", help="namespace (default: that of the kubeconfig)")
    if all_namespaces:
        parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")


def connect(args: argparse.Namespace) -> Server:
    chosen = target.choose(args)
    namespace = args.namespace or chosen.credentials.namespace
    return Server(BlockingClient(chosen.credentials), namespace, f"{chosen.credentials.server} ({chosen.origin})")
