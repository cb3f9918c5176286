"""The live state: putting twice changes nothing, what was assumed can be forgotten, counts are kept."""

from __future__ import annotations

import pytest

from kyu.api.core import Namespace
from kyu.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kyu.api.meta import Key
from kyu.engine import explain
from kyu.engine.decisions import Wait
from kyu.engine.local_queues import LocalQueueRecord
from kyu.engine.options import AdmissionFairSharing, Options
from kyu.engine.quota.amounts import FlavorResource
from kyu.engine.reasons import (
    BackingOff,
    NamespaceMismatch,
    NoFit,
    QueueMissing,
    Suspended,
    Untried,
    WaitsForPreempted,
    render,
)
from kyu.engine.schedule import schedule
from kyu.engine.state import State
from kyu.engine.stats import Usage
from tests.support.builders import (
    at,
    cluster_queue,
    cohort,
    condition,
    flavor,
    holding,
    local_queue,
    namespace,
    state_of,
    workload,
)

CPU = FlavorResource("default", "cpu")
MAIN = (flavor("default"), cluster_queue("main", {"default": {"cpu": 4}}), local_queue("main"))


def admitted(state: State, seconds: float = 0) -> list[str]:
    return [admit.key.name for admit in schedule(state, at(seconds)).admitted()]


def key(name: str) -> Key:
    return Key("default", name)


def test_putting_the_same_again_changes_nothing() -> None:
    running = holding(workload("a", cpu=2), "main", {"cpu": "default"})
    state = state_of(*MAIN, running, workload("b", cpu=1))
    for obj in (*MAIN, running, workload("b", cpu=1)):
        state.put(obj)
    state.check()
    assert state.stats("main").usage == {CPU: Usage(2000, 2000)}
    assert state.stats("main").pending == 1


def test_a_forgotten_admission_is_queued_again() -> None:
    state = state_of(*MAIN, workload("a", cpu=3))
    assert admitted(state) == ["a"]
    state.forget(key("a"))
    state.check()
    assert state.stats("main").usage[CPU].reserved == 0
    assert admitted(state, 1) == ["a"]


def test_after_a_forgotten_admission_all_flavors_are_looked_at() -> None:
    """It got the second flavor because another queue, whose workload is gone by now, came first in a cycle."""
    none, some = ({"one": {"cpu": amount}, "two": {"cpu": amount}} for amount in (0, 4))
    rules = {"cohort": "team", "preemption": {"reclaimWithinCohort": "Any"}}
    queues = [cluster_queue("lender", some, **rules)] + [cluster_queue(name, none, **rules) for name in ("a", "b")]
    asks = [workload(name, queue=name, cpu=3) for name in ("a", "b")]
    state = state_of(flavor("one"), flavor("two"), *queues, local_queue("a"), local_queue("b"), *asks)

    def flavors(seconds: float) -> list[str]:
        return [admit.pod_sets[0].flavors["cpu"] for admit in schedule(state, at(seconds)).admitted()]

    assert flavors(0) == ["one", "two"]
    state.delete(Workload.KIND, key("a"))
    state.forget(key("b"))
    assert flavors(1) == ["one"]


def test_an_object_from_before_the_admission_does_not_undo_it() -> None:
    state = state_of(*MAIN, workload("a", cpu=3))
    assert admitted(state) == ["a"]
    state.put(workload("a", cpu=3))
    assert state.stats("main").reserving == 1
    state.put(holding(workload("a", cpu=3), "main", {"cpu": "default"}))
    assert state.stats("main").admitted == 1
    state.check()


def test_a_forgotten_eviction_can_be_decided_again() -> None:
    queue = cluster_queue("main", {"default": {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"})
    low = holding(workload("low", cpu=4), "main", {"cpu": "default"})
    state = state_of(flavor("default"), queue, local_queue("main"), low, workload("high", cpu=4, priority=1))
    assert [p.victim.name for p in schedule(state, at(1)).preempted()] == ["low"]
    state.put(low)
    assert list(schedule(state, at(2)).preempted()) == []
    state.forget(key("low"))
    assert [p.victim.name for p in schedule(state, at(3)).preempted()] == ["low"]


def test_counts_by_queue_and_local_queue() -> None:
    state = state_of(*MAIN, holding(workload("a", cpu=2), "main", {"cpu": "default"}), workload("b", cpu=4))
    for stats in (state.stats("main"), state.local_queue_stats(key("main"))):
        assert (stats.pending, stats.reserving, stats.admitted) == (1, 1, 1)
        assert stats.usage[CPU].admitted == 2000
    state.delete(Workload.KIND, key("a"))
    assert state.stats("main").usage[CPU] == Usage(0, 0)
    state.check()


def test_finished_pods_return_their_part_of_the_quota() -> None:
    status = {"reclaimablePods": [{"name": "main", "count": 3}]}
    running = holding(workload("a", cpu=1, count=4), "main", {"cpu": "default"})
    body = {"conditions": [condition("QuotaReserved", 0)], **status}
    state = state_of(*MAIN, running, workload("b", cpu=3))
    assert admitted(state) == []
    import msgspec

    reclaimed = msgspec.structs.replace(
        running,
        status=msgspec.structs.replace(
            running.status, reclaimable_pods=workload("x", status=body).status.reclaimable_pods
        ),
    )
    state.put(reclaimed)
    assert admitted(state, 1) == ["b"]


def test_a_workload_waits_for_its_queue_to_exist() -> None:
    state = state_of(workload("a", cpu=1))
    assert explain.why_waiting(state, state.pending.workloads[key("a")]) == QueueMissing("LocalQueue", "main")
    for obj in MAIN:
        state.put(obj)
    assert admitted(state) == ["a"]


def test_a_queue_that_goes_and_comes_back_finds_its_workloads() -> None:
    running = holding(workload("a", cpu=3), "main", {"cpu": "default"})
    owner = cluster_queue("owner", {"default": {"cpu": 0}}, cohort="c")
    main = cluster_queue("main", {"default": {"cpu": 4}}, cohort="c")
    state = state_of(MAIN[0], main, owner, *map(local_queue, ("main", "owner")), running)
    state.put(workload("b", cpu=2))
    state.put(workload("borrower", queue="owner", cpu=1))
    state.delete(ClusterQueue.KIND, Key("", "main"))
    state.check()
    assert admitted(state) == []
    assert isinstance(explain.why_waiting(state, state.pending.workloads[key("b")]), QueueMissing)
    state.put(main)
    state.check()
    assert state.stats("main").usage[CPU].reserved == 3000
    assert admitted(state, 1) == ["borrower"]
    assert [ask.key.name for ask in state.pending_in("main")] == ["b"]


def test_a_cohort_that_its_last_queue_has_left_knows_of_nobodys_usage() -> None:
    quotas = {"default": {"cpu": 4}}
    running = holding(workload("a", cpu=2), "main", {"cpu": "default"})
    state = state_of(cohort("old", quotas), cluster_queue("main", quotas, cohort="old"), running)
    state.check()
    state.put(cluster_queue("main", quotas, cohort="new"))
    state.check()


def test_a_flavor_that_goes_stops_its_queues_until_it_is_back() -> None:
    state = state_of(*MAIN, workload("a", cpu=1))
    state.delete(ResourceFlavor.KIND, Key("", "default"))
    assert admitted(state) == []
    assert state.why_inactive("main") == "FlavorNotFound"
    state.put(MAIN[0])
    assert admitted(state, 1) == ["a"]


def test_a_stopped_local_queue_lets_nobody_through() -> None:
    state = state_of(*MAIN, workload("a", cpu=1))
    state.put(local_queue("main", stopPolicy="Hold"))
    assert admitted(state) == []
    state.put(local_queue("main"))
    assert admitted(state, 1) == ["a"]
    state.delete(LocalQueue.KIND, key("main"))
    state.check()


@pytest.mark.parametrize("missing", ["flavor", "stopped"])
def test_an_inactive_queue_admits_nothing(missing: str) -> None:
    spec = {"stopPolicy": "Hold"} if missing == "stopped" else {}
    objects = [cluster_queue("main", {"default": {"cpu": 4}}, **spec), local_queue("main"), workload("a", cpu=1)]
    state = state_of(*objects, *([flavor("default")] if missing == "stopped" else []))
    assert admitted(state) == []
    assert state.why_inactive("main") == ("Stopped" if missing == "stopped" else "FlavorNotFound")
    assert explain.why_waiting(state, state.pending.workloads[key("a")]) == Suspended("main")
    state.put(flavor("default"))
    state.put(MAIN[1])
    assert admitted(state, 1) == ["a"]


def test_backoff_ends_by_itself_but_requeued_false_does_not() -> None:
    later = {"requeueState": {"count": 1, "requeueAt": at(60).isoformat()}}
    blocked = {"conditions": [condition("Requeued", 0, "False")]}
    state = state_of(*MAIN, workload("later", cpu=1, status=later), workload("blocked", cpu=1, status=blocked))
    assert admitted(state) == []
    assert isinstance(explain.why_waiting(state, state.pending.workloads[key("later")]), BackingOff)
    assert admitted(state, 60) == ["later"]
    state.put(workload("blocked", cpu=1, status={"conditions": [condition("Requeued", 90)]}))
    assert admitted(state, 90) == ["blocked"]


def test_what_was_just_admitted_counts_as_used_until_the_next_sample() -> None:
    rules = AdmissionFairSharing(half_life_seconds=300, sampling_seconds=300)
    record = LocalQueueRecord(key("main"))
    record.add_penalty(key("a"), {"cpu": 4000}, rules)
    assert record.past_usage(rules) == 2
    record.fold_penalty(key("a"))
    assert record.past_usage(rules) == 2
    assert record.penalties == {}


def test_a_waiting_workload_that_asks_for_less_is_looked_at_again() -> None:
    state = state_of(*MAIN, workload("a", cpu=99))
    assert admitted(state) == []
    state.put(workload("a", cpu=1))
    assert admitted(state, 1) == ["a"]


def test_who_waited_for_what_is_free_now_waits_for_its_turn_only() -> None:
    state = state_of(cluster_queue("main", {"f": {"cpu": 2}}), local_queue("main"), flavor("f"))
    state.put(workload("runs", cpu=2))
    state.put(workload("waits", cpu=1, created=1))
    schedule(state, at(5))
    assert isinstance(explain.why_waiting(state, state.pending.workloads[key("waits")]), NoFit)
    state.delete(Workload.KIND, key("runs"))
    assert explain.why_waiting(state, state.pending.workloads[key("waits")]) == Untried()


def test_a_namespace_that_comes_to_match_wakes_its_workloads() -> None:
    queue = cluster_queue("main", {"default": {"cpu": 4}}, namespaceSelector={"matchLabels": {"team": "a"}})
    state = state_of(flavor("default"), queue, local_queue("main"), workload("a", cpu=1))
    waits = [d for d in schedule(state, at(0)).decisions if isinstance(d, Wait)]
    assert isinstance(waits[0].reason, NamespaceMismatch)
    state.put(namespace("default", team="a"))
    assert admitted(state, 1) == ["a"]


def test_a_namespace_that_comes_lets_a_strict_queue_go_on() -> None:
    queue = cluster_queue("main", {"default": {"cpu": 4}}, queueingStrategy="StrictFIFO")
    doors = [local_queue("main"), local_queue("main", namespace="late")]
    first = workload("first", namespace="late", cpu=1, priority=1)
    state = state_of(flavor("default"), queue, *doors, first, workload("second", cpu=1))
    assert admitted(state) == []
    state.put(namespace("late"))
    assert admitted(state, 1) == ["first", "second"]


def test_a_preemptor_whose_namespace_goes_makes_way() -> None:
    queue = cluster_queue("main", {"f": {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"})
    doors = [local_queue("main"), local_queue("main", namespace="going")]
    state = state_of(flavor("f"), queue, *doors, namespace("going"), workload("low", cpu=3, priority=-1))
    assert admitted(state) == ["low"]
    state.put(workload("first", namespace="going", cpu=2, priority=1, created=1))
    state.put(workload("second", cpu=1, created=2))
    assert admitted(state, 2) == []
    state.delete(Namespace.KIND, Key("", "going"))
    assert admitted(state, 3) == ["second"]


def test_who_is_parked_with_its_peers_is_told_of_its_own_namespace() -> None:
    queue = cluster_queue("main", {"f": {"cpu": 1}}, namespaceSelector={"matchLabels": {"team": "a"}})
    doors = [local_queue("main"), local_queue("main", namespace="other")]
    asks = [workload("a", cpu=1), workload("b", cpu=1, created=1), workload("c", cpu=1, namespace="other", created=2)]
    state = state_of(namespace(team="a"), namespace("other"), flavor("f"), queue, *doors, *asks)
    assert admitted(state, 2) == ["a"]
    told = explain.why_waiting(state, state.pending.workloads[Key("other", "c")])
    assert told == NamespaceMismatch()


def test_a_workload_that_goes_before_its_turn_wakes_its_tree_for_nothing() -> None:
    """Whoever waits gets another turn, and the same answer; an update is no departure."""
    running = holding(workload("a", cpu=4), "main", {"cpu": "default"})
    state = state_of(*MAIN, running, workload("b", cpu=3), workload("c", cpu=2))
    assert admitted(state) == []
    state.put(workload("c", cpu=2, status={"conditions": [condition("QuotaReserved", 0, "False")]}))
    assert not state.wakes.are_left
    state.delete(Workload.KIND, key("b"))
    assert state.wakes.are_left
    assert admitted(state, 1) == []
    state.delete(Workload.KIND, key("a"))
    assert admitted(state, 2) == ["c"]


def test_explanation_names_what_each_flavor_lacks() -> None:
    state = state_of(*MAIN, holding(workload("a", cpu=3), "main", {"cpu": "default"}), workload("b", cpu=2))
    found = explain.why(state, key("b"), at(0))
    assert found is not None
    assert found.position == 0
    assert isinstance(found.reason, NoFit)
    assert render(found.reason)[0] == "WaitingForQuota"
    state.check()
    assert explain.why(state, key("a"), at(0)) is None
    fits = explain.why(state_of(*MAIN, workload("c", cpu=1)), key("c"), at(0))
    assert fits is not None
    assert isinstance(fits.reason, Untried)


def test_past_usage_comes_before_priority_and_fades() -> None:
    rules = AdmissionFairSharing(half_life_seconds=60, sampling_seconds=10)
    queue = cluster_queue(
        "main",
        {"default": {"cpu": 2}},
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
    )
    state = state_of(
        flavor("default"),
        queue,
        local_queue("busy", "main"),
        local_queue("idle", "main"),
        options=Options(admission_fair_sharing=rules),
    )
    state.put(workload("b-1", queue="busy", cpu=2))
    assert admitted(state) == ["b-1"]
    state.put(holding(workload("b-1", queue="busy", cpu=2), "main", {"cpu": "default"}))
    state.put(workload("b-2", queue="busy", cpu=2, priority=9))
    state.put(workload("i-1", queue="idle", cpu=2))
    assert admitted(state, 30) == []
    state.delete(Workload.KIND, key("b-1"))
    assert admitted(state, 40) == ["i-1"]
    record = state.pending.local_queues[key("busy")]
    used = record.past_usage(rules)
    record.sample(at(100).timestamp(), rules)
    assert 0 < record.past_usage(rules) < used


def test_all_admission_is_blocked_until_pods_are_ready() -> None:
    state = state_of(
        *MAIN, workload("a", cpu=1), workload("b", cpu=1, created=1), options=Options(block_admission=True)
    )
    assert admitted(state) == ["a"]
    ready = holding(workload("a", cpu=1), "main", {"cpu": "default"})
    state.put(ready)
    assert admitted(state, 1) == []
    import msgspec

    conditions = (
        *ready.status.conditions,
        *workload("x", status={"conditions": [condition("PodsReady", 1)]}).status.conditions,
    )
    state.put(msgspec.structs.replace(ready, status=msgspec.structs.replace(ready.status, conditions=conditions)))
    state.put(workload("c", cpu=1, created=2))
    assert admitted(state, 2) == ["b"]


def test_explanation_measures_what_is_lacking_and_names_the_holders() -> None:
    state = state_of(
        flavor("default"),
        cluster_queue("main", {"default": {"cpu": 4}}, cohortName="all"),
        cluster_queue("other", {"default": {"cpu": 2}}, cohortName="all"),
        local_queue("main"),
        local_queue("other"),
        holding(workload("small", cpu=1), "main", {"cpu": "default"}),
        holding(workload("big", cpu=4, queue="other"), "other", {"cpu": "default"}),
        workload("first", cpu=5, priority=1),
        workload("never", cpu=7),
    )
    found = explain.why(state, key("first"), at(0))
    assert found is not None
    assert (found.path, found.position, found.length, found.ahead) == (("main", "all"), 0, 2, ())
    (shortage,) = found.shortages
    assert (shortage.requested, shortage.free, shortage.own, shortage.used, shortage.most) == (
        5000,
        1000,
        4000,
        1000,
        6000,
    )
    assert [(h.key.name, h.cluster_queue, h.amount, h.enough) for h in shortage.holders] == [
        ("big", "other", 4000, True),
        ("small", "main", 1000, False),
    ]
    assert not shortage.is_final
    never = explain.why(state, key("never"), at(0))
    assert never is not None
    assert never.shortages[0].is_final
    assert (never.position, never.ahead) == (1, (key("first"),))
    state.check()


def test_a_preemptor_makes_way_when_its_victim_turns_out_to_be_older() -> None:
    policy = {"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}}
    state = state_of(cluster_queue("main", {"f": {"cpu": 6}}, **policy), local_queue("main"), flavor("f"))
    victim = workload("victim", cpu=3)
    state.put(holding(victim, "main", {"cpu": "f"}, reserved=23, evicted="PodsReadyTimeout"))
    state.put(workload("waits", cpu=4, created=1))
    schedule(state, at(30))
    assert isinstance(explain.why_waiting(state, state.pending.workloads[key("waits")]), WaitsForPreempted)
    # The eviction for its pods counted as its time in the queue; another does not.
    state.put(holding(victim, "main", {"cpu": "f"}, reserved=23, evicted="Preempted"))
    schedule(state, at(31))
    assert isinstance(explain.why_waiting(state, state.pending.workloads[key("waits")]), NoFit)


def test_trees_have_their_cycles_at_the_same_time() -> None:
    def cycles(*names: str) -> int:
        state = state_of(flavor("f"))
        for name in names:
            state.put(cluster_queue(name, {"f": {"cpu": 2}}))
            state.put(local_queue(name))
            state.put(workload(f"{name}-1", queue=name, cpu=1))
            state.put(workload(f"{name}-2", queue=name, cpu=1))
        assert len(admitted(state)) == 2 * len(names)
        return state.cycles

    assert cycles("a", "b", "c") == cycles("a")
