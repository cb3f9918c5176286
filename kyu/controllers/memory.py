"""Tuning of Python's cyclic garbage collector."""

from __future__ import annotations

import gc

# New objects per collection of the young generation; young per middle; middle per full collection.
THRESHOLDS = (20_000, 50, 100)


def collect_seldom() -> None:
    """Collect cycles among new objects only, and seldom.

    Stored objects and caches are large and have no cycles. A full collection of them, as by Python's defaults, stops
    the process for up to a second, so present objects are frozen.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
