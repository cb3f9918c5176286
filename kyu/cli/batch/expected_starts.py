"""
The expected starts of waiting jobs, for `kyu jobs --eta`.

The run times of the past come from the ledger of the server. Without a ledger, or without the right to read it, only
declared maximum execution times count.

Called by: cli/batch/jobs.py. Calls: engine/what_if/forecast.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from kyu.api.accounting import WASTED, JobAttempt
from kyu.api.meta import Key
from kyu.cli import ledger, server_state
from kyu.cli.batch import why
from kyu.cli.connection import ServerConnection
from kyu.cli.main import Failed
from kyu.engine.state import State
from kyu.engine.what_if.forecast import ExpectedStart, PastRunTimes, expected_starts
from kyu.kinds import conditions
from kyu.kube.errors import ApiError, Forbidden

DAYS = 30
# The most past jobs of a LocalQueue that are drawn from, the latest ones.
MOST_PAST = 200
UNKNOWN = ("Cancelled", "Stopped", "Lost", *WASTED)


def find_all(server: ServerConnection, state: State, now: datetime) -> dict[Key, ExpectedStart]:
    """Return the expected start of each pending workload. The state belongs to the caller alone."""
    return expected_starts(state, now.timestamp(), past_run_times(read_ledger(server, now)))


def read_ledger(server: ServerConnection, now: datetime) -> list[JobAttempt]:
    """Return the attempts of the last days; none if the server keeps no ledger or the user may not read it."""
    since = conditions.timestamp((now - timedelta(days=DAYS)).astimezone(UTC))
    for namespace in (None, server.namespace):
        with contextlib.suppress(Failed, ApiError):
            return ledger.pages(server, namespace, {"since": since})
    return []


def past_run_times(found: Iterable[JobAttempt]) -> PastRunTimes:
    """Return the run times of past jobs by LocalQueue: of each job, the longest attempt that ended by itself."""
    jobs: dict[Key, dict[str, float]] = {}
    for attempt in found:
        if attempt.state not in UNKNOWN and attempt.queue:
            longest = jobs.setdefault(Key(attempt.namespace, attempt.queue), {})
            job = attempt.job_uid or attempt.uid
            longest[job] = max(longest.get(job, 0.0), attempt.seconds)
    return PastRunTimes({queue: sorted(list(longest.values())[-MOST_PAST:]) for queue, longest in jobs.items()})


def texts(server: ServerConnection, now: datetime) -> dict[Key, str]:
    """Return the expected start of each pending workload in words, or raise Failed without the right to see all."""
    try:
        objects = server_state.read_objects(server)
    except Forbidden as error:
        raise Failed("--eta: you may not see the usage of others, which the start of a job depends on") from error
    state = why.state_of(server, why.decode_objects(objects))
    return {key: describe(found, now) for key, found in find_all(server, state, now).items()}


def describe(found: ExpectedStart | None, now: datetime) -> str:
    """Return the expected start in words: by median run times, and with long run times."""
    if found is None or found.median is None:
        return "no estimate"
    about = clock(found.median, now)
    late = "unknown" if found.most is None else clock(found.most, now)
    return f"about {about}" if late == about else f"about {about}, if jobs run long {late}"


def clock(moment: float, now: datetime) -> str:
    """Return a time of today as hours and minutes, another with its date."""
    time = datetime.fromtimestamp(moment, UTC)
    if time <= now:
        return "now"
    return time.strftime("%H:%M UTC" if time.date() == now.date() else "%Y-%m-%d %H:%M UTC")
