"""Second thoughts about a placement: a node fails, an elastic job grows or shrinks."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.engine.topology import search
from kyu.engine.topology.forest import Forest
from kyu.engine.topology.types import HOSTNAME, PlacementRequest
from tests.support.topology_trees import forest, outcome_text, place_text, placement, request, usage

HOSTS = (
    "b1/r1/x1 cpu=4", "b1/r1/x2 cpu=4",
    "b1/r2/x3 cpu=4", "b1/r2/x4 cpu=4",
    "b2/r3/x5 cpu=2", "b2/r3/x6 cpu=2",
)  # fmt: skip


def replace_text(trees: Forest, wanted: PlacementRequest, current: str, unhealthy: str) -> str:
    held = placement(current)
    trees.add(search.usages(wanted, held))
    return outcome_text(search.replace(trees, [wanted], {wanted.name: held}, unhealthy))


@pytest.mark.parametrize(
    ("title", "wanted", "current", "unhealthy", "ask"),
    [
        ("required stays in the rack of the rest", "x1:1 x2:4", "x1:1 gone:4", "gone", {"required": "rack"}),
        ("required, but the rack is full", "only 3 out of 4", "x1:1 x2:4 gone:4", "gone", {"required": "rack"}),
        ("preferred goes anywhere, tightest first", "x1:1 x5:2", "x1:1 gone:2", "gone", {"preferred": "rack"}),
        ("unconstrained takes the fullest host", "x1:1 x5:1", "x1:1 gone:1", "gone", {"unconstrained": True}),
        ("with nothing left required is free again", "x5:2 x6:2", "gone:4", "gone", {"required": "rack"}),
        ("a failed node that is still there is full of its own pods", "x2:4 x3:1", "x1:4 x3:1", "x1",
         {"required": "block"}),
        ("a pod set that is not on the node keeps its place", "x1:1 x9:2", "x1:1 x9:2", "x5", {"required": "rack"}),
        ("another domain is gone as well", "it contains the stale domain [x9]", "x9:1 gone:1", "gone",
         {"required": "rack"}),
    ],
)  # fmt: skip
def test_the_pods_of_a_failed_node_move(
    title: str, wanted: str, current: str, unhealthy: str, ask: dict[str, Any]
) -> None:
    count = placement(current).count
    assert wanted in replace_text(forest(*HOSTS), request(count, **ask), current, unhealthy), title


@pytest.mark.parametrize(
    ("title", "wanted", "current", "ask"),
    [
        ("a broken slice of four is made whole in its rack", "x1:4 x3:4", "x1:2 x3:4 gone:2",
         {"preferred": "rack", "slice_level": "rack", "slice_size": 4}),
        ("whole slices go where they like", "x3:2 x5:2 x6:2", "x3:2 gone:4",
         {"preferred": "block", "slice_level": HOSTNAME, "slice_size": 2}),
        ("a broken pair is made whole on its host", "x1:2 x3:2", "x1:2 x3:1 gone:1",
         {"unconstrained": True, "slice_level": HOSTNAME, "slice_size": 2}),
        ("no domain can be made whole: as asked at first", "x1:4 x2:2", "x1:4 gone:3",
         {"preferred": "rack", "slice_level": "rack", "slice_size": 2}),
        ("a broken inner pair goes back to its host", "x1:2 x2:2", "x1:2 x2:1 gone:1",
         {"preferred": "block", "layers": [("rack", 4), (HOSTNAME, 2)]}),
        ("less than a slice was left of nothing", "doesn't allow to fit any of 1 pod(s)", "gone:1",
         {"required": "rack", "slice_level": "rack", "slice_size": 2}),
    ],
)  # fmt: skip
def test_what_a_broken_slice_has_lost_is_found_near_it(
    title: str, wanted: str, current: str, ask: dict[str, Any]
) -> None:
    assert wanted in replace_text(forest(*HOSTS), request(placement(current).count, **ask), current, "gone"), title


def test_a_broken_outer_slice_keeps_its_inner_pairs_together() -> None:
    """Single pods would fill x1 first, the fullest host."""
    trees = forest(*HOSTS)
    trees.add([usage("x1", 1)])
    pairs = request(4, layers=[("rack", 4), (HOSTNAME, 2)])
    assert replace_text(trees, pairs, "x1:2 gone:2", "gone") == "x1:2 x2:2"


def test_leaves_outside_of_the_confinement_are_counted_as_such() -> None:
    trees = forest(*HOSTS)
    text = replace_text(trees, request(6, cpu=3, required="rack"), "x1:1 x2:1 gone:2", "gone")
    assert text.endswith('Total nodes: 6; excluded: resource "cpu": 2, topologyDomain: 4')


def test_leader_and_workers_move_each_for_itself() -> None:
    trees = forest("b1/r1/x1 cpu=3", "b1/r1/x2 cpu=4")
    pair = [
        request(1, name="leader", group="g", required="rack"),
        request(3, name="workers", group="g", required="rack"),
    ]
    current = {"leader": placement("gone:1"), "workers": placement("x2:1 gone:2")}
    for member in pair:
        trees.add(search.usages(member, current[member.name]))
    outcome = search.replace(trees, pair, current, "gone")
    # The leader is free to go anywhere and takes a place in the larger host only if the smaller one is taken.
    assert outcome_text(outcome) == "leader x1:1, workers x1:2 x2:1"


def test_a_delayed_pod_set_is_placed_in_the_same_pass() -> None:
    trees = forest("b1/r1/x1 cpu=3")
    outcome = search.replace(
        trees,
        [request(1, name="held", required="rack"), request(2, name="delayed", required="rack")],
        {"held": placement("gone:1")},
        "gone",
    )
    assert outcome_text(outcome) == "delayed x1:2, held x1:1"


# Elastic jobs


@pytest.mark.parametrize(
    ("title", "wanted", "count", "previous"),
    [
        ("the first slice is placed as usual", "x5:2", 2, ""),
        ("the same size stays", "x1:2 x4:1", 3, "x1:2 x4:1"),
        ("more pods join, also where some are already", "x1:4 x4:1", 5, "x1:2 x4:1"),
        ("fewer are cut from the end", "x1:2 x3:1", 3, "x1:2 x3:2 x4:1"),
        ("a domain is gone: all of it afresh", "x1:3", 3, "x1:1 x9:1"),
        ("too many", "only 18 out of 20", 22, "x1:2"),
    ],
)
def test_an_elastic_job_keeps_its_pods(title: str, wanted: str, count: int, previous: str) -> None:
    trees = forest(*HOSTS)
    held = {"main": placement(previous)} if previous else {}
    assert wanted in place_text(trees, request(count, unconstrained=True), previous=held), title


def test_an_elastic_leader_keeps_its_place() -> None:
    trees = forest("b1/r1/x1 cpu=3", "b1/r1/x2 cpu=6")
    pair = [request(1, name="leader", group="g", cpu=2), request(4, name="workers", group="g")]
    held = {"leader": placement("x1:1"), "workers": placement("x1:1 x2:1")}
    assert place_text(trees, *pair, previous=held) == "leader x1:1, workers x1:1 x2:3"
    # Without a place of its own the leader is placed with the additional workers.
    del held["leader"]
    assert place_text(trees, *pair, previous=held) == "leader x2:1, workers x1:1 x2:3"
