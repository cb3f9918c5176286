"""The fixture ``kyu_local`` of pytest: a control plane for tests. Nothing is imported until a test asks for it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kyu


@pytest.fixture(scope="session")
def kyu_local_folder() -> Iterator[Path]:
    """The folder of a control plane that all tests of this process share. The first test that needs it starts it."""
    with importlib.import_module("kyu.sdk.local").control_plane() as folder:
        yield folder


@pytest.fixture
def kyu_local(kyu_local_folder: Path) -> Iterator[kyu.Submitter]:
    """A control plane that ``kyu.submit`` and the commands of the test use."""
    with importlib.import_module("kyu.sdk.local").using(kyu_local_folder) as submitter:
        yield submitter
