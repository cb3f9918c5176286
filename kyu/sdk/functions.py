"""The functions that users call: those of the server that the commands would choose now."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, Unpack

from kyu.sdk.futures import Future, FutureArray
from kyu.sdk.options import JobOptions
from kyu.sdk.submitter import Submitter

T = TypeVar("T")
_lock = threading.Lock()
_submitters: dict[tuple[str | None, ...], Submitter] = {}
# The environment variables that choose the server.
CHOOSING = ("KUBECONFIG", "KYU_DATA", "XDG_DATA_HOME", "HOME", "KUBERNETES_SERVICE_HOST")


class DoneAndNotDone(NamedTuple):
    """The futures that are done, and the others, as of ``concurrent.futures.wait``."""

    done: set[Future[Any]]
    not_done: set[Future[Any]]


def current() -> Submitter:
    """Return the server that the commands would choose now."""
    chosen = tuple(os.environ.get(name) for name in CHOOSING)
    with _lock:
        if chosen not in _submitters:
            _submitters[chosen] = Submitter()
        return _submitters[chosen]


def forget(submitter: Submitter) -> None:
    """Choose the server again at the next call. For tests, whose servers come and go at one address."""
    with _lock:
        for chosen in [chosen for chosen, known in _submitters.items() if known is submitter]:
            del _submitters[chosen]


def submit(
    function: Callable[..., T],
    /,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[JobOptions],
) -> Future[T]:
    """Queue a call of the function, and return its future. ``kwargs`` are keyword arguments of the function."""
    return current().submit(function, *args, kwargs=kwargs, **options)


def map(
    function: Callable[..., T], /, *iterables: Iterable[Any], chunksize: int = 1, **options: Unpack[JobOptions]
) -> FutureArray[T]:
    """Queue a call for each element, as one job with many tasks. A failed element does not end the others."""
    return current().map(function, *iterables, chunksize=chunksize, **options)


def run(command: Sequence[str | os.PathLike[str]], **options: Unpack[JobOptions]) -> Future[str]:
    """Queue a command, and return the future of its output."""
    return current().run(command, **options)


def create(manifest: Mapping[str, Any] | str) -> Future[str]:
    """Create a job of any kind from its manifest, and return the future of its output."""
    return current().create(manifest)


def as_completed(futures: Iterable[Future[T]], timeout: float | None = None) -> Iterator[Future[T]]:
    """Yield the futures as they are done."""
    for future in concurrent.futures.as_completed(futures, timeout):
        assert isinstance(future, Future)
        yield future


def wait(
    futures: Iterable[Future[Any]],
    timeout: float | None = None,
    return_when: Literal["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"] = "ALL_COMPLETED",
) -> DoneAndNotDone:
    """Wait for futures, and return those that are done and the others."""
    wanted = set(futures)
    done = {
        future for future in concurrent.futures.wait(wanted, timeout, return_when).done if isinstance(future, Future)
    }
    return DoneAndNotDone(done, wanted - done)
