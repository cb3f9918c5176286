"""
Kyu's server answers as Kubernetes does, also where nobody thought of asking: some hundred generated requests to both.

What is compared, and what is not, is in twins.py; here also whether a write made a new version. Differences that stay
are explained in docs/reference/api-differences.md.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster import random_requests, servers, twins
from tests.cluster.client import Client, Manifest
from tests.cluster.conftest import require
from tests.cluster.random_requests import SUBJECTS, TOYS, Subject

SEEDS = range(6)
LENGTH = 16


@dataclass(slots=True)
class Side:
    """One of the two servers, and the last version of the object that it told."""

    client: Client
    version: str = ""

    def ask(self, step: twins.Step) -> Manifest:
        """The answer, comparable; ``(new version)`` says whether the object was written."""
        answer = twins.answer(self.client, step)
        told = (answer.get("metadata") or {}).get("resourceVersion", "")
        is_new, self.version = told != self.version, told or self.version
        return {**in_order(twins.blanked(answer, ())), "(new version)": bool(told) and is_new}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    require()
    with servers.real_server() as real, servers.kyu_server(tmp_path_factory.mktemp("kyu")) as kyu:
        for client in (real, kyu):
            client.apply([TOYS])
            twins.wait_until_served(client, f"/apis/{random_requests.GROUP}/v1/toys")
        yield Side(real), Side(kyu)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.plural)
def test_random_answers(subject: Subject, seed: int, sides: tuple[Side, Side]) -> None:
    found = list(differences(subject, seed, sides))
    assert not found, "\n\n".join(found)


def differences(subject: Subject, seed: int, sides: tuple[Side, Side]) -> Iterator[str]:
    for number, step in enumerate(random_requests.conversation(subject, seed, LENGTH), 1):
        wanted, answered = (side.ask(step) for side in sides)
        if wanted != answered:
            before, after = twins.render(wanted), twins.render(answered)
            lines = difflib.unified_diff(before, after, "Kubernetes", "Kyu", lineterm="", n=2)
            yield "\n".join([f"step {number}: {step} {step.content_type}\n{step.body}", *lines])


def in_order(answer: Manifest) -> Manifest:
    """Entries of one second are sorted by manager, and the two servers do not share their seconds."""
    if entries := (answer.get("metadata") or {}).get("managedFields"):
        entries.sort(key=lambda entry: [entry.get(name, "") for name in ("operation", "manager", "subresource")])
    return answer
