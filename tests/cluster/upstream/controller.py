"""
``kyu controller``, without a scheduler where the suite of Kueue has none: such a suite admits its Workloads itself.

Called by: go/process.go.
"""

from __future__ import annotations

import os
import sys

from kyu.cli.main import main
from kyu.controllers.scheduler import Scheduler


async def count_only(scheduler: Scheduler) -> None:
    """Keep the numbers of the queues, and decide nothing."""
    scheduler.rebuild()
    await scheduler.numbers.run()


if __name__ == "__main__":
    if os.environ.get("KYU_WITHOUT_SCHEDULER"):
        Scheduler.run = count_only  # type: ignore[method-assign,assignment]
    sys.exit(main(sys.argv[1:]))
