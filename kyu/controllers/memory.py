"""
How often Python looks for garbage that reference counts do not free.

Called by: plane.py and app.py when everything that exists is in memory; bench.
"""

from __future__ import annotations

import gc

# New objects until the young are searched; searches until the middle-aged, and then until all are.
THRESHOLDS = (20_000, 50, 100)


def collect_seldom() -> None:
    """Look for garbage in cycles among new objects only, now and then.

    Stored objects and caches are large and have no cycles; to search all of them, as Python does by itself, stops
    everything for up to a second. What is there now is taken to stay.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
