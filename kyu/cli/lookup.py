"""
Finding what a user means by the name of a job: its Workload.

A name is `train`, or `job/train` where kinds share a name.
"""

from __future__ import annotations

import time

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.cli.connection import Server
from kyu.cli.jobs import JOB, REPLACED, full_state_of_job, held_back, owner_of, state_of
from kyu.cli.main import Failed
from kyu.kinds import metadata

JUST_SUBMITTED_SECONDS = 10.0
POLL_SECONDS = 0.1


def find_workload(server: Server, name: str) -> Json:
    """The newest Workload of that job; an error that lists what there is, if there is none."""
    kind, plain = split(name)
    gives_up_at = time.monotonic() + JUST_SUBMITTED_SECONDS
    while True:
        if found := workloads_of(server, kind, plain):
            return max(found, key=newness)
        # A job that was submitted a moment ago gets its Workload in the next one, unless something is wrong with it.
        job = find_job(server, kind, plain)
        is_late = time.monotonic() > gives_up_at
        if job is None or is_late or not metadata.queue_name(job) or held_back(server, job):
            break
        time.sleep(POLL_SECONDS)
    if job is not None:
        raise Failed(f"Job {plain}: {full_state_of_job(server, job).why}")
    known = sorted({owner_of(item)[1] for item in server.listed(Workload.KIND, server.namespace)})
    hint = f"; there are: {', '.join(known[:8])}{' …' if len(known) > 8 else ''}" if known else ""
    raise Failed(f"no job {name!r} in namespace {server.namespace}{hint}")


def workloads_of(server: Server, kind: str, name: str) -> list[Json]:
    return [item for item in server.listed(Workload.KIND, server.namespace) if is_meant(item, kind, name)]


def split(name: str) -> tuple[str, str]:
    kind, _, plain = name.rpartition("/")
    return kind.partition(".")[0].lower(), plain


def newness(workload: Json) -> tuple[bool, str]:
    """Two may be of the same second: one whose place was taken is older than that which took it."""
    return state_of(workload).word != REPLACED, str(workload["metadata"].get("creationTimestamp"))


def in_force(server: Server, workload: Json) -> Json:
    """The Workload itself, or that which has taken its place since an elastic job has changed its size."""
    if state_of(workload).word != REPLACED:
        return workload
    kind, name = owner_of(workload)
    return find_workload(server, f"{kind}/{name}")


def is_meant(workload: Json, kind: str, name: str) -> bool:
    owner_kind, owner_name = owner_of(workload)
    return name in (owner_name, workload["metadata"]["name"]) and kind in ("", owner_kind.lower(), "workload")


def find_job(server: Server, kind: str, name: str) -> Json | None:
    """The Job of that name, which may have no Workload."""
    return server.client.find(JOB, Key(server.namespace, name)) if kind in ("", "job") else None


def why_not_queued(server: Server, job: Json) -> str:
    """What keeps a Job that was just created from its queue; nothing as soon as it has its Workload."""
    gives_up_at = time.monotonic() + JUST_SUBMITTED_SECONDS
    while time.monotonic() < gives_up_at:
        if trouble := held_back(server, job):
            return trouble
        if workloads_of(server, "job", metadata.name_of(job)):
            return ""
        time.sleep(POLL_SECONDS)
    return ""


def pod_count(workload: Json) -> int:
    """How many pods the job asks for at once."""
    return sum(pod_set.get("count", 1) for pod_set in workload["spec"]["podSets"])
