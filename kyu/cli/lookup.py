"""
Finding what a user means by the name of a job: its Workload.

A name is `train`, or `job/train` where kinds share a name.
"""

from __future__ import annotations

import time

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.cli.connection import Server
from kyu.cli.jobs import REPLACED, owner_of, state_of, state_of_job
from kyu.cli.main import Failed
from kyu.kinds import metadata
from kyu.kinds.job import JOB

JUST_SUBMITTED_SECONDS = 10.0
POLL_SECONDS = 0.1


def find_workload(server: Server, name: str) -> Json:
    """The newest Workload of that job; an error that lists what there is, if there is none."""
    kind, _, plain = name.rpartition("/")
    kind = kind.partition(".")[0].lower()
    gives_up_at = time.monotonic() + JUST_SUBMITTED_SECONDS
    while True:
        everything = server.listed(Workload.KIND, server.namespace)
        found = [item for item in everything if is_meant(item, kind, plain)]
        if found:
            return max(found, key=newness)
        # A job that was submitted a moment ago gets its Workload in the next one.
        if time.monotonic() > gives_up_at or not is_submitted(server, kind, plain):
            break
        time.sleep(POLL_SECONDS)
    if kind in ("", "job") and (job := server.client.find(JOB, Key(server.namespace, plain))) is not None:
        raise Failed(f"Job {plain}: {state_of_job(job).why}")
    known = sorted({owner_of(item)[1] for item in everything})
    hint = f"; there are: {', '.join(known[:8])}{' …' if len(known) > 8 else ''}" if known else ""
    raise Failed(f"no job {name!r} in namespace {server.namespace}{hint}")


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


def is_submitted(server: Server, kind: str, name: str) -> bool:
    job = server.client.find(JOB, Key(server.namespace, name)) if kind in ("", "job") else None
    return job is not None and bool(metadata.queue_name(job))


def pod_count(workload: Json) -> int:
    """How many pods the job asks for at once."""
    return sum(pod_set.get("count", 1) for pod_set in workload["spec"]["podSets"])
