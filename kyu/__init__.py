"""
Kyu (級): a batch queue that speaks the API of Kueue.

Public: the CLI, the names in this file (the Python SDK), `kyu.api` and `kyu.workflows`. A part of the SDK is imported
when its name is used first, so that `import kyu` costs nothing.
"""

from __future__ import annotations

import importlib

# As typing.TYPE_CHECKING, without the import of typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from kyu.cli.batch.reconnect import ServerLost
    from kyu.sdk import aio
    from kyu.sdk.connections import NoServer
    from kyu.sdk.errors import JobFailed, NotCarried, RemoteError
    from kyu.sdk.executor import Executor
    from kyu.sdk.functions import as_completed, create, current, map, run, submit, wait
    from kyu.sdk.futures import Future, FutureArray
    from kyu.sdk.local import local
    from kyu.sdk.submitter import Submitter

__version__ = "0.1.0"
_MODULES = {
    "Executor": "kyu.sdk.executor",
    "Future": "kyu.sdk.futures",
    "FutureArray": "kyu.sdk.futures",
    "JobFailed": "kyu.sdk.errors",
    "NoServer": "kyu.sdk.connections",
    "NotCarried": "kyu.sdk.errors",
    "RemoteError": "kyu.sdk.errors",
    "ServerLost": "kyu.cli.batch.reconnect",
    "Submitter": "kyu.sdk.submitter",
    "aio": "kyu.sdk.aio",
    "as_completed": "kyu.sdk.functions",
    "create": "kyu.sdk.functions",
    "current": "kyu.sdk.functions",
    "local": "kyu.sdk.local",
    "map": "kyu.sdk.functions",
    "run": "kyu.sdk.functions",
    "submit": "kyu.sdk.functions",
    "wait": "kyu.sdk.functions",
}
__all__ = [
    "Executor",
    "Future",
    "FutureArray",
    "JobFailed",
    "NoServer",
    "NotCarried",
    "RemoteError",
    "ServerLost",
    "Submitter",
    "__version__",
    "aio",
    "as_completed",
    "create",
    "current",
    "local",
    "map",
    "run",
    "submit",
    "wait",
]


def __getattr__(name: str) -> object:
    """Import a part of the SDK when it is used first."""
    if name not in _MODULES:
        raise AttributeError(f"module 'kyu' has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    found = getattr(module, name, module)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
