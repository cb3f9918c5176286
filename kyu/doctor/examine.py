"""
The examination: run every check on a set of objects. START HERE to find the check of a code.

Called by: cli/admin/doctor.py.
"""

from __future__ import annotations

from datetime import datetime

from kyu.doctor import jobs, live, queues, settings
from kyu.doctor.world import DoctorFinding, FoundObject, World


def examine(objects: list[FoundObject], *, is_live: bool, now: datetime) -> list[DoctorFinding]:
    """Return the findings about some objects, errors first, each once."""
    world = World(objects, is_live)
    found = [finding for check in (*queues.CHECKS, *jobs.CHECKS, *settings.CHECKS) for finding in check(world)]
    found += [finding for check in live.CHECKS for finding in check(world, now)]
    specific = {(finding.object, finding.where) for finding in found if finding.code != "invalid"}
    # The words of the API server only repeat an error that a check explains.
    kept = [f for f in dict.fromkeys(found) if f.code != "invalid" or (f.object, f.where) not in specific]
    return sorted(kept, key=lambda finding: (finding.severity != "error", finding.where, finding.object, finding.code))
