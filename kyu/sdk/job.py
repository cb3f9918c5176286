"""A job that this process has submitted: it turns what the watcher sees into results of futures."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import InvalidStateError
from typing import Any

from kyu.api.kueue import Workload
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.cli.batch import attempts, jobs, jobs_pods, lookup, why
from kyu.cli.connection import ServerConnection
from kyu.cli.main import Failed
from kyu.kinds import metadata, pods
from kyu.kinds.job import INDEX, index_ranges
from kyu.kube.errors import ApiError, NotFound
from kyu.sdk import worker
from kyu.sdk.connections import Connections
from kyu.sdk.errors import JobFailed
from kyu.sdk.exchange import Exchange
from kyu.sdk.futures import Future
from kyu.sdk.parcel import CallOutcome

# An outcome may reach this process a little later than the end of its pod: by a network file system, or by a log.
LATE_SECONDS = 10.0
LATE_AFTER_FAILURE_SECONDS = 2.0
LOOK_AGAIN_SECONDS = 0.2
OTHER_KINDS_SECONDS = 1.0


class SubmittedJob:
    """
    A job with its futures. ``tasks`` has the futures of each task of an array, or of the one task of a job.

    The watcher calls the methods ``see_…`` from its thread. The subclasses say what a task's end means.
    """

    def __init__(self, connections: Connections, kind: Kind, name: str) -> None:
        self._connections = connections
        self.kind = kind
        self.name = name
        self.namespace = connections.namespace
        self.uid = ""
        self.token = secrets.token_hex(8)
        self.is_batch_job = kind == jobs.JOB
        self.tasks: Sequence[Sequence[Future[Any]]] = ()
        self._job: Json | None = None
        self._state = ""
        # The time at which the end of a task was seen without its outcome.
        self._late: dict[int, float] = {}
        self._has_workload = False

    # Answers for futures.

    def ask_state(self) -> str:
        """Return the state of the job, from its Workload where it has one."""
        server = self._connections.server()
        workload = self._find_workload(server)
        if workload is not None:
            return jobs.state_of(workload).word
        return self._ask_state_without_workload(server)

    def _ask_state_without_workload(self, server: ServerConnection) -> str:
        job = server.client.find(self.kind, Key(self.namespace, self.name))
        if job is None:
            return "Deleted"
        return state_of_batch_job(job) if self.is_batch_job else "Queued"

    def known_state(self, task: int) -> str:
        """Return the last state that the watcher saw, without a request."""
        if self._job is None:
            return self._state or "Queued"
        return state_of_batch_job(self._job)

    def explain(self) -> str:
        server = self._connections.server()
        try:
            workload = lookup.find_workload(server, f"{self.kind.kind}/{self.name}")
            return why.describe(workload, why.ask(server, workload))
        except Failed as error:
            return str(error)

    def read_logs(self, task: int | None) -> str:
        """Return the output of the last attempt of a task, or of all tasks."""
        server = self._connections.server()
        found = attempts.kept_pods(server, self.name)
        workload = self._find_workload(server)
        if workload is not None:
            found = [*attempts.of_workload(found, workload), *attempts.existing_pods(server, workload)]
        last = attempts.last_attempts(attempts.numbered(found))
        wanted = [pod for pod in last if task is None or (pod.task or "0") == str(task)]
        return "".join(line for pod in wanted for line in output_of(server, pod.log))

    def delete(self) -> None:
        with contextlib.suppress(NotFound):
            client = self._connections.server().client
            client.delete(self.kind, Key(self.namespace, self.name), propagation="Background")

    # News from the watcher.

    @property
    def is_over(self) -> bool:
        return all(future.done() for futures in self.tasks for future in futures)

    @property
    def retry_seconds(self) -> float | None:
        if self._late:
            return LOOK_AGAIN_SECONDS
        return None if self.is_batch_job else OTHER_KINDS_SECONDS

    def see_job(self, job: Json) -> None:
        self.uid = self.uid or metadata.uid_of(job)
        self._job = job
        status = job.get("status") or {}
        completed = set(indexes(status.get("completedIndexes")))
        failed = set(indexes(status.get("failedIndexes")))
        ended = jobs.conditions_of(job)
        # The order matters: an index that has succeeded stays so when the Job fails.
        for condition, all_tasks in (("Complete", completed), ("Failed", failed)):
            if ended.get(condition, {}).get("status") == "True":
                all_tasks |= set(range(len(self.tasks))) - completed - failed
        for task in sorted(completed | failed):
            if not is_done(self.tasks[task]):
                self._end(task, has_succeeded=task in completed)
        if self.is_over:
            self._clean()

    def see_workload(self, workload: Json) -> None:
        self._has_workload = True
        state = jobs.state_of(workload)
        self._state = state.word
        if state.word == "Stopped":
            self._fail_all(JobFailed(self.name, f"stopped: {state.why}"))
        elif not self.is_batch_job and state.word in ("Succeeded", "Failed"):
            for task in range(len(self.tasks)):
                self._end(task, has_succeeded=state.word == "Succeeded")

    def see_no_workload(self) -> None:
        """Take the job as deleted if its Workload was there before. Jobs of the kind Job are seen themselves."""
        if self.is_batch_job:
            return
        if self._has_workload:
            self.see_deletion()
            return
        # The Workload of a MiniCluster belongs to the Job that it makes, which has its name.
        made = self._connections.server().client.find(jobs.JOB, Key(self.namespace, self.name))
        owners = made["metadata"].get("ownerReferences") or () if made else ()
        if made and any(owner["uid"] == self.uid for owner in owners):
            self.uid = metadata.uid_of(made)

    def see_deletion(self) -> None:
        for futures in self.tasks:
            for future in futures:
                future.mark_cancelled()
        self._clean()

    def give_up(self, error: Exception) -> None:
        self._fail_all(error)

    # The end of a task.

    def _end(self, task: int, *, has_succeeded: bool) -> None:
        server = self._connections.server()
        outcomes = self._outcomes(server, task, has_succeeded=has_succeeded)
        if outcomes is None:
            since = self._late.setdefault(task, time.monotonic())
            limit = LATE_SECONDS if has_succeeded else LATE_AFTER_FAILURE_SECONDS
            if time.monotonic() - since < limit:
                return
            outcomes = [CallOutcome(error=self._failure(server, task, has_succeeded=has_succeeded))]
            outcomes *= len(self.tasks[task])
        self._late.pop(task, None)
        for future, outcome in zip(self.tasks[task], outcomes, strict=True):
            set_outcome(future, outcome)

    def _outcomes(self, server: ServerConnection, task: int, *, has_succeeded: bool) -> list[CallOutcome] | None:
        """Return the outcomes of a task that has ended, or None if they are not known yet."""
        raise NotImplementedError

    def _failure(self, server: ServerConnection, task: int, *, has_succeeded: bool) -> JobFailed:
        """Return the error of a task without an outcome: how its pod ended, or why the job failed."""
        workload = self._find_workload(server)
        mine = jobs_pods.pods_of(server, workload) if workload is not None else []
        if len(self.tasks) > 1:
            mine = [pod for pod in mine if metadata.annotations_of(pod).get(INDEX) == str(task)]
        troubles = jobs_pods.troubles(mine[-1:])
        code = next((code for code in map(pods.exit_code, reversed(mine)) if code is not None), None)
        ended = jobs.conditions_of(self._job or {}).get("Failed", {})
        why_failed = "; ".join(troubles) or str(ended.get("message") or ended.get("reason") or "the job failed")
        why_failed = "it ended without a result" if has_succeeded else why_failed.removeprefix("1 pod: ")
        output = "".join(output_of(server, key_of(mine[-1]))) if mine else ""
        return JobFailed(self.name, why_failed, code, output)

    def _find_workload(self, server: ServerConnection) -> Json | None:
        if not self.uid:
            return None
        found = server.client.list(Workload.KIND, self.namespace, labels=f"{metadata.JOB_UID}={self.uid}")
        return max(found, key=lookup.newness, default=None)

    def _fail_all(self, error: Exception) -> None:
        for futures in self.tasks:
            for future in futures:
                set_outcome(future, CallOutcome(error=error))

    def _clean(self) -> None:
        """Remove what the job no longer needs."""


class FunctionJob(SubmittedJob):
    """A job that calls a function."""

    def __init__(self, connections: Connections, name: str, exchange: Exchange) -> None:
        super().__init__(connections, jobs.JOB, name)
        self._exchange = exchange

    def _outcomes(self, server: ServerConnection, task: int, *, has_succeeded: bool) -> list[CallOutcome] | None:
        return self._exchange.fetch(server, self.name, task)

    def _clean(self) -> None:
        self._exchange.clean()


class PlainJob(SubmittedJob):
    """A job that runs a command, or any other kind of job. Its result is its output."""

    def _outcomes(self, server: ServerConnection, task: int, *, has_succeeded: bool) -> list[CallOutcome] | None:
        if has_succeeded:
            return [CallOutcome(self.read_logs(None))]
        return [CallOutcome(error=self._failure(server, task, has_succeeded=False))]


def state_of_batch_job(job: Json) -> str:
    """Return the state of a Job itself. A suspended one has no Workload yet, or waits with it."""
    word = jobs.state_of_job(job).word
    return "Queued" if word == "Suspended" else word


def set_outcome(future: Future[Any], outcome: CallOutcome) -> None:
    """Resolve a future, unless it was cancelled meanwhile."""
    with contextlib.suppress(InvalidStateError):
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.value)


def is_done(futures: Sequence[Future[Any]]) -> bool:
    return all(future.done() for future in futures)


def indexes(text: str | None) -> Iterator[int]:
    for places in index_ranges(text or ""):
        yield from places


def output_of(server: ServerConnection, key: Key) -> Iterator[str]:
    """Yield the lines of a pod's log, without the outcome that the SDK has put there."""
    held = b""
    try:
        for line in server.client.logs(key, {}):
            if line.startswith(worker.MARK):
                # The line feed before the outcome belongs to it.
                held = b""
                continue
            yield held.decode(errors="replace")
            held = b""
            if line == b"\n":
                held = line
            else:
                yield line.decode(errors="replace")
    except ApiError as error:
        if error.code not in (400, 404):
            raise
    yield held.decode(errors="replace")
