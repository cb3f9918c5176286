"""
Measures folders of pods: a program of its own, because tenants decide how much there is to count.

It reads a line of JSON with the folders of each pod, and prints a line for each pod. Folders are opened beneath each
other without following links, so a tenant can lead it nowhere. A pod with more files, or deeper folders, than are
counted is said to have too many.

Started by: eviction.py, as ``python -S -E -s -m kyu.runtime.storage.disk_usage``. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator

BLOCK_BYTES = 512
MOST_FILES = 2_000_000
MOST_DEPTH = 1000
LOWEST_PRIORITY = 19
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TooMany(Exception):
    """The folders have more files, or are deeper, than is counted."""


class Counter:
    """Counts the bytes of files, each once, up to a number of files."""

    def __init__(self) -> None:
        self.files = 0
        self._linked: set[int] = set()

    def folder_bytes(self, path: str) -> int:
        """Return the bytes on the disk of a folder and all in it; 0 if it is missing or may not be read."""
        try:
            top = os.open(path, FOLDER)
        except OSError:
            return 0
        total = 0
        open_folders: list[tuple[int, Iterator[os.DirEntry[str]]]] = [(top, os.scandir(top))]
        try:
            while open_folders:
                folder, entries = open_folders[-1]
                entry = next(entries, None)
                if entry is None:
                    os.close(folder)
                    open_folders.pop()
                    continue
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    total += self._entry_bytes(entry)
                    if entry.is_dir(follow_symlinks=False):
                        if len(open_folders) >= MOST_DEPTH:
                            raise TooMany
                        inner = os.open(entry.name, FOLDER, dir_fd=folder)
                        open_folders.append((inner, os.scandir(inner)))
        finally:
            for folder, _ in open_folders:
                os.close(folder)
        return total

    def _entry_bytes(self, entry: os.DirEntry[str]) -> int:
        self.files += 1
        if self.files > MOST_FILES:
            raise TooMany
        info = entry.stat(follow_symlinks=False)
        if info.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
            if info.st_ino in self._linked:
                return 0
            self._linked.add(info.st_ino)
        return info.st_blocks * BLOCK_BYTES


def measure(folders: dict[str, str]) -> dict[str, object]:
    """Return the bytes of each folder of a pod, by its name."""
    counter = Counter()
    try:
        return {"bytes": {name: counter.folder_bytes(path) for name, path in folders.items()}}
    except (TooMany, OSError):
        # A descriptor too few, or a name that is exchanged for something else.
        return {"tooMany": True}


def main() -> None:
    os.nice(LOWEST_PRIORITY)
    for uid, folders in json.loads(sys.stdin.readline()).items():
        print(json.dumps({"uid": uid, **measure(folders)}), flush=True)


if __name__ == "__main__":
    main()
