"""The benchmark of MasterQueues runs on a small scale and hears all of its pools."""

from __future__ import annotations

import asyncio

from kyu.bench import pools
from kyu.bench.pools import Leg, PoolLoad

TINY = PoolLoad(queues=2, pools=3, news=50.0, garbage=100, seconds=1.0, warm_up=0.0)


def test_all_pools_are_heard_and_every_figure_is_given() -> None:
    # The benchmark itself waits until every pool is live in every leg.
    rows = asyncio.run(pools.measure(TINY))
    assert all(row.ratio is not None and row.ratio > 0 for row in rows[:2])
    assert rows[-1].value.startswith("0; ")


def test_the_time_of_news_is_read_off_the_queue() -> None:
    resources = [{"name": "cpu", "nominalQuota": "1"}, {"name": "memory", "nominalQuota": "1700000000000001"}]
    quiet = [{"name": "memory", "nominalQuota": "1Ti"}]
    flavors = [{"name": "news", "resources": resources}, {"name": "quiet", "resources": quiet}]
    assert pools.amounts({"spec": {"resourceGroups": [{"flavors": flavors}]}}) == {"news": 1_700_000_000_000_001}
    (row,) = pools.news_rows(Leg(delays=[float(number) for number in range(100)]))
    assert row.ratio == 99.0
