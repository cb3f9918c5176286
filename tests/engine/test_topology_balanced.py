"""Balanced placement: even shares for a preferred request, and the ordinary search wherever that is impossible."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.engine.topology.types import HOSTNAME, Gates
from tests.support.topology_trees import forest, place_text, request

ON = Gates(balanced_placement=True)


@pytest.mark.parametrize(
    ("title", "wanted", "hosts", "count", "ask"),
    [
        ("even over two racks", "x1:6 x2:5", ("b1/r1/x1 cpu=8", "b1/r2/x2 cpu=8"), 11, {"preferred": "rack"}),
        ("the block where every host gets most", "x3:3 x4:3",
         ("b1/r1/x1 cpu=5", "b1/r1/x2 cpu=2", "b2/r1/x3 cpu=3", "b2/r1/x4 cpu=3"), 6, {"preferred": "rack"}),
        ("a host below the threshold is left out", "x1:4 x3:4",
         ("b1/r1/x1 cpu=4", "b1/r1/x2 cpu=1", "b1/r1/x3 cpu=4"), 8, {"preferred": "rack"}),
        ("the set with the least surplus", "x3:3 x4:3",
         ("b1/r1/x1 cpu=5", "b1/r1/x2 cpu=4", "b1/r1/x3 cpu=3", "b1/r1/x4 cpu=3"), 6, {"preferred": HOSTNAME}),
        ("whole slices are spread", "x1:4 x2:2",
         ("b1/r1/x1 cpu=5", "b1/r2/x2 cpu=5"), 6, {"preferred": "rack", "slice_level": HOSTNAME, "slice_size": 2}),
        ("the top level is one set of siblings", "x1:2 x2:2",
         ("b1/r1/x1 cpu=2", "b2/r1/x2 cpu=2", "b3/r1/x3 cpu=1"), 4, {"preferred": "block"}),
        ("of equal racks the one whose hosts are most alike", "x3:3 x4:2",
         ("b1/r1/x1 cpu=4", "b1/r1/x2 cpu=2", "b1/r2/x3 cpu=3", "b1/r2/x4 cpu=3"), 5, {"preferred": "rack"}),
        ("no set of siblings suffices: as without the gate", "x1:2 x2:1",
         ("b1/r1/x1 cpu=2", "b2/r1/x2 cpu=2"), 3, {"preferred": "rack"}),
        ("required is never balanced", "x1:8 x2:3", ("b1/r1/x1 cpu=8", "b1/r1/x2 cpu=8"), 11, {"required": "rack"}),
    ],
)  # fmt: skip
def test_pods_are_spread_evenly_over_as_few_domains_as_can_be(
    title: str, wanted: str, hosts: tuple[str, ...], count: int, ask: dict[str, Any]
) -> None:
    assert place_text(forest(*hosts, gates=ON), request(count, **ask)) == wanted, title


def test_the_gate_decides() -> None:
    hosts = ("b1/r1/x1 cpu=8", "b1/r2/x2 cpu=8")
    assert place_text(forest(*hosts), request(11, preferred="rack")) == "x1:8 x2:3"
    assert place_text(forest(*hosts, gates=ON), request(11, preferred="rack")) == "x1:6 x2:5"


@pytest.mark.parametrize(
    ("title", "wanted", "hosts", "leader_cpu"),
    [
        ("the leader's host holds as many workers", "leader x1:1, workers x1:5 x2:5", ("x1 cpu=7", "x2 cpu=5"), 1),
        ("a host that is too small with the leader still takes workers", "leader x2:1, workers x1:5 x2:5",
         ("x1 cpu=5", "x2 cpu=8"), 3),
        ("a host below the threshold with the leader cannot lead", "leader x2:1, workers x2:5 x3:5",
         ("x1 cpu=7", "x2 cpu=8", "x3 cpu=6"), 3),
        ("nobody hosts the leader", "topology", ("x1 cpu=5", "x2 cpu=5"), 9),
    ],
)  # fmt: skip
def test_balanced_with_a_leader(title: str, wanted: str, hosts: tuple[str, ...], leader_cpu: int) -> None:
    trees = forest(*(f"b1/r1/{host}" for host in hosts), gates=ON)
    pair = [
        request(1, name="leader", group="g", cpu=leader_cpu, preferred="rack"),
        request(10, name="workers", group="g", preferred="rack"),
    ]
    assert place_text(trees, *pair).startswith(wanted), title


def test_a_lower_threshold_is_tried_where_the_first_leaves_too_little() -> None:
    """Slices of three: a threshold of two prunes x2, and then the block that leads loses a slice too many."""
    hosts = ("b1/r1/x1 cpu=10", "b2/r2/x2 cpu=5", "b2/r3/x3 cpu=9", "b2/r4/x4 cpu=6")
    slices = {"preferred": "block", "slice_level": HOSTNAME, "slice_size": 3}
    pair = [request(1, name="leader", group="g", **slices), request(24, name="workers", group="g", **slices)]
    balanced = "leader x1:1, workers x1:9 x3:9 x4:6"
    assert place_text(forest(*hosts, gates=ON), *pair) == balanced
    assert place_text(forest(*hosts), *pair) != balanced


def test_counts_are_unchanged_after_a_balanced_search() -> None:
    trees = forest("b1/r1/x1 cpu=4", "b1/r1/x2 cpu=1", "b1/r1/x3 cpu=4", gates=ON)
    even = request(8, preferred="rack")
    assert place_text(trees, even) == place_text(trees, even) == "x1:4 x3:4"
    assert place_text(trees, request(9, required="rack")) == "x1:4 x2:1 x3:4"
