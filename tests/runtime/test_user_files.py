"""Files of users that get the output of a container: their names, and the rights with which they are opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kyu.api.labels import COMPLETION_INDEX
from kyu.runtime import user_files

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")


def pod(name: str = "train-x", *, job: str = "", task: str = "") -> dict[str, object]:
    return {
        "metadata": {
            "name": name,
            "labels": {user_files.JOB_NAME: job} if job else {},
            "annotations": {COMPLETION_INDEX: task} if task else {},
        }
    }


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("out.txt", "/w/out.txt"), ("%j/%a.log", "/w/train/7.log"), ("100%%-%j", "/w/100%-train"), ("%q", "/w/%q")],
)
def test_patterns_are_filled_in(pattern: str, path: str) -> None:
    assert user_files.resolve(pattern, pod(job="train", task="7"), "/w") == path


@pytest.mark.parametrize("path", ["/w/../x", "/etc/passwd", "/w", "/w/", "/w/a/../../x", "/w/dir/"])
def test_paths_outside_of_the_folder_are_refused(path: str) -> None:
    assert user_files.why_not_below(path, "/w")


def test_output_is_appended_and_folders_are_made(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        descriptor = user_files.open_below(str(tmp_path), str(tmp_path / "logs" / "out"))
        user_files.append(descriptor, text)
        user_files.close(descriptor)
    assert (tmp_path / "logs" / "out").read_bytes() == b"one\ntwo\n"


def test_a_pipe_in_the_place_of_the_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out")
    with pytest.raises(OSError, match="No such device"):
        user_files.open_below(str(tmp_path), str(tmp_path / "out"))


@ROOT_ONLY
def test_root_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "work" / "file").symlink_to(tmp_path / "elsewhere" / "file")
    for name in ("folder/out", "file"):
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            user_files.open_below(str(tmp_path / "work"), str(tmp_path / "work" / name))
    assert list((tmp_path / "elsewhere").iterdir()) == []
