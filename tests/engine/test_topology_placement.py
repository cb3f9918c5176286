"""Where pod sets go: each row is a cluster, a request, and the hosts it must get (or the words of the refusal)."""

from __future__ import annotations

from typing import Any

import pytest

from kyu.api.core import NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm
from kyu.engine.topology.request import lacks_levels
from kyu.engine.topology.types import HOSTNAME, Gates, PodFilter, TopologyRequest
from tests.support.topology_trees import LEVELS, forest, place_text, request

# Two blocks: b1 has racks of 3 and 4, b2 one rack of 5.
TWO_BLOCKS = ("b1/r1/x1 cpu=1", "b1/r1/x2 cpu=2", "b1/r2/x3 cpu=4", "b2/r3/x4 cpu=2", "b2/r3/x5 cpu=3")


@pytest.mark.parametrize(
    ("title", "wanted", "count", "topology"),
    [
        ("the tightest rack that holds all", "x1:1 x2:2", 3, {"required": "rack"}),
        ("one host in the tightest rack", "x3:4", 4, {"required": "rack"}),
        ("a rack, but none is large enough", "allows to fit only 5 out of 6", 6, {"required": "rack"}),
        ("a block spreads over its racks, large hosts first", "x2:2 x3:4", 6, {"required": "block"}),
        ("a host", "x5:3", 3, {"required": HOSTNAME}),
        ("preferred stays in one rack if it can", "x4:2 x5:3", 5, {"preferred": "rack"}),
        ("preferred widens to a block", "x2:2 x3:4", 6, {"preferred": "rack"}),
        ("preferred spreads over racks of all blocks at last", "x1:1 x2:2 x4:2 x5:3", 8, {"preferred": "rack"}),
        ("preferred cannot conjure", "allows to fit only 12 out of 13", 13, {"preferred": "rack"}),
        ("unconstrained takes the fullest host that holds all", "x2:2", 2, {"unconstrained": True}),
        ("unconstrained fills the fullest hosts first", "x1:1 x2:2 x4:2 x5:1", 6, {"unconstrained": True}),
        ("unconstrained counts all hosts", "allows to fit only 12 out of 20", 20, {"unconstrained": True}),
    ],
)
def test_request_kinds(title: str, wanted: str, count: int, topology: dict[str, Any]) -> None:
    assert wanted in place_text(forest(*TWO_BLOCKS), request(count, **topology)), title


def test_unconstrained_uses_best_fit_without_the_mixed_profile() -> None:
    trees = forest(*TWO_BLOCKS, gates=Gates(mixed_profile=False))
    assert place_text(trees, request(6, unconstrained=True)) == "x2:2 x3:4"


@pytest.mark.parametrize(
    ("title", "wanted", "count", "topology"),
    [
        ("slices of two stay on a host", "x2:2 x3:4", 6,
         {"required": "block", "slice_level": HOSTNAME, "slice_size": 2}),
        ("a slice of three does not fit the odd pod of a host", "only 1 out of 2 slice(s)", 6,
         {"required": "rack", "slice_level": HOSTNAME, "slice_size": 3}),
        ("slices alone spread from the top, emptiest rack last", "x1:1 x2:1 x3:4", 6,
         {"slice_level": "rack", "slice_size": 2}),
        ("slices alone take the block with least to spare", "x4:2 x5:2", 4, {"slice_level": "rack", "slice_size": 4}),
        ("a remainder is not placed", "x2:2", 3, {"required": HOSTNAME, "slice_level": HOSTNAME, "slice_size": 2}),
        ("a level without a size", "slice size not provided", 2, {"required": "rack", "slice_level": HOSTNAME}),
        ("a size without a level means the lowest", "x3:4", 4, {"required": "rack", "slice_size": 4}),
        ("slices above the pod set", "podset slice topology block is above the podset topology rack", 2,
         {"required": "rack", "slice_level": "block", "slice_size": 1}),
        ("a level that is not there", "no requested topology level: zone", 2, {"required": "zone"}),
        ("a slice level that is not there", "no requested topology level for slices: zone", 2,
         {"required": "rack", "slice_level": "zone", "slice_size": 1}),
    ],
)  # fmt: skip
def test_slices_stay_together_in_their_domain(title: str, wanted: str, count: int, topology: dict[str, Any]) -> None:
    assert wanted in place_text(forest(*TWO_BLOCKS), request(count, **topology)), title


@pytest.mark.parametrize(
    ("title", "wanted", "layers"),
    [
        ("pairs on hosts, sixes in racks", "x1:2 x2:4 x3:2 x4:4", [("rack", 6), (HOSTNAME, 2)]),
        ("threes on hosts leave room unused", "doesn't allow to fit; 0/2 slice(s) fit on level rack; "
         "2/4 slice(s) fit on level kubernetes.io/hostname", [("rack", 6), (HOSTNAME, 3)]),
        ("an inner layer that is not finer", "must be at a lower level than rack", [("rack", 6), ("rack", 2)]),
        ("an inner size that does not divide", "must evenly divide parent layer size 6", [("rack", 6), (HOSTNAME, 4)]),
    ],
)  # fmt: skip
def test_layers(title: str, wanted: str, layers: list[tuple[str, int]]) -> None:
    trees = forest("b1/r1/x1 cpu=2", "b1/r1/x2 cpu=5", "b1/r2/x3 cpu=2", "b1/r2/x4 cpu=5")
    assert wanted in place_text(trees, request(12, required="block", layers=layers)), title


def test_pods_beyond_whole_inner_slices_do_not_count() -> None:
    """Fours per host: 6 + 2 pods are one four, not two."""
    trees = forest("b1/r1/x1 cpu=6", "b1/r1/x2 cpu=2", "b2/r2/x3 cpu=4", "b2/r2/x4 cpu=4")
    wanted = request(8, required="block", layers=[("block", 8), (HOSTNAME, 4)])
    assert place_text(trees, wanted) == "x3:4 x4:4"


LEADER_ROWS = [
    ("the leader goes where workers lose least", "leader x3:1, workers x1:1 x2:2 x3:1",
     ("r1/x1 cpu=2", "r1/x2 cpu=4", "r1/x3 cpu=3"), 4, 2, 1),
    ("the tightest rack that also holds the leader", "leader x2:1, workers x2:1",
     ("r1/x1 cpu=9", "r2/x2 cpu=2"), 1, 1, 1),
    ("no host for the leader", "doesn't allow to fit any of 2 pod(s)", ("r1/x1 cpu=4", "r2/x2 cpu=4"), 2, 1, 5),
    ("workers fit, but not beside the leader", "allows to fit only 4 out of 4 pod(s)", ("r1/x1 cpu=4",), 4, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize(("title", "wanted", "hosts", "workers", "cpu", "leader_cpu"), LEADER_ROWS)
def test_leader_and_workers(
    title: str, wanted: str, hosts: tuple[str, ...], workers: int, cpu: int, leader_cpu: int
) -> None:
    trees = forest(*hosts, levels=("rack", HOSTNAME))
    reach = "preferred" if "any of" in wanted else "required"
    pair = [
        request(1, name="leader", group="g", cpu=leader_cpu, **{reach: "rack"}),
        request(workers, name="workers", group="g", cpu=cpu, **{reach: "rack"}),
    ]
    assert wanted in place_text(trees, *pair), title


def test_several_domains_are_sorted_anew_after_the_leader() -> None:
    """With the leader r1 is largest; of the others r3, hopeless for a leader of 3, has more than r2."""
    trees = forest("r1/x1 cpu=7", "r2/x2 cpu=4", "r3/x3 cpu=2", "r3/x4 cpu=2", "r3/x5 cpu=2", levels=("rack", HOSTNAME))
    pair = [
        request(1, name="leader", group="g", cpu=3, preferred="rack"),
        request(10, name="workers", group="g", preferred="rack"),
    ]
    assert place_text(trees, *pair) == "leader x1:1, workers x1:4 x3:2 x4:2 x5:2"


def test_the_topology_of_the_workers_rules_the_group() -> None:
    pair = [
        request(1, name="leader", group="g", required="rack", slice_level="nowhere"),
        request(3, name="workers", group="g", required="block"),
    ]
    trees = forest("b1/r1/x1 cpu=2", "b1/r2/x2 cpu=2")
    assert place_text(trees, *pair) == "leader x1:1, workers x1:1 x2:2"


@pytest.mark.parametrize("counts", [(2, 2), (1, 1, 1)])
def test_a_group_is_one_leader_with_workers(counts: tuple[int, ...]) -> None:
    members = [request(count, name=f"p{i}", group="g", required="rack") for i, count in enumerate(counts)]
    assert "is not a leader of one pod with its workers" in place_text(forest(*TWO_BLOCKS), *members)


def test_of_equal_members_the_second_leads() -> None:
    pair = [
        request(1, name="first", group="g", cpu=1, required="rack"),
        request(1, name="second", group="g", cpu=4, required="rack"),
    ]
    trees = forest("r1/x1 cpu=1", "r1/x2 cpu=4", levels=("rack", HOSTNAME))
    assert place_text(trees, *pair) == "first x1:1, second x2:1"


def test_each_pod_set_sees_what_the_ones_before_it_take() -> None:
    trees = forest("b1/r1/x1 cpu=3", "b1/r1/x2 cpu=3")
    sets = [request(2, name="a", required=HOSTNAME), request(2, name="b", required=HOSTNAME)]
    assert place_text(trees, *sets) == "a x1:2, b x2:2"
    assert "any of 1 pod(s)" in place_text(trees, *sets, request(1, name="c", cpu=2, required=HOSTNAME))
    assert place_text(trees, *sets) == "a x1:2, b x2:2"


def test_the_pods_of_a_host_are_a_resource() -> None:
    trees = forest("b1/r1/x1 cpu=8 pods=2", "b1/r1/x2 cpu=2")
    assert place_text(trees, request(3, required="rack")) == "x1:2 x2:1"


def test_a_pod_set_without_pods_is_left_out() -> None:
    assert place_text(forest(*TWO_BLOCKS), request(0, name="none"), request(1, required=HOSTNAME)) == "x1:1"


def test_levels_above_hosts_are_named_in_full_and_filter_nothing() -> None:
    trees = forest("b1/r1 cpu=2 zone:a", "b1/r1 cpu=2 zone:b", "b2/r1 cpu=3", levels=("block", "rack"))
    wanted = request(4, required="rack", pod_filter=PodFilter(node_selector=(("zone", "nowhere"),)))
    assert place_text(trees, wanted) == "b1/r1:4"


def prefer(key: str, *values: str, weight: int = 10) -> PodFilter:
    term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key, "In", values),))
    return PodFilter(preferred_terms=(PreferredSchedulingTerm(weight, term),))


@pytest.mark.parametrize(
    ("title", "wanted", "count", "topology"),
    [
        ("what is preferred comes before a tighter fit", "x2:2", 2, {"required": HOSTNAME}),
        ("required looks on where the preferred is too small", "x3:5", 5, {"required": HOSTNAME}),
        ("preferred does not look on, but widens", "x1:1 x2:4", 5, {"preferred": HOSTNAME}),
    ],
)
def test_preferred_affinity(title: str, wanted: str, count: int, topology: dict[str, Any]) -> None:
    hosts = ("r1/x1 cpu=2 zone:a", "r1/x2 cpu=4 zone:b", "r1/x3 cpu=6 zone:a")
    trees = forest(*hosts, levels=("rack", HOSTNAME), gates=Gates(preferred_affinity=True))
    assert place_text(trees, request(count, pod_filter=prefer("zone", "b"), **topology)) == wanted, title


def test_preferred_affinity_is_ignored_without_its_gate() -> None:
    trees = forest("r1/x1 cpu=2 zone:a", "r1/x2 cpu=4 zone:b", levels=("rack", HOSTNAME))
    assert place_text(trees, request(2, pod_filter=prefer("zone", "b"), required=HOSTNAME)) == "x1:2"


@pytest.mark.parametrize(
    ("topology", "lacking"),
    [
        (TopologyRequest(required="rack"), False),
        (TopologyRequest(required="zone"), True),
        (TopologyRequest(preferred="rack", slice_level="zone", slice_size=1), True),
        (TopologyRequest(unconstrained=True), False),
        (TopologyRequest(unconstrained=False), True),
        (TopologyRequest(slice_size=2), True),
        (TopologyRequest(slice_level="rack"), False),
    ],
)
def test_flavors_that_lack_the_levels(topology: TopologyRequest, lacking: bool) -> None:
    assert lacks_levels(LEVELS, topology) is lacking
