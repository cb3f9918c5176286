"""
The form in which functions travel to a job, and outcomes back.

Only an outcome with the right signature is read. Where the key of the signature is secret, a result may be any object
that pickle can make. Where others can read the key, only plain values are made, so no code of others runs here.
"""

from __future__ import annotations

import builtins
import hmac
import io
import json
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from kyu.sdk import worker
from kyu.sdk.errors import NotCarried, RemoteError, RemoteTraceback

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function and the arguments of its calls, one list of arguments for each task of the job."""

    function: Callable[..., Any]
    tasks: Sequence[Sequence[Arguments]]


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The result of one call, or its exception."""

    value: Any = None
    error: BaseException | None = None


def new_key() -> bytes:
    return os.urandom(KEY_BYTES)


def pack(call: FunctionCall, key: bytes, *, most_bytes: int, by_log: bool, path: Sequence[str] | None) -> bytes:
    """Return the file that a worker reads. ``path`` is where it imports from; None stands for its own settings."""
    function = dump(call.function, f"the function {name_of(call.function)}")
    tasks = [dump(list(task), f"the arguments of task {number}") for number, task in enumerate(call.tasks)]
    places, offset = [], len(function)
    for task, body in zip(call.tasks, tasks, strict=True):
        places.append([offset, len(body), len(task)])
        offset += len(body)
    header = {
        "python": sys.version_info[:2],
        "path": path,
        "key": key.hex(),
        "limit": most_bytes,
        "log": by_log,
        "function": [0, len(function)],
        "tasks": places,
    }
    return b"".join([json.dumps(header).encode(), b"\n", function, *tasks])


def dump(value: object, what: str) -> bytes:
    try:
        return bytes(cloudpickle.dumps(value, protocol=4))
    except Exception as error:
        raise NotCarried(f"{what} cannot be pickled: {error}") from error


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, also of a partial one or an object with ``__call__``."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def unpack(outcome: bytes, key: bytes, task: int, *, is_secret: bool) -> list[CallOutcome] | None:
    """Return the outcomes of the calls of a task, or None if the signature is wrong."""
    signature, body = outcome[: worker.SIGNATURE_BYTES], outcome[worker.SIGNATURE_BYTES :]
    if not hmac.compare_digest(signature, worker.sign(key, task, body)):
        return None
    return [read_entry(entry, is_secret=is_secret) for entry in load_plain(body)]


def read_entry(entry: tuple[Any, ...], *, is_secret: bool) -> CallOutcome:
    load = pickle.loads if is_secret else load_plain
    if entry[0] == "value":
        try:
            return CallOutcome(load(entry[1]))
        except Exception as error:
            return CallOutcome(error=NotCarried(f"the result cannot be read: {error}"))
    _, class_name, message, traceback, body = entry
    found: BaseException | None = None
    if body and is_secret:
        try:
            found = pickle.loads(body)
        except Exception:
            found = None
    found = found or rebuilt(class_name, message)
    found.__cause__ = RemoteTraceback(traceback) if traceback else None
    return CallOutcome(error=found)


def rebuilt(class_name: str, message: str) -> Exception:
    """Return an exception for the name of a class. Only those of Python itself are known by their names."""
    known = getattr(builtins, class_name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        try:
            return known(message)
        except TypeError:
            pass
    return RemoteError(f"{class_name}: {message}")


class PlainUnpickler(pickle.Unpickler):
    """A reader of pickles that makes numbers, texts, bytes, lists, tuples, sets and dictionaries, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(
            f"it contains a {module}.{name}; without a shared folder or the right to create Secrets, only plain values "
            "come back"
        )


def load_plain(body: bytes) -> Any:
    return PlainUnpickler(io.BytesIO(body)).load()
