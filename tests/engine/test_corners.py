"""Corners of the rules that were found by comparing single cycles with Kueue's on random clusters."""

from __future__ import annotations

from kyu.api.kueue import Workload
from kyu.api.meta import Key
from kyu.engine.decisions import Cycle
from kyu.engine.options import Options
from kyu.engine.reasons import Skipped
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from tests.support.builders import at, cluster_queue, cohort, flavor, holding, local_queue, state_of, workload

NEVER = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "Never"}}


def one_cycle(state: State) -> Cycle:
    decided = schedule(state, at(1000), cycles=1)
    state.check()
    return decided


def reasons(decided: Cycle) -> dict[str, object]:
    return {wait.key.name: wait.reason for wait in decided.waiting()}


def test_what_a_queue_far_over_its_limit_holds_back_is_negative_and_stays_with_it() -> None:
    """The debtor holds 9 − 22 for its head. Its victims then free less for others than they use."""
    reclaim = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}}
    state = state_of(
        flavor("f"),
        cluster_queue("debtor", {"f": {"cpu": (8, 1, None)}}, cohort="c", preemption=NEVER),
        cluster_queue("owner", {"f": {"cpu": 5}}, cohort="c", preemption=reclaim),
        local_queue("debtor"),
        local_queue("owner"),
        holding(workload("large", queue="debtor", priority=1, cpu=18), "debtor", {"cpu": "f"}),
        holding(workload("small", queue="debtor", cpu=4), "debtor", {"cpu": "f"}),
        workload("first", queue="debtor", priority=2, created=1, cpu="500m"),
        workload("second", queue="owner", priority=2, created=2, cpu=12),
    )
    decided = one_cycle(state)
    assert not list(decided.preempted())
    assert reasons(decided)["second"] == Skipped("taken")


def test_preemption_over_borrowing_takes_a_flavor_that_borrows_one_resource_as_fitting() -> None:
    """Of two resources the one that borrows is the worse; it fits, so the workload counts as fitting, and does not."""
    state = state_of(
        flavor("f"),
        cohort("c", {"f": {"gpu": 4}}),
        cluster_queue(
            "main",
            {"f": {"cpu": 5, "gpu": 5}},
            cohort="c",
            preemption={**NEVER, "withinClusterQueue": "LowerPriority"},
            flavorFungibility={"preference": "PreemptionOverBorrowing"},
        ),
        local_queue("main"),
        holding(workload("running", cpu=5, gpu=5), "main", {"cpu": "f", "gpu": "f"}),
        workload("important", priority=1, created=1, cpu=1, gpu=2),
    )
    decided = one_cycle(state)
    assert not list(decided.preempted())
    assert reasons(decided) == {"important": Skipped("taken")}


def test_without_fungibility_who_needs_preemption_keeps_its_turn() -> None:
    objects = (
        flavor("f"),
        cluster_queue("main", {"f": {"cpu": 4}}),
        local_queue("main"),
        holding(workload("running", cpu=4), "main", {"cpu": "f"}),
        workload("waiting", created=1, cpu=1),
    )
    for fungible, parked in ((True, ["waiting"]), (False, [])):
        state = state_of(*objects, options=Options(flavor_fungibility=fungible))
        one_cycle(state)
        assert [ask.key.name for ask in state.queues["main"].pending.inadmissible()] == parked


def test_queues_whose_cohorts_form_a_cycle_admit_nothing_until_it_is_broken() -> None:
    state = state_of(
        flavor("f"),
        cohort("a", parent="b"),
        cohort("b", parent="a"),
        cluster_queue("main", {"f": {"cpu": 4}}, cohort="a"),
        local_queue("main"),
        workload("w", cpu=1),
    )
    assert not schedule(state, at(1)).decisions
    assert state.why_inactive("main") == "CohortCycle"
    state.put(cohort("b"))
    assert [admit.key.name for admit in schedule(state, at(2)).admitted()] == ["w"]


def test_a_workload_may_leave_and_come_back_among_its_peers() -> None:
    """With the same time and UID, as when it is read again from its stored form."""
    state = state_of(flavor("f"), cluster_queue("main", {"f": {"cpu": 0}}), local_queue("main"))
    peers = [workload(name, created=created, cpu=1) for created, name in enumerate("abcd")]
    for peer in peers:
        state.put(peer)
    for peer in peers[1:]:
        state.delete(Workload.KIND, Key("default", peer.metadata.name))
        state.put(peer)
    state.check()
    assert [ask.key.name for ask in state.pending_in("main")] == list("abcd")
