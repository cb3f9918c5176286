"""Pods from images: what differs from processes. The tests of test_processes.py run with both."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kyu.api.meta import Json
from kyu.runtime import podplan, records
from kyu.runtime.environment import PodFacts, PodRefused
from kyu.runtime.identity.service_account import HOST_IMAGE
from kyu.runtime.podman import images
from kyu.runtime.podman.plan import Image
from kyu.runtime.processes import Machine, Runtime
from tests.runtime.test_crash import processes_of
from tests.runtime.test_processes import (
    CHOICE,
    VOLUMES,
    Objects,
    Watched,
    opened,
    pod,
    tenants,
    terminated,
    until_printed,
)
from tests.support.images import made_image

COWSAY = '#!/bin/sh\necho "< $* >"\n'
NAME = "localhost/kyu-test-cowsay"


@pytest.fixture(scope="module")
def cowsay() -> Iterator[str]:
    with made_image(
        NAME, {"bin/cowsay": COWSAY}, ('ENTRYPOINT ["cowsay"]', 'CMD ["moo"]', "ENV FROM_IMAGE=yes", "USER app")
    ):
        yield NAME


@pytest.fixture
def podman(image: None) -> Iterator[None]:
    CHOICE[0] = "podman"
    yield
    CHOICE[0] = "process"


def container(image: str, **more: object) -> Json:
    return {"name": "main", "image": image, **more}


@pytest.mark.usefixtures("podman")
async def test_an_image_gives_the_command_the_user_and_variables(tmp_path: Path, cowsay: str) -> None:
    async with opened(tmp_path) as watched:
        as_root = {"securityContext": {"runAsUser": 0, "capabilities": {"drop": ["ALL"]}}}
        script = 'id -u; echo $FROM_IMAGE; echo "$LINES_OF"; grep CapEff /proc/self/status'
        lines = [{"name": "LINES_OF", "value": "one\ntwo"}]
        for each in (
            pod("a", container(cowsay)),
            pod("b", container(cowsay, args=["hello"])),
            pod("c", container(cowsay, command=["sh", "-c", script], env=lines, **as_root)),
            pod("d", container(cowsay, command=["id", "-u"])),
        ):
            assert await watched.runtime.prepare(each) is None
            watched.start(each)
        for name, text in (("a", "< moo >\n"), ("b", "< hello >\n"), ("d", "1000\n")):
            assert terminated(await watched.over(name))["exitCode"] == 0
            assert await watched.text(name) == text
        await watched.over("c")
        assert (await watched.text("c")).splitlines() == ["0", "yes", "one", "two", "CapEff:\t0000000000000000"]


@pytest.mark.usefixtures("podman")
async def test_root_of_a_tenants_container_is_nobody_on_the_machine(tmp_path: Path, cowsay: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.chmod(tmp_path, 0o700)
    async with opened(tmp_path, tenants(tmp_path)) as watched:
        script = "cat /proc/self/uid_map; touch /v/f; chown 1000 /v/f; echo ready; sleep 1000"
        mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "securityContext": {"runAsUser": 0}}
        wanted = pod("a", container(cowsay, command=["sh", "-c", script], **mounts), **VOLUMES)
        assert await watched.runtime.prepare(wanted) is None
        watched.start(wanted)
        await watched.until("a", "Running")
        printed = (await until_printed(watched, "a", "ready")).split()
        owner = os.stat(f"{watched.runtime.folder('uid-a')}/{records.VOLUMES}/v/f").st_uid
        running = processes_of("uid-a")
    user, first = int(printed[1]), int(printed[4])
    assert printed[0] == "0"
    assert user > 1 << 16
    assert owner == first + 999
    assert running
    assert processes_of("uid-a") == []


@pytest.mark.usefixtures("podman")
async def test_nothing_is_left_of_a_container_whose_supervisor_was_killed(tmp_path: Path, cowsay: str) -> None:
    async with opened(tmp_path) as watched:
        wanted = pod("a", container(cowsay, command=["sleep", "1000"]))
        assert await watched.runtime.prepare(wanted) is None
        watched.start(wanted)
        await watched.until("a", "Running")
        claim = records.find(f"{watched.runtime.folder('uid-a')}/{records.CLAIM}")
        assert claim is not None
        assert processes_of("uid-a")
        os.kill(claim["pid"], signal.SIGKILL)
        assert (await watched.over("a"))["reason"] == "SupervisorLost"
        assert processes_of("uid-a") == []
        await watched.runtime.remove("uid-a")
        assert os.listdir(tmp_path / "pods") == []


@pytest.mark.usefixtures("podman")
async def test_a_server_that_was_restarted_adopts_a_container(tmp_path: Path, cowsay: str) -> None:
    script = "echo started; while ! test -e /v/go; do sleep 0.01; done; exit 7"
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    wanted = pod("a", container(cowsay, command=["sh", "-c", script], **mounts), **VOLUMES)
    before = Watched(tmp_path)
    await before.open()
    assert await before.runtime.prepare(wanted) is None
    before.start(wanted)
    await before.until("a", "Running")
    await before.runtime.close()
    async with opened(tmp_path) as watched:
        assert watched.start(wanted) is None, "it runs already"
        (Path(watched.runtime.folder("uid-a")) / records.VOLUMES / "v" / "go").touch()
        assert terminated(await watched.over("a"))["exitCode"] == 7
        assert await watched.text("a") == "started\n"


@pytest.mark.usefixtures("podman")
async def test_an_image_that_is_missing_keeps_the_pod_waiting(tmp_path: Path, cowsay: str) -> None:
    # Nothing listens at this port of the machine.
    missing = "localhost:1/no-such-image:1"
    async with opened(tmp_path) as watched:
        for wanted, reason, words in (
            (container(missing, imagePullPolicy="Never"), "ErrImageNeverPull", "not present with pull policy"),
            (container(missing), "ErrImagePull", "failed to pull"),
            (container(missing), "ImagePullBackOff", "Back-off pulling image"),
        ):
            waiting = await watched.runtime.prepare(pod("a", wanted))
            assert waiting is not None
            assert (waiting.reason, words in waiting.message) == (reason, True)
        told = [status["containerStatuses"][0]["state"]["waiting"]["reason"] for status in watched.told["a"]]
        assert told == ["ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff"]
        assert await watched.runtime.prepare(pod("b", container(cowsay, imagePullPolicy="Always"))) is None


@pytest.mark.usefixtures("podman")
async def test_a_gpu_is_given_by_the_description_of_its_vendor(tmp_path: Path, cowsay: str) -> None:
    """The description is made up: it stands for that of NVIDIA's toolkit, and its device is /dev/null."""
    edits = [
        {"name": f"{number}", "containerEdits": {"env": [f"MADE_UP={number}"], "deviceNodes": [node(number)]}}
        for number in range(2)
    ]
    with described({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": edits}):
        watched = Watched(tmp_path)
        watched.runtime = Runtime(
            str(tmp_path), Machine("node-1", gpus=2), watched._tell, podplan.RuntimeOptions(runtime="podman")
        )
        await watched.open()
        gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        for name in ("a", "b"):
            wanted = pod(name, container(cowsay, command=["sh", "-c", "echo $MADE_UP; ls /dev/gpu*; sleep 2"], **gpu))
            assert await watched.runtime.prepare(wanted) is None
            watched.start(wanted)
        for name, text in (("a", "0\n/dev/gpu0\n"), ("b", "1\n/dev/gpu1\n")):
            await watched.over(name)
            assert await watched.text(name) == text
        await watched.runtime.close()


@contextmanager
def described(devices: Json) -> Iterator[None]:
    """Describe devices to podman, where no real ones are described."""
    folder = Path("/var/run/cdi")
    if os.geteuid() != 0 or folder.exists() or Path("/etc/cdi").exists():
        pytest.skip("needs root, and a machine without GPUs")
    folder.mkdir()
    try:
        (folder / "kyu-test.json").write_text(json.dumps(devices))
        yield
    finally:
        shutil.rmtree(folder)


def node(number: int) -> Json:
    return {"path": f"/dev/gpu{number}", "hostPath": "/dev/null"}


@pytest.mark.parametrize(
    ("spec", "more", "message"),
    [
        ({"hostPID": True}, {}, "hostPID"),
        ({}, {"securityContext": {"privileged": True}}, "privileged"),
        ({}, {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "SYS_ADMIN"),
        ({}, {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile"),
        ({}, {"securityContext": {"runAsNonRoot": True}}, "runAsNonRoot"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/etc"}}]}, {}, "not permitted"),
        ({}, {"env": [{"name": "CONTAINERS_CONF", "value": "a\nb"}]}, "CONTAINERS_CONF"),
    ],
)
def test_what_no_container_may_have_is_refused(spec: Json, more: Json, message: str) -> None:
    wanted = pod("a", container("some", command=["true"], **more), **spec)
    place = podplan.Place("/folder", "/notices", "boot", images={"some": Image("id")})
    outcome = podplan.plan_pod(PodFacts(wanted, "node", {}), Objects(), podplan.RuntimeOptions(), place)
    assert isinstance(outcome, PodRefused)
    assert message in outcome.message


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("busybox", "docker.io/library/busybox"),
        ("grycap/cowsay:1", "docker.io/grycap/cowsay:1"),
        ("localhost/own", "localhost/own"),
        ("registry:5000/own", "registry:5000/own"),
        ("quay.io/a/b@sha256:0", "quay.io/a/b@sha256:0"),
    ],
)
def test_a_short_name_is_one_of_docker_hub(short: str, full: str) -> None:
    assert images.full_name(short) == full


def test_auto_leaves_the_commands_of_the_machine_to_the_machine() -> None:
    found = images.Images("auto", refused="")
    assert found.runs(pod("a", container("busybox")))
    assert not found.runs(pod("a", container(HOST_IMAGE)))
    found.refused = "podman is not installed"
    assert not found.runs(pod("a", container("busybox")))
