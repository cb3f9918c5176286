"""
Manifests as commands are given them: a file, the YAML and JSON files of a folder, or `-` for standard input.

Called by: cli/decide.py, cli/kubernetes.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kyu.api import codec
from kyu.api.codec import Manifest
from kyu.cli.main import BadInput


def read_manifests(name: str) -> list[Manifest]:
    try:
        return [manifest for text, source in texts(name) for manifest in codec.read(text, source)]
    except codec.DecodeError as error:
        raise BadInput(str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def texts(name: str) -> Iterator[tuple[str, str]]:
    """Each text, and where it is from."""
    if name == "-":
        yield sys.stdin.read(), "standard input"
        return
    path = Path(name)
    files = sorted(file for file in path.rglob("*") if file.suffix in codec.MANIFEST_SUFFIXES)
    for file in files if path.is_dir() else [path]:
        yield file.read_text(), str(file)
