"""
The same requests to two servers, and what differs in the answers.

A dialogue is a YAML file of requests. Each is sent to a real API server and to Kyu's; what no two servers can agree on
(uids, times, resource versions, the words of a message) is blanked, the rest must be equal: the code, the reason, the
fields that are blamed, the whole object with its defaults and, where a dialogue is about them, the owners of fields.
These are compared by name, as their order is that of the seconds in which they wrote.

Called by: test_same_answers.py.
"""

from __future__ import annotations

import difflib
import json
import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from tests.cluster.client import ApiError, Body, Client, Manifest, Timeout

BLANKED = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "time", "continue", "lastTransitionTime")
# Of a refusal: what a program reads. The message is for people, and Kyu may say it better.
REFUSAL = ("reason", "code", "details")


SERVED_SECONDS = 90.0
POLL_SECONDS = 0.05
UID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


@dataclass(frozen=True, slots=True)
class Step:
    """One request. ``served`` is a path that both servers must answer before the next, as it takes effect later."""

    verb: str
    path: str
    content_type: str
    body: Body
    served: str

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Requests, one after the other."""

    steps: list[Step]
    with_owners: bool  # whether metadata.managedFields must be equal, too


def read(path: Path) -> Dialogue:
    content: Manifest = yaml.safe_load(path.read_text())
    return Dialogue([step(entry) for entry in content["requests"]], with_owners=content.get("owners", False))


def step(entry: Manifest) -> Step:
    verb, path = str(entry["request"]).split(maxsplit=1)
    return Step(
        verb,
        quote(path, safe="/?&=,!+%:"),
        entry.get("as", "application/json"),
        entry.get("body"),
        entry.get("served", ""),
    )


def differences(dialogue: Dialogue, real: Client, kyu: Client) -> Iterator[str]:
    """One readable difference per step that is answered otherwise."""
    left_out = () if dialogue.with_owners else ("managedFields",)
    for number, each in enumerate(dialogue.steps, 1):
        wanted, found = (blanked(answer(server, each), left_out) for server in (real, kyu))
        if each.served:
            for server in (real, kyu):
                wait_until_served(server, each.served)
        if wanted != found:
            lines = difflib.unified_diff(render(wanted), render(found), "Kubernetes", "Kyu", lineterm="", n=2)
            yield "\n".join([f"step {number}: {each}", *lines])


def wait_until_served(server: Client, path: str) -> None:
    deadline = time.monotonic() + SERVED_SECONDS
    while time.monotonic() < deadline:
        with suppress(ApiError):
            server.request("GET", path)
            return
        time.sleep(POLL_SECONDS)
    raise Timeout(f"{server.server} does not answer {path} after {SERVED_SECONDS} s")


def answer(client: Client, each: Step) -> Manifest:
    try:
        return client.request(each.verb, each.path, each.body, each.content_type)
    except ApiError as refusal:
        status = {name: refusal.answer[name] for name in REFUSAL if refusal.answer.get(name)}
        causes: list[Manifest] = status.get("details", {}).get("causes", [])
        for cause in causes:
            cause.pop("message", None)
        causes.sort(key=lambda cause: (cause.get("field", ""), cause["reason"]))
        return status


def blanked(value: Manifest, left_out: Collection[str]) -> Manifest:
    """The answer with a mark in place of what differs from server to server."""

    def blank(pairs: list[tuple[str, Any]]) -> Manifest:
        kept = {name: content for name, content in pairs if name not in left_out}
        if "managedFields" in kept:
            kept["managedFields"] = sorted(kept["managedFields"], key=writer)
        return {name: "(set)" if name in BLANKED and content else content for name, content in kept.items()}

    result: Manifest = json.loads(UID.sub("(uid)", json.dumps(value)), object_pairs_hook=blank)
    return result


def writer(entry: Manifest) -> tuple[str, str, str, str]:
    return entry["operation"], entry["manager"], entry["apiVersion"], entry.get("subresource", "")


def render(value: Manifest) -> list[str]:
    return yaml.safe_dump(value, sort_keys=True, width=1000).splitlines()
