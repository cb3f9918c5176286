"""Futures of jobs: those of ``concurrent.futures``, which also know state, reason and output of their job."""

from __future__ import annotations

import asyncio
import concurrent.futures
import html
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class JobOfFuture(Protocol):
    """A job as its futures see it."""

    name: str
    namespace: str

    def ask_state(self) -> str: ...

    def known_state(self, task: int) -> str: ...

    def explain(self) -> str: ...

    def read_logs(self, task: int | None) -> str: ...

    def delete(self) -> None: ...


class Future(concurrent.futures.Future[T], Generic[T]):
    """
    The result of a job to come. It works wherever a future of ``concurrent.futures`` does, and can be awaited.

    A future waits as long as the job and its server take: it survives restarts of the server. Use ``result(timeout)``
    to wait for a limited time.
    """

    def __init__(self, job: JobOfFuture, task: int = 0, *, is_shared: bool = False) -> None:
        super().__init__()
        self._job = job
        self._task = task
        self._is_shared = is_shared

    @property
    def job(self) -> str:
        """The name of the job, as `kyu jobs` shows it."""
        return self._job.name

    @property
    def namespace(self) -> str:
        return self._job.namespace

    @property
    def state(self) -> str:
        """The state of the job now: Queued, Starting, Running, Succeeded, Failed, Cancelled …"""
        return self._known_state() if self.done() else self._job.ask_state()

    def why(self) -> str:
        """Explain the state of the job, as `kyu why` does."""
        return self._job.explain()

    def logs(self) -> str:
        """Return the output of the job so far; of an array, that of the task."""
        return self._job.read_logs(self._task if self._is_shared else None)

    def cancel(self) -> bool:
        """Delete the job, whether it waits or runs. Return False if it has ended, or if it is a task of an array."""
        if self.done() or self._is_shared:
            return self.cancelled()
        self._job.delete()
        return self.mark_cancelled()

    def delete(self) -> None:
        """Delete the job, also one that has ended; of an array, all of it. A result that is known stays."""
        self._job.delete()

    def mark_cancelled(self) -> bool:
        """Tell all that wait for the future that there will be no result."""
        is_cancelled = super().cancel()
        if is_cancelled and not self._is_notified():
            self.set_running_or_notify_cancel()
        return is_cancelled

    def _is_notified(self) -> bool:
        return self._state == "CANCELLED_AND_NOTIFIED"

    def _known_state(self) -> str:
        if self.cancelled():
            return "Cancelled"
        if self.done():
            return "Failed" if self.exception() else "Succeeded"
        return self._job.known_state(self._task)

    def __await__(self) -> Generator[Any, None, T]:
        # A task that stops waiting does not cancel the job.
        return asyncio.shield(asyncio.wrap_future(self)).__await__()

    def __repr__(self) -> str:
        place = f"[{self._task}]" if self._is_shared else ""
        return f"<kyu.Future {self.job}{place} {self._known_state()}>"

    def _repr_html_(self) -> str:
        return f"<code>{html.escape(self.job)}</code> {self._known_state()}"


class FutureArray(Sequence[Future[T_co]], Generic[T_co]):
    """The futures of an array, one for each element, in the order of the elements."""

    def __init__(self, job: JobOfFuture, futures: Sequence[Future[T_co]]) -> None:
        self._job = job
        self._futures = tuple(futures)

    @property
    def job(self) -> str:
        """The name of the job, as `kyu jobs` shows it."""
        return self._job.name

    @property
    def state(self) -> str:
        """The state of the job now, as `kyu jobs` shows it."""
        return self._job.ask_state()

    def results(self, timeout: float | None = None) -> list[T_co]:
        """Wait for all elements and return their results. Raise the exception of the first element that failed."""
        concurrent.futures.wait(self._futures, timeout)
        return [future.result(0) for future in self._futures]

    def exceptions(self, timeout: float | None = None) -> dict[int, BaseException]:
        """Wait for all elements; return the exceptions of those that failed, by their place."""
        concurrent.futures.wait(self._futures, timeout)
        found = {place: future.exception(0) for place, future in enumerate(self._futures)}
        return {place: error for place, error in found.items() if error is not None}

    def counts(self) -> dict[str, int]:
        """Return the number of elements in each state."""
        return dict(Counter(future._known_state() for future in self._futures))

    def why(self) -> str:
        """Explain the state of the job, as `kyu why` does."""
        return self._job.explain()

    def logs(self) -> str:
        """Return the output of all tasks so far."""
        return self._job.read_logs(None)

    def cancel(self) -> bool:
        """Delete the job. Elements that have ended keep their results."""
        waiting = [future for future in self._futures if not future.done()]
        if waiting:
            self._job.delete()
        # The watcher may have seen the deletion meanwhile, and marked them.
        return any([future.mark_cancelled() for future in waiting])  # noqa: C419 (all of them)

    @overload
    def __getitem__(self, index: int) -> Future[T_co]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Future[T_co]]: ...

    def __getitem__(self, index: int | slice) -> Future[T_co] | Sequence[Future[T_co]]:
        return self._futures[index]

    def __len__(self) -> int:
        return len(self._futures)

    def __repr__(self) -> str:
        told = ", ".join(f"{count} {state}" for state, count in self.counts().items())
        return f"<kyu.FutureArray {self.job}: {told or 'empty'}>"

    def _repr_html_(self) -> str:
        done = sum(future.done() for future in self._futures)
        bar = f'<progress value="{done}" max="{max(len(self), 1)}"></progress>'
        return f"{bar} {html.escape(repr(self)[1:-1])}"
