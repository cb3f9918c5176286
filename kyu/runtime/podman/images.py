"""
Finds podman on this machine, and gets the images of pods before they start.

Images lie in podman's own store: an image that an administrator has built, loaded or pulled is there for all pods. A
pull that fails is tried again after 10 s, then twice as long each time, up to five minutes; meanwhile the pod waits,
as on any cluster. An image that is here is used although its registry cannot be reached.

Called by: processes.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kyu import log
from kyu.api.meta import Json
from kyu.runtime.environment import NotYet, PodRefused, ordered
from kyu.runtime.identity.service_account import HOST_IMAGE
from kyu.runtime.podman.plan import Image, RuntimeChoice

FIRST_BACK_OFF_SECONDS = 10.0
LONGEST_BACK_OFF_SECONDS = 300.0
# An image that was found is not looked up again for so long, and one of the policy Always not pulled.
FRESH_SECONDS = 60.0
# A longer pull goes on while the pod is looked after again.
PATIENCE_SECONDS = 10.0
DRIVER = "overlay"
# A name without a registry is one of Docker Hub, as Kubernetes has it.
DEFAULT_REGISTRY = "docker.io"


@dataclass(slots=True)
class Pull:
    """The pulls of one image so far."""

    task: asyncio.Task[str] | None = None
    failures: int = 0
    not_before: float = 0.0
    message: str = ""


@dataclass(slots=True)
class Images:
    """The images of this machine, as podman knows them. ``refused`` says why podman is not used, if it is not."""

    choice: RuntimeChoice = "process"
    store: str = ""
    refused: str = "podman is not used"
    _found: dict[str, tuple[Image, float]] = field(default_factory=dict)
    _pulls: dict[str, Pull] = field(default_factory=dict)

    async def open(self) -> None:
        """Find podman and its images, if the server is to use it."""
        if self.choice != "process":
            self.store, self.refused = await find_store()

    def runs(self, pod: Json) -> bool:
        """Return whether the pod runs from images."""
        if self.choice == "auto":
            return not self.refused and any(image != HOST_IMAGE for image in images_of(pod))
        return self.choice == "podman"

    def why_not(self, pod: Json) -> PodRefused | None:
        """Return why a pod that runs from images cannot."""
        if self.refused:
            return PodRefused("IsolationFailed", f"pods are not run from images here: {self.refused}")
        for container, _ in ordered(pod["spec"]):
            if container.get("image") == HOST_IMAGE:
                message = f"the image {HOST_IMAGE} stands for the commands of the machine; name another with --image"
                return PodRefused("InvalidImageName", message, container["name"])
        return None

    def known(self, pod: Json) -> dict[str, Image]:
        """Return the images of a pod that was prepared."""
        return {name: self._found[name][0] for name in images_of(pod)}

    async def prepare(self, pod: Json) -> NotYet | None:
        """Get the images of the pod. Return the reason if one of them is missing."""
        for container, _ in ordered(pod["spec"]):
            if waiting := await self._ensure(container["name"], container["image"], policy_of(container)):
                return waiting
        return None

    async def _ensure(self, container: str, name: str, policy: str) -> NotYet | None:
        found, now = await self._find(name), time.monotonic()
        if found is not None and policy != "Always":
            return None
        if policy == "Never":
            message = f'Container image "{name}" is not present with pull policy of Never'
            return NotYet(container, message, "ErrImageNeverPull")
        pull = self._pulls.setdefault(name, Pull())
        if pull.task is None and now < pull.not_before:
            back_off = NotYet(container, f'Back-off pulling image "{name}": {pull.message}', "ImagePullBackOff")
            return None if found is not None else back_off
        pull.task = pull.task or asyncio.create_task(self._pull(name, pull))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                failure = await asyncio.shield(pull.task)
        except TimeoutError:
            return NotYet(container, f'pulling image "{name}"', "ContainerCreating")
        if found is not None or (not failure and await self._find(name) is not None):
            return None
        return NotYet(container, failure or f'image "{name}" was removed after its pull', "ErrImagePull")

    async def _pull(self, name: str, pull: Pull) -> str:
        """Pull an image; return why that failed, if it did."""
        try:
            code, _, error = await podman("pull", "--quiet", full_name(name))
            if code == 0:
                self._found.pop(name, None)
                pull.failures, pull.message, pull.not_before = 0, "", time.monotonic() + FRESH_SECONDS
                return ""
            pull.message = f'failed to pull image "{name}": {last_error(error)}'
            log.warning("image not pulled", image=name, error=last_error(error))
            back_off = FIRST_BACK_OFF_SECONDS * 2.0 ** min(pull.failures, 16)
            pull.failures += 1
            pull.not_before = time.monotonic() + min(back_off, LONGEST_BACK_OFF_SECONDS)
            return pull.message
        finally:
            pull.task = None

    async def close(self) -> None:
        """Let go of the pulls that are under way; the next server starts them again."""
        for pull in self._pulls.values():
            if pull.task is not None:
                pull.task.cancel()
                await asyncio.gather(pull.task, return_exceptions=True)

    async def _find(self, name: str) -> Image | None:
        found = self._found.get(name)
        if found is not None and time.monotonic() - found[1] < FRESH_SECONDS:
            return found[0]
        for candidate in dict.fromkeys((name, full_name(name))):
            code, output, _ = await podman("image", "inspect", candidate)
            if code == 0:
                image = read_image(json.loads(output)[0])
                self._found[name] = image, time.monotonic()
                return image
        self._found.pop(name, None)
        return None


def images_of(pod: Json) -> list[str]:
    return [str(container.get("image") or "") for container, _ in ordered(pod["spec"])]


def policy_of(container: Json) -> str:
    """Return the policy, which the API server has set unless the pod was made without one."""
    return str(container.get("imagePullPolicy") or "IfNotPresent")


def full_name(name: str) -> str:
    """Return the name with its registry."""
    first, slash, _ = name.partition("/")
    if slash and (re.search(r"[.:]", first) or first == "localhost"):
        return name
    return f"{DEFAULT_REGISTRY}/{name}" if slash else f"{DEFAULT_REGISTRY}/library/{name}"


def read_image(document: dict[str, Any]) -> Image:
    config = document.get("Config") or {}
    has_command = bool(config.get("Entrypoint") or config.get("Cmd"))
    return Image(str(document["Id"]), str(config.get("User") or ""), has_command)


async def find_store() -> tuple[str, str]:
    """Return the folder of podman's images, or why podman cannot be used."""
    if os.geteuid() != 0:
        return "", "the server does not run as root"
    for program in ("podman", "crun", "conmon"):
        if shutil.which(program) is None:
            return "", f"{program} is not installed"
    code, output, error = await podman("info", "--format", "json")
    if code != 0:
        return "", f"`podman info`: {last_error(error)}"
    store = json.loads(output)["store"]
    if (driver := store["graphDriverName"]) != DRIVER:
        return "", f"podman keeps images with the driver {driver}; pods can only share those of {DRIVER}"
    return str(store["graphRoot"]), ""


async def podman(*words: str) -> tuple[int, bytes, bytes]:
    """Run podman for the server; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        "podman",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    try:
        output, error = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, output, error


def last_error(text: bytes) -> str:
    lines: Sequence[str] = text.decode(errors="replace").strip().splitlines() or ["no output"]
    return lines[-1].removeprefix("Error: ").strip()
