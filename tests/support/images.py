"""Images for tests, made on this machine: no registry is asked."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import pytest

BUSYBOX = "/bin/busybox"
# The image of pods that only need a shell: a name for processes, a real image for podman. Workers have their own.
IMAGE = f"kyu-test-any-{os.getpid()}"
PASSWD = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/tmp:/bin/sh\n"


def why_no_podman() -> str:
    """Return what is missing on this machine to run pods from images."""
    if os.geteuid() != 0:
        return "pods run from images as root only"
    for program in ("podman", "crun", "conmon"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return "" if os.path.exists(BUSYBOX) else "busybox-static is not installed"


@contextmanager
def made_image(name: str, files: Mapping[str, str] | None = None, changes: Iterable[str] = ()) -> Iterator[None]:
    """Make an image of busybox with these programs, under this name, and remove it afterwards."""
    if reason := why_no_podman():
        pytest.skip(reason)
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(BUSYBOX, "bin/busybox")
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
        for folder, mode in (("tmp", 0o1777), ("root", 0o700), ("dev", 0o755), ("proc", 0o755), ("sys", 0o755)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        for path, text in {"etc/passwd": PASSWD, "etc/group": "root:x:0:\napp:x:1000:\n", **(files or {})}.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    words = ["podman", "import", "--quiet", *(word for change in changes for word in ("--change", change)), "-", name]
    subprocess.run(words, input=buffer.getvalue(), capture_output=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["podman", "rmi", "--force", name], capture_output=True, check=False)
