"""
Find the Workload of a job by the name that a user gave.

A name is `train`, or `job/train` if jobs of two kinds have the same name.
"""

from __future__ import annotations

import time

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.cli.batch.jobs import JOB, REPLACED, full_state_of_job, owner_of, state_of, why_no_workload
from kyu.cli.connection import ServerConnection
from kyu.cli.main import Failed
from kyu.kinds import metadata

JUST_SUBMITTED_SECONDS = 10.0
POLL_SECONDS = 0.1


def find_workload(server: ServerConnection, name: str) -> Json:
    """Return the newest Workload of a job, or raise Failed with the names of the existing jobs."""
    kind, plain = split(name)
    gives_up_at = time.monotonic() + JUST_SUBMITTED_SECONDS
    while True:
        if found := workloads_of(server, kind, plain):
            return max(found, key=newness)
        # The controllers create the Workload of a new Job within moments, unless the Job is invalid.
        job = find_job(server, kind, plain)
        is_late = time.monotonic() > gives_up_at
        if job is None or is_late or not metadata.queue_name(job) or why_no_workload(server, job):
            break
        time.sleep(POLL_SECONDS)
    if job is not None:
        raise Failed(f"Job {plain}: {full_state_of_job(server, job).why}")
    known = sorted({owner_of(item)[1] for item in server.listed(Workload.KIND, server.namespace)})
    hint = f"; there are: {', '.join(known[:8])}{' …' if len(known) > 8 else ''}" if known else ""
    raise Failed(f"no job {name!r} in namespace {server.namespace}{hint}")


def workloads_of(server: ServerConnection, kind: str, name: str) -> list[Json]:
    return [item for item in server.listed(Workload.KIND, server.namespace) if is_named(item, kind, name)]


def split(name: str) -> tuple[str, str]:
    kind, _, plain = name.rpartition("/")
    return kind.partition(".")[0].lower(), plain


def newness(workload: Json) -> tuple[bool, str]:
    """Return a sort key for the age of a Workload. A replaced slice is older, even of the same second."""
    return state_of(workload).word != REPLACED, str(workload["metadata"].get("creationTimestamp"))


def current_workload(server: ServerConnection, workload: Json) -> Json:
    """Return the Workload, or the slice that has replaced it since an elastic job changed its size."""
    if state_of(workload).word != REPLACED:
        return workload
    kind, name = owner_of(workload)
    return find_workload(server, f"{kind}/{name}")


def is_named(workload: Json, kind: str, name: str) -> bool:
    owner_kind, owner_name = owner_of(workload)
    return name in (owner_name, workload["metadata"]["name"]) and kind in ("", owner_kind.lower(), "workload")


def find_job(server: ServerConnection, kind: str, name: str) -> Json | None:
    """Return the Job of that name, which may have no Workload."""
    return server.client.find(JOB, Key(server.namespace, name)) if kind in ("", "job") else None


def why_not_queued(server: ServerConnection, job: Json) -> str:
    """Wait for the Workload of a new Job; return why it gets none, or an empty text."""
    gives_up_at = time.monotonic() + JUST_SUBMITTED_SECONDS
    while time.monotonic() < gives_up_at:
        if trouble := why_no_workload(server, job):
            return trouble
        if workloads_of(server, "job", metadata.name_of(job)):
            return ""
        time.sleep(POLL_SECONDS)
    return ""


def pod_count(workload: Json) -> int:
    """Return the number of pods that the job wants at the same time."""
    return sum(pod_set.get("count", 1) for pod_set in workload["spec"]["podSets"])
