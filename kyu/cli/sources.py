"""Read the files that users name: a file, the YAML and JSON files of a folder, or `-` for standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kyu.api import codec
from kyu.api.codec import Manifest
from kyu.cli.main import BadInput


def read_text(name: str) -> str:
    """Return the text of a file or of standard input, or raise BadInput."""
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def read_manifests(name: str) -> list[Manifest]:
    """Return the objects of a file, of a folder or of standard input, or raise BadInput."""
    try:
        return [
            manifest
            for path in manifest_files(name)
            for manifest in codec.read(read_text(path), "standard input" if path == "-" else path)
        ]
    except codec.DecodeError as error:
        raise BadInput(str(error)) from None


def manifest_files(name: str) -> Iterator[str]:
    """Yield the name itself, or the manifests of a folder."""
    folder = Path(name)
    if name == "-" or not folder.is_dir():
        yield name
        return
    yield from sorted(str(file) for file in folder.rglob("*") if file.suffix in codec.MANIFEST_SUFFIXES)
