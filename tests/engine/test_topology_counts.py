"""Counts that follow their room leaf by leaf are those of a count from scratch."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kyu.engine.topology.counts import WHOLE_LEVEL, Counts, Eligibility, Shape
from kyu.engine.topology.tree import Tree
from kyu.engine.topology.types import FlavorInfo, PodFilter
from tests.support.topology_trees import LEVELS, examples, node

HOSTS = [f"b{b}/b{b}r{r}/b{b}r{r}h{h} cpu=9 zone:{'ab'[h % 2]}" for b in range(2) for r in range(2) for h in range(3)]

shapes = st.builds(
    Shape,
    requests=st.sampled_from(
        [(("cpu", 1), ("pods", 1)), (("cpu", 2), ("pods", 1)), (("cpu", 1), ("gpu", 1), ("pods", 1))]
    ),
    leader=st.none() | st.integers(1, 6).map(lambda cpu: (("cpu", cpu), ("pods", 1))),
    slice_level=st.integers(0, 1),
    slice_size=st.just(4),
    units=st.sampled_from([(1, 1, 1), (1, 1, 2), (1, 2, 2), (1, 4, 2)]),
    best_fit=st.booleans(),
)
filters = st.sampled_from([PodFilter(), PodFilter(node_selector=(("zone", "a"),))])
# Pods of one CPU that come to (or leave) a leaf, and what is assumed on another while the counts are read.
steps = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 11), st.integers(-3, 5)), max_size=5), st.integers(0, 11)),
    min_size=1,
    max_size=6,
)


def seen(counts: Counts) -> object:
    """All that others read."""
    orders = [counts.order(level, WHOLE_LEVEL) for level in range(len(LEVELS))]
    orders += [counts.order(1, block) for block in range(2)] + [counts.order(2, rack) for rack in range(4)]
    return counts.levels, [list(order) for order in orders], counts.exclusions()


@examples(150)
@given(shapes, filters, steps)
def test_kept_counts_equal_fresh_ones(
    shape: Shape, pod_filter: PodFilter, changes: list[tuple[list[tuple[int, int]], int]]
) -> None:
    tree = Tree(FlavorInfo("f", "default", LEVELS), [node(text) for text in HOSTS])
    eligibility = Eligibility(tree, pod_filter, scored=False)
    kept = Counts(tree, tree.free, shape, eligibility)
    for moves, assumed_leaf in changes:
        for leaf, pods in moves:
            tree.free.take(leaf, (("cpu", 1),), pods)
        assumed = {assumed_leaf: Counter(cpu=2, pods=1)}
        for taken in (assumed, {}):
            fresh = Counts(tree, tree.free, shape, eligibility)
            kept.sync(taken)
            fresh.sync(taken)
            assert seen(kept) == seen(fresh)


def test_a_long_log_is_dropped_and_the_counts_start_again() -> None:
    tree = Tree(FlavorInfo("f", "default", LEVELS), [node(text) for text in HOSTS])
    shape = Shape((("cpu", 1), ("pods", 1)), None, 2, 1, (1, 1, 1), best_fit=True)
    kept = Counts(tree, tree.free, shape, Eligibility(tree, PodFilter(), scored=False))
    kept.sync({})
    assert sum(kept.levels[0].pods) == 9 * len(HOSTS)
    for turn in range(5000):
        tree.free.take(turn % len(HOSTS), (("cpu", 1),), 1 if turn % 2 else -1)
    tree.free.take(0, (("cpu", 1),), 2)
    assert len(tree.free.changes) < 5000
    kept.sync({})
    fresh = Counts(tree, tree.free, shape, kept.eligibility)
    fresh.sync({})
    assert seen(kept) == seen(fresh)
