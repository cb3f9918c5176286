"""The image of pods that run with podman."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.images import IMAGE, made_image


@pytest.fixture(scope="session")
def image() -> Iterator[None]:
    with made_image(f"localhost/{IMAGE}"):
        yield
