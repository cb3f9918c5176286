"""
Attacks of a tenant on the machine, on the server and on other tenants, from inside a pod.

All run as root, with and without user namespaces for pods. Each attack must fail, and the pod must still end.
"""

from __future__ import annotations

import base64
import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kyu.api.meta import Json
from kyu.runtime import isolation, logs, podplan, processes, records, user_ids
from kyu.runtime.isolation import choose
from kyu.runtime.sandbox import files
from kyu.runtime.sandbox.namespaces import Sandbox
from tests.runtime.test_processes import Watched, opened, pod, shell, tenants, terminated, until_printed

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="only root serves tenants")]

SECRET = "the-token-of-another-team"
# All users of a machine may write here.
SHARED_FOLDERS = [path for path in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/var/crash") if os.path.isdir(path)]


class Objects:
    """The ConfigMaps and Secrets that pods of these tests read."""

    def config_map(self, namespace: str, name: str) -> Json | None:
        return {"data": {"passwd": "evil::0:0::/:/bin/sh\n", "script": "#!/bin/sh\nid\n"}}

    def secret(self, namespace: str, name: str) -> Json | None:
        return {"data": {"token": base64.b64encode(SECRET.encode()).decode()}}


@pytest.fixture(params=["with user namespaces", "without user namespaces"])
async def watched(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watched]:
    """A runtime for tenants. Its isolation is the real one of this machine, or the weaker one of an older machine."""
    if request.param == "without user namespaces":
        monkeypatch.setattr(processes, "sandboxes", lambda options, user: isolation.sandboxes(options, user)[1:])
    async with opened(tmp_path, tenants(tmp_path)) as found:
        if found.runtime.isolation.refused:
            pytest.skip(f"tenants cannot be isolated here: {found.runtime.isolation.refused}")
        yield found
    # Some are too deep for the removal of old folders by pytest.
    files.remove_tree(str(tmp_path / "pods"))


def start(watched: Watched, wanted: Json, namespace: str = "team") -> None:
    wanted["metadata"]["namespace"] = namespace
    watched.runtime.start(wanted, Objects())


async def output(watched: Watched, wanted: Json) -> str:
    """Run the pod to its end, and return what its main container printed."""
    start(watched, wanted)
    name = wanted["metadata"]["name"]
    status = await watched.over(name)
    assert terminated(status)["reason"] != "StartError", status
    return await watched.text(name)


def exist(*paths: str) -> bool:
    return any(map(os.path.lexists, paths))


# Privileges ---------------------------------------------------------------------------------------------------------


async def test_a_pod_has_no_privileges_and_can_gain_none(watched: Watched) -> None:
    text = await output(watched, pod("a", shell("cat /proc/self/status; cat /proc/self/mountinfo")))
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    assert {fields[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert fields["Uid"].split() == [str(user_ids.FIRST + 1)] * 4
    assert fields["Gid"].split() == [str(user_ids.FIRST + 1)] * 4
    assert fields["Groups"].strip() in ("", str(user_ids.FIRST + 1))


@pytest.fixture
def set_uid_program() -> Iterator[Path]:
    """A program with the set-uid bit of root, in a folder that all users reach."""
    folder = Path("/usr/local/lib/kyu-test-set-uid")
    folder.mkdir(mode=0o755, exist_ok=True)
    program = folder / "id"
    shutil.copy(shutil.which("id") or "/usr/bin/id", program)
    program.chmod(0o4755)
    yield program
    shutil.rmtree(folder)


async def test_a_pod_has_the_limits_of_its_tenant(watched: Watched) -> None:
    text = await output(watched, pod("a", shell("grep -E 'processes|core' /proc/self/limits")))
    most = {line.rsplit(maxsplit=3)[0].strip(): line.rsplit(maxsplit=3)[2] for line in text.splitlines()}
    # The number of this machine: a process namespace may have a limit of its own.
    processes = min(16384, int(Path("/proc/sys/kernel/pid_max").read_text()) // 8)  # noqa: ASYNC240
    assert list(most.values()) == ["1", str(processes)]


async def test_a_set_uid_program_gives_nothing(watched: Watched, set_uid_program: Path) -> None:
    assert await output(watched, pod("a", shell(f"{set_uid_program} -u"))) == f"{user_ids.FIRST + 1}\n"


SYSTEM_PATHS = ["/etc/passwd", "/etc/pam.d", "/etc", "/usr/bin", "/bin/sh", "/lib", "/var/lib", "/root", "/dev", "/run"]


@pytest.mark.parametrize("path", [path for path in SYSTEM_PATHS if os.path.exists(path)])
async def test_a_volume_cannot_cover_the_system(watched: Watched, path: str) -> None:
    inner = {"subPath": "passwd"} if path in ("/etc/passwd", "/bin/sh") else {}
    mounts = [{"name": "v", "mountPath": path, **inner}]
    volumes = [{"name": "v", "configMap": {"name": "evil"}}]
    start(watched, pod("a", shell("cat /etc/passwd", volumeMounts=mounts), volumes=volumes))
    message = terminated(await watched.over("a"))["message"]
    assert "belongs to the system; `kyu up --mount-over" in message


@pytest.mark.parametrize("path", ["/proc/x", "/sys/x", "/proc/self", "/proc/sys/kernel"])
async def test_a_volume_cannot_be_in_the_kernels_folders(watched: Watched, path: str) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    start(watched, pod("a", shell("true", volumeMounts=[{"name": "v", "mountPath": path}]), volumes=volumes))
    assert "mountPath" in terminated(await watched.over("a"))["message"]


async def test_the_administrator_can_let_a_volume_cover_a_system_folder(tmp_path: Path) -> None:
    options = replace(tenants(tmp_path), mount_over=("/etc/pam.d",))
    async with opened(tmp_path, options) as watched:
        volumes = [{"name": "v", "configMap": {"name": "evil"}}]
        mounts = [{"name": "v", "mountPath": "/etc/pam.d"}]
        assert "evil" in await output(
            watched, pod("a", shell("cat /etc/pam.d/passwd", volumeMounts=mounts), volumes=volumes)
        )


async def test_a_folder_beside_those_of_the_system_is_no_way_to_change_them(watched: Watched) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    script = "touch /etc/kyu-test/x; touch /etc/evil || echo refused; rm /etc/passwd || echo kept; wc -l < /etc/passwd"
    mounts = [{"name": "v", "mountPath": "/etc/kyu-test"}]
    text = await output(watched, pod("a", shell(script, volumeMounts=mounts), volumes=volumes))
    assert "refused\n" in text
    assert "kept\n" in text
    assert not exist("/etc/kyu-test", "/etc/evil")


FORBIDDEN = {
    "a user namespace": "unshare -U true",
    "a mount namespace": "unshare -rm true",
    "a mount": "mount -t tmpfs none /tmp",
    "an unmount": "umount /proc",
    "a chroot": "chroot / true",
    "the kernel's log": "dmesg",
    "another host name": "hostname kyu-attacked",
    "the machine's processes": "kill -0 $(cat /proc/sys/kernel/ns_last_pid 2>/dev/null || echo 99999999)",
}


@pytest.mark.parametrize("what", FORBIDDEN)
async def test_calls_into_the_kernel_are_refused(watched: Watched, what: str) -> None:
    text = await output(watched, pod("a", shell(f"{FORBIDDEN[what]} && echo succeeded; echo ended")))
    assert "succeeded" not in text
    assert "ended\n" in text


PYTHON_CALLS = {
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "clone3": (435, 435),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
}


async def test_the_filter_of_system_calls_holds(watched: Watched) -> None:
    if (python := shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")) is None:
        pytest.skip("needs a Python that all users can run")
    column = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
    numbers = [numbers[column] for numbers in PYTHON_CALLS.values()]
    script = (
        "import ctypes, socket\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"for number in {numbers}:\n"
        "    print(libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno() in (1, 38))\n"
        "for family in (17, 38, 40):\n"
        "    try: socket.socket(family, socket.SOCK_STREAM); print('open')\n"
        "    except OSError as error: print(error.errno)\n"
        "socket.socket(); socket.socket(socket.AF_UNIX)\n"
    )
    container = {"name": "main", "image": "any", "command": [python, "-c", script]}
    text = await output(watched, pod("a", container))
    assert text.splitlines() == ["-1 True"] * len(numbers) + ["97"] * 3


# The server and other tenants --------------------------------------------------------------------------------------


async def test_a_pod_sees_its_own_processes_only(watched: Watched) -> None:
    start(watched, pod("other", shell("sleep 1000")), "other")
    await watched.until("other", "Running")
    script = (
        "ls /proc | grep -c '^[0-9]'; cat /proc/[0-9]*/mountinfo | grep -c uid-other;"
        " cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    )
    text = await output(watched, pod("a", shell(script)))
    processes, mentioned, *environment = text.splitlines()
    assert int(processes) < 10
    assert mentioned == "0"
    assert "uid-other" not in str(environment)


async def test_a_pod_cannot_read_anothers_secret(watched: Watched) -> None:
    volumes = [{"name": "s", "secret": {"secretName": "token", "defaultMode": 0o777}}]
    mounts = [{"name": "s", "mountPath": "/kyu-secret"}]
    start(
        watched, pod("other", shell("cat /kyu-secret/token; sleep 1000", volumeMounts=mounts), volumes=volumes), "other"
    )
    await watched.until("other", "Running")
    folder = Path(watched.runtime.folder("uid-other"))
    volume = folder / records.VOLUMES / "s"
    user = user_ids.FIRST + 1
    found = [(stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) for path in (volume, volume / "token")]
    assert found == [(0o700, user), (0o500, user)]
    script = (
        f"cat {volume}/token; ls {folder.parent} {folder}; find / -name 'uid-other*' 2>/dev/null;"
        f" grep -rl {SECRET} /proc/[0-9]*/environ"
    )
    text = await output(watched, pod("a", shell(script)))
    assert SECRET not in text
    assert "uid-other" not in text.replace(f"{folder}", "").replace(f"{volume}", "")


async def test_a_pod_has_the_standard_descriptors_only(watched: Watched) -> None:
    text = await output(watched, pod("a", shell("for i in $(seq 0 300); do readlink /proc/self/fd/$i; done")))
    null, stdout, stderr = text.splitlines()
    assert null == "/dev/null"
    assert stdout.startswith("pipe:")
    assert stderr.startswith("pipe:")


async def test_temporary_folders_and_shared_memory_are_the_pods_own(watched: Watched) -> None:
    folders = [path for path in SHARED_FOLDERS if exist(path)]
    touched = [f"{folder}/kyu-a" for folder in folders]
    script = f"touch {' '.join(touched)} && ls /dev/shm; ipcs -m | grep -c 0x || true"
    text = await output(watched, pod("a", shell(script)))
    assert text.startswith("kyu-a")
    assert not exist(*touched)
    assert "kyu-a" not in await output(watched, pod("b", shell(f"ls -a {' '.join(SHARED_FOLDERS)}")))


async def test_the_servers_folders_are_hidden(watched: Watched, tmp_path: Path) -> None:
    script = f"ls -R {tmp_path}; cat {tmp_path}/notices; echo x > {tmp_path}/notices || echo refused"
    text = await output(watched, pod("a", shell(script)))
    assert records.PLAN not in text
    assert records.NOTICES not in text.replace(f"{tmp_path}/{records.NOTICES}", "")


async def test_the_init_process_can_be_neither_traced_nor_killed(watched: Watched) -> None:
    script = (
        "for s in KILL STOP TERM INT HUP SEGV; do kill -$s 1; done; sleep 0.1;"
        " cat /proc/1/environ /proc/1/maps; ls /proc/1/fd /proc/1/root; echo alive"
    )
    text = await output(watched, pod("a", shell(script)))
    assert "alive\n" in text
    assert text.count("Permission denied") == 4


# Files that a privileged process reads ------------------------------------------------------------------------------


@pytest.fixture
def victim() -> Iterator[Path]:
    """A file that only root reads, on the file system of the tests."""
    path = Path("/var/lib/kyu-test-victim")
    path.write_text("the victim's text\n")
    path.chmod(0o600)
    yield path
    assert path.read_text() == "the victim's text\n"
    path.unlink()


REPLACED = {
    "a link": 'rm -f "$KYU_TERMINATION_LOG"; ln -sf {victim} "$KYU_TERMINATION_LOG"',
    "a hard link": 'rm -f "$KYU_TERMINATION_LOG"; ln -f {victim} "$KYU_TERMINATION_LOG"',
    "a pipe": 'rm -f "$KYU_TERMINATION_LOG"; mkfifo "$KYU_TERMINATION_LOG"',
    "a folder": 'rm -f "$KYU_TERMINATION_LOG"; mkdir "$KYU_TERMINATION_LOG"',
    "another folder above": 'mv "$HOME" "$HOME.x"; mv "$HOME/.." "$HOME/../../y"; ln -s / "$HOME"',
}


@pytest.mark.parametrize("how", REPLACED)
async def test_the_termination_log_leads_nowhere(watched: Watched, victim: Path, how: str) -> None:
    script = REPLACED[how].format(victim=victim) + "; exit 1"
    second = shell("sleep 1000") | {"name": "second"}
    start(watched, pod("a", shell(script), second))
    await watched.until("a", "Running")
    watched.runtime.stop("uid-a", 0)
    status = await watched.over("a")
    assert "victim" not in str(status["containerStatuses"][0]["state"])


OWN_FILES = ("/proc/self/cwd", "/proc/self/cwd/state", "/proc/1/cwd/state", "/proc/self/fd/3", "state", ".")


@pytest.mark.parametrize("folder", OWN_FILES)
async def test_a_working_folder_cannot_be_the_supervisors(watched: Watched, folder: str) -> None:
    script = "ls record.json plan.json logs state; ls .."
    start(watched, pod("a", shell(script, workingDir=folder)))
    status = await watched.over("a")
    if "Refused" not in str(message := terminated(status).get("message", "")) and "workingDir" not in message:
        assert "record" not in await listed(watched, "a")


async def listed(watched: Watched, name: str) -> str:
    """Return the files that were found, without the complaints about those that were not."""
    lines = (await watched.text(name)).splitlines()
    return "\n".join(line for line in lines if not line.startswith("ls: "))


@pytest.mark.parametrize("folder", ["/proc/self/cwd/state", "/proc/1/cwd/state", "/proc/self", "/tmp"])
async def test_an_output_file_is_opened_from_inside_the_pod(watched: Watched, folder: str) -> None:
    wanted = pod("a", shell("echo forged", workingDir=folder))
    wanted["metadata"]["annotations"] = {"kyu.dev/output": "logs/main.0.log", "kyu.dev/error": "oom_score_adj"}
    start(watched, wanted)
    status = await watched.over("a")
    if folder == "/tmp":
        assert await watched.text("a") == "forged\n"
        private = Path(watched.runtime.folder("uid-a")) / "tmp" / "logs" / "main.0.log"
        assert private.read_text() == "forged\n"
        assert private.stat().st_uid >= user_ids.FIRST
    else:
        assert terminated(status)["reason"] == "StartError"


async def test_a_forged_record_ends_no_pod(watched: Watched) -> None:
    start(watched, pod("a", shell("sleep 1000")))
    await watched.until("a", "Running")
    folder = watched.runtime.folder("uid-a")
    record = records.find(f"{folder}/{records.RECORD}")
    assert record is not None
    records.write(f"{folder}/{records.RECORD}", {**record, "phase": "Succeeded"})
    start(watched, pod("b", shell("true")))
    records.notify(f"{os.path.dirname(os.path.dirname(folder))}/{records.NOTICES}", "uid-a")
    await watched.over("b")
    assert {status["phase"] for status in watched.told["a"]} == {"Running"}


@pytest.mark.parametrize("how", ["a link", "a hard link", "a pipe", "a folder", "a link above"])
def test_a_log_that_a_tenant_has_exchanged_is_not_read(tmp_path: Path, victim: Path, how: str) -> None:
    folder, other = tmp_path / "logs", Path("/var/lib/kyu-test-logs")
    folder.mkdir()
    os.chown(folder, user_ids.FIRST, user_ids.FIRST)
    path = folder / "main.0.log"
    match how:
        case "a link":
            path.symlink_to(victim)
        case "a hard link":
            path = Path(f"{victim}.d") / "main.0.log"
            path.parent.mkdir()
            os.chown(path.parent, user_ids.FIRST, user_ids.FIRST)
            os.link(victim, path)
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case "a link above":
            folder.rmdir()
            folder.symlink_to(other)
            other.mkdir()
            (other / "main.0.log").write_text("a b F secret\n")
    try:
        assert logs.Reader(str(path)).read() == []
    finally:
        shutil.rmtree(other, ignore_errors=True)
        shutil.rmtree(f"{victim}.d", ignore_errors=True)


async def test_the_termination_log_still_works(watched: Watched) -> None:
    start(watched, pod("a", shell('echo why > "$KYU_TERMINATION_LOG"; exit 1')))
    assert terminated(await watched.over("a"))["message"] == "why\n"
    start(watched, pod("b", shell("echo why > /kyu-why; exit 1", terminationMessagePath="/kyu-why")))
    assert terminated(await watched.over("b"))["message"] == "why\n"


@pytest.mark.parametrize("target", ["/etc", "/root", "/var/lib", "/", "../../.."])
async def test_a_sub_path_through_a_link_is_refused(watched: Watched, target: str) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    first = shell(f"ln -s {target} /kyu-v/inner", volumeMounts=[{"name": "v", "mountPath": "/kyu-v"}])
    mounts = [{"name": "v", "mountPath": "/kyu-w", "subPath": "inner"}]
    wanted = pod("a", shell("ls /kyu-w", volumeMounts=mounts), initContainers=[first | {"name": "i"}], volumes=volumes)
    start(watched, wanted)
    message = terminated(await watched.over("a"))["message"]
    assert "subPath inner: inner is a symbolic link" in message


async def test_a_sub_path_below_a_link_is_refused(watched: Watched) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    first = shell("ln -s /etc /kyu-v/up", volumeMounts=[{"name": "v", "mountPath": "/kyu-v"}])
    mounts = [{"name": "v", "mountPath": "/kyu-w", "subPath": "up/pam.d"}]
    wanted = pod("a", shell("ls /kyu-w", volumeMounts=mounts), initContainers=[first | {"name": "i"}], volumes=volumes)
    start(watched, wanted)
    assert "up is a symbolic link" in terminated(await watched.over("a"))["message"]


async def test_a_mount_path_through_a_link_in_a_volume_makes_nothing_on_the_machine(watched: Watched) -> None:
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]
    first = shell("ln -s /var/lib /kyu-v/up", volumeMounts=[{"name": "v", "mountPath": "/kyu-v"}])
    mounts = [{"name": "v", "mountPath": "/kyu-v"}, {"name": "w", "mountPath": "/kyu-v/up/kyu-made"}]
    wanted = pod("a", shell("true", volumeMounts=mounts), initContainers=[first | {"name": "i"}], volumes=volumes)
    start(watched, wanted)
    assert "a symbolic link in a volume is in the way" in terminated(await watched.over("a"))["message"]
    assert not exist("/var/lib/kyu-made")


@pytest.fixture
def allowed() -> Iterator[Path]:
    """A folder for hostPath volumes, with a closed one in it and a link that leaves it."""
    folder = Path("/srv/kyu-test-allowed")
    (folder / "closed").mkdir(parents=True)
    folder.chmod(0o755)
    (folder / "closed" / "file").write_text("closed\n")
    (folder / "closed").chmod(0o700)
    (folder / "link").symlink_to("/etc")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(("inner", "words"), [("closed/file", "Permission denied"), ("link", "is in none of")])
async def test_a_host_path_is_opened_as_the_tenant(tmp_path: Path, allowed: Path, inner: str, words: str) -> None:
    async with opened(tmp_path, replace(tenants(tmp_path), host_paths=(str(allowed),))) as watched:
        volumes = [{"name": "h", "hostPath": {"path": str(allowed / inner)}}]
        start(watched, pod("a", shell("true", volumeMounts=[{"name": "h", "mountPath": "/kyu-h"}]), volumes=volumes))
        assert words in terminated(await watched.over("a"))["message"]


# Attempts to stop the server ------------------------------------------------------------------------------------------


def test_a_very_deep_folder_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    before, folder = len(os.listdir("/proc/self/fd")), os.open(top, os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("deeper", 0o700, dir_fd=folder)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    files.remove_tree(str(top))
    assert not top.exists()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_folders_and_links_of_any_kind_are_removed_and_followed_nowhere(watched: Watched, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    script = (
        f"mkdir -p a/b/c .removed.0/x .removed.1; ln -s {outside} a/b/link; ln -s {outside} link; mkfifo a/pipe;"
        " touch a/b/c/f; chmod 000 a/b/c a/b; chmod 555 .removed.0"
    )
    start(watched, pod("a", shell(script)))
    assert (await watched.over("a"))["phase"] == "Succeeded"
    await watched.runtime.remove("uid-a")
    assert os.listdir(tmp_path / "pods") == []
    assert (outside / "kept").read_text() == "kept"


async def test_a_process_that_never_stops_writing_does_not_keep_the_pod(watched: Watched) -> None:
    start(watched, pod("a", shell("setsid yes & exit 3")))
    assert terminated(await watched.over("a"))["exitCode"] == 3


async def test_an_endless_grace_period_ends(tmp_path: Path) -> None:
    options = replace(tenants(tmp_path), longest_grace_seconds=0.2)
    async with opened(tmp_path, options) as watched:
        script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
        start(watched, pod("a", shell(script), terminationGracePeriodSeconds=2**40))
        await watched.until("a", "Running")
        await until_printed(watched, "a", "ready")
        watched.runtime.stop("uid-a", 2**40)
        assert terminated(await watched.over("a"))["exitCode"] == 137


ODD: dict[str, Json] = {
    "NUL in a command": {"command": ["sh", "-c", "echo \0"]},
    "NUL in a variable": {"env": [{"name": "X", "value": "\0"}]},
    "an equals sign in a name": {"env": [{"name": "A=B", "value": "x"}]},
    "half a character": {"command": ["sh", "-c", "echo \ud800"]},
    "half a character in a variable": {"env": [{"name": "X", "value": "\ud800"}]},
    "a long argument": {"command": ["sh", "-c", "x" * 3_000_000]},
    "no command": {"command": [""]},
    "a long command": {"command": ["x" * 10_000]},
    "a folder as a command": {"command": ["/etc"]},
    "a deep sub path": {"volumeMounts": [{"name": "v", "mountPath": "/kyu-v", "subPath": "a/" * 2000}]},
    "a deeper sub path": {"volumeMounts": [{"name": "v", "mountPath": "/kyu-v", "subPath": "a/" * 200_000}]},
    "NUL in a sub path": {"volumeMounts": [{"name": "v", "mountPath": "/kyu-v", "subPath": "a\0b"}]},
    "NUL in a mount path": {"volumeMounts": [{"name": "v", "mountPath": "/kyu-v\0"}]},
    "a relative mount path": {"volumeMounts": [{"name": "v", "mountPath": "kyu-v/../../x"}]},
    "a deep mount path": {"volumeMounts": [{"name": "v", "mountPath": "/kyu" + "/a" * 1900}]},
}


@pytest.mark.parametrize("what", ODD)
async def test_an_odd_manifest_gives_a_reason(watched: Watched, what: str) -> None:
    container: dict[str, Any] = {**shell("true"), **ODD[what]}
    start(watched, pod("a", container, volumes=[{"name": "v", "emptyDir": {}}]))
    status = await watched.over("a")
    assert status["phase"] == "Succeeded" or status.get("message") or terminated(status)["message"]


async def test_files_that_are_in_each_others_way_give_a_reason(watched: Watched) -> None:
    items = [{"key": "passwd", "path": "a"}, {"key": "script", "path": "a/b"}]
    start(watched, pod("a", shell("true"), volumes=[{"name": "v", "configMap": {"name": "c", "items": items}}]))
    status = await watched.over("a")
    assert (status["reason"], "cannot be made" in status["message"]) == ("StartError", True)


# Isolation that cannot be had ---------------------------------------------------------------------------------------


async def test_a_private_folder_above_does_not_open_the_isolation(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    async with opened(closed / "runtime", tenants(tmp_path)) as watched:
        assert await output(watched, pod("a", shell("id -u"))) == f"{user_ids.FIRST + 1}\n"


async def test_without_namespaces_pods_of_tenants_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A number that the kernel takes for "no change": the pod would stay root.
    impossible = Sandbox(2**32 - 1, namespaces=True, tenant=True)
    monkeypatch.setattr(processes, "sandboxes", lambda *_: [impossible])
    async with opened(tmp_path, tenants(tmp_path)) as watched:
        assert watched.runtime.isolation.refused
        start(watched, pod("a", shell("id -u")))
        status = await watched.over("a")
        assert (status["phase"], status["reason"]) == ("Failed", "IsolationFailed")
        assert "pods of several users are not run here" in status["message"]
        assert watched.runtime.uids() == []


async def test_without_user_ids_pods_of_tenants_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = podplan.RuntimeOptions(tenants=True, user_ids=str(tmp_path / "file" / "registry.json"))
    async with opened(tmp_path / "runtime", options) as watched:
        start(watched, pod("a", shell("id -u")))
        assert (await watched.over("a"))["reason"] == "IsolationFailed"


async def test_an_isolation_that_fails_late_fails_the_pod(watched: Watched) -> None:
    """The folder of the pod lacks what the isolation needs: the pod must not run without it."""
    wanted = pod("a", shell("id -u"))
    start(watched, wanted)
    os.rmdir(os.path.join(watched.runtime.folder("uid-a") + ".new", records.TEMPORARY))
    status = await watched.over("a")
    assert (status["phase"], status["reason"]) == ("Failed", "IsolationFailed")
    assert "the pod cannot be isolated" in status["message"]


async def test_a_network_of_its_own(tmp_path: Path) -> None:
    options = replace(tenants(tmp_path), network="none")
    async with opened(tmp_path, options) as watched:
        text = await output(watched, pod("a", shell("cat /proc/net/dev | tail -n +3; cat /sys/class/net/lo/operstate")))
        interfaces = [line.split(":")[0].strip() for line in text.splitlines() if ":" in line]
        assert interfaces == ["lo"]


def test_a_server_without_root_refuses_pods_of_tenants() -> None:
    assert choose([], [], tenants=True).refused == "only root can give each namespace a user of its own"
    assert not choose([Sandbox()], ["not permitted"], tenants=False).refused
