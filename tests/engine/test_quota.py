"""The quota tree: what is available can be used and no more; charges and what-ifs are undone exactly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kyu.api.kueue import ClusterQueue, Cohort
from kyu.api.quantity import UNLIMITED
from kyu.engine.quota import obtainable
from kyu.engine.quota.amounts import BOUNDLESS, FlavorResource, QuotaNode, charged, without
from kyu.engine.tree import CohortNode, Hierarchy, Queue
from tests.support.builders import cluster_queue, cohort

CPU = FlavorResource("default", "cpu")
limit = st.none() | st.integers(0, 6)
amounts = st.tuples(st.integers(0, 8), limit, limit)


def tree(*objects: object) -> Hierarchy:
    hierarchy = Hierarchy()
    for obj in objects:
        if isinstance(obj, ClusterQueue):
            hierarchy.put_queue(obj)
        else:
            assert isinstance(obj, Cohort)
            hierarchy.put_cohort(obj)
    hierarchy.refresh()
    return hierarchy


def cell(hierarchy: Hierarchy, name: str) -> QuotaNode:
    node: Queue | CohortNode = hierarchy.queues.get(name) or hierarchy.cohorts[name]
    return node.quotas[CPU]


def quotas(nominal: int, borrowing: int | None = None, lending: int | None = None) -> dict[str, dict[str, object]]:
    return {"default": {"cpu": (nominal, borrowing, lending)}}


@st.composite
def hierarchies(draw: st.DrawFn) -> Hierarchy:
    cohorts = [cohort("root", quotas(draw(st.integers(0, 8))))]
    cohorts += [cohort(name, quotas(*draw(amounts)), parent="root") for name in ("left", "right")]
    queues = [
        cluster_queue(f"q{i}", quotas(*draw(amounts)), cohort=draw(st.sampled_from(["root", "left", "right"])))
        for i in range(draw(st.integers(1, 4)))
    ]
    return tree(*cohorts, *queues)


charges = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12000)), max_size=6)


def usages(hierarchy: Hierarchy) -> list[int]:
    nodes = [*hierarchy.queues.values(), *hierarchy.cohorts.values()]
    return [c.usage for node in nodes for c in node.quotas.values()]


@settings(max_examples=150, deadline=None)
@given(hierarchies(), charges)
def test_what_is_available_can_be_used_and_no_more(hierarchy: Hierarchy, used: list[tuple[int, int]]) -> None:
    cells = [queue.quotas[CPU] for queue in hierarchy.queues.values()]
    for index, amount in used:
        cells[index % len(cells)].charge(amount)
    for c in cells:
        free = c.available()
        with charged([(c, max(0, free))]):
            assert c.available() <= 0
            if free >= 0:
                assert c.available() == 0
                assert c.usage <= c.potential or used


@settings(max_examples=150, deadline=None)
@given(hierarchies(), charges)
def test_undo_restores_every_usage(hierarchy: Hierarchy, used: list[tuple[int, int]]) -> None:
    cells = [queue.quotas[CPU] for queue in hierarchy.queues.values()]
    for index, amount in used:
        cells[index % len(cells)].charge(amount)
    before = usages(hierarchy)
    taken = [(cells[index % len(cells)], amount) for index, amount in used]
    with without(taken):
        assert all(c.usage == 0 for c in cells)
        assert all(c.usage == 0 for node in hierarchy.cohorts.values() for c in node.quotas.values())
    assert usages(hierarchy) == before


@settings(max_examples=100, deadline=None)
@given(hierarchies())
def test_nobody_can_use_more_than_their_potential(hierarchy: Hierarchy) -> None:
    for queue in hierarchy.queues.values():
        c = queue.quotas[CPU]
        assert c.available() <= c.potential


def test_usage_reaches_the_parent_only_past_the_private_part() -> None:
    hierarchy = tree(
        cluster_queue("a", quotas(10, None, 4), cohort="team"), cluster_queue("b", quotas(5), cohort="team")
    )
    a, team = cell(hierarchy, "a"), cell(hierarchy, "team")
    a.charge(6000)
    assert team.usage == 0
    a.charge(3000)
    assert team.usage == 3000
    a.charge(-9000)
    assert team.usage == 0


def test_debt_of_the_cohort_eats_private_quota() -> None:
    hierarchy = tree(cluster_queue("a", quotas(4, 0, 0), cohort="team"), cluster_queue("b", quotas(4), cohort="team"))
    cell(hierarchy, "b").charge(10000)
    assert cell(hierarchy, "a").available() == -2000


def test_the_level_is_the_height_of_the_cohort_that_covers_the_amount() -> None:
    hierarchy = tree(
        cohort("inner", parent="outer"),
        cluster_queue("a", quotas(2), cohort="inner"),
        cluster_queue("b", quotas(2), cohort="inner"),
        cluster_queue("c", quotas(9), cohort="outer"),
    )
    a = cell(hierarchy, "a")
    assert a.borrowing_level(2000) == (0, True)
    assert a.borrowing_level(4000) == (1, True)
    assert a.borrowing_level(5000) == (2, False)
    assert a.borrowing_level(50000) == (2, False)


def test_going_up_the_level_takes_off_what_each_cohort_keeps_private() -> None:
    hierarchy = tree(
        cohort("inner", quotas(4, None, 0), parent="outer"),
        cluster_queue("a", quotas(0), cohort="inner"),
        cluster_queue("c", quotas(3), cohort="outer"),
    )
    assert cell(hierarchy, "a").borrowing_level(7000) == (2, False)
    assert cell(hierarchy, "a").available() == 7000


def test_a_queue_without_a_cohort_never_borrows() -> None:
    hierarchy = tree(cluster_queue("alone", {"default": {"cpu": 2}}))
    assert cell(hierarchy, "alone").borrowing_level(99000) == (0, False)


def test_unlimited_quota_stays_unlimited() -> None:
    hierarchy = tree(
        cluster_queue("a", quotas("99999999999999999999"), cohort="team"), cluster_queue("b", quotas(1), cohort="team")
    )
    b = cell(hierarchy, "b")
    cell(hierarchy, "a").charge(UNLIMITED)
    assert b.potential == BOUNDLESS
    assert b.fits(UNLIMITED)


def test_a_cycle_of_cohorts_is_told_and_heals() -> None:
    hierarchy = tree(
        cohort("a", parent="b"), cohort("b", parent="a"), cluster_queue("q", {"default": {"cpu": 1}}, cohort="a")
    )
    assert hierarchy.cohorts["a"].cyclic
    hierarchy.put_cohort(cohort("b"))
    hierarchy.refresh()
    assert not hierarchy.cohorts["a"].cyclic
    assert cell(hierarchy, "q").potential == 1000


@pytest.mark.parametrize(("weight", "share"), [("2", 250), ("0.5", 1000), ("0", 2**63 - 1)])
def test_published_share_divides_by_the_weight(weight: str, share: int) -> None:
    from kyu.engine import shares

    hierarchy = tree(
        cluster_queue("a", quotas(1), cohort="team", fairSharing={"weight": weight}),
        cluster_queue("b", quotas(3), cohort="team"),
    )
    cell(hierarchy, "a").charge(3000)
    assert shares.published(hierarchy.queues["a"]) == share
    assert shares.published(hierarchy.queues["b"]) == 0


def test_zero_weight_with_nothing_borrowed_has_no_share() -> None:
    from kyu.engine import shares

    hierarchy = tree(cluster_queue("a", quotas(1), cohort="team", fairSharing={"weight": 0}))
    assert shares.share(hierarchy.queues["a"]) == shares.ZERO


happenings = st.tuples(
    st.sampled_from(["quota", "use", "try"]), st.sampled_from("abc"), st.integers(0, 9), st.integers(1, 3)
)


@given(st.lists(happenings, max_size=30))
def test_what_is_within_reach_is_as_when_it_is_asked_for_the_first_time(
    story: list[tuple[str, str, int, int]],
) -> None:
    policies = {"preemption": {"reclaimWithinCohort": "LowerPriority", "withinClusterQueue": "LowerPriority"}}
    hierarchy = tree(*[cluster_queue(name, quotas(5), cohort="all", **policies) for name in "abc"])
    kept = obtainable.obtainable_quota(hierarchy.queues["a"].policies, in_cohort=True, fair_sharing=False)
    for what, name, amount, priority in story:
        own = cell(hierarchy, name)
        if what == "quota" and name != "a":
            hierarchy.put_queue(cluster_queue(name, quotas(amount), cohort="all", **policies))
            hierarchy.refresh()
        elif what == "use":
            own.charge(amount)
            own.count_priority(priority, amount)
        with charged([(own, amount)] if what == "try" else []):
            asked = cell(hierarchy, "a")
            anew = obtainable.obtainable_quota(hierarchy.queues["a"].policies, in_cohort=True, fair_sharing=False)
            assert [kept(asked, each) for each in (1, 2, 3, 4)] == [anew(asked, each) for each in (1, 2, 3, 4)]
