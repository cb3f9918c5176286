"""
Read attempts from the ledger of a server, page by page.

Called by: cli/accounts/attempts.py, cli/batch/expected_starts.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from kyu.api.accounting import ATTEMPT, JobAttempt
from kyu.api.meta import Json
from kyu.cli.connection import ServerConnection
from kyu.cli.main import Failed
from kyu.kube.errors import NotFound


def pages(server: ServerConnection, namespace: str | None, query: Mapping[str, str]) -> list[JobAttempt]:
    """Return the attempts that a query chooses, the oldest first; of all namespaces if none is given."""
    place = f"namespaces/{namespace}/" if namespace else ""
    path = f"/apis/{ATTEMPT.group}/{ATTEMPT.version}/{place}{ATTEMPT.plural}"
    found: list[JobAttempt] = []
    token = ""
    while True:
        try:
            with server.explain_forbidden(ATTEMPT, namespace):
                body: Json = json.loads(server.client.raw(path, {**query, "continue": token} if token else query))
        except NotFound:
            raise Failed(f"{server.description} keeps no ledger; only a server of `kyu up` does") from None
        found += [msgspec.convert(item["status"], JobAttempt) for item in body["items"]]
        token = body["metadata"].get("continue", "")
        if not token:
            return found
