"""
The cache of the counts of one tree between placements.

Equal requests share one Counts, so a thousand equal workloads count the hosts once and then only changed hosts.

Called by: engine/topology/group.py, engine/topology/forest.py (discards it with the tree whenever nodes change).
"""

from __future__ import annotations

from collections import OrderedDict

from kyu.engine.topology.counts import Counts, Eligibility, Shape
from kyu.engine.topology.tree import Tree
from kyu.engine.topology.types import PodFilter

# Cached counts take about 200 bytes per leaf: about 200 MB for the largest trees. Small trees never reach the limits.
LEAVES_KEPT = 1_000_000
FEWEST_KEPT = 16
FILTERS_KEPT = 1024


class Shelf:
    """A cache of the counts of one tree that discards the least recently used."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._eligibility_by_filter: dict[tuple[PodFilter, bool], Eligibility] = {}
        self._counts_by_shape: OrderedDict[tuple[Shape, PodFilter, bool, bool], Counts] = OrderedDict()

    def counts(self, shape: Shape, pod_filter: PodFilter, *, empty: bool, scored: bool) -> Counts:
        """Return the counts of a shape in the base room if ``empty``, otherwise in the free room."""
        key = (shape, pod_filter, empty, scored)
        counts = self._counts_by_shape.get(key)
        if counts is None:
            eligibility = self._eligibility(pod_filter, scored=scored)
            counts = Counts(self.tree, self.tree.base if empty else self.tree.free, shape, eligibility)
            self._counts_by_shape[key] = counts
            while len(self._counts_by_shape) > max(FEWEST_KEPT, LEAVES_KEPT // max(1, self.tree.free.size)):
                self._counts_by_shape.popitem(last=False)
        else:
            self._counts_by_shape.move_to_end(key)
        return counts

    def _eligibility(self, pod_filter: PodFilter, *, scored: bool) -> Eligibility:
        eligibility = self._eligibility_by_filter.get((pod_filter, scored))
        if eligibility is None:
            if len(self._eligibility_by_filter) >= FILTERS_KEPT:
                self._eligibility_by_filter.clear()
            eligibility = Eligibility(self.tree, pod_filter, scored=scored)
            self._eligibility_by_filter[pod_filter, scored] = eligibility
        return eligibility
