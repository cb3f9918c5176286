"""
A thread that follows the jobs of this process on one server, and tells each job what became of it.

It watches the Jobs that this process has made, by their label, and looks at the Workloads of the others. It outlives
restarts of the server: it lists and watches again as soon as the server answers. It ends when no job is left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from kyu.api.kueue import Workload
from kyu.api.meta import Json
from kyu.cli.batch.jobs import JOB
from kyu.cli.batch.reconnect import is_away
from kyu.cli.connection import ServerConnection
from kyu.kinds import metadata
from kyu.kube.blocking import Unreachable
from kyu.kube.errors import ApiError, Gone

log = logging.getLogger("kyu")
# The annotation that tells one submission from another, also of the same name.
TOKEN = "kyu.dev/sdk-token"
WATCH_SECONDS = 5.0
PAUSE_SECONDS = 0.25
# An answer such as Forbidden must come so many times in a row before the futures fail with it.
MOST_REFUSALS = 5
# A request names so many Workloads at most.
MOST_UIDS = 50


class FollowedJob(Protocol):
    """A job as the watcher sees it. A method that raises is called again later."""

    token: str
    uid: str
    is_batch_job: bool

    def see_job(self, job: Json) -> None: ...

    def see_workload(self, workload: Json) -> None: ...

    def see_deletion(self) -> None: ...

    def see_no_workload(self) -> None: ...

    def give_up(self, error: Exception) -> None: ...

    @property
    def is_over(self) -> bool:
        """Whether all futures of the job are done."""

    @property
    def retry_seconds(self) -> float | None:
        """The time after which the job wants to be shown again, or None."""


class JobWatcher:
    """The jobs that are followed on one server and in one namespace, and the thread that does it."""

    def __init__(self, connect: Callable[[], ServerConnection], labels: str) -> None:
        self._connect = connect
        self._labels = labels
        self._jobs: dict[str, FollowedJob] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_away = False
        self._refusals = 0

    def follow(self, job: FollowedJob) -> None:
        with self._lock:
            self._jobs[job.token] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kyu-watcher", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Take all jobs as deleted: their server is gone for good."""
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            job.see_deletion()

    def forget(self, job: FollowedJob) -> None:
        with self._lock:
            self._jobs.pop(job.token, None)

    def _followed(self) -> list[FollowedJob]:
        """Return the jobs that are not over."""
        with self._lock:
            self._jobs = {token: job for token, job in self._jobs.items() if not job.is_over}
            return list(self._jobs.values())

    def _has_ended(self) -> bool:
        """Return whether no job is left. Then the thread ends, and the next job starts another one."""
        with self._lock:
            if all(job.is_over for job in self._jobs.values()):
                self._jobs = {}
                self._thread = None
            return self._thread is None

    def _run(self) -> None:
        server = self._connect()
        version = ""
        while not self._has_ended():
            try:
                version = self._round(server, version)
                self._is_away, self._refusals = False, 0
            except Gone:
                version = ""
            except Exception as error:
                # Also an answer that breaks off in the middle, and faults of the SDK: no future may wait for ever.
                version = ""
                self._bear(server, error)
        server.client.close()

    def _round(self, server: ServerConnection, version: str) -> str:
        """List the jobs if no version is known, then watch for a while; return the version to continue from."""
        if not version:
            version = self._list(server)
        self._look_at_workloads(server)
        retries = [seconds for job in self._followed() if (seconds := job.retry_seconds) is not None]
        limit = min([WATCH_SECONDS, *retries])
        if limit < 1.0:
            # The shortest watch of Kubernetes takes a second.
            time.sleep(limit)
            return self._list(server)
        events = server.client.watch(JOB, server.namespace, version=version, labels=self._labels, timeout_seconds=limit)
        for type_, job in events:
            version = str(job["metadata"]["resourceVersion"])
            self._show(type_, job)
            if type_ != "BOOKMARK" and not self._followed():
                break
        return version if not retries else ""

    def _list(self, server: ServerConnection) -> str:
        before = [job for job in self._followed() if job.is_batch_job and job.uid]
        found, version = server.client.list_versioned(JOB, server.namespace, labels=self._labels)
        for listed in found:
            # Also jobs that were created meanwhile: they may have ended already.
            self._show("LISTED", listed)
        uids = set(map(metadata.uid_of, found))
        for job in before:
            if job.uid not in uids:
                tell(job, job.see_deletion)
        return version

    def _show(self, type_: str, job: Json) -> None:
        with self._lock:
            followed = self._jobs.get(metadata.annotations_of(job).get(TOKEN, ""))
        if followed is not None:
            tell(followed, followed.see_deletion if type_ == "DELETED" else partial(followed.see_job, job))

    def _look_at_workloads(self, server: ServerConnection) -> None:
        """Show the Workloads to their jobs: they tell of jobs of other kinds, and of stopped jobs."""
        jobs = {job.uid: job for job in self._followed() if job.uid}
        for uids in parts(jobs):
            selector = f"{metadata.JOB_UID} in ({','.join(uids)})"
            found = server.client.list(Workload.KIND, server.namespace, labels=selector)
            for workload in found:
                job = jobs[job_uid(workload)]
                tell(job, partial(job.see_workload, workload))
            for uid in {*uids} - {*map(job_uid, found)}:
                tell(jobs[uid], jobs[uid].see_no_workload)

    def _bear(self, server: ServerConnection, error: Exception) -> None:
        """Wait for a server that is away. Give the jobs up if requests fail otherwise, again and again."""
        server.client.close()
        if is_away(error):
            if not self._is_away:
                log.warning("%s; futures wait for it", error)
            self._is_away = True
        else:
            log.warning("following jobs failed: %s: %s", type(error).__name__, error)
            self._refusals += 1
            if self._refusals >= MOST_REFUSALS:
                for job in self._followed():
                    job.give_up(error)
        time.sleep(PAUSE_SECONDS)


def tell(job: FollowedJob, call: Callable[[], None]) -> None:
    """Tell a job what was seen. An error that is not the server's ends this job, and not the watcher."""
    try:
        call()
    except (Unreachable, ApiError):
        raise
    except Exception as error:
        job.give_up(error)


def job_uid(workload: Json) -> str:
    return metadata.labels_of(workload)[metadata.JOB_UID]


def parts(uids: Iterable[str]) -> Iterator[list[str]]:
    """Yield the uids in lists of a bounded length."""
    every = list(uids)
    for start in range(0, len(every), MOST_UIDS):
        yield every[start : start + MOST_UIDS]
