"""One cycle exactly as Kueue's: who holds back what, who is retried at once, who goes on with the next flavor."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.engine.decisions import Cycle, Wait
from kyu.engine.options import Options
from kyu.engine.reasons import NamespaceMismatch, Skipped
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from tests.support.builders import (
    at,
    cluster_queue,
    cohort,
    flavor,
    holding,
    local_queue,
    namespace,
    state_of,
    workload,
)


def quotas(nominal: int, borrowing: int | None = None, lending: int | None = None) -> dict[str, Any]:
    return {"default": {"cpu": (nominal, borrowing, lending)}}


def one_cycle(state: State, seconds: float = 0) -> Cycle:
    found = schedule(state, at(seconds), cycles=1)
    state.check()
    return found


def admitted(found: Cycle) -> dict[str, list[str]]:
    return {a.key.name: sorted(set(a.pod_sets[0].flavors.values())) for a in found.admitted()}


def waiting(found: Cycle) -> dict[str, Wait]:
    return {d.key.name: d for d in found.decisions if isinstance(d, Wait)}


@pytest.mark.parametrize(("reclaim", "expected"), [("Any", {"t-1"}), ("LowerPriority", set()), ("Never", set())])
def test_quota_up_to_nominal_is_held_for_who_cannot_reclaim_it(reclaim: str, expected: set[str]) -> None:
    keeper = cluster_queue("keeper", quotas(6), cohort="team", preemption={"reclaimWithinCohort": reclaim})
    state = state_of(
        flavor("default"),
        keeper,
        cluster_queue("taker", quotas(0), cohort="team"),
        local_queue("keeper"),
        local_queue("taker"),
        holding(workload("k-0", queue="keeper", cpu=3), "keeper", {"cpu": "default"}),
        workload("k-1", queue="keeper", cpu=4, priority=1),
        workload("t-1", queue="taker", cpu=3, created=1),
    )
    # The keeper's workload is the more important, so it comes first, and holds 6 - 3 = 3.
    assert set(admitted(one_cycle(state))) == expected


def test_a_borrower_holds_up_to_its_borrowing_limit() -> None:
    policies = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}}
    state = state_of(
        flavor("default"),
        cluster_queue("a", quotas(2, 2), cohort="team", preemption=policies),
        cluster_queue("b", quotas(0), cohort="team"),
        cluster_queue("lender", quotas(4), cohort="team"),
        *(local_queue(name) for name in ("a", "b", "lender")),
        holding(workload("l-0", queue="lender", cpu=3), "lender", {"cpu": "default"}),
        workload("a-1", queue="a", cpu=4, priority=1),
        workload("b-1", queue="b", cpu=3),
    )
    found = one_cycle(state)
    assert waiting(found)["a-1"].inadmissible
    assert waiting(found)["b-1"].reason == Skipped("taken")
    assert set(admitted(one_cycle(state))) == {"b-1"}


def test_the_loser_of_a_race_goes_on_with_the_next_flavor() -> None:
    both = {"one": {"cpu": 0}, "two": {"cpu": 0}}
    state = state_of(
        flavor("one"),
        flavor("two"),
        cluster_queue("a", both, cohort="team"),
        cluster_queue("b", both, cohort="team"),
        cluster_queue("lender", {"one": {"cpu": 4}, "two": {"cpu": 4}}, cohort="team"),
        local_queue("a"),
        local_queue("b"),
        workload("a-1", queue="a", cpu=3),
        workload("b-1", queue="b", cpu=3, created=1),
    )
    first = one_cycle(state)
    assert admitted(first) == {"a-1": ["one"]}
    assert waiting(first)["b-1"].reason == Skipped("taken")
    assert admitted(one_cycle(state)) == {"b-1": ["two"]}


def test_without_the_gate_the_loser_starts_over() -> None:
    both = {"one": {"cpu": 0}, "two": {"cpu": 0}}
    state = state_of(
        flavor("one"),
        flavor("two"),
        *(cluster_queue(name, both, cohort="team") for name in ("a", "b")),
        cluster_queue("lender", {"one": {"cpu": 5}, "two": {"cpu": 4}}, cohort="team"),
        local_queue("a"),
        local_queue("b"),
        workload("a-1", queue="a", cpu=3),
        workload("b-1", queue="b", cpu=3, created=1),
        options=Options(flavor_fungibility_preserve_scan_progress=False),
    )
    one_cycle(state)
    assert next(iter(state.queues["b"].pending.left())).memory is None


def test_two_heads_may_borrow_in_one_cycle_as_long_as_both_fit() -> None:
    state = state_of(
        flavor("default"),
        *(cluster_queue(name, quotas(0), cohort="team") for name in ("a", "b")),
        cluster_queue("lender", quotas(4), cohort="team"),
        local_queue("a"),
        local_queue("b"),
        workload("a-1", queue="a", cpu=2),
        workload("b-1", queue="b", cpu=2),
    )
    assert set(admitted(one_cycle(state))) == {"a-1", "b-1"}


def test_borrowing_less_far_beats_priority() -> None:
    state = state_of(
        flavor("default"),
        cohort("inner", parent="outer"),
        cluster_queue("near", quotas(0), cohort="inner"),
        cluster_queue("sibling", quotas(2), cohort="inner"),
        cluster_queue("far", quotas(0), cohort="outer"),
        local_queue("near"),
        local_queue("far"),
        workload("n-1", queue="near", cpu=2),
        workload("f-1", queue="far", cpu=2, priority=9),
    )
    found = one_cycle(state)
    assert set(admitted(found)) == {"n-1"}
    assert waiting(found)["f-1"].reason == Skipped("taken")


def test_a_namespace_mismatch_does_not_block_even_a_strict_queue() -> None:
    queue = cluster_queue(
        "main",
        {"default": {"cpu": 4}},
        queueingStrategy="StrictFIFO",
        namespaceSelector={"matchLabels": {"team": "a"}},
    )
    state = state_of(
        flavor("default"),
        namespace("other", team="a"),
        queue,
        local_queue("main"),
        local_queue("main", namespace="other"),
        workload("wrong", cpu=1, priority=9),
        workload("right", cpu=1, namespace="other"),
    )
    first = one_cycle(state)
    assert isinstance(waiting(first)["wrong"].reason, NamespaceMismatch)
    assert waiting(first)["wrong"].inadmissible
    assert set(admitted(one_cycle(state))) == {"right"}


def test_targets_of_an_earlier_preemptor_make_a_later_one_wait_for_them() -> None:
    policies = {"reclaimWithinCohort": "Any"}
    state = state_of(
        flavor("default"),
        cluster_queue("a", quotas(2), cohort="team", preemption=policies),
        cluster_queue("b", quotas(2), cohort="team", preemption=policies),
        cluster_queue("borrower", quotas(0), cohort="team"),
        *(local_queue(name) for name in ("a", "b", "borrower")),
        holding(workload("x", queue="borrower", cpu=4), "borrower", {"cpu": "default"}),
        workload("a-1", queue="a", cpu=2),
        workload("b-1", queue="b", cpu=2, created=1),
        options=Options(recompute_assignment_upon_preemption_targets_overlap=True),
    )
    found = one_cycle(state)
    assert [p.victim.name for p in found.preempted()] == ["x"]
    assert {name: type(d.reason).__name__ for name, d in waiting(found).items()} == {
        "a-1": "WaitsForPreempted",
        "b-1": "Deferred",
    }
    state.release(next(iter(found.preempted())).victim)
    assert set(admitted(one_cycle(state, 1))) == {"a-1", "b-1"}
