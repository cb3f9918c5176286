"""
The textbook scheduler: Kueue's rules as they are written, on a copy of the state in every cycle.

It is the oracle of the property tests and the other side of `kyu bench engine`. It shares the reading of objects with
the engine (requests, priorities, times), and no rule: the quota tree, the flavor scan, the search for preemption
targets, the order of a cycle and the queues are its own. It looks at one head of every ClusterQueue in every cycle, and
at every inadmissible workload of a tree after every wake-up. It knows neither topologies nor admission checks.

    python -m kyu bench engine --textbook tests.support.textbook
"""

from tests.support.textbook.scheduler import Textbook, schedule

__all__ = ["Textbook", "schedule"]
