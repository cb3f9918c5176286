"""Who holds what: nodes that count, lasting usage and what-ifs, flavors on the same hosts, the check at commit."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from kyu.engine.topology import search
from kyu.engine.topology.forest import Forest
from kyu.engine.topology.types import HOSTNAME, DomainUsage, FlavorInfo, Gates
from tests.support.topology_trees import LEVELS, forest, node, place_text, placement, request, usage

FULL = "doesn't allow to fit any of 1 pod(s)"


@pytest.mark.parametrize(
    ("title", "changes"),
    [
        ("not ready", {"ready": False}),
        ("unschedulable", {"unschedulable": True}),
        ("a level is missing", {"labels": {"pool": "gpu", "block": "b1", HOSTNAME: "x1"}}),
        ("not of the flavor", {"labels": {"block": "b1", "rack": "r1", HOSTNAME: "x1"}}),
    ],
)
def test_nodes_that_are_in_no_tree(title: str, changes: dict[str, Any]) -> None:
    trees = Forest()
    trees.put_flavor(FlavorInfo("f", "default", LEVELS, node_labels={"pool": "gpu"}))
    trees.put_node(node("b1/r1/x1 cpu=1 pool:gpu", **changes))
    assert place_text(trees, request(1, required="rack")) == "no topology domains at level: rack", title
    trees.put_node(node("b1/r1/x1 cpu=1 pool:gpu"))
    assert place_text(trees, request(1, required="rack")) == "x1:1"


def test_a_flavor_without_topology_is_refused() -> None:
    assert place_text(forest(), request(1, flavor="plain")) == 'Flavor "plain" information missing in TAS cache'


def test_pods_outside_of_topology_take_room_even_in_the_empty_cluster() -> None:
    trees = forest("b1/r1/x1 cpu=2 pods=2")
    trees.occupy("node-0", (("cpu", 1),))
    trees.occupy("elsewhere", (("cpu", 1),))
    assert "only 1 out of 2" in place_text(trees, request(2, required=HOSTNAME), empty=True)
    trees.vacate("node-0", (("cpu", 1),))
    assert place_text(trees, request(2, required=HOSTNAME)) == "x1:2"


def test_usage_counts_only_where_workloads_run() -> None:
    trees = forest("b1/r1/x1 cpu=2")
    trees.add([usage("x1", 2), usage("gone", 7)])
    assert FULL in place_text(trees, request(1, required=HOSTNAME))
    assert place_text(trees, request(1, required=HOSTNAME), empty=True) == "x1:1"
    trees.remove([usage("x1", 2), usage("gone", 7)])
    assert place_text(trees, request(2, required=HOSTNAME)) == "x1:2"


def test_lasting_usage_survives_a_change_of_nodes() -> None:
    trees = forest("b1/r1/x1 cpu=2")
    trees.add([usage("x1", 1), usage("x2", 1)])
    trees.occupy("b1/r1/x2", (("cpu", 1),))
    trees.put_node(node("b1/r1/x2 cpu=3"))
    assert place_text(trees, request(2, required="rack")) == "x1:1 x2:1"
    trees.delete_node("b1/r1/x2")
    assert "only 1 out of 2" in place_text(trees, request(2, required="rack"))


def test_a_heartbeat_changes_nothing() -> None:
    trees = forest()
    trees.put_node(node("b1/r1/x1 cpu=2"))
    generation = trees.generation
    trees.put_node(node("b1/r1/x1 cpu=2"))
    assert trees.generation == generation
    trees.put_node(node("b1/r1/x1 cpu=3"))
    assert trees.generation == generation + 1


def test_a_node_changes_only_the_trees_that_it_is_in() -> None:
    trees = Forest()
    for pool in ("a", "b"):
        trees.put_flavor(FlavorInfo(pool, "default", LEVELS, node_labels={"pool": pool}))
        trees.put_node(node(f"b1/r1/{pool}1 cpu=1 pool:{pool}"))
    before = trees.find_tree("a"), trees.find_tree("b")
    trees.put_node(node("b1/r1/b2 cpu=1 pool:b"))
    assert (trees.find_tree("a") is before[0], trees.find_tree("b") is before[1]) == (True, False)
    assert place_text(trees, request(2, flavor="b", required="rack")) == "b1:1 b2:1"
    # It moves from one pool to the other.
    trees.put_node(node("b1/r1/b2 cpu=1 pool:a"))
    assert place_text(trees, request(2, flavor="a", required="rack")) == "a1:1 b2:1"
    assert "only 1 out of 2" in place_text(trees, request(2, flavor="b", required="rack"))


def test_hosts_with_one_name_are_one_leaf() -> None:
    trees = forest(node("b1/r1/x1 cpu=2", name="a"), node("b1/r2/x1 cpu=3", name="b"))
    assert place_text(trees, request(5, required=HOSTNAME)) == "x1:5"


def test_names_that_begin_alike_are_different_domains() -> None:
    trees = forest("b1/r1 cpu=1", "b1/r12 cpu=2", "b1r/1 cpu=4", levels=("block", "rack"))
    trees.add([usage("b1/r1", 1)])
    assert place_text(trees, request(2, required="rack")) == "b1/r12:2"
    assert place_text(trees, request(4, required="block")) == "b1r/1:4"


# Flavors on the same hosts


def two_flavors(gates: Gates | None = None, levels: tuple[str, ...] = LEVELS) -> Forest:
    host = "b1/r1/x1 cpu=4" if levels == LEVELS else "b1/r1 cpu=4"
    return forest(host, gates=gates, levels=levels, flavors=("a", "b"))


def test_flavors_on_the_same_hosts_see_lasting_usage_of_each_other() -> None:
    trees = two_flavors()
    trees.add([usage("x1", 4, flavor="a")])
    assert FULL in place_text(trees, request(1, flavor="b", required="rack"))
    trees.remove([usage("x1", 4, flavor="a")])
    assert place_text(trees, request(4, flavor="b", required="rack")) == "x1:4"


def test_what_ifs_are_seen_by_their_own_flavor_only() -> None:
    trees = two_flavors()
    trees.add([usage("x1", 4, flavor="a")])
    with trees.scope():
        trees.release([usage("x1", 4, flavor="a")])
        assert place_text(trees, request(4, flavor="a", required="rack")) == "x1:4"
        assert FULL in place_text(trees, request(1, flavor="b", required="rack"))
    assert FULL in place_text(trees, request(1, flavor="a", required="rack"))


@pytest.mark.parametrize(
    ("title", "gates", "levels"),
    [("the gate is off", Gates(overlapping_flavors=False), LEVELS), ("no hosts", Gates(), ("block", "rack"))],
)
def test_flavors_that_keep_their_usage_to_themselves(title: str, gates: Gates, levels: tuple[str, ...]) -> None:
    trees = two_flavors(gates, levels)
    leaf = "x1" if levels == LEVELS else "b1/r1"
    trees.add([usage(leaf, 4, flavor="a")])
    assert place_text(trees, request(4, flavor="b", required="rack")) == f"{leaf}:4", title


def test_pod_sets_of_one_workload_do_not_overlap_on_shared_hosts() -> None:
    sets = [request(3, name="p", flavor="a", required="rack"), request(3, name="q", flavor="b", required="rack")]
    assert "only 1 out of 3" in place_text(two_flavors(), *sets)
    assert place_text(two_flavors(Gates(overlapping_flavors=False)), *sets) == "p x1:3, q x1:3"


def test_a_failure_ends_its_flavor_and_no_other() -> None:
    trees = two_flavors(Gates(overlapping_flavors=False))
    sets = [
        request(9, name="too-many", flavor="b", required="rack"),
        request(1, name="after-it", flavor="b", required="rack"),
        request(1, name="elsewhere", flavor="a", required="rack"),
    ]
    outcome = search.place(trees, sets)
    assert set(outcome.failures) == {"too-many"}
    assert set(outcome.placements) == {"elsewhere"}


# What-ifs


def test_scopes_nest_and_undo_themselves() -> None:
    trees = forest("b1/r1/x1 cpu=4")
    with trees.scope():
        trees.charge([usage("x1", 3)])
        with suppress(KeyError), trees.scope():
            trees.charge([usage("x1", 1)])
            assert FULL in place_text(trees, request(1, required="rack"))
            raise KeyError
        assert place_text(trees, request(1, required="rack")) == "x1:1"
        mark = trees.mark()
        trees.release([usage("x1", 3), usage("unknown", 3)])
        assert place_text(trees, request(4, required="rack")) == "x1:4"
        trees.undo(mark)
        assert "only 1 out of 2" in place_text(trees, request(2, required="rack"))
    assert place_text(trees, request(4, required="rack")) == "x1:4"


def test_nodes_do_not_change_inside_a_what_if() -> None:
    trees = forest("b1/r1/x1 cpu=4")
    with trees.scope():
        trees.charge([usage("x1", 1)])
        with pytest.raises(AssertionError):
            trees.delete_node("node-0")


def test_the_invariant_notices_a_what_if_that_was_left_open_and_a_lost_pod() -> None:
    trees = forest("b1/r1/x1 cpu=4")
    trees.add([usage("x1", 1)])
    trees.occupy("node-0", (("cpu", 1),))
    tree = trees.find_tree("f")
    assert tree is not None
    trees.check()
    mark = trees.mark()
    trees.charge([usage("x1", 1)])
    with pytest.raises(AssertionError, match="left open"):
        trees.check()
    trees.undo(mark)
    trees.check()
    tree.free.take(0, (("cpu", 1),), 1)
    with pytest.raises(AssertionError, match="what is free"):
        trees.check()


# The check at commit


@pytest.mark.parametrize(
    ("title", "lines", "fits"),
    [
        ("room for all", [usage("x1", 3)], True),
        ("one too many", [usage("x1", 4)], False),
        ("lines are not added up", [usage("x1", 3), usage("x1", 3)], True),
        ("an unknown domain", [usage("x9", 1)], False),
        ("an unknown flavor", [usage("x1", 1, flavor="g")], False),
        ("a resource that the host lacks", [DomainUsage("f", ("x1",), 1, (("gpu", 1),))], False),
        ("pods are not counted", [DomainUsage("f", ("x1",), 50, (("cpu", 0),))], True),
        ("a template without requests", [DomainUsage("f", ("x1",), 1, ())], False),
    ],
)
def test_the_check_at_commit(title: str, lines: list[DomainUsage], fits: bool) -> None:
    trees = forest("b1/r1/x1 cpu=4 pods=2")
    trees.add([usage("x1", 1)])
    assert trees.fits(lines) is fits, title


def test_net_usage_is_what_goes_beyond_the_current_admission() -> None:
    moved = search.net_usages(request(6), placement("x1:3 x2:1 x3:2"), placement("x1:2 x2:4"))
    assert [(line.values, line.count) for line in moved] == [(("x1",), 1), (("x3",), 2)]
    fresh = search.net_usages(request(2), placement("x1:2"), None)
    assert fresh == search.usages(request(2), placement("x1:2"))
