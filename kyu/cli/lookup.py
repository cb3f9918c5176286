"""
Finding what a user means by the name of a job: its Workload, its pods, its job object.

A name is `train`, or `job/train` where kinds share a name. The pods of a job are those that were started for its
Workload, however many objects stand in between.
"""

from __future__ import annotations

import time
from collections import Counter

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key
from kyu.cli.connection import Server
from kyu.cli.jobs import REPLACED, owner_of, state_of, state_of_job
from kyu.cli.main import Failed
from kyu.kinds import metadata
from kyu.kinds.job import JOB
from kyu.kinds.pod import POD

JUST_SUBMITTED_SECONDS = 10.0
POLL_SECONDS = 0.1


def find_workload(server: Server, name: str) -> Json:
    """The newest Workload of that job; an error that lists what there is, if there is none."""
    kind, _, plain = name.rpartition("/")
    kind = kind.partition(".")[0].lower()
    gives_up_at = time.monotonic() + JUST_SUBMITTED_SECONDS
    while True:
        everything = server.client.list(Workload.KIND, server.namespace)
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


def pods_of(server: Server, workload: Json) -> list[Json]:
    """In the order in which they were made."""
    name = metadata.annotations_of(workload).get(metadata.SLICE_NAME) or workload["metadata"]["name"]
    owners = {owner["uid"] for owner in workload["metadata"].get("ownerReferences") or ()}
    mine = [
        pod
        for pod in server.client.list(POD, server.namespace)
        if metadata.annotations_of(pod).get(metadata.WORKLOAD) == name or pod["metadata"]["uid"] in owners
    ]
    return sorted(mine, key=lambda pod: (str(pod["metadata"].get("creationTimestamp")), metadata.name_of(pod)))


def pod_count(workload: Json) -> int:
    """How many pods the job asks for at once."""
    return sum(pod_set.get("count", 1) for pod_set in workload["spec"]["podSets"])


def troubles(pods: list[Json]) -> list[str]:
    """Why pods do not run, or did not end well: each trouble once, with the number of pods that have it."""
    found = Counter(trouble for pod in pods if (trouble := trouble_of(pod)))
    return [f"{count} pod{'s' if count > 1 else ''}: {trouble}" for trouble, count in found.items()]


def trouble_of(pod: Json) -> str:
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = container.get("state") or {}
        held = state.get("waiting") or state.get("terminated") or {}
        if held.get("reason") not in (None, "Completed"):
            code = f", exit code {held['exitCode']}" if held.get("exitCode") else ""
            return f"{held['reason']}{code}{': ' + held['message'] if held.get('message') else ''}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', 'not scheduled')}: {condition.get('message', '')}"
    # Of the pod as a whole, by who should run it.
    return f"{status['reason']}: {status.get('message', '')}" if status.get("reason") else ""
