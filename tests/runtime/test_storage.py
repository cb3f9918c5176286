"""The storage of pods: limits that the kernel holds, and evictions of pods that use more than they may."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.runtime import output, podplan
from kyu.runtime.sandbox import files
from kyu.runtime.storage import disk_usage, eviction, limits
from kyu.runtime.storage.eviction import Evictor, RunningPod
from kyu.runtime.storage.limits import StorageLimits, StorageUsage
from tests.runtime.test_processes import opened, pod, shell, tenants

MIB = 1024 * 1024


def with_storage(limit: str, **more: Any) -> Json:
    return pod("a", shell("true", resources={"limits": {"ephemeral-storage": limit}}), **more)


def empty_dir(**fields: Any) -> list[Json]:
    return [{"name": "v", "emptyDir": fields}]


@pytest.mark.parametrize(
    ("volume", "used", "message"),
    [
        ({"sizeLimit": "1Mi"}, MIB, None),
        ({"sizeLimit": "1Mi"}, MIB + 1, 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '),
        ({"sizeLimit": "0"}, MIB, None),
        ({"sizeLimit": "1Mi", "medium": "Memory"}, 2 * MIB, None),
        ({}, 4 * MIB, "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. "),
    ],
)
def test_an_excess_is_told_in_the_words_of_the_kubelet(volume: Json, used: int, message: str | None) -> None:
    found = limits.limits_of(with_storage("3Mi", volumes=empty_dir(**volume)))
    assert limits.find_excess(found, StorageUsage({"v": used}, used)) == message


def test_a_pod_with_more_files_than_are_counted_exceeds_its_limits() -> None:
    assert limits.find_excess(StorageLimits({"v": MIB}), StorageUsage({}, 0, too_many=True))


def test_the_largest_pod_above_its_request_goes_first() -> None:
    pods = {uid: RunningPod(uid, "", StorageLimits({}, None, asked)) for uid, asked in (("a", 0), ("b", 90))}
    assert eviction.find_largest(pods, {"a": StorageUsage({}, 20), "b": StorageUsage({}, 100)}) == "a"
    assert eviction.find_largest(pods, {"b": StorageUsage({}, 80)}) is None


def test_folders_in_memory_are_as_large_as_the_memory_of_the_pod() -> None:
    wanted = pod("a", shell("true", resources={"limits": {"memory": "1Gi"}}), volumes=empty_dir(medium="Memory"))
    assert limits.memory_volumes(wanted) == {"v": 1024 * MIB}
    wanted["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = "5Mi"
    assert limits.memory_volumes(wanted) == {"v": 5 * MIB}
    assert limits.shared_memory(pod("a", shell("true"))) == limits.USUAL_SHARED_MEMORY


def test_files_are_counted_once_and_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * MIB)
    os.link(tmp_path / "a" / "file", tmp_path / "again")
    (tmp_path / "out").symlink_to("/usr")
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "sparse", "wb") as sparse:
        sparse.truncate(100 * MIB)
    assert MIB <= disk_usage.Counter().folder_bytes(str(tmp_path)) < 2 * MIB


def test_folders_that_are_too_deep_to_count_are_reported(tmp_path: Path) -> None:
    place = os.open(tmp_path, os.O_RDONLY)
    for _ in range(disk_usage.MOST_DEPTH + 1):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    assert disk_usage.measure({"home": str(tmp_path)}) == {"tooMany": True}
    # Too deep for the removal of old folders by pytest.
    files.remove_tree(str(tmp_path / "d"))


async def test_a_pod_above_its_limit_is_evicted(tmp_path: Path) -> None:
    plain = tenants(tmp_path) if os.geteuid() == 0 else podplan.RuntimeOptions()
    options = replace(plain, storage_interval_seconds=0.2)
    async with opened(tmp_path, options) as watched:
        if watched.runtime.isolation.refused:
            pytest.skip(f"tenants cannot be isolated here: {watched.runtime.isolation.refused}")
        script = "mkdir -m 0 $KYU_VOLUME_V/closed; chmod 700 $KYU_VOLUME_V/closed; cd $KYU_VOLUME_V/closed;"
        script += " head -c 3000000 /dev/zero > f; chmod 0 .; sleep 1000"
        mounts = [{"name": "v", "mountPath": "/kyu-v"}]
        wanted = pod("a", shell(script, volumeMounts=mounts), volumes=empty_dir(sizeLimit="2Mi"))
        if os.geteuid() != 0:
            wanted["spec"]["containers"][0]["command"][2] = script.replace("chmod 0 .;", "")
        watched.start(wanted)
        status = await watched.over("a")
        assert status["reason"] == "Evicted"
        assert status["message"] == 'Usage of EmptyDir volume "v" exceeds the limit "2Mi". '
    if os.geteuid() == 0:
        assert not {"volumes", "home", "tmp"} & {*os.listdir(watched.runtime.folder("uid-a"))}


async def test_the_largest_pod_is_evicted_while_the_disk_is_nearly_full(tmp_path: Path) -> None:
    pods = []
    for name, size in (("small", 10), ("large", 10 * MIB)):
        (tmp_path / name / "home").mkdir(parents=True)
        (tmp_path / name / "home" / "file").write_bytes(b"x" * size)
        pods.append(RunningPod(name, str(tmp_path / name), StorageLimits({})))
    evicted: dict[str, str] = {}
    more_than_any_disk = 2**62
    evictor = Evictor(str(tmp_path), lambda: pods, evicted.__setitem__, 1.0, protects_disk=True)
    await evictor.look()
    assert evicted == {}
    evictor.little_room_bytes, evictor.little_room_share = more_than_any_disk, 2.0
    await evictor.look()
    assert list(evicted) == ["large"]
    assert evicted["large"].startswith("The node was low on resource: ephemeral-storage. ")


def test_the_logs_of_old_starts_are_removed(tmp_path: Path) -> None:
    log = output.LogFile(str(tmp_path / "main.1.log"), most_bytes=20, most_files=3)
    for _ in range(5):
        log.write(b"x" * 15 + b"\n")
    log.close()
    (tmp_path / "main.11.log").touch()
    assert len(os.listdir(tmp_path)) == 4
    output.remove_log(log.path)
    assert os.listdir(tmp_path) == ["main.11.log"]


async def test_memory_is_bounded_by_the_kernel(tmp_path: Path) -> None:
    async with opened(tmp_path, tenants(tmp_path) if os.geteuid() == 0 else None) as watched:
        if not watched.runtime.isolation.sandbox.namespaces:
            pytest.skip("pods have no namespaces here")
        script = 'head -c 9000000 /dev/zero > /kyu-v/f; stat -c %s /kyu-v/f; stat -f -c %T "$KYU_VOLUME_V"'
        if os.geteuid() == 0:
            script += "; df -m --output=size /dev/shm | tail -1"
        mounts = [{"name": "v", "mountPath": "/kyu-v"}]
        volumes = empty_dir(medium="Memory", sizeLimit="4Mi")
        watched.start(pod("a", shell(script, volumeMounts=mounts), volumes=volumes))
        await watched.over("a")
        size, kind, *shared = (await watched.text("a")).split("\n", 1)[1].split()
        assert (size, kind) == (str(4 * MIB), "tmpfs")
        assert shared in ([], ["64"])
