"""Changes of the reports of clusters that matter: most repeat the last one."""

from __future__ import annotations

from kyu.api.clusters.capacity import REPORTED_AT
from kyu.api.meta import Json
from kyu.kinds import metadata
from kyu.plans.clusters.reports import read_time
from kyu.plans.clusters.supply import says_the_same

# A report this long after the last one may find its cluster stale. The schema allows no shorter staleSeconds than 20.
LATE_SECONDS = 15.0


def report_changed(old: Json | None, new: Json | None) -> bool:
    """Return whether the report has another content or came late. A timely repetition does not matter."""
    if old is None or new is None or not says_the_same(old, new):
        return True
    if metadata.labels_of(old) != metadata.labels_of(new) or metadata.is_deleted(old) != metadata.is_deleted(new):
        return True
    before, after = (read_time(metadata.annotations_of(one).get(REPORTED_AT, "")) for one in (old, new))
    return before is None or after is None or (after - before).total_seconds() > LATE_SECONDS
