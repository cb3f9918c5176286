"""What holds for every placement, whatever the cluster and the request."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kyu.engine.topology import search
from kyu.engine.topology.forest import Forest
from kyu.engine.topology.types import HOSTNAME, FlavorInfo, Gates, NodeInfo, PlacementRequest, TopologyRequest
from tests.support.topology_trees import LEVELS, examples

FLAVORS = (FlavorInfo("f", "default", LEVELS), FlavorInfo("g", "default", LEVELS))


def node_of(number: int, rack: int, cpu: int, pods: int) -> NodeInfo:
    labels = {"block": f"b{rack // 2}", "rack": f"r{rack}", HOSTNAME: f"h{number}"}
    return NodeInfo(f"h{number}", labels, {"cpu": cpu, "pods": pods})


nodes = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 5)), min_size=1, max_size=9).map(
    lambda rows: [node_of(number, *row) for number, row in enumerate(rows)]
)
gates = st.builds(Gates, mixed_profile=st.booleans(), balanced_placement=st.booleans())
topologies = st.one_of(
    st.builds(TopologyRequest, required=st.sampled_from(LEVELS)),
    st.builds(TopologyRequest, preferred=st.sampled_from(LEVELS)),
    st.builds(TopologyRequest, required=st.just("block"), slice_level=st.just("rack"), slice_size=st.integers(1, 3)),
    st.builds(TopologyRequest, slice_level=st.sampled_from(LEVELS[1:]), slice_size=st.integers(1, 3)),
    st.just(TopologyRequest(unconstrained=True)),
)


@st.composite
def pod_sets(draw: st.DrawFn) -> list[PlacementRequest]:
    """One to three pod sets on two flavors of the same hosts; two of one flavor may be a leader with workers."""
    topology_request = draw(topologies)
    if draw(st.booleans()):
        workers = PlacementRequest("w", "f", draw(st.integers(2, 8)), (("cpu", 1),), topology_request, group="g")
        leader = PlacementRequest("l", "f", 1, (("cpu", draw(st.integers(0, 4))),), topology_request, group="g")
        return [leader, workers]
    return [
        PlacementRequest(
            f"p{i}",
            draw(st.sampled_from("fg")),
            draw(st.integers(1, 8)),
            (("cpu", draw(st.integers(0, 3))),),
            draw(topologies),
        )
        for i in range(draw(st.integers(1, 3)))
    ]


def forest_of(members: list[NodeInfo], options: Gates) -> Forest:
    trees = Forest(options)
    for flavor in FLAVORS:
        trees.put_flavor(flavor)
    for member in members:
        trees.put_node(member)
    return trees


def rooms(trees: Forest) -> dict[str, dict[str, list[int]]]:
    """All that is free, by flavor and resource; columns of zeros are as good as none."""
    shown = {}
    for flavor in FLAVORS:
        tree = trees.find_tree(flavor.name)
        assert tree is not None
        shown[flavor.name] = {resource: list(column) for resource, column in tree.free.amounts().items()}
    return shown


@examples(150)
@given(nodes, gates, pod_sets())
def test_capacity_is_never_exceeded_and_required_stays_together(
    members: list[NodeInfo], options: Gates, requests: list[PlacementRequest]
) -> None:
    outcome = search.place(forest_of(members, options), requests)
    node_by_host = {(member.name,): member for member in members}
    taken: Counter[tuple[str, str]] = Counter()
    for request in requests:
        placed = outcome.placements.get(request.name)
        if placed is None:
            assert outcome.failure is not None
            continue
        size = request.topology.slice_size or 1
        assert placed.count == request.count // size * size or request.name == "l"
        for domain in placed.domains:
            assert domain.count > 0
            taken[domain.values[0], "cpu"] += domain.count * request.requests[0][1]
            taken[domain.values[0], "pods"] += domain.count
        if request.topology.required is not None and request.name != "l":
            level = request.topology.required
            assert len({node_by_host[domain.values].labels[level] for domain in placed.domains}) <= 1
    for (host, resource), amount in taken.items():
        assert amount <= node_by_host[host,].allocatable[resource]


@examples(100)
@given(nodes, gates, pod_sets(), st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_appear_does_not_matter(
    members: list[NodeInfo], options: Gates, requests: list[PlacementRequest], random: Random
) -> None:
    shuffled = list(members)
    random.shuffle(shuffled)
    assert search.place(forest_of(members, options), requests) == search.place(forest_of(shuffled, options), requests)


@examples(100)
@given(nodes, gates, st.lists(pod_sets(), min_size=1, max_size=4))
def test_add_and_remove_charge_and_release_and_undo_are_inverses(
    members: list[NodeInfo], options: Gates, workloads: list[list[PlacementRequest]]
) -> None:
    trees = forest_of(members, options)
    before = rooms(trees)
    lines = []
    for requests in workloads:
        outcome = search.place(trees, requests)
        assert rooms(trees) == before, "placing alone changes nothing"
        lines += [
            line
            for request in requests
            if request.name in outcome.placements
            for line in search.usages(request, outcome.placements[request.name])
        ]
    trees.add(lines)
    trees.check()
    held = rooms(trees)
    with trees.scope():
        trees.release(lines)
        trees.charge(lines[:1])
        trees.charge(lines)
    assert rooms(trees) == held
    with trees.scope():
        trees.charge(lines)
        trees.release(lines)
        assert rooms(trees) == held
    trees.remove(reversed(lines))
    trees.check()
    assert rooms(trees) == before


@examples(100)
@given(nodes, pod_sets(), pod_sets())
def test_an_answer_does_not_depend_on_the_questions_before(
    members: list[NodeInfo], first: list[PlacementRequest], second: list[PlacementRequest]
) -> None:
    fresh = search.place(forest_of(members, Gates()), second)
    trees = forest_of(members, Gates())
    search.place(trees, first)
    search.place(trees, first, empty=True)
    for alone in first:
        assert search.place(trees, [alone]) == search.place(forest_of(members, Gates()), [alone])
    assert search.place(trees, second) == fresh
    assert search.place(trees, second, empty=True) == fresh, "nothing runs, so the empty cluster is the same"


@examples(150)
@given(nodes, st.sampled_from(["block", "rack", HOSTNAME]), st.integers(1, 12))
def test_required_takes_the_domain_with_least_to_spare(members: list[NodeInfo], level: str, count: int) -> None:
    """Every domain is tried: the one that is left with the fewest pods wins, by name among equals."""
    room: Counter[tuple[str, ...]] = Counter()
    keys = LEVELS[: LEVELS.index(level) + 1]
    for member in members:
        room[tuple(member.labels[key] for key in keys)] += min(member.allocatable.values())
    best = min(((pods, path) for path, pods in room.items() if pods >= count), default=None)
    request = PlacementRequest("main", "f", count, (("cpu", 1),), TopologyRequest(required=level))
    outcome = search.place(forest_of(members, Gates()), [request])
    if best is None:
        assert outcome.failure is not None
        return
    hosts = {domain.values[0] for domain in outcome.placements["main"].domains}
    assert {tuple(m.labels[key] for key in keys) for m in members if m.name in hosts} == {best[1]}


@examples(150)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=7), st.integers(1, 20))
def test_best_fit_uses_as_few_hosts_as_possible(cpus: list[int], count: int) -> None:
    """All subsets of the hosts of one rack are tried."""
    members = [node_of(number, 0, cpu, 9) for number, cpu in enumerate(cpus)]
    request = PlacementRequest("main", "f", count, (("cpu", 1),), TopologyRequest(required="rack"))
    outcome = search.place(forest_of(members, Gates()), [request])
    fewest = next((k for k in range(1, len(cpus) + 1) if any(sum(c) >= count for c in combinations(cpus, k))), None)
    if fewest is None:
        assert outcome.failure is not None
    else:
        assert len(outcome.placements["main"].domains) == fewest
