"""The benchmarks run, on a scale that says nothing about speed, and measure what they claim to measure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kyu import app
from kyu.api.kueue import ClusterQueue, Workload
from kyu.bench import cluster, embedded, pretended, processes, server, soak
from kyu.bench.loads import Load, WorkloadSet
from kyu.cli import main
from tests.support.local_kyu import local_kyu

TINY = server.ServerLoad(workloads=70, pairs=1, watch_seconds=0.05, objects=600, idle_seconds=0.01)


def test_all_writes_arrive_and_all_watchers_hear_of_them(tmp_path: Path) -> None:
    rows = asyncio.run(server.measure_writes(tmp_path, TINY, rival=None))
    by_name = {row.name: row for row in rows}
    assert by_name["watchers that receive all events"].ratio == 1.0
    assert by_name["create + status apply, writes/s"].value.endswith(")")


def test_a_filled_database_is_listed_to_the_last_object(tmp_path: Path) -> None:
    # More objects than a page has; the number listed is asserted inside.
    rows = asyncio.run(server.measure_many(tmp_path, TINY))
    assert [row.name for row in rows][:1] == ["start with 600 Workloads, s"]
    assert all(row.ratio is not None and row.ratio > 0 for row in rows)


def test_a_burst_admits_and_finishes_every_workload() -> None:
    load = Load("tiny", 1, 2, (WorkloadSet("small", 5, 10, 10, 50, 1),), 20, 100)
    result = asyncio.run(embedded.play(load, at_once=True))
    assert result.admissions == load.total == 10


def test_each_finish_of_a_probe_is_measured_to_the_admission_that_it_allows() -> None:
    # Two turns of each probe fit in a second; the load lasts until both are over, on a slow machine too.
    load = Load("tiny", 1, 1, (WorkloadSet("long", 1, 10, 8000, 50, 1),), 20, 100)
    result = asyncio.run(embedded.play(load, at_once=False, probe_seconds=1.0))
    assert result.admissions == 1
    assert len(result.latencies) == pretended.PROBES


async def test_a_round_of_the_soak_leaves_nothing(tmp_path: Path) -> None:
    async with app.embedded(app.Settings(tmp_path, bare=True)) as running:
        client = running.client()
        await pretended.make_queues(client, soak.ROUND)
        await soak.play_round(client, 1)
        assert (await client.list(Workload.KIND))[0] == []


def test_processes_are_counted_when_all_have_ended() -> None:
    row = asyncio.run(processes.measure(3))
    assert row.value.startswith("3 in ")


def test_only_the_whole_stack_soaks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bench", "server", "--soak", "1"]) != 0
    assert "kyu bench embedded" in capsys.readouterr().err


def test_only_the_server_has_a_rival(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bench", "engine", "--rival-kubeconfig", "none"]) != 0
    assert "kyu bench server" in capsys.readouterr().err


def test_a_scheduler_on_a_cluster_is_measured_by_what_it_admits(tmp_path: Path) -> None:
    load = Load("tiny", 1, 2, (WorkloadSet("small", 3, 10, 10, 50, 1),), 20, 100)
    with local_kyu(tmp_path / "data", "--server-only") as running:
        file = running.data / "kubeconfig"
        found = asyncio.run(cluster.measure(file, cluster.own_command(file), load, "run-"))
        assert (found.admissions, found.evictions, set(found.waits)) == (6, 0, {"small"})
        assert found.cpu_seconds > 0
        assert found.memory_bytes > 2**20
        left = [one["metadata"]["name"] for one in running.client.list(ClusterQueue.KIND)]
        assert not [name for name in left if name.startswith("run-")]


def test_writes_are_counted_by_what_the_api_server_tells() -> None:
    text = """\
# HELP apiserver_request_total Counter.
apiserver_request_total{code="200",resource="workloads",subresource="status",verb="APPLY"} 3
apiserver_request_total{code="409",resource="workloads",subresource="status",verb="PATCH"} 1
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 9
apiserver_request_total{code="200",resource="workloads",subresource="",verb="LIST"} 9
process_cpu_seconds_total 1.5
"""
    samples = cluster.parse_samples(text)
    assert cluster.value(samples, "process_cpu_seconds_total") == 1.5
    assert cluster.writes_between({}, samples) == {"PATCH workloads/status": 4}
    assert not cluster.writes_between(samples, samples)
