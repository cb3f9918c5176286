"""
The counts that are kept of one tree between placements.

Equal requests share one Counts, so a queue of a thousand equal jobs counts the hosts once and then follows the changes.

Called by: engine/topology_group.py; emptied with the tree, whenever nodes change.
"""

from __future__ import annotations

from collections import OrderedDict

from kyu.engine.topology_counts import Counts, Eligibility, Shape
from kyu.engine.topology_tree import Tree
from kyu.engine.topology_types import PodFilter

# Kept counts cost some 200 bytes a leaf: about 200 MB for the largest trees; small ones never reach the bounds.
LEAVES_KEPT = 1_000_000
FEWEST_KEPT = 16
FILTERS_KEPT = 1024


class Shelf:
    """The counts that are kept of one tree, the least recently used ones dropped."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._eligibility_by_filter: dict[tuple[PodFilter, bool], Eligibility] = {}
        self._counts_by_shape: OrderedDict[tuple[Shape, PodFilter, bool, bool], Counts] = OrderedDict()

    def counts(self, shape: Shape, pod_filter: PodFilter, *, empty: bool, scored: bool) -> Counts:
        """On the base room if ``empty``, else on the free one; with preferred affinity if ``scored``."""
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
