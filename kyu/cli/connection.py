"""
A command's connection to its server: the blocking client, the namespace, and words for people.

Called by: the commands for batch users and the Kubernetes ones. Calls: target.py (which server), kube/blocking.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kyu.api.kueue import LocalQueue, WorkloadPriorityClass
from kyu.api.meta import Json, Kind
from kyu.cli import target
from kyu.cli.main import BadInput, Failed
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Server:
    client: BlockingClient
    namespace: str
    description: str

    def listed(self, kind: Kind, namespace: str | None, labels: str = "") -> Sequence[Json]:
        """Those of the namespace, or of all."""
        with self.telling_what_is_permitted(kind, namespace):
            return self.client.list(kind, namespace, labels=labels)

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
                place, remedy = f" of namespace {namespace}", f"without -n those of namespace {own} are shown"
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
