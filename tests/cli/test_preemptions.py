"""Preemptions by name in `kyu jobs` and `kyu why`, and reasons whose numbers fit into a narrow table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, LocalQueue
from kyu.api.meta import Json, Key
from kyu.cli.batch import jobs, preemptions, short_reasons
from tests.support.local_kyu import LocalKyu, local_kyu


@pytest.fixture(scope="module")
def kyu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path_factory.mktemp("kyu")) as running:
        yield running


@pytest.mark.parametrize(
    ("message", "short"),
    [
        ("insufficient unused quota for cpu in flavor default, 4 more needed", "needs 4 more cpu (default)"),
        (
            "insufficient unused quota for cpu in flavor a, 500m more needed, "
            "insufficient unused quota for memory in flavor b, 1Gi more needed",
            "needs 500m more cpu (a), needs 1Gi more memory (b)",
        ),
        (
            "insufficient quota for cpu in flavor default, previously considered podsets requests (1) "
            "+ current podset request (4500m) > maximum capacity (2)",
            "wants 5500m cpu, 2 is the most",
        ),
        ("resource nvidia.com/gpu unavailable in ClusterQueue", "the queue has no nvidia.com/gpu"),
        ("Workload is pending evaluation", "Workload is pending evaluation"),
    ],
)
def test_short_reasons(message: str, short: str) -> None:
    assert short_reasons.shorten(message) == short


def test_the_numbers_of_a_reason_are_seen_at_80_columns() -> None:
    why = "insufficient unused quota for cpu in flavor default, 4 more needed"
    obj: Json = {"metadata": {"namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    row = jobs.JobRow(obj, "train-x7k2p", "Job", "research", jobs.JobState("Queued", why), 1)
    assert "needs 4 more cpu" in jobs.jobs_table([row], namespaces=False, room=80)
    assert why in jobs.jobs_table([row], namespaces=False, room=None)


def make_team(kyu: LocalKyu, name: str) -> None:
    kyu.make_queue(name, "100m", cohortName="lab", preemption={"reclaimWithinCohort": "Any"})
    kyu.client.create(Namespace.KIND, {"metadata": {"name": name}})
    queue = {"metadata": {"name": "main", "namespace": name}, "spec": {"clusterQueue": name}}
    kyu.client.create(LocalQueue.KIND, queue)


def job_lines(kyu: LocalKyu, name: str) -> list[str]:
    return [line for line in kyu.kyu("jobs").stdout.splitlines() if line.startswith(name)]


def test_the_preemptor_is_named(kyu: LocalKyu, tmp_path: Path) -> None:
    for name in ("lender", "borrower"):
        make_team(kyu, name)
    flavor = {"name": "lender", "resources": [{"name": "cpu", "nominalQuota": "0"}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    kyu.client.patch(ClusterQueue.KIND, Key("", "borrower"), {"spec": {"resourceGroups": [group]}})
    kyu.submit("long", "borrower", f"test -e {tmp_path}/done || sleep 600")
    kyu.wait_for("long", "Running")
    kyu.submit("owner", "main", "sleep 600", namespace="lender")
    kyu.wait_for("owner", "Running")
    kyu.wait_for("long", "Queued")
    # The reason of the eviction stays until the next cycle writes why the workload waits.
    expected = "preempted by lender/owner; insufficient unused quota for cpu"
    kyu.wait(expected, lambda: any(expected in line for line in job_lines(kyu, "long")))
    told = kyu.kyu("why", "long").stdout
    assert "  preempted by lender/owner " in told
    assert "ago: reclamation within the cohort\n" in told
    assert json.loads(kyu.kyu("why", "long", "-o", "json").stdout)["preemption"].startswith("preempted by lender/owner")
    (tmp_path / "done").touch()
    kyu.kyu("cancel", "-n", "lender", "owner")
    kyu.wait_for("long", "Succeeded")
    assert "; it has its quota again" in kyu.kyu("why", "long").stdout


def test_a_preemptor_that_cannot_be_seen_is_not_named() -> None:
    message = "Preempted to accommodate a workload (UID: u1, JobUID: u2) due to prioritization in the ClusterQueue; x"
    condition = {"type": "Preempted", "status": "True", "message": message}
    found = preemptions.find({"metadata": {}, "status": {"conditions": [condition]}})
    assert found is not None
    assert (found.cause, found.is_over) == ("prioritization in the ClusterQueue", False)
    assert preemptions.describe(found, {}) == "preempted by a job that you may not see"
