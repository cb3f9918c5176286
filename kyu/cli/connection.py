"""
A command's connection to its server: the blocking client, the namespace, and words for people.

Called by: the commands for batch users and the Kubernetes ones. Calls: target.py (which server), kube/blocking.py.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from kyu.api.kueue import LocalQueue, WorkloadPriorityClass
from kyu.cli import target
from kyu.cli.main import BadInput
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Server:
    client: BlockingClient
    namespace: str
    description: str

    def find_queue(self, wanted: str) -> str:
        """The LocalQueue that a user named; else `default`, or the only one that there is."""
        names = sorted(str(item["metadata"]["name"]) for item in self.client.list(LocalQueue.KIND, self.namespace))
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

    def check_priority(self, wanted: str) -> None:
        """BadInput if there is no such class; users who may not see them are told by the job's events."""
        try:
            names = sorted(str(item["metadata"]["name"]) for item in self.client.list(WorkloadPriorityClass.KIND))
        except Forbidden:
            return
        if wanted not in names:
            raise BadInput(f"there is no WorkloadPriorityClass {wanted!r}; there are: {', '.join(names) or 'none'}")


def arguments(parser: argparse.ArgumentParser, *, all_namespaces: bool = False) -> None:
    target.arguments(parser)
    parser.add_argument("-n", "--namespace", default="", help="namespace (default: that of the kubeconfig)")
    if all_namespaces:
        parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")


def connect(args: argparse.Namespace) -> Server:
    chosen = target.choose(args)
    namespace = args.namespace or chosen.credentials.namespace
    return Server(BlockingClient(chosen.credentials), namespace, f"{chosen.credentials.server} ({chosen.origin})")
