"""
The ways of a function to its job, and of the outcomes back.

``FileExchange`` uses a folder that both reach. ``ObjectExchange`` needs none: the function is in a Secret that the pod
mounts, and the outcome in the log of the pod. Where the user may not create Secrets, a ConfigMap takes its place.
Others can read it, so its signatures prove nothing, and only plain values come back.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import cloudpickle

from kyu.api.core import CONFIG_MAP, SECRET
from kyu.api.meta import Json, Key, Kind, key_of
from kyu.cli.batch import attempts, jobs_pods
from kyu.cli.connection import ServerConnection
from kyu.kinds import metadata
from kyu.kinds.job import INDEX
from kyu.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound
from kyu.sdk import options, parcel, worker
from kyu.sdk.errors import NotCarried
from kyu.sdk.parcel import CallOutcome, FunctionCall

VOLUME = "kyu-call"
MOUNT_PATH = "/opt/kyu-call"
# The largest result, and the largest function with its arguments. An API server accepts objects of about a megabyte.
MOST_FILE_BYTES = 1 << 30
MOST_LOG_BYTES = 1 << 20
MOST_OBJECT_BYTES = 1_000_000
SUGGESTION = "name a folder that the job can reach: folder=… or KYU_FOLDER"


class Exchange(Protocol):
    """A way for one job."""

    def send(self, server: ServerConnection, job: Json, call: FunctionCall, python: str) -> None:
        """Write the function down, and complete the Job with the command that runs it."""

    def adopt(self, server: ServerConnection, job: Json) -> None:
        """Let the created Job own what belongs to it."""

    def fetch(self, server: ServerConnection, job: str, task: int) -> list[CallOutcome] | None:
        """Return the outcomes of the calls of a task, or None if there are none (yet)."""

    def clean(self) -> None:
        """Remove what is no longer needed."""


class FileExchange:
    """A folder of its own in the given one. Only the user can enter it, so its files are as safe as the user's own."""

    def __init__(self, base: Path, name: str, *, imports_as_here: bool) -> None:
        self._folder = base / name
        self._key = parcel.new_key()
        self._path = here() if imports_as_here else None

    def send(self, server: ServerConnection, job: Json, call: FunctionCall, python: str) -> None:
        body = parcel.pack(call, self._key, most_bytes=MOST_FILE_BYTES, by_log=False, path=self._path)
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(mode=0o700)
        (self._folder / worker.OUTCOMES).mkdir(mode=0o700)
        for name, content in {**carried(has_python=self._path is not None), worker.CALL: body}.items():
            (self._folder / name).write_bytes(content)
        set_command(job, python, str(self._folder))

    def adopt(self, server: ServerConnection, job: Json) -> None:
        """Do nothing: ``clean`` removes the folder."""

    def fetch(self, server: ServerConnection, job: str, task: int) -> list[CallOutcome] | None:
        path = self._folder / worker.OUTCOMES / str(task)
        try:
            outcome = path.read_bytes()
        except FileNotFoundError:
            return None
        return parcel.unpack(outcome, self._key, task, is_secret=True)

    def clean(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class ObjectExchange:
    """A Secret or ConfigMap for the function, and the logs of the pods for the outcomes."""

    def __init__(self, name: str, *, imports_as_here: bool) -> None:
        self._name = name
        self._key = parcel.new_key()
        self._path = here() if imports_as_here else None
        self._kind: Kind = SECRET

    def send(self, server: ServerConnection, job: Json, call: FunctionCall, python: str) -> None:
        body = parcel.pack(call, self._key, most_bytes=MOST_LOG_BYTES, by_log=True, path=self._path)
        files = {**carried(has_python=self._path is not None), worker.CALL: body}
        total = sum(map(len, files.values()))
        if total > MOST_OBJECT_BYTES:
            raise NotCarried(
                f"function and arguments have {total} bytes, at most {MOST_OBJECT_BYTES} fit; {SUGGESTION}"
            )
        self._create(server, {name: base64.b64encode(content).decode() for name, content in files.items()})
        source = {"secret": {"secretName": self._name}} if self._is_secret else {"configMap": {"name": self._name}}
        options.add_volume(job["spec"]["template"]["spec"], VOLUME, MOUNT_PATH, source, read_only=True)
        set_command(job, python, MOUNT_PATH)

    @property
    def _is_secret(self) -> bool:
        return self._kind is SECRET

    def _create(self, server: ServerConnection, files: dict[str, str]) -> None:
        meta = {"name": self._name, "namespace": server.namespace}
        try:
            server.client.create(SECRET, {"metadata": meta, "type": "Opaque", "immutable": True, "data": files})
        except Forbidden:
            self._kind = CONFIG_MAP
            with contextlib.suppress(AlreadyExists):
                server.client.create(CONFIG_MAP, {"metadata": meta, "immutable": True, "binaryData": files})
        except AlreadyExists:
            # The name is unique, so it is the object of an earlier attempt whose answer was lost.
            pass

    def adopt(self, server: ServerConnection, job: Json) -> None:
        set_owner(server, self._kind, self._name, job)

    def fetch(self, server: ServerConnection, job: str, task: int) -> list[CallOutcome] | None:
        for key in logs_of(server, job, task):
            try:
                outcome = read_log(server.client.logs(key, {}))
            except ApiError as error:
                if error.code in (400, 404):
                    continue
                raise
            found = outcome and parcel.unpack(outcome, self._key, task, is_secret=self._is_secret)
            if found:
                return found
        return None

    def clean(self) -> None:
        """Do nothing: the Job owns the object."""


def create_secret(server: ServerConnection, name: str, values: Mapping[str, str]) -> None:
    """Create a Secret of variables. Its name is unique, so one that exists is that of an earlier attempt."""
    meta = {"name": name, "namespace": server.namespace}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    with contextlib.suppress(AlreadyExists):
        server.client.create(SECRET, {"metadata": meta, "type": "Opaque", "immutable": True, "data": data})


def set_owner(server: ServerConnection, kind: Kind, name: str, job: Json) -> None:
    """Let a Job own an object, so that both are deleted together."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata.name_of(job), "uid": metadata.uid_of(job)}
    with contextlib.suppress(NotFound):
        server.client.patch(kind, Key(server.namespace, name), {"metadata": {"ownerReferences": [owner]}})


def here() -> list[str]:
    """Return the places that this process imports from, as absolute paths."""
    return [os.path.abspath(place) for place in sys.path]


def carried(*, has_python: bool) -> dict[str, bytes]:
    """Return the files beside the function: the worker, and cloudpickle for images, which may not have it."""
    files = {"worker.py": Path(worker.__file__).read_bytes()}
    if not has_python:
        files[worker.PACKAGES] = zipped(Path(cloudpickle.__file__).parent)
    return files


def zipped(package: Path) -> bytes:
    """Return a package of plain Python files as a zip file, which Python can import from."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(package.glob("*.py")):
            file.write(path, f"{package.name}/{path.name}")
    return body.getvalue()


def set_command(job: Json, python: str, folder: str) -> None:
    job["spec"]["template"]["spec"]["containers"][0]["command"] = [python, f"{folder}/worker.py", folder]


def logs_of(server: ServerConnection, job: str, task: int) -> Iterator[Key]:
    """Yield the logs of the pods of a task, those of existing pods first, then the newest."""
    found = server.client.list(jobs_pods.POD, server.namespace, labels=f"batch.kubernetes.io/job-name={job}")
    pods = [pod for pod in found if metadata.annotations_of(pod).get(INDEX, "0") == str(task)]
    pods.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    yield from map(key_of, pods)
    kept = [pod for pod in attempts.kept_pods(server, job) if (pod.task or "0") == str(task)]
    yield from (pod.log for pod in reversed(kept))


def read_log(lines: Iterable[bytes]) -> bytes | None:
    """Return the last complete outcome in a log."""
    parts: list[bytes] = []
    found: bytes | None = None
    for line in lines:
        if not line.startswith(worker.MARK):
            continue
        place, _, text = line[len(worker.MARK) :].strip().partition(b":")
        number, _, count = place.partition(b"/")
        if number == b"1":
            parts = []
        parts.append(text)
        if number == count == b"%d" % len(parts):
            found = base64.b64decode(b"".join(parts))
    return found
