"""
The functions of the SDK for asyncio: the same names and options, to be awaited.

A future is awaited itself: ``value = await future``. A task that stops waiting does not cancel the job.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack

from kyu.sdk import functions
from kyu.sdk.futures import Future, FutureArray
from kyu.sdk.options import JobOptions

T = TypeVar("T")


async def submit(
    function: Callable[..., T],
    /,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[JobOptions],
) -> Future[T]:
    """Queue a call of the function, and return its future, which can be awaited."""
    return await asyncio.to_thread(partial(functions.submit, function, *args, kwargs=kwargs, **options))


async def map(
    function: Callable[..., T], /, *iterables: Iterable[Any], chunksize: int = 1, **options: Unpack[JobOptions]
) -> FutureArray[T]:
    """Queue a call for each element, as one job with many tasks."""
    return await asyncio.to_thread(partial(functions.map, function, *iterables, chunksize=chunksize, **options))


async def run(command: Sequence[str | os.PathLike[str]], **options: Unpack[JobOptions]) -> Future[str]:
    """Queue a command, and return the future of its output."""
    return await asyncio.to_thread(partial(functions.run, command, **options))


async def create(manifest: Mapping[str, Any] | str) -> Future[str]:
    """Create a job of any kind from its manifest, and return the future of its output."""
    return await asyncio.to_thread(functions.create, manifest)


async def as_completed(futures: Iterable[Future[T]]) -> AsyncIterator[Future[T]]:
    """Yield the futures as they are done."""
    wanted = list(futures)
    loop = asyncio.get_running_loop()
    done: asyncio.Queue[Any] = asyncio.Queue()

    def tell(future: Any) -> None:
        # The loop may be closed already if the caller has stopped listening.
        if not loop.is_closed():
            loop.call_soon_threadsafe(done.put_nowait, future)

    for future in wanted:
        future.add_done_callback(tell)
    for _ in wanted:
        yield await done.get()
