"""Kyu's server answers as Kubernetes does: the same dialogues with both (see twins.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import servers, twins
from tests.cluster.client import Client
from tests.cluster.conftest import require

DIALOGUES = sorted((Path(__file__).parent / "dialogues").glob("*.yaml"))


@pytest.fixture(scope="module")
def real() -> Iterator[Client]:
    require()
    with servers.real_server() as running:
        yield running


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with servers.kyu_server(tmp_path_factory.mktemp("kyu")) as running:
        yield running


@pytest.mark.parametrize("path", DIALOGUES, ids=lambda path: path.stem)
def test_same_answers(path: Path, real: Client, kyu: Client) -> None:
    found = list(twins.differences(twins.read(path), real, kyu))
    assert not found, "\n\n".join(found)
