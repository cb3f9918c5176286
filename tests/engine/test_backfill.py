"""Backfill: the waits of an independent simulator, and the rules for cohorts, flavors, preemption and unknown times."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kyu.api.kueue import ClusterQueue, Workload
from kyu.api.meta import Key
from kyu.engine import explain
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from kyu.simulation.load import read_load
from kyu.simulation.virtual_time import Simulation
from tests.support import parallel_machine
from tests.support.builders import (
    START,
    Quotas,
    at,
    cluster_queue,
    flavor,
    holding,
    local_queue,
    state_of,
    workload,
)

ONE_FLAVOR = {"default": {"cpu": 10}}


def backfilled(queue: ClusterQueue, *, value: str = "Backfill") -> ClusterQueue:
    metadata = msgspec.structs.replace(queue.metadata, annotations={"kyu.dev/queueing-strategy": value})
    return msgspec.structs.replace(queue, metadata=metadata)


def queue(name: str = "main", quotas: Quotas = ONE_FLAVOR, **spec: Any) -> ClusterQueue:
    return backfilled(cluster_queue(name, quotas, **{"queueingStrategy": "StrictFIFO", **spec}))


def job(name: str, cpu: int, limit: int | None = None, **more: Any) -> Workload:
    found = workload(name, cpu=cpu, **more)
    return msgspec.structs.replace(
        found, spec=msgspec.structs.replace(found.spec, maximum_execution_time_seconds=limit)
    )


def running(name: str, cpu: int, limit: int | None, since: float = 0, **more: Any) -> Workload:
    cluster, flavor = more.pop("cluster_queue", "main"), more.pop("flavor", "default")
    return holding(job(name, cpu, limit, **more), cluster, {"cpu": flavor}, reserved=since)


def admitted(state: State, now: float = 100) -> list[str]:
    return [admit.key.name for admit in schedule(state, at(now)).admitted()]


def with_jobs(*jobs: Workload, cluster: ClusterQueue | None = None) -> State:
    return state_of(flavor("default"), cluster or queue(), local_queue("main"), *jobs)


@pytest.mark.parametrize("seed", range(4))
def test_waits_are_those_of_easy_backfilling(seed: int) -> None:
    jobs = parallel_machine.random_jobs(seed, 250, 16)
    state = with_jobs(cluster=queue(quotas={"default": {"cpu": 16}}))
    load = read_load(parallel_machine.as_swf(jobs), "swf", [Key("default", "main")])
    found = [run.wait for run in Simulation(state, load).run().runs]
    assert found == parallel_machine.waits(jobs, 16, backfill=True)
    assert found != parallel_machine.waits(jobs, 16, backfill=False)
    state.check()


def test_a_job_that_ends_before_the_reservation_passes_the_head() -> None:
    state = with_jobs(
        running("busy", 6, 1000), job("wide", 8, created=1), job("long", 4, 901, created=2),
        job("short", 4, 900, created=3),
    )  # fmt: skip
    assert admitted(state) == ["short"]
    found = explain.why(state, Key("default", "wide"), at(100))
    assert found is not None
    assert found.reservation == explain.Reservation(Key("default", "wide"), START.timestamp() + 1000)
    assert admitted(state) == []


def test_a_long_job_may_use_what_the_head_leaves() -> None:
    state = with_jobs(
        running("busy", 6, 1000), job("wide", 8, created=1), job("three", 3, created=2), job("two", 2, created=3),
        job("one", 1, created=4),
    )  # fmt: skip
    # Beside the head, 2 of 10 cpu are free at its start.
    assert admitted(state) == ["two"]


def test_without_the_annotation_the_head_blocks_the_queue() -> None:
    jobs = running("busy", 6, 1000), job("wide", 8, created=1), job("short", 4, 10, created=2)
    plain = cluster_queue("main", ONE_FLAVOR, queueingStrategy="StrictFIFO")
    assert admitted(with_jobs(*jobs, cluster=plain)) == []
    assert admitted(with_jobs(*jobs, cluster=backfilled(plain, value="backfill"))) == []


def test_the_annotation_can_be_added_and_removed_while_jobs_wait() -> None:
    plain = cluster_queue("main", ONE_FLAVOR, queueingStrategy="StrictFIFO")
    state = with_jobs(running("busy", 6, 1000), job("wide", 8, created=1), cluster=plain)
    for number, limit in enumerate((5000, 10, 20)):
        state.put(job(f"j{number}", 2, limit, created=2 + number))
    assert admitted(state) == []
    state.put(backfilled(plain))
    assert admitted(state) == ["j0", "j1"]
    state.put(plain)
    state.delete(Workload.KIND, Key("default", "j1"))
    assert (admitted(state), state.backfilling) == ([], 0)
    state.check()


def test_best_effort_queues_ignore_the_annotation() -> None:
    jobs = running("busy", 6, 1000), job("wide", 8, created=1), job("long", 4, created=2)
    assert admitted(with_jobs(*jobs, cluster=queue(queueingStrategy="BestEffortFIFO"))) == ["long"]


def test_without_known_ends_only_quota_that_the_head_does_not_need_is_given() -> None:
    quotas = {"default": {"cpu": 10, "memory": 100}}
    jobs = running("busy", 6, None), job("wide", 8, created=1), job("short", 4, 10, created=2)
    other = workload("memory-only", memory=50, created=3)
    assert admitted(with_jobs(*jobs, other, cluster=queue(quotas=quotas))) == ["memory-only"]


def test_an_overdue_job_counts_as_gone() -> None:
    state = with_jobs(running("busy", 6, 50), job("wide", 8, created=1), job("short", 4, 1, created=2))
    assert admitted(state, now=100) == []
    assert admitted(with_jobs(running("busy", 6, 50), job("wide", 8, created=1), job("two", 2, created=2))) == ["two"]


def test_a_head_that_can_never_start_holds_up_nothing() -> None:
    state = with_jobs(running("busy", 6, 1000), job("huge", 11, created=1), job("wide", 8, created=2), job("tail", 2))
    state.put(job("one", 4, created=3))
    assert admitted(state) == ["tail"]


def test_a_backfilled_job_never_preempts() -> None:
    preempting = queue(preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    state = with_jobs(
        running("old", 6, 1000, created=-10), running("low", 3, 1000, priority=-5, created=-5),
        job("wide", 8, created=1, priority=-7), job("short", 4, 10, created=2, priority=-7), cluster=preempting,
    )  # fmt: skip
    cycle = schedule(state, at(100))
    assert not list(cycle.preempted())
    assert not list(cycle.admitted())


def test_the_head_preempts_jobs_that_were_backfilled() -> None:
    preempting = queue(preemption={"withinClusterQueue": "LowerPriority"})
    state = with_jobs(
        running("busy", 6, 1000), job("wide", 8, created=1), job("short", 4, 900, created=2), cluster=preempting
    )
    assert admitted(state) == ["short"]
    state.put(job("urgent", 4, created=200, priority=5))
    cycle = schedule(state, at(200))
    assert [preempt.victim.name for preempt in cycle.preempted()] == ["short"]
    state.put(job("late", 1, 1, created=201))
    # While the victim stops, its quota belongs to the preemptor.
    assert admitted(state, 201) == []


def test_the_reservation_counts_quota_that_other_queues_give_back() -> None:
    cohort = {"cohort": "all"}
    state = state_of(
        flavor("default"), queue(**cohort), cluster_queue("other", ONE_FLAVOR, **cohort), local_queue("main"),
        local_queue("other"), running("theirs", 14, 500, cluster_queue="other", queue="other"),
        job("wide", 16, created=1), job("long", 4, 401, created=2), job("short", 4, 400, created=3),
    )  # fmt: skip
    # At 500 s all 20 cpu are free, so 4 of them are spare.
    assert admitted(state) == ["long"]


def test_a_head_takes_the_flavor_that_is_free_first() -> None:
    quotas = {"default": {"cpu": 10}, "spot": {"cpu": 10}}
    state = state_of(
        flavor("default"), flavor("spot"), queue(quotas=quotas), local_queue("main"),
        running("on-default", 8, 2000), running("on-spot", 8, 1000, flavor="spot"),
        job("wide", 9, created=1), job("until-then", 2, 900, created=2), job("beyond", 2, created=3),
    )  # fmt: skip
    # The head fits on spot after 1000 s, so a job that runs longer may only use the other flavor.
    found = {a.key.name: dict(a.pod_sets[0].flavors) for a in schedule(state, at(100)).admitted()}
    assert found == {"until-then": {"cpu": "default"}}


def test_a_workload_with_checks_has_no_known_end_until_it_is_admitted() -> None:
    found = running("busy", 6, 1000)
    conditions = tuple(c for c in found.status.conditions if c.type == "QuotaReserved")
    waiting = msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=conditions))
    state = with_jobs(waiting, job("wide", 8, created=1), job("short", 4, 10, created=2))
    assert admitted(state) == []
    state.put(found)
    state.put(job("next", 3, 10, created=3))
    assert admitted(state) == ["next"]
