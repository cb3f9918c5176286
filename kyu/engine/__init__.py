"""
The engine: pure decisions about quota. It reads objects and returns decisions; it calls no clock and no API.

Its surface, which is all that other packages use:

- ``state.State``: ``put``, ``delete``, ``release``, ``forget``, ``confirm`` and the methods that report;
- ``schedule.schedule`` with ``decisions``: what is admitted, preempted, evicted, and what waits;
- ``explain``, ``reasons``, ``stats``: why a workload waits, in values and in words, and the numbers of a status;
- ``options``: everything of a configuration that changes a decision;
- ``requests``, ``workloads``, ``request_shape``, ``topology``: values that plans share.

No other package reaches into the dictionaries of a State. ``tests/engine/test_surface.py`` holds that.
"""
