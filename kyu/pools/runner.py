"""
The site's end of a pool: takes pods over NATS and runs them as processes of this machine.

Only listed keys may send requests, over a private connection. ConfigMaps and Secrets come with the pod, encrypted to
the key of the runner, so it needs no access to an API server. It keeps its pods, so a repeated request finds its pod.

The control plane's end: pools/pods.py.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from kyu import log
from kyu.api.meta import Json
from kyu.bus import envelopes, signing
from kyu.bus.connector import Bus
from kyu.bus.envelopes import Letter, NotOpened
from kyu.runtime import logs, podplan
from kyu.runtime.nodes import node
from kyu.runtime.processes import Machine, Runtime

LONGEST_LOG_BYTES = 256 * 1024
# The uid is the name of a folder.
UID = re.compile(r"[0-9A-Za-z][-0-9A-Za-z]{0,63}")


@dataclass(frozen=True, slots=True)
class Sent:
    """The objects that came with a pod."""

    objects: dict[str, Json]

    def config_map(self, namespace: str, name: str) -> Json | None:
        return self.objects.get(f"ConfigMap/{name}")

    def secret(self, namespace: str, name: str) -> Json | None:
        return self.objects.get(f"Secret/{name}")


class Runner:
    """The runner of a pool. Pods outlive ``run``."""

    def __init__(self, connection: Bus, subject: str, pool: str, folder: Path, allowed: Collection[str]) -> None:
        self._connection = connection
        self._subject = envelopes.subject_of(subject, pool)
        self._pool = pool
        self._allowed = frozenset(allowed)
        self._signer = signing.load_or_make(folder / "pool.key")
        self._once = envelopes.Once()
        self._refused: dict[str, Json] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        facts = node.read_facts(str(folder))
        machine = Machine(facts.hostname or "localhost", node.resources(facts), gpus=facts.gpus)
        # Pods of several namespaces come here, and none of them may be root.
        options = podplan.RuntimeOptions(tenants=os.geteuid() == 0)
        self._runtime = Runtime(str(folder / "runtime"), machine, self._on_status, options)

    async def run(self) -> None:
        await self._runtime.open()
        end = self._connection.listen(self._subject, self._on_message)
        log.info("runs pods", pool=self._pool, senders=len(self._allowed), key=self._signer.public_key)
        try:
            await asyncio.Event().wait()
        finally:
            end()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._runtime.close()

    def _on_status(self, pod: Json, status: Json) -> None:
        """Keep the status of a pod that cannot run here, since it is not in the runtime."""
        uid = pod["metadata"]["uid"]
        if self._runtime.find_status(uid) is None:
            self._refused[uid] = status

    def _on_message(self, subject: str, payload: bytes, reply: str) -> None:
        task = asyncio.get_running_loop().create_task(self._handle(payload, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, payload: bytes, reply: str) -> None:
        try:
            letter, sender = envelopes.unseal(payload, self._pool, self._allowed, self._signer)
            self._once.check(letter, time.time())
        except NotOpened as error:
            # No answer: an unauthorized sender learns nothing.
            log.warning("request refused", pool=self._pool, reason=error)
            return
        try:
            content, problem = await self._do(letter), ""
        except (KeyError, TypeError, ValueError, OSError) as error:
            log.warning("request failed", pool=self._pool, verb=letter.verb, error=repr(error))
            content, problem = {}, f"{type(error).__name__}: {error}"
        answer = Letter(letter.verb, time.time(), letter.nonce, content, problem)
        if reply:
            await self._connection.send(reply, envelopes.seal(answer, self._pool, self._signer, to=sender))

    async def _do(self, letter: Letter) -> Json:
        content = letter.content
        match letter.verb:
            case "create":
                return self._create(content["pod"], content["objects"])
            case "status":
                return {"statuses": {uid: found for uid in content["uids"] if (found := self._status(uid))}}
            case "stop":
                if self._runtime.find_status(content["uid"]) is not None:
                    self._runtime.stop(content["uid"], float(content["grace"]))
                return {}
            case "remove":
                return await self._remove(content["uid"])
            case "logs":
                return await self._logs(content)

    def _create(self, pod: Json, objects: dict[str, Json]) -> Json:
        uid = str(pod["metadata"]["uid"])
        if not UID.fullmatch(uid):
            raise ValueError("the uid of the pod is none")
        if self._status(uid) is None:
            log.info("runs pod", pool=self._pool, pod=pod["metadata"]["name"], namespace=pod["metadata"]["namespace"])
            self._runtime.start(pod, Sent(objects))
        return {"status": self._status(uid)}

    def _status(self, uid: str) -> Json | None:
        return self._runtime.find_status(uid) or self._refused.get(uid)

    async def _remove(self, uid: str) -> Json:
        self._refused.pop(uid, None)
        status = self._runtime.find_status(uid)
        if status is not None and status.get("phase") in ("Succeeded", "Failed"):
            await self._runtime.remove(uid)
        return {}

    async def _logs(self, content: Json) -> Json:
        """Return a piece of a container's log from an offset; ``ended`` means that no more follows."""
        if self._runtime.find_status(content["uid"]) is None:
            return {"missing": "the runner does not know the pod"}
        folder = self._runtime.folder(content["uid"])
        found = logs.find_log(folder, content["pod"], content["container"], previous=content["previous"])
        if isinstance(found, logs.NoLog):
            return {"missing": found.message}
        ended = logs.has_ended(found)
        options = logs.LogOptions(timestamps=content["timestamps"])
        whole = b""
        async with contextlib.aclosing(logs.stream(found, options)) as parts:
            async for part in parts:
                whole += part
        start = content["offset"]
        if content.get("tail") is not None:
            lines = whole.splitlines(keepends=True)
            start = len(whole) - sum(map(len, lines[max(0, len(lines) - content["tail"]) :]))
        piece = whole[start : start + LONGEST_LOG_BYTES]
        rest = len(whole) - start - len(piece)
        return {"text": base64.b64encode(piece).decode(), "next": start + len(piece), "ended": ended and not rest}
