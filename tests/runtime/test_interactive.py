"""Commands in pods that run: their streams, their sandbox, and their end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kyu.runtime.interactive.commands import CommandStreams, NoCommand, RunningCommand
from kyu.runtime.interactive.execs import MOST_COMMANDS
from tests.runtime.test_processes import Watched, opened, pod, shell, tenants

# Other tests look for processes of their pods all over the machine, so the names here are not theirs.
FOREVER = "while true; do sleep 0.1; done"
STDIN = CommandStreams(stdin=True)


@pytest.fixture(params=["one user", "tenants"])
async def watched(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Watched]:
    """A runtime with a pod that runs, once with the sandbox of tenants."""
    if request.param == "tenants" and os.geteuid() != 0:
        pytest.skip("needs root")
    async with opened(tmp_path, tenants(tmp_path) if request.param == "tenants" else None) as found:
        if found.runtime.isolation.refused:
            pytest.skip(f"tenants cannot be isolated here: {found.runtime.isolation.refused}")
        env = [{"name": "COLOR", "value": "blue"}]
        mounts = [{"name": "v", "mountPath": "/kyu-volume"}] if not found.runtime.mounts_refused else []
        main = shell(f"echo data > $KYU_VOLUME_V/file; {FOREVER}", env=env, volumeMounts=mounts)
        found.start(pod("entered", main, volumes=[{"name": "v", "emptyDir": {}}]))
        await found.until("entered", "Running")
        yield found


async def start(watched: Watched, *argv: str, streams: CommandStreams = STDIN) -> RunningCommand:
    return await watched.runtime.run_command("uid-entered", "main", list(argv), streams)


async def finish(command: RunningCommand) -> tuple[int, str, str]:
    """Return the exit code and both outputs of a command."""

    async def read_all(name: str) -> str:
        text = b""
        while data := await command.read(name):
            text += data
        return text.decode()

    try:
        async with asyncio.timeout(60):
            code, output, error = await asyncio.gather(command.wait(), read_all("stdout"), read_all("stderr"))
    finally:
        command.close()
    return code, output, error


async def run(watched: Watched, script: str) -> str:
    """Return the output of a script that must succeed."""
    code, output, error = await finish(await start(watched, "sh", "-c", script))
    assert (code, error) == (0, "")
    return output


async def test_a_command_has_streams_and_an_exit_code(watched: Watched) -> None:
    command = await start(watched, "sh", "-c", "cat; echo problem >&2; exit 9")
    large = b"x" * 300_000

    async def write() -> None:
        await command.write(large)
        await command.close_stdin()

    writing = asyncio.ensure_future(write())
    assert await finish(command) == (9, large.decode(), "problem\n")
    await writing


async def test_a_command_is_in_the_container(watched: Watched) -> None:
    """The same user, environment, folders, limits of privileges and process tree as the container's own program."""
    facts = "id -u; id -g; echo $COLOR $HOME; pwd; cat $KYU_VOLUME_V/file; umask; grep -E 'NoNew|Seccomp:|CapEff' "
    ours = (await run(watched, facts + "/proc/self/status")).splitlines()
    theirs = (await run(watched, "for p in /proc/[0-9]*; do echo ${p#/proc/}; done; cat /proc/2/status")).splitlines()
    assert ours[4:6] == ["data", "0022"]
    assert ours[2].startswith("blue ")
    assert "1" in theirs
    confined = [line.split() for line in theirs if line.startswith(("NoNew", "Seccomp:", "CapEff"))]
    assert [line.split() for line in ours if line.startswith(("NoNew", "Seccomp:", "CapEff"))] == confined
    assert await run(watched, "cat /kyu-volume/file || true") in ("data\n", "")


async def test_a_terminal_has_a_size_and_is_the_users_own(watched: Watched) -> None:
    command = await start(
        watched,
        "sh",
        "-c",
        'read line; stty size; test -O "$(tty)" && echo mine; echo $TERM; echo $line',
        streams=CommandStreams(stdin=True, tty=True),
    )
    command.resize(91, 37)
    await command.write(b"typed\n")
    code, output, _ = await finish(command)
    assert code == 0
    # The terminal shows what is typed.
    assert output.replace("\r", "").split() == ["typed", "37", "91", "mine", "xterm", "typed"]


async def test_what_a_command_leaves_behind_does_not_keep_the_stream(watched: Watched) -> None:
    code, output, _ = await finish(await start(watched, "sh", "-c", "sleep 1000 & echo started"))
    assert (code, output) == (0, "started\n")


async def test_a_command_whose_client_has_gone_is_hung_up(watched: Watched) -> None:
    command = await start(watched, "sh", "-c", "echo $$; exec sleep 1000")
    number = (await command.read("stdout")).decode().strip()
    command.close()
    await run(watched, f"while test -d /proc/{number} && ! grep -qs Z /proc/{number}/stat; do sleep 0.05; done")


async def test_a_command_ends_with_the_pod(watched: Watched) -> None:
    command = await start(watched, "sh", "-c", "trap '' HUP TERM; echo up; sleep 1000")
    assert await command.read("stdout") == b"up\n"
    watched.runtime.stop("uid-entered", 0)
    code, *_ = await finish(command)
    assert code == 137
    await watched.over("entered")
    with pytest.raises(NoCommand):
        await start(watched, "true")


async def test_commands_that_cannot_run_are_refused_with_the_reason(watched: Watched) -> None:
    with pytest.raises(NoCommand, match="no-such-program") as refused:
        await start(watched, "no-such-program")
    assert refused.value.exit_code == 127
    with pytest.raises(NoCommand, match="container not found"):
        await watched.runtime.run_command("uid-entered", "other", ["true"], STDIN)
    with pytest.raises(NoCommand, match="does not run on this machine"):
        await watched.runtime.run_command("uid-missing", "main", ["true"], STDIN)


async def test_a_client_gets_more_output_than_buffers_hold(watched: Watched) -> None:
    watched.start(pod("attached", shell("read line; head -c 3000000 /dev/zero; echo end >&2", stdin=True)))
    await watched.until("attached", "Running")
    client = await watched.runtime.attach("uid-attached", "main", STDIN)
    await client.write(b"go\n")
    code, output, error = await finish(client)
    assert (code, len(output), error) == (0, 3_000_000, "end\n")
    await watched.over("attached")


async def test_attached_clients_share_the_output(watched: Watched) -> None:
    watched.start(pod("attached", shell("echo early; read line; echo $line", stdin=True, stdinOnce=True)))
    await watched.until("attached", "Running")
    one = await watched.runtime.attach("uid-attached", "main", STDIN)
    assert await one.read("stdout") == b"early\n"
    two = await watched.runtime.attach("uid-attached", "main", CommandStreams())
    await one.write(b"typed\n")
    assert await asyncio.gather(finish(one), finish(two)) == [(0, "typed\n", ""), (0, "typed\n", "")]
    await watched.over("attached")
    with pytest.raises(NoCommand):
        await watched.runtime.attach("uid-attached", "main", STDIN)


async def test_input_ends_with_its_client_where_the_manifest_says_so(watched: Watched) -> None:
    watched.start(pod("attached", shell("cat; echo over", stdin=True, stdinOnce=True)))
    await watched.until("attached", "Running")
    (await watched.runtime.attach("uid-attached", "main", STDIN)).close()
    await watched.over("attached")
    assert await watched.text("attached") == "over\n"


async def test_the_number_of_commands_in_a_pod_is_bounded(watched: Watched) -> None:
    running = [await start(watched, "sleep", "1000") for _ in range(MOST_COMMANDS)]
    with pytest.raises(NoCommand, match=f"{MOST_COMMANDS} commands run"):
        await start(watched, "true")
    for command in running:
        command.close()


async def test_no_process_of_the_pod_reaches_the_supervisors_socket(watched: Watched) -> None:
    if watched.runtime.isolation.sandbox.user is None:
        pytest.skip("the processes of one user may do the same")
    folder = watched.runtime.folder("uid-entered")
    assert await run(watched, f"test -e {folder}/exec.sock || echo hidden") == "hidden\n"
    assert os.stat(f"{folder}/exec.sock").st_mode & 0o777 == 0o600
