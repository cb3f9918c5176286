"""Which pod goes where: by rank where ranks can be trusted, else in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kyu.api.placement import Domain
from kyu.engine.topology.types import HOSTNAME, Placement
from kyu.engine.topology.ungate import PlacedPod, Ranks, plan_ungating
from tests.support.topology_trees import examples, placement

INDEX, GROUP = "index", "group"


def pod(text: str) -> PlacedPod:
    """``name``, then ``3`` or ``3/1`` for the index (and sub group), then ``@x1`` if it runs there."""
    name, *parts = text.split()
    labels: dict[str, str] = {}
    host = ""
    for part in parts:
        if part.startswith("@"):
            host = part[1:]
        else:
            labels.update(zip((INDEX, GROUP), part.split("/"), strict=False))
    return PlacedPod(name, labels, gated=not host, node_selector={HOSTNAME: host} if host else {})


def plan(places: str, pods: list[str], ranks: Ranks | None, unhealthy: tuple[str, ...] = ()) -> str:
    ungated = plan_ungating(placement(places), [pod(text) for text in pods], ranks, unhealthy)
    return " ".join(f"{step.pod}>{step.node_selector[HOSTNAME]}" for step in ungated)


BY_INDEX = Ranks(INDEX)


@pytest.mark.parametrize(
    ("title", "wanted", "pods", "ranks"),
    [
        ("by rank, not by name", "a>x2 b>x1 c>x1", ["a 2", "b 1", "c 0"], BY_INDEX),
        ("a running pod in its place", "b>x1", ["a 2 @x2", "b 1"], BY_INDEX),
        ("a running pod in another place: in order", "b>x1", ["a 0 @x2", "b 2"], BY_INDEX),
        ("a rank is missing: in order", "a>x1 b>x1", ["a 2", "b"], BY_INDEX),
        ("a rank is no number: in order", "a>x1 b>x1", ["a 2", "b -1"], BY_INDEX),
        ("a rank is out of range: in order", "a>x1 b>x1", ["a 2", "b 3"], BY_INDEX),
        ("two pods of one rank: in order", "a>x1 b>x1 c>x2", ["a 2", "b 2", "c 0"], BY_INDEX),
        ("without ranks in order", "b>x1 c>x2", ["c 0", "b 1", "a @x1"], None),
        ("more pods than slots: the last ones wait", "a>x1 b>x1 c>x2", ["d", "c", "b", "a"], None),
        ("workers go on after their leader", "a>x1 b>x2", ["a 1", "b 3"], Ranks(INDEX, offset=1)),
        ("the leader's own number is no worker's", "a>x1 b>x1", ["a 0", "b 3"], Ranks(INDEX, offset=1)),
    ],
)
def test_pods_are_ungated_to_the_domains_of_their_placement(
    title: str, wanted: str, pods: list[str], ranks: Ranks | None
) -> None:
    assert plan("x1:2 x2:1", pods, ranks) == wanted, title


def test_sub_groups_follow_each_other() -> None:
    ranks = Ranks(INDEX, sub_group_index_label=GROUP, sub_group_count=2)
    assert plan("x1:3 x2:1", ["a 1/1", "b 0/1", "c 1/0", "d 0/0"], ranks) == "a>x2 b>x1 c>x1 d>x1"
    assert plan("x1:3 x2:1", ["a 1/2", "b 0/1"], ranks) == "a>x1 b>x1", "there is no third group"
    assert plan("x1:3 x2:1", ["a 2/0", "b 0/1"], ranks) == "a>x1 b>x1", "a group has two pods"


def test_pods_for_an_unhealthy_node_wait() -> None:
    assert plan("x1:1 x2:1", ["a 0", "b 1"], BY_INDEX, unhealthy=("x1",)) == "b>x2"
    assert plan("x1:1 x2:1", ["a", "b"], None, unhealthy=("x1",)) == "b>x2"


def test_all_levels_are_named_where_hosts_are_not_a_level() -> None:
    placed = Placement(("block", "rack"), (Domain(("b1", "r1"), 1),))
    [step] = plan_ungating(placed, [pod("a")], None)
    assert step.node_selector == {"block": "b1", "rack": "r1"}


@examples(200)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 3)), max_size=10),
    st.booleans(),
)
def test_no_domain_gets_more_pods_than_its_count(counts: list[int], pods: list[tuple[int, int]], ranked: bool) -> None:
    """Running pods may be anywhere, even too many in one place; what is added never goes beyond a count."""
    placed = Placement((HOSTNAME,), tuple(Domain((f"x{i}",), count) for i, count in enumerate(counts)))
    made = [pod(f"p{n} {rank}" + (f" @x{host}" if host >= 0 else "")) for n, (rank, host) in enumerate(pods)]
    running = [m.node_selector[HOSTNAME] for m in made if not m.gated]
    added = [step.node_selector[HOSTNAME] for step in plan_ungating(placed, made, BY_INDEX if ranked else None)]
    for i, count in enumerate(counts):
        assert added.count(f"x{i}") <= max(0, count - running.count(f"x{i}"))
