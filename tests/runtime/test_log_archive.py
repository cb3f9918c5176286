"""The archive of logs: what it keeps, what it refuses to follow, and its bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kyu.api.meta import Json
from kyu.runtime import log_archive, logs, records
from kyu.runtime.log_archive import ArchiveLimits, KeptPod, LogArchive

LINE = b"2026-01-01T00:00:00.000000000Z stdout F "


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def archive(tmp_path: Path, clock: Clock, limits: ArchiveLimits = ArchiveLimits()) -> LogArchive:  # noqa: B008
    opened = LogArchive(str(tmp_path / "kept"), limits, clock)
    opened.open()
    return opened


def pod(uid: str, namespace: str = "default", **meta: object) -> Json:
    fixed = {"namespace": namespace, "name": f"pod-{uid}", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": {**fixed, **meta}, "spec": {"containers": [{"name": "main"}]}}


def folder_with(tmp_path: Path, uid: str, files: dict[str, bytes]) -> str:
    logs_folder = tmp_path / "pods" / uid / records.LOGS
    logs_folder.mkdir(parents=True)
    for name, text in files.items():
        (logs_folder / name).write_bytes(text)
    return str(tmp_path / "pods" / uid)


def text_of(kept: LogArchive, found: KeptPod, options: logs.LogOptions = logs.LogOptions()) -> bytes:  # noqa: B008
    path = kept.find_log(found, "", previous=False)
    assert isinstance(path, str)
    return log_archive.read_log(path, options)


def test_the_files_of_a_start_are_kept_in_their_order(tmp_path: Path, clock: Clock) -> None:
    files = {
        "main.0.log": LINE + b"crashed\n",
        f"main.1.log.{1:020d}": LINE + b"one\n",
        f"main.1.log.{2:020d}": LINE + b"two\n",
        "main.1.log": LINE + b"three\n",
        "notes.txt": b"not a log",
    }
    kept = archive(tmp_path, clock)
    kept.keep(pod("a"), folder_with(tmp_path, "a", files))
    (found,) = kept.pods("default", "")
    assert text_of(kept, found) == b"one\ntwo\nthree\n"
    assert text_of(kept, found, logs.LogOptions(tail_lines=1)) == b"three\n"
    before = kept.find_log(found, "main", previous=True)
    assert isinstance(before, str)
    assert log_archive.read_log(before, logs.LogOptions()) == b"crashed\n"


def test_what_is_kept_is_found_after_a_restart(tmp_path: Path, clock: Clock) -> None:
    folder = folder_with(tmp_path, "a", {"main.0.log": LINE + b"hello\n"})
    archive(tmp_path, clock).keep(pod("a"), folder)
    with open(tmp_path / "kept" / log_archive.INDEX, "ab") as index:
        index.write(b'{"namespace":"torn')
    again = archive(tmp_path, clock)
    (found,) = again.pods("default", "")
    assert text_of(again, found) == b"hello\n"
    again.keep(pod("a"), folder)
    assert len(again.pods("default", "")) == 1


def test_links_pipes_and_files_of_others_are_not_copied(tmp_path: Path, clock: Clock) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = folder_with(tmp_path, "a", {"main.3.log": LINE + b"own\n"})
    place = Path(folder) / records.LOGS
    (place / "main.0.log").symlink_to(secret)
    os.mkfifo(place / "main.1.log")
    (place / "main.2.log").mkdir()
    kept = archive(tmp_path, clock)
    kept.keep(pod("a"), folder)
    copies = {path.name: path.read_bytes() for path in (tmp_path / "kept" / "default").iterdir()}
    assert copies.pop("a.main.3.log") == LINE + b"own\n"
    assert set(copies.values()) == {b""}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_file_of_another_user_is_not_copied(tmp_path: Path, clock: Clock) -> None:
    folder = folder_with(tmp_path, "a", {"main.0.log": LINE + b"of another\n"})
    os.chown(Path(folder) / records.LOGS / "main.0.log", 12345, 12345)
    kept = archive(tmp_path, clock)
    kept.keep(pod("a"), folder)
    assert text_of(kept, kept.pods("default", "")[0]) == b""


def test_a_folder_that_is_a_link_is_not_entered(tmp_path: Path, clock: Clock) -> None:
    elsewhere = Path(folder_with(tmp_path, "other", {"main.0.log": LINE + b"of another pod\n"})) / records.LOGS
    folder = tmp_path / "pods" / "a"
    (folder / records.LOGS).parent.mkdir(parents=True)
    (folder / records.LOGS).symlink_to(elsewhere)
    kept = archive(tmp_path, clock)
    kept.keep(pod("a"), str(folder))
    assert kept.pods("default", "")[0].starts == {}


def test_old_logs_go(tmp_path: Path, clock: Clock) -> None:
    kept = archive(tmp_path, clock, ArchiveLimits(longest_seconds=60))
    kept.keep(pod("a"), folder_with(tmp_path, "a", {"main.0.log": LINE + b"a\n"}))
    clock.now += 61
    kept.keep(pod("b"), folder_with(tmp_path, "b", {"main.0.log": LINE + b"b\n"}))
    assert [found.uid for found in kept.pods("default", "")] == ["b"]
    assert [path.name for path in (tmp_path / "kept" / "default").iterdir()] == ["b.main.0.log"]


def test_the_namespace_with_the_most_output_loses_its_oldest(tmp_path: Path, clock: Clock) -> None:
    kept = archive(tmp_path, clock, ArchiveLimits(most_bytes=1000))
    kept.keep(pod("small", "quiet"), folder_with(tmp_path, "small", {"main.0.log": LINE + b"x\n"}))
    for number in range(5):
        clock.now += 1
        kept.keep(pod(str(number), "loud"), folder_with(tmp_path, str(number), {"main.0.log": LINE + b"x" * 350}))
    assert [found.uid for found in kept.pods("quiet", "")] == ["small"]
    assert [found.uid for found in kept.pods("loud", "")] == ["3", "4"]


def test_the_index_does_not_grow_for_ever(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_archive, "MOST_STALE_LINES", 5)
    kept = archive(tmp_path, clock, ArchiveLimits(most_pods=2))
    for number in range(20):
        kept.keep(pod(str(number)), str(tmp_path / "nothing"))
    assert len((tmp_path / "kept" / log_archive.INDEX).read_text().splitlines()) <= 8
    assert [found.uid for found in archive(tmp_path, clock).pods("default", "")] == ["18", "19"]


@pytest.mark.parametrize(
    ("job", "workload", "owner"),
    [("train", "job-train-0a1b2", "train"), ("sweep", "jobset-sweep-0a1b2", "sweep-workers-0"), ("alone", "", "alone")],
)
def test_a_pod_is_found_by_the_name_of_its_job(job: str, workload: str, owner: str, clock: Clock) -> None:
    owners = [{"kind": "Job", "name": owner, "uid": "1", "controller": True}]
    annotations = {log_archive.WORKLOAD: workload} if workload else {}
    found = log_archive.describe(pod("a", ownerReferences=owners, annotations=annotations), clock(), {}, 0)
    assert found.is_of_job(job)
    assert not found.is_of_job(job[:-1])
