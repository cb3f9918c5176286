"""Pods as real processes of this machine."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.runtime import logs, podplan, records, shutdown, spawn, user_ids
from kyu.runtime.environment import NotYet
from kyu.runtime.logs import LogOptions
from kyu.runtime.podman.plan import RuntimeChoice
from kyu.runtime.processes import Machine, Runtime
from tests.runtime.test_crash import processes_of
from tests.support.images import IMAGE


class Objects:
    def config_map(self, namespace: str, name: str) -> Json | None:
        return {"data": {"color": "blue"}} if name == "settings" else None

    def secret(self, namespace: str, name: str) -> Json | None:
        return None


# How pods run in the test at hand.
CHOICE: list[RuntimeChoice] = ["process"]


@pytest.fixture(params=["process", "podman"])
def both_runtimes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test with pods as processes, then with pods from images."""
    if request.param == "podman":
        request.getfixturevalue("image")
    CHOICE[0] = request.param
    yield
    CHOICE[0] = "process"


class Watched:
    """A runtime, and the statuses that it has told, by the pod's name."""

    def __init__(self, folder: Path, options: podplan.RuntimeOptions | None = None) -> None:
        self.told: dict[str, list[Json]] = {}
        self._changed = asyncio.Event()
        options = replace(options or podplan.RuntimeOptions(), runtime=CHOICE[0])
        self.runtime = Runtime(str(folder), Machine("node-1"), self._tell, options)

    def _tell(self, pod: Json, status: Json) -> None:
        self.told.setdefault(pod["metadata"]["name"], []).append(status)
        self._changed.set()

    async def open(self) -> None:
        await self.runtime.open()
        if CHOICE[0] == "podman":
            assert not self.runtime.images.refused
            assert await self.runtime.prepare(pod("any", shell("true"))) is None

    async def until(self, name: str, *phases: str) -> Json:
        """Return the first status of the pod in one of the phases."""
        async with asyncio.timeout(60):
            while True:
                for status in self.told.get(name, ()):
                    if status["phase"] in phases:
                        return status
                self._changed.clear()
                await self._changed.wait()

    def start(self, pod: Json) -> podplan.Outcome | None:
        return self.runtime.start(pod, Objects())

    async def over(self, name: str) -> Json:
        return await self.until(name, "Succeeded", "Failed")

    async def text(self, name: str, container: str = "main", *, previous: bool = False, **options: Any) -> str:
        folder = self.runtime.folder(f"uid-{name}")
        log = logs.find_log(folder, name, container, previous=previous)
        assert isinstance(log, logs.Log), log
        return b"".join([block async for block in logs.stream(log, LogOptions(**options))]).decode()


@asynccontextmanager
async def opened(folder: Path, options: podplan.RuntimeOptions | None = None) -> AsyncIterator[Watched]:
    watched = Watched(folder, options)
    await watched.open()
    try:
        yield watched
    finally:
        for uid in watched.runtime.uids():
            watched.runtime.stop(uid, 0)
        for uid in watched.runtime.uids():
            await watched.over(uid.removeprefix("uid-"))
        await watched.runtime.close()


def shell(script: str, **more: Any) -> Json:
    return {"name": "main", "image": IMAGE, "command": ["sh", "-c", script], **more}


def pod(name: str, *containers: Json, **spec: Any) -> Json:
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    return {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": list(containers), **spec}}


async def test_the_users_of_pods_have_names(tmp_path: Path) -> None:
    async with opened(tmp_path, tenants(tmp_path) if os.geteuid() == 0 else None) as watched:
        if watched.runtime.isolation.refused:
            pytest.skip(f"tenants cannot be isolated here: {watched.runtime.isolation.refused}")
        watched.start(pod("a", shell("id -un; id -gn; echo $USER $LOGNAME; (echo x >> /etc/passwd) 2>&1; id -un root")))
        await watched.over("a")
        name, group, both, refusal, root = (await watched.text("a")).splitlines()
        assert both == f"{name} {name}"
        assert root == "root"
        assert refusal
        if os.geteuid() == 0:
            assert (name, group) == ("kyu-team", "kyu-team")


@pytest.mark.usefixtures("both_runtimes")
async def test_the_last_message_is_written_where_kubernetes_has_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        if watched.runtime.mounts_refused:
            pytest.skip("mounts are refused here")
        watched.start(pod("a", shell("echo why > /dev/termination-log; echo gone > /dev/null; exit 1")))
        assert terminated(await watched.over("a"))["message"] == "why\n"
    assert "termination-log" not in os.listdir("/dev"), "the machine itself is not changed"


def terminated(status: Json, position: int = 0) -> Json:
    ended: Json = status["containerStatuses"][position]["state"]["terminated"]
    return ended


def condition(status: Json, type_: str) -> str:
    return next(str(c["status"]) for c in status["conditions"] if c["type"] == type_)


VOLUME: dict[str, Any] = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
VOLUMES: dict[str, Any] = {"volumes": [{"name": "v", "emptyDir": {}}]}


def volume(watched: Watched, name: str) -> Path:
    """Return the folder of the machine that the pod sees as $KYU_VOLUME_V."""
    return Path(watched.runtime.folder(f"uid-{name}")) / records.VOLUMES / "v"


@pytest.mark.usefixtures("both_runtimes")
async def test_a_pod_runs_prints_and_tells_its_exit_code(tmp_path: Path) -> None:
    async with opened(tmp_path / "runtime") as watched:
        script = 'echo "out $GREETING"; echo err >&2; while ! test -e $KYU_VOLUME_V/go; do sleep 0.01; done; exit 3'
        watched.start(pod("a", shell(script, env=[{"name": "GREETING", "value": "hi"}], **VOLUME), **VOLUMES))
        await watched.until("a", "Running")
        (volume(watched, "a") / "go").touch()
        status = await watched.over("a")
        assert status["phase"] == "Failed"
        assert terminated(status)["exitCode"] == 3
        assert terminated(status)["reason"] == "Error"
        # An image takes a moment to start.
        told = [s for s in watched.told["a"] if s["phase"] != "Pending"]
        assert [s["phase"] for s in told] == ["Running", "Failed"]
        assert condition(told[0], "Ready") == "True"
        assert condition(status, "Ready") == "False"
        assert sorted((await watched.text("a")).splitlines()) == ["err", "out hi"]


async def test_a_command_that_does_not_exist_fails_the_pod_with_the_reason(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        missing = {"name": "main", "image": "tool:1", "command": ["no-such-command"]}
        watched.start(pod("a", missing, restartPolicy="Always"))
        ended = terminated(await watched.over("a"))
        assert ended["exitCode"] == spawn.NOT_FOUND_EXIT_CODE
        assert ended["reason"] == "StartError"
        assert ended["message"] == 'command "no-such-command" is not on this machine; the image "tool:1" is not pulled'


async def test_a_working_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        watched.start(pod("a", shell("true", workingDir="/no/such/folder")))
        assert terminated(await watched.over("a"))["message"] == "workingDir /no/such/folder: No such file or directory"


async def test_a_pod_without_a_command_fails_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        watched.start(pod("a", {"name": "main", "image": "tool:1"}))
        assert watched.told["a"][0]["phase"] == "Failed"
        assert "images are not run here" in watched.told["a"][0]["message"]
        assert watched.runtime.uids() == []


@pytest.mark.usefixtures("both_runtimes")
async def test_a_missing_config_map_keeps_the_pod_waiting(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        wanted = {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "k"}}}]}
        outcome = watched.start(pod("a", shell("true", **wanted)))
        assert isinstance(outcome, NotYet)
        waiting = watched.told["a"][0]["containerStatuses"][0]["state"]["waiting"]
        assert waiting == {"reason": "CreateContainerConfigError", "message": 'configmap "absent" not found'}


@pytest.mark.usefixtures("both_runtimes")
async def test_a_stop_asks_first_and_the_exit_code_is_the_programs_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        script = 'trap "echo bye; exit 5" TERM; echo ready; while :; do sleep 0.01; done'
        watched.start(pod("a", shell(script)))
        await watched.until("a", "Running")
        await until_printed(watched, "a", "ready")
        watched.runtime.stop("uid-a", 30)
        assert terminated(await watched.over("a"))["exitCode"] == 5
        assert "bye\n" in await watched.text("a")


@pytest.mark.usefixtures("both_runtimes")
async def test_a_pod_may_be_stopped_before_it_has_begun(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        watched.start(pod("a", shell("sleep 1000")))
        watched.runtime.stop("uid-a", 0)
        assert (await watched.over("a"))["phase"] == "Failed"


@pytest.mark.usefixtures("both_runtimes")
async def test_a_disk_that_refuses_fails_the_pod_and_the_next_one_runs(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        # A folder in the way that is not empty.
        (Path(watched.runtime.folder("uid-a")) / "in-the-way").mkdir(parents=True)
        watched.start(pod("a", shell("true")))
        assert "cannot keep the pod's folder" in (await watched.over("a"))["message"]
        watched.start(pod("b", shell("true")))
        assert (await watched.over("b"))["phase"] == "Succeeded"


async def test_a_record_that_the_disk_refuses_is_written_when_it_can_be(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with opened(tmp_path / "runtime") as watched:
        watched.start(pod("a", shell(f"while ! test -e {go}; do sleep 0.01; done; exit 6")))
        await watched.until("a", "Running")
        folder = Path(watched.runtime.folder("uid-a"))
        claim, record = (records.find(str(folder / name)) for name in (records.CLAIM, records.RECORD))
        assert claim is not None
        assert record is not None
        # In the way of what the supervisor writes first: an error of the disk like any other.
        pid = 1 if watched.runtime.isolation.sandbox.namespaces else claim["pid"]
        in_the_way = folder / f"{records.RECORD}.{pid}.tmp"
        in_the_way.mkdir()
        go.touch()
        await asyncio.to_thread(wait_until_gone, "uid-a")
        assert records.find(str(folder / records.RECORD)) == record
        in_the_way.rmdir()
        ended = await watched.over("a")
        assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 6


@pytest.mark.usefixtures("both_runtimes")
async def test_after_the_grace_period_the_whole_group_is_killed(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        script = 'trap "" TERM; sh -c \'trap "" TERM; echo $$$$; while :; do sleep 1; done\' & wait; wait'
        watched.start(pod("a", shell(script)))
        await watched.until("a", "Running")
        await until_printed(watched, "a", "\n")
        assert len(processes_of("uid-a")) >= 2
        watched.runtime.stop("uid-a", 0.1)
        assert terminated(await watched.over("a"))["exitCode"] == 137
        assert processes_of("uid-a") == []


@pytest.mark.usefixtures("both_runtimes")
async def test_processes_that_left_the_session_end_with_the_pod(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        watched.start(pod("a", shell("setsid sleep 1000 & echo $!; exit 0")))
        assert (await watched.over("a"))["phase"] == "Succeeded"
        assert processes_of("uid-a") == []


@pytest.mark.usefixtures("both_runtimes")
async def test_places_of_the_machine_are_mounted_where_that_is_permitted(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "given").write_text("given\n")
    mounts = [{"name": "place", "mountPath": "/kyu-test-place"}]
    volumes = [{"name": "place", "hostPath": {"path": str(place), "type": "Directory"}}]
    script = "cat /kyu-test-place/given; echo made > /kyu-test-place/made"
    async with opened(tmp_path / "runtime", podplan.RuntimeOptions(host_paths=(str(tmp_path),))) as watched:
        watched.start(pod("a", shell(script, volumeMounts=mounts), volumes=volumes))
        status = await watched.over("a")
        assert status["phase"] == "Succeeded", status
        assert await watched.text("a") == "given\n"
        assert (place / "made").read_text() == "made\n"
        absent = [{"name": "place", "hostPath": {"path": str(tmp_path / "absent")}}]
        watched.start(pod("b", shell("true", volumeMounts=mounts), volumes=absent))
        status = await watched.over("b")
        assert status["phase"] == "Failed"
        assert str(tmp_path / "absent") in str(status), status
    assert (place / "given").exists()


@pytest.mark.usefixtures("both_runtimes")
async def test_init_containers_then_a_sidecar_beside_two_mains(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        share = {"volumeMounts": [{"name": "share", "mountPath": "/share/deep"}]}
        first = [
            shell("echo first > /share/deep/order", **share) | {"name": "first"},
            shell('trap "exit 143" TERM; echo sidecar >> /share/deep/order; while :; do sleep 0.1; done', **share)
            | {"name": "side", "restartPolicy": "Always"},
        ]
        mains = [
            shell("while ! grep -q sidecar /share/deep/order; do sleep 0.01; done; cat /share/deep/order", **share),
            shell("exit 0") | {"name": "other"},
        ]
        volumes = [{"name": "share", "emptyDir": {}}]
        grace = {"terminationGracePeriodSeconds": 1}
        watched.start(pod("a", *mains, initContainers=first, volumes=volumes, **grace))
        status = await watched.over("a")
        assert status["phase"] == "Succeeded", status
        assert await watched.text("a") == "first\nsidecar\n"
        assert [s["state"]["terminated"]["exitCode"] for s in status["initContainerStatuses"]] == [0, 143]
        assert condition(status, "Initialized") == "True"


@pytest.mark.usefixtures("both_runtimes")
async def test_volumes_appear_at_their_mount_paths_and_nowhere_else(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        volumes = [{"name": "conf", "configMap": {"name": "settings"}}, {"name": "work", "emptyDir": {}}]
        mounts = [
            {"name": "conf", "mountPath": "/etc/kyu-test/conf"},
            {"name": "work", "mountPath": "/kyu-test-data", "subPath": "inner"},
            {"name": "conf", "mountPath": "/kyu-test-data/color", "subPath": "color"},
        ]
        script = (
            "cat /etc/kyu-test/conf/color /kyu-test-data/color; test -e /etc/passwd && echo; echo x > /kyu-test-data/f"
            " && cat /kyu-test-data/f; echo no > /etc/kyu-test/conf/color || echo read-only"
        )
        watched.start(pod("a", shell(script, volumeMounts=mounts), volumes=volumes))
        status = await watched.over("a")
        assert status["phase"] == "Succeeded", status
        lines = (await watched.text("a")).splitlines()
        assert lines[:2] == ["blueblue", "x"]
        assert "read-only" in lines
        assert "kyu-test-data" not in os.listdir("/")
        assert "kyu-test" not in os.listdir("/etc")


@pytest.mark.usefixtures("both_runtimes")
async def test_a_failing_container_is_restarted_and_its_previous_log_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        first = 'touch $KYU_VOLUME_V/again; echo first; echo why > "$KYU_TERMINATION_LOG"; exit 4'
        script = f"test -e $KYU_VOLUME_V/again && {{ echo second; exit 0; }}; {first}"
        watched.start(pod("a", shell(script, **VOLUME), restartPolicy="OnFailure", **VOLUMES))
        status = await watched.over("a")
        assert status["phase"] == "Succeeded"
        main = status["containerStatuses"][0]
        assert main["restartCount"] == 1
        assert main["lastState"]["terminated"]["exitCode"] == 4
        assert main["lastState"]["terminated"]["message"] == "why\n"
        assert await watched.text("a") == "second\n"
        assert await watched.text("a", previous=True) == "first\n"


@pytest.mark.usefixtures("both_runtimes")
async def test_the_log_stands_in_for_a_message_on_request(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
        watched.start(pod("a", shell("echo the end is near; exit 1", **policy)))
        assert terminated(await watched.over("a"))["message"] == "the end is near"


@pytest.mark.usefixtures("both_runtimes")
async def test_the_deadline_of_a_pod(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        watched.start(pod("a", shell("sleep 1000"), activeDeadlineSeconds=0))
        status = await watched.over("a")
        assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


@pytest.mark.usefixtures("both_runtimes")
async def test_logs_as_kubectl_asks_for_them(tmp_path: Path) -> None:
    async with opened(tmp_path, podplan.RuntimeOptions(log_most_bytes=2000, log_most_files=3)) as watched:
        watched.start(pod("a", shell("for i in $(seq 500); do echo line $i; done; printf end")))
        await watched.over("a")
        assert await watched.text("a", tail_lines=3) == "line 499\nline 500\nend"
        assert await watched.text("a", tail_lines=0) == ""
        everything = await watched.text("a")
        # The oldest files went, the newest are whole.
        assert everything.endswith("line 499\nline 500\nend")
        assert "line 1\n" not in everything
        stamped = (await watched.text("a", timestamps=True, tail_lines=1)).split(" ")
        assert stamped[1] == "end"
        age = datetime.now(UTC) - datetime.fromisoformat(stamped[0][:26] + "+00:00")
        assert timedelta() < age < timedelta(minutes=1)
        assert await watched.text("a", since=datetime.now(UTC) + timedelta(hours=1)) == ""
        assert await watched.text("a", tail_lines=2, limit_bytes=6) == "line 5"


@pytest.mark.usefixtures("both_runtimes")
async def test_following_a_log_ends_with_the_container(tmp_path: Path) -> None:
    async with opened(tmp_path, podplan.RuntimeOptions(log_most_bytes=100)) as watched:
        wait = "while ! test -e $KYU_VOLUME_V/go; do sleep 0.01; done"
        script = f"for i in $(seq 30); do echo line $i; done; {wait}; echo last"
        watched.start(pod("a", shell(script, **VOLUME), **VOLUMES))
        await watched.until("a", "Running")
        go = volume(watched, "a") / "go"
        log = logs.find_log(watched.runtime.folder("uid-a"), "a", "main", previous=False)
        assert isinstance(log, logs.Log)
        text = b""
        async for block in logs.stream(log, LogOptions(follow=True)):
            text += block
            if text.endswith(b"line 30\n"):
                go.touch()
        assert text.endswith(b"line 30\nlast\n")


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    """The umask of the server: only its user reads its files."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def tenants(folder: Path) -> podplan.RuntimeOptions:
    """Pods of several people, with a registry of user ids of their own."""
    return podplan.RuntimeOptions(tenants=True, user_ids=str(folder / "user-ids.json"))


@pytest.mark.usefixtures("narrow_umask")
async def test_a_user_for_each_namespace(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    async with opened(tmp_path, tenants(tmp_path)) as watched:
        volumes = {"volumes": [{"name": "v", "emptyDir": {}}]}
        script = 'id -u; touch "$KYU_VOLUME_V/f" "$HOME/g" && echo mine; cat "$HOME/../plan.json" || echo hidden'
        one, two = pod("a", shell(script), **volumes), pod("b", shell("id -u"))
        two["metadata"]["namespace"] = "other"
        watched.start(one)
        await watched.over("a")
        watched.start(two)
        await watched.over("b")
        text = await watched.text("a")
        assert text.splitlines()[0] == str(user_ids.FIRST + 1)
        assert "mine" in text
        assert "hidden\n" in text
        assert await watched.text("b") == f"{user_ids.FIRST + 2}\n"


async def test_a_program_in_a_folder_that_its_user_cannot_reach_is_told_so(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    # The pod has a /tmp of its own, so the folder is elsewhere.
    closed = "/root"
    if os.stat(closed).st_mode & 0o001:
        pytest.skip("needs a home folder of root that is closed")
    async with opened(tmp_path, tenants(tmp_path)) as watched:
        path = [{"name": "PATH", "value": f"{closed}:/nowhere:/bin"}]
        lost = {"name": "main", "image": "any", "command": ["no-such-program"], "env": path}
        watched.start(pod("a", lost))
        ended = terminated(await watched.over("a"))
        user = user_ids.FIRST + 1
        assert (ended["exitCode"], ended["message"]) == (
            127,
            f'command "no-such-program" is not found; user {user} may not look into {closed}',
        )
        watched.start(pod("b", shell("true", workingDir=str(closed))))
        assert f"Permission denied, for user {user}" in terminated(await watched.over("b"))["message"]


@pytest.mark.usefixtures("both_runtimes")
async def test_a_killed_launcher_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        watched.start(pod("a", shell("exit 0")))
        await watched.over("a")
        launcher = watched.runtime._launching.process
        assert launcher is not None
        launcher.kill()
        await launcher.wait()
        watched.start(pod("b", shell("exit 0")))
        assert (await watched.over("b"))["phase"] == "Succeeded"


@pytest.mark.usefixtures("both_runtimes")
async def test_a_removed_pod_leaves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        watched.start(pod("a", shell("echo hi", volumeMounts=[]), volumes=[{"name": "v", "emptyDir": {}}]))
        await watched.over("a")
        await watched.runtime.remove("uid-a")
        assert os.listdir(tmp_path / "pods") == []
        assert watched.runtime.uids() == []


def wait_until_gone(uid: str) -> None:
    until = time.monotonic() + 60
    while processes_of(uid):
        assert time.monotonic() < until
        time.sleep(0.01)


async def until_printed(watched: Watched, name: str, text: str) -> str:
    """Return the output of a running container, once it has this text."""
    log = logs.find_log(watched.runtime.folder(f"uid-{name}"), name, "main", previous=False)
    assert isinstance(log, logs.Log)
    printed = ""
    async with asyncio.timeout(60):
        async for block in logs.stream(log, LogOptions(follow=True)):
            printed += block.decode()
            if text in printed:
                return printed
    raise AssertionError(f"the container ended and printed {printed!r}")


async def test_gpus_are_given_to_one_pod_at_a_time(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.runtime = Runtime(str(tmp_path), Machine("node-1", gpus=2), watched._tell)
    await watched.runtime.open()
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    watched.start(pod("a", shell("echo gpu $CUDA_VISIBLE_DEVICES; sleep 1000", **gpu)))
    watched.start(pod("b", shell("echo gpu $CUDA_VISIBLE_DEVICES", **gpu)))
    watched.start(pod("c", shell("echo none $CUDA_VISIBLE_DEVICES")))
    for name in ("b", "c"):
        await watched.over(name)
    assert await until_printed(watched, "a", "\n") == "gpu 0\n"
    assert await watched.text("b") == "gpu 1\n"
    assert await watched.text("c") == "none\n"
    watched.runtime.stop("uid-a", 0)
    await watched.over("a")
    watched.start(pod("d", shell("echo gpu $CUDA_VISIBLE_DEVICES", **gpu)))
    await watched.over("d")
    assert await watched.text("d") == "gpu 0\n"
    await watched.runtime.close()


@pytest.mark.usefixtures("both_runtimes")
async def test_a_pod_that_ran_and_whose_folder_is_gone_is_not_run_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as watched:
        wanted = pod("a", shell("true"))
        wanted["status"] = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
        assert watched.start(wanted) is None
        assert watched.told["a"][0]["reason"] == "PodFolderLost"


@pytest.mark.usefixtures("both_runtimes")
async def test_all_pods_of_a_folder_can_be_ended_when_kyu_is_down(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    await watched.open()
    for name in ("a", "b"):
        watched.start(pod(name, shell('trap "exit 143" TERM; while :; do sleep 0.1; done')))
        await watched.until(name, "Running")
    await watched.runtime.close()
    assert await asyncio.to_thread(shutdown.stop_all, str(tmp_path), 60) == 2
    assert await asyncio.to_thread(shutdown.stop_all, str(tmp_path), 60) == 0
    async with opened(tmp_path) as again:
        assert terminated(await again.over("a"))["exitCode"] == 143
