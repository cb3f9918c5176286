"""Files of tests/cases, read as the product reads manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kyu.api import documents


def read_documents(path: Path) -> list[Any]:
    """Return the values of all documents of a file."""
    return [document.value for document in documents.parse(path.read_text())]
