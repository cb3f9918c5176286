"""One line of the ledger: an attempt of a pod, from its start to its end on a node."""

from __future__ import annotations

from typing import Literal

import msgspec

from kyu.api.meta import Json, Kind

GROUP = "accounting.kyu.dev"
ATTEMPT = Kind(GROUP, "v1", "Attempt", "attempts")
# The user who created a Job or Workload. Written by the server, and not to be changed.
SUBMITTER = "kyu.dev/submitted-by"
# The user name of a local account begins with it. Only the socket of the server gives such names.
UNIX_PREFIX = "unix:"


def submitter_of(obj: Json) -> str:
    """Return the name of the user who submitted an object; empty if it is not recorded."""
    annotations = (obj.get("metadata") or {}).get("annotations")
    return str(annotations.get(SUBMITTER) or "") if isinstance(annotations, dict) else ""


def unix_account(user: str) -> str:
    """Return the local account of a user name; empty if it is none."""
    return user.removeprefix(UNIX_PREFIX) if user.startswith(UNIX_PREFIX) else ""


AttemptState = Literal[
    "Succeeded", "Failed", "OOMKilled", "TimeLimit", "Preempted", "Evicted", "Cancelled", "Stopped", "Lost"
]
# The states of attempts that were ended to give their quota to others, so that their work is lost.
WASTED: tuple[AttemptState, ...] = ("Preempted", "Evicted")


class JobAttempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt. Amounts of ``requests`` are in base units: cores, bytes, devices; ``seconds`` is the run time."""

    uid: str
    namespace: str
    pod: str
    state: AttemptState
    queued: str
    started: str
    ended: str
    seconds: float
    job: str = ""
    kind: str = ""
    job_uid: str = ""
    task: str = ""
    workload: str = ""
    queue: str = ""
    cluster_queue: str = ""
    flavors: dict[str, str] = {}
    priority: int = 0
    submitter: str = ""
    node: str = ""
    requests: dict[str, float] = {}
    exit_code: int | None = None
    reason: str = ""
    restarts: int = 0
    # None if the node could not measure it: its supervisor was killed.
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
