"""Connections to one server: the server is chosen once, as the commands choose it; each thread has its own client."""

from __future__ import annotations

import argparse
import logging
import os
import threading
from functools import cached_property
from pathlib import Path

from kyu.api.core import Node
from kyu.cli import target
from kyu.cli.batch.submission import environment
from kyu.cli.connection import ServerConnection
from kyu.cli.main import BadInput, Failed
from kyu.kube.blocking import BlockingClient
from kyu.kube.errors import ApiError
from kyu.runtime.nodes.node import ISOLATED

log = logging.getLogger("kyu")
# A connection without any answer for so long is taken as broken. A watch ends earlier.
SOCKET_SECONDS = 60.0


class NoServer(Exception):
    """No server was found, or it does not run. The message names the remedy."""


class Connections:
    """A server, and the namespace of the jobs."""

    def __init__(self, kubeconfig: Path | None, context: str, data: Path | None, namespace: str) -> None:
        args = argparse.Namespace(kubeconfig=kubeconfig, context=context, data=data)
        try:
            chosen = target.choose(args)
        except (BadInput, Failed) as error:
            raise NoServer(str(error)) from None
        self._credentials = chosen.credentials
        self.namespace = namespace or chosen.credentials.namespace
        self.description = f"{chosen.credentials.server} ({chosen.origin})"
        self._threads = threading.local()

    def server(self) -> ServerConnection:
        """Return the connection of this thread."""
        found: ServerConnection | None = getattr(self._threads, "server", None)
        if found is None:
            client = BlockingClient(self._credentials, timeout_seconds=SOCKET_SECONDS)
            found = self._threads.server = ServerConnection(client, self.namespace, self.description)
        return found

    @cached_property
    def shares_files(self) -> bool:
        """Whether pods run on this machine as this user, so that they reach the user's files."""
        address = self._credentials.server
        if environment.runs_as_me(address):
            return True
        if os.getuid() != 0 or not environment.is_mine(address):
            return False
        # A server of root runs the pods as root, unless it isolates tenants.
        try:
            nodes = self.server().client.list(Node.KIND)
        except ApiError:
            return False
        found = [
            c for node in nodes for c in (node.get("status") or {}).get("conditions") or () if c["type"] == ISOLATED
        ]
        return bool(found) and all(condition["status"] == "False" for condition in found)
