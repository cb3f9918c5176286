"""A server to submit to: the methods behind ``kyu.submit``, ``kyu.map``, ``kyu.run`` and ``kyu.create``."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack

from kyu.api import documents
from kyu.api.core import SECRET
from kyu.api.meta import Json, Key
from kyu.cli.batch.jobs import JOB
from kyu.cli.batch.reconnect import Reconnecting
from kyu.cli.batch.submission.job import name_from
from kyu.kinds import metadata, table
from kyu.kinds.templates import HOST_IMAGE
from kyu.kube.errors import AlreadyExists
from kyu.sdk import options as job_options
from kyu.sdk import parcel
from kyu.sdk.connections import Connections, log
from kyu.sdk.exchange import Exchange, FileExchange, ObjectExchange, create_secret, set_owner
from kyu.sdk.futures import Future, FutureArray
from kyu.sdk.job import FunctionJob, PlainJob, SubmittedJob
from kyu.sdk.options import JobOptions
from kyu.sdk.parcel import Arguments, FunctionCall
from kyu.sdk.watcher import TOKEN, JobWatcher

T = TypeVar("T")
# The label of the jobs of one process, and its value.
PROCESS = "kyu.dev/sdk-process"
FOLDER_VARIABLE = "KYU_FOLDER"
LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Submitter:
    """
    A server, found as the commands find it: by a kubeconfig, the local server, or the service account of a pod.

    ``folder`` is a folder that this process and the jobs both reach by the same path. False stands for none: functions
    and results travel through the server.
    """

    def __init__(
        self,
        kubeconfig: str | os.PathLike[str] | None = None,
        *,
        context: str = "",
        data: str | os.PathLike[str] | None = None,
        namespace: str = "",
        folder: str | os.PathLike[str] | Literal[False] | None = None,
    ) -> None:
        place, data_folder = (Path(path) if path is not None else None for path in (kubeconfig, data))
        self._connections = Connections(place, context, data_folder, namespace)
        self._folder = folder
        self._process = secrets.token_hex(8)
        self._watcher = JobWatcher(self._connections.server, f"{PROCESS}={self._process}")

    @property
    def namespace(self) -> str:
        return self._connections.namespace

    def close(self) -> None:
        """Cancel the futures that are not done. The jobs themselves stay."""
        self._watcher.close()

    def submit(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[JobOptions],
    ) -> Future[T]:
        """Queue a call of the function, and return its future. ``kwargs`` are keyword arguments of the function."""
        call = FunctionCall(function, [[(args, dict(kwargs or {}))]])
        return self._send_function(call, options, is_array=False)[0]

    def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        chunksize: int = 1,
        **options: Unpack[JobOptions],
    ) -> FutureArray[T]:
        """
        Queue a call for each element, as one job with many tasks. A failed element does not end the others.

        A task calls the function for ``chunksize`` elements, one after the other.
        """
        if chunksize < 1:
            raise ValueError(f"chunksize={chunksize}: a task has at least one element")
        elements: list[Arguments] = [(element, {}) for element in zip(*iterables, strict=False)]
        if not elements:
            raise ValueError("there is nothing to map: an iterable is empty")
        chunks = [elements[start : start + chunksize] for start in range(0, len(elements), chunksize)]
        return self._send_function(FunctionCall(function, chunks), options, is_array=True)

    def run(self, command: Sequence[str | os.PathLike[str]], **options: Unpack[JobOptions]) -> Future[str]:
        """Queue a command, and return the future of its output. It raises JobFailed if the exit code is not 0."""
        if isinstance(command, str):
            raise TypeError('give the command as a list of words, such as ["python", "train.py"]')
        words = [os.fspath(word) for word in command]
        name = options.get("name") or new_name(name_from(words[0] if words else ""))
        args = job_options.parse({**options, "name": name}, words or [""])
        body = job_options.build(options, args)
        ask(lambda: job_options.complete(self._connections.server(), args, body))
        job = PlainJob(self._connections, JOB, name)
        future: Future[str] = Future(job)
        job.tasks = [[future]]
        self._create_with_secrets(job, body, options)
        return future

    def create(self, manifest: Mapping[str, Any] | str) -> Future[str]:
        """
        Create a job of any kind from its manifest, a dictionary or YAML, and return the future of its output.

        The manifest names its queue by the label ``kueue.x-k8s.io/queue-name``.
        """
        body = read_manifest(manifest) if isinstance(manifest, str) else dict(manifest)
        kind = table.find(body)
        if kind is None:
            raise ValueError(f"{body.get('apiVersion')} {body.get('kind')} is no kind of job that Kyu queues")
        meta = body["metadata"] = dict(body.get("metadata") or {})
        if meta.setdefault("namespace", self.namespace) != self.namespace:
            raise ValueError(f"namespace={meta['namespace']}: this Submitter is for namespace {self.namespace}")
        if "name" not in meta:
            meta["name"] = new_name(str(meta.pop("generateName", "") or f"{kind.kind.kind.lower()}-"))
        job = PlainJob(self._connections, kind.kind, meta["name"])
        future: Future[str] = Future(job)
        job.tasks = [[future]]
        self._create(job, body)
        return future

    def _send_function(self, call: FunctionCall, options: JobOptions, *, is_array: bool) -> FutureArray[Any]:
        name = options.get("name") or new_name(name_from(parcel.name_of(call.function)))
        args = job_options.parse({**options, "name": name}, ["python"], len(call.tasks) if is_array else None)
        body = job_options.build(options, args)
        server = self._connections.server()
        ask(lambda: job_options.complete(server, args, body))
        is_here = args.image == HOST_IMAGE
        exchange = ask(lambda: self._exchange(options, name, is_here=is_here))
        python = sys.executable if is_here else options.get("python", "python3")
        ask(lambda: exchange.send(server, body, call, python))
        job = FunctionJob(self._connections, name, exchange)
        job.tasks = [[Future(job, task, is_shared=is_array) for _ in chunk] for task, chunk in enumerate(call.tasks)]
        try:
            created = self._create_with_secrets(job, body, options)
        except BaseException:
            exchange.clean()
            raise
        ask(lambda: exchange.adopt(server, created))
        return FutureArray(job, [future for futures in job.tasks for future in futures])

    def _exchange(self, options: JobOptions, name: str, *, is_here: bool) -> Exchange:
        """Return the way of the function: a named folder, the user's own if pods reach it, or the API."""
        token = f"{name}-{secrets.token_hex(4)}"
        folder = options.get("folder", self._folder)
        if folder is None:
            folder = os.environ.get(FOLDER_VARIABLE) or None
        if folder is False:
            return ObjectExchange(token, imports_as_here=is_here)
        if folder is not None:
            return FileExchange(Path(folder).absolute(), token, imports_as_here=is_here)
        if is_here and self._connections.shares_files:
            return FileExchange(own_folder(), token, imports_as_here=True)
        return ObjectExchange(token, imports_as_here=is_here)

    def _create_with_secrets(self, job: SubmittedJob, body: Json, options: JobOptions) -> Json:
        """Create a Job, and the Secret of its variables if it has such."""
        values = options.get("secrets")
        if not values:
            return self._create(job, body)
        name = f"{job.name}-{secrets.token_hex(4)}"
        server = self._connections.server()
        ask(lambda: create_secret(server, name, values))
        job_options.add_secrets(body, name, values)
        created = self._create(job, body)
        ask(lambda: set_owner(server, SECRET, name, created))
        return created

    def _create(self, job: SubmittedJob, body: Json) -> Json:
        """Create the object once, also if the server breaks off and the answer is lost."""
        kind = job.kind
        body["metadata"].setdefault("labels", {})[PROCESS] = self._process
        body["metadata"].setdefault("annotations", {})[TOKEN] = job.token
        client = self._connections.server().client
        # The watcher must know the job before it exists, to miss no event.
        self._watcher.follow(job)
        try:
            created = ask(lambda: client.create(kind, body))
        except AlreadyExists:
            found = client.get(kind, Key(self.namespace, job.name))
            if metadata.annotations_of(found).get(TOKEN) != job.token:
                self._watcher.forget(job)
                raise ValueError(f"name={job.name}: a {kind.kind} of this name exists") from None
            created = found
        except BaseException:
            self._watcher.forget(job)
            raise
        job.uid = metadata.uid_of(created)
        return created


def ask(call: Callable[[], T]) -> T:
    """Make a request; while the server is away, repeat it for two minutes."""
    return Reconnecting(log.warning).ask(call)


def new_name(prefix: str) -> str:
    """Complete a name by random letters, as Kubernetes does for generateName."""
    return prefix[:52] + "".join(secrets.choice(LETTERS) for _ in range(6))


def read_manifest(text: str) -> Json:
    """Return the one object of a manifest, or raise ValueError."""
    found = documents.parse(text)
    if len(found) != 1 or not isinstance(found[0].value, dict):
        raise ValueError(f"the manifest has {len(found)} objects; give one job")
    manifest: Json = found[0].value
    return manifest


def own_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kyu" / "calls"
