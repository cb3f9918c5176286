"""
A data folder that an older Kyu wrote opens with this one.

The folder was written by version 0.1.0 as of November 2026, with two teams in a cohort, a user, and jobs that are
finished, failed, running and pending. The machine was switched off while `urgent` ran, so its process is lost.
"""

from __future__ import annotations

import json
import platform
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api.meta import Json
from kyu.kube import errors, kubeconfig
from kyu.kube.blocking import BlockingClient
from tests.support.local_kyu import LocalKyu, local_kyu

ARCHIVE = Path(__file__).parent.parent / "data" / "data-folder-0.1.0.zip"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    """This Kyu, started on a copy of the old folder."""
    folder = tmp_path_factory.mktemp("upgrade")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    data = folder / "kyu"
    # Another process may hold the port of last time.
    (data / "port").unlink()
    rename_node(data / "kyu.db", "old-machine", platform.node().lower())
    with local_kyu(data, "--cpu", "2") as kyu:
        yield kyu


def rename_node(database: Path, old: str, new: str) -> None:
    """Give the stored node the name of this machine: an upgrade does not change it."""
    connection = sqlite3.connect(database)
    with connection:
        connection.execute("UPDATE revision SET name = ? WHERE name = ?", (new, old))
        for version, value in connection.execute("SELECT version, value FROM revision").fetchall():
            renamed = value.replace(old.encode(), new.encode())
            connection.execute("UPDATE revision SET value = ? WHERE version = ?", (renamed, version))
    connection.close()


def items(kyu: LocalKyu, path: str) -> list[Json]:
    listed: list[Json] = json.loads(kyu.client.raw(path))["items"]
    return listed


def names(kyu: LocalKyu, path: str) -> set[str]:
    return {item["metadata"]["name"] for item in items(kyu, path)}


def test_all_objects_are_there(upgraded: LocalKyu) -> None:
    assert names(upgraded, f"{KUEUE}/clusterqueues") == {"local", "team-a", "team-b"}
    assert names(upgraded, f"{KUEUE}/resourceflavors") == {"local", "machine"}
    assert names(upgraded, f"{KUEUE}/workloadpriorityclasses") == {"high"}
    assert names(upgraded, f"{KUEUE}/topologies") == {"racks"}
    jobs = {"done", "failed", "borrowed", "urgent", "waiting", "impossible", "pair-workers-0", "pair-workers-1"}
    assert jobs <= names(upgraded, "/apis/batch/v1/jobs")
    assert names(upgraded, "/apis/batch/v1/cronjobs") == {"yearly"}
    assert names(upgraded, "/apis/jobset.x-k8s.io/v1alpha2/jobsets") == {"pair"}
    (note,) = items(upgraded, "/apis/example.org/v1/notes")
    assert note["text"] == "water the plants"


def test_a_queue_written_in_the_older_version_reads_in_both(upgraded: LocalKyu) -> None:
    queue = json.loads(upgraded.client.raw(f"{KUEUE}/clusterqueues/team-a"))
    older = json.loads(upgraded.client.raw("/apis/kueue.x-k8s.io/v1beta1/clusterqueues/team-a"))
    assert queue["spec"]["cohortName"] == older["spec"]["cohort"] == "teams"


def test_finished_jobs_stay_finished_and_keep_their_logs(upgraded: LocalKyu) -> None:
    assert upgraded.state("done") == "Succeeded"
    assert upgraded.state("failed") == "Failed"
    assert upgraded.kyu("logs", "done").stdout == "the work is done\n"


def test_pending_jobs_run_when_the_lost_one_has_failed(upgraded: LocalKyu) -> None:
    upgraded.wait_for("urgent", "Failed")
    upgraded.wait_for("waiting", "Succeeded")
    assert upgraded.kyu("logs", "-n", "team-b", "waiting").stdout == "it was worth the wait\n"
    upgraded.wait_for("borrowed", "Running")
    assert upgraded.state("impossible") == "Queued"


def test_a_new_job_runs(upgraded: LocalKyu) -> None:
    # The pod runs as another user, who may not be able to enter the folder of the checkout.
    upgraded.kyu("submit", "--name", "new", "--cpu", "100m", "--", "sh", "-c", "echo as before", cwd=Path("/"))
    upgraded.kyu("wait", "new")
    assert upgraded.kyu("logs", "new").stdout == "as before\n"


def test_a_user_signs_in_with_the_old_token(upgraded: LocalKyu) -> None:
    credentials = kubeconfig.load(upgraded.data / "alice.kubeconfig")
    credentials.server = kubeconfig.load(upgraded.data / "kubeconfig").server
    alice = BlockingClient(credentials)
    try:
        jobs = json.loads(alice.raw("/apis/batch/v1/namespaces/team-a/jobs"))["items"]
        assert "borrowed" in {job["metadata"]["name"] for job in jobs}
        with pytest.raises(errors.Forbidden):
            alice.raw("/apis/batch/v1/namespaces/team-b/jobs")
    finally:
        alice.close()
