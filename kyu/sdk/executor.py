"""An executor of ``concurrent.futures`` whose calls are jobs."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, Unpack

from kyu.sdk import functions
from kyu.sdk.futures import Future, FutureArray
from kyu.sdk.options import JobOptions
from kyu.sdk.submitter import Submitter

T = TypeVar("T")


class Executor(concurrent.futures.Executor):
    """
    An executor for code that is written for ``concurrent.futures``. The options are those of each job.

    ``submit`` makes one job, ``map`` one job with a task for each chunk of elements.
    """

    def __init__(self, submitter: Submitter | None = None, **options: Unpack[JobOptions]) -> None:
        self._submitter = submitter if submitter is not None else functions.current()
        self._options = options
        self._lock = threading.Lock()
        self._futures: list[Future[Any]] = []
        self._arrays: list[FutureArray[Any]] = []
        self._is_shut_down = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queue a call, and return its future."""
        self._check_open()
        future = self._submitter.submit(fn, *args, kwargs=kwargs, **self._options)
        with self._lock:
            self._futures = [known for known in self._futures if not known.done()] + [future]
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Queue a call for each element, and return the results in their order."""
        self._check_open()
        elements = [*zip(*iterables, strict=False)]
        if not elements:
            return iter(())
        array = self._submitter.map(fn, *zip(*elements, strict=True), chunksize=chunksize, **self._options)
        with self._lock:
            self._arrays.append(array)
        return results_of(array, None if timeout is None else time.monotonic() + timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. With ``cancel_futures``, delete the jobs that have not ended, also running ones."""
        with self._lock:
            self._is_shut_down = True
            futures, arrays = list(self._futures), list(self._arrays)
        if cancel_futures:
            for future in futures:
                future.cancel()
            for array in arrays:
                array.cancel()
        if wait:
            concurrent.futures.wait([*futures, *(future for array in arrays for future in array)])

    def _check_open(self) -> None:
        if self._is_shut_down:
            raise RuntimeError("the executor was shut down; it takes no more calls")


def results_of(array: FutureArray[T], deadline: float | None) -> Iterator[T]:
    """Yield the results. A caller that stops early cancels the rest, as in ``concurrent.futures``."""
    try:
        for future in array:
            yield future.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
    finally:
        array.cancel()
