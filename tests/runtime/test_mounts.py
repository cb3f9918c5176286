"""Volumes at their mount paths, seen from inside: each test looks from a child process, as root and as another user."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kyu.runtime.sandbox import mounts
from kyu.runtime.sandbox.mounts import Mount

OTHER_USER = 12345
PR_SET_DUMPABLE = 4


@pytest.fixture(params=["as root", "as another user"])
def user(request: pytest.FixtureRequest) -> int:
    if os.geteuid() == 0:
        return 0 if request.param == "as root" else OTHER_USER
    if request.param == "as root":
        pytest.skip("needs root")
    return os.geteuid()


@pytest.fixture
def folder(user: int) -> Iterator[Path]:
    """A folder with three volumes, that the user owns and can reach. The private folders of pytest stay private."""
    with tempfile.TemporaryDirectory(prefix="kyu-mounts-") as name:
        path = Path(name)
        path.chmod(0o711)
        make_volumes(path, user)
        yield path


def make_volumes(folder: Path, user: int) -> None:
    for name in ("scratch", "work", "conf", "other"):
        (folder / name).mkdir()
        if os.geteuid() == 0:
            os.chown(folder / name, user, user)
    (folder / "conf" / "color").write_text("blue")


def inside(user: int, folder: Path, wanted: list[Mount], look: Callable[[], str]) -> str:
    """Return what a process of the user sees that has these mounts; or why it could not have them."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = "the child failed"
        try:
            if os.geteuid() == 0 and user:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                # A process that changed its user may not look at itself until it runs a program, or says so.
                ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
            mounts.enter_namespaces()
            mounts.enter(wanted, str(folder / "scratch"))
            text = look()
        except (mounts.MountFailed, OSError) as error:
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, text.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return text


@pytest.fixture(autouse=True)
def _permitted() -> None:
    if reason := mounts.why_not_permitted():
        pytest.skip(f"mounts are not permitted here: {reason}")


@pytest.mark.parametrize("target", ["/kyu-new", "/kyu-new/deep/er", "/etc/kyu-new", "/usr/share/kyu-new/x"])
def test_a_path_that_does_not_exist_is_there_inside_only(user: int, folder: Path, target: str) -> None:
    seen = inside(user, folder, [Mount(str(folder / "conf"), target)], Path(target, "color").read_text)
    assert seen == "blue"
    assert not os.path.lexists(target)


def test_all_else_looks_as_before(user: int, folder: Path) -> None:
    wanted = [Mount(str(folder / "conf"), "/kyu-new"), Mount(str(folder / "conf"), "/etc/kyu-new")]

    def look() -> str:
        return repr((sorted(os.listdir("/")), sorted(os.listdir("/etc")), Path("/etc/passwd").read_text()[:20]))

    root, etc = sorted([*os.listdir("/"), "kyu-new"]), sorted([*os.listdir("/etc"), "kyu-new"])
    assert inside(user, folder, wanted, look) == repr((root, etc, Path("/etc/passwd").read_text()[:20]))


def test_an_existing_folder_is_covered(user: int, folder: Path) -> None:
    target = str(folder / "other")
    seen = inside(user, folder, [Mount(str(folder / "conf"), target)], lambda: str(os.listdir(target)))
    assert seen == "['color']"
    assert os.listdir(target) == []


def test_what_is_written_to_a_volume_stays_in_it(user: int, folder: Path) -> None:
    def look() -> str:
        Path("/kyu-new/file").write_text("x")
        return "written"

    assert inside(user, folder, [Mount(str(folder / "work"), "/kyu-new")], look) == "written"
    assert (folder / "work" / "file").read_text() == "x"


def test_a_read_only_volume_refuses_writes(user: int, folder: Path) -> None:
    def look() -> str:
        Path("/kyu-new/file").write_text("x")
        return "written"

    seen = inside(user, folder, [Mount(str(folder / "work"), "/kyu-new", read_only=True)], look)
    assert "Read-only file system" in seen


def test_volumes_below_each_other_in_any_order(user: int, folder: Path) -> None:
    wanted = [
        Mount(str(folder / "conf" / "color"), "/kyu-new/a/color"),
        Mount(str(folder / "conf"), "/kyu-new/a/b", read_only=True),
        Mount(str(folder / "work"), "/kyu-new"),
    ]

    def look() -> str:
        Path("/kyu-new/file").write_text("x")
        return Path("/kyu-new/a/color").read_text() + Path("/kyu-new/a/b/color").read_text()

    assert inside(user, folder, wanted, look) == "blueblue"
    # The volume itself has what was written, and the places of what was mounted below it.
    assert sorted(os.listdir(folder / "work")) == ["a", "file"]


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("conf", "/", "the root folder cannot be a volume"),
        ("conf", "/etc/passwd", "a file is in the way"),
        ("conf/color", "/etc", "a folder is in the way"),
    ],
)
def test_what_cannot_be_mounted_is_named(user: int, folder: Path, source: str, target: str, words: str) -> None:
    seen = inside(user, folder, [Mount(str(folder / source), target)], lambda: "mounted")
    assert seen == f"MountFailed: mountPath {target}: {words}"
