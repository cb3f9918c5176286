"""Folders of pods that an earlier version has run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kyu.runtime import podfolder, records


def older_folder(pods: Path, claim: records.Process | None) -> Path:
    """Make the folder of a pod as it was before pods had sandboxes."""
    folder = pods / "uid"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "main.0.log").write_text("a line")
    records.write(str(folder / "record.json"), {"phase": "Succeeded"})
    records.write(str(folder / records.PLAN), {"namespace": "default", "name": "pod", "user": None})
    if claim is not None:
        records.write(str(folder / records.CLAIM), claim._asdict())
    return folder


def own_process() -> records.Process:
    ticks = records.find_start_ticks(os.getpid())
    assert ticks is not None
    return records.Process(os.getpid(), ticks, records.boot_id())


def test_an_ended_pod_keeps_its_record_and_logs(tmp_path: Path) -> None:
    folder = older_folder(tmp_path, own_process()._replace(boot_id="another"))
    podfolder.migrate(str(tmp_path))
    podfolder.migrate(str(tmp_path))
    assert (folder / records.log_file("main", 0)).read_text() == "a line"
    assert records.find(str(folder / records.RECORD)) == {"phase": "Succeeded"}
    assert (records.find(str(folder / records.PLAN)) or {})["sandbox"]["namespaces"] is False


def test_a_pod_that_still_runs_is_named(tmp_path: Path) -> None:
    folder = older_folder(tmp_path, own_process())
    with pytest.raises(podfolder.StillRuns, match=r"default/pod .* wait for it, or end it"):
        podfolder.migrate(str(tmp_path))
    assert (folder / "record.json").exists()


def test_a_machine_without_pods(tmp_path: Path) -> None:
    podfolder.migrate(str(tmp_path / "missing"))
