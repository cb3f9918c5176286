"""Commands that wait for a job go on when the server was away, and end with a code of their own if it stays away."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kyu.cli.batch.log_position import LogPosition
from kyu.cli.batch.reconnect import Reconnecting, ServerLost
from kyu.kube.blocking import Unreachable
from kyu.kube.errors import ApiError, Forbidden
from tests.support.local_kyu import LocalKyu, local_kyu


@pytest.fixture
def kyu(tmp_path: Path) -> Iterator[LocalKyu]:
    with local_kyu(tmp_path / "data") as running:
        yield running


@pytest.fixture
def signs() -> Iterator[Path]:
    """A folder that pods can see into, whoever they run as."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def begin(kyu: LocalKyu, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "KUBECONFIG": str(kyu.data / "kubeconfig")}
    command = [sys.executable, "-u", "-m", "kyu", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize(("tail", "is_killed"), [([], True), (["--tail", "1"], True), ([], False)])
def test_a_wait_and_a_log_go_on_when_the_server_is_back(
    kyu: LocalKyu, signs: Path, tail: list[str], is_killed: bool
) -> None:
    script = f"echo zero; echo one; until [ -e {signs}/go ]; do sleep 0.05; done; echo two; exit 4"
    kyu.submit("long", "local", script)
    kyu.wait_for("long", "Running")
    waiting, following = begin(kyu, "wait", "long"), begin(kyu, "logs", "-f", *tail, "long")
    assert waiting.stderr is not None
    assert following.stdout is not None
    before = ["one\n"] if tail else ["zero\n", "one\n"]
    assert [following.stdout.readline() for _ in before] == before
    assert waiting.stderr.readline() == "running\n"
    if is_killed:
        kyu.kill()
    else:
        kyu.kyu("down", "--data", str(kyu.data))
    for one in (waiting, following):
        assert one.stderr is not None
        assert "does not answer" in one.stderr.readline()
    (signs / "go").touch()
    kyu.start()
    said, told = waiting.communicate(timeout=90)
    assert (waiting.returncode, said) == (4, "")
    assert "the server answers again" in told
    printed, _ = following.communicate(timeout=90)
    assert (following.returncode, printed) == (0, "two\n")


def test_a_server_that_stays_away_is_not_taken_for_the_end_of_the_job(kyu: LocalKyu) -> None:
    config = kyu.data / "kubeconfig"
    kyu.kill()
    for words in (["wait", "train"], ["logs", "-f", "train"]):
        done = kyu.kyu(*words, "--kubeconfig", str(config), check=False)
        assert done.returncode == 75
        assert "does not answer" in done.stderr


def away() -> int:
    raise Unreachable("nobody answers")


def starting() -> int:
    raise ApiError(503, "ServiceUnavailable", "starting")


def forbidden() -> int:
    raise Forbidden(403, "Forbidden", "you may not")


@pytest.mark.parametrize("call", [away, starting])
def test_patience_has_an_end(call: object) -> None:
    told: list[str] = []
    with pytest.raises(ServerLost, match="the result of the job is unknown"):
        Reconnecting(told.append, longest=0).ask(away if call is away else starting)
    assert len(told) == 1
    with pytest.raises(ServerLost):
        Reconnecting(told.append, deadline=time.monotonic()).ask(away)


def test_a_refusal_is_told_at_once() -> None:
    with pytest.raises(Forbidden):
        Reconnecting(lambda _: None).ask(forbidden)


LOG = [
    b"2026-01-01T00:00:00.1Z a\n",
    b"2026-01-01T00:00:00.12Z b\n",
    b"2026-01-01T00:00:00.12Z c\n",
    b"2026-01-01T00:00:01Z d\n",
]


@pytest.mark.parametrize("read", range(5))
def test_a_log_that_is_read_again_gives_each_line_once(read: int) -> None:
    place = LogPosition({"follow": "true", "tailLines": "9"})
    assert place.start_again()["tailLines"] == "9"
    first = [place.news(line) for line in LOG[:read]]
    assert ("tailLines" in place.start_again()) == (read == 0)
    again = [news for line in LOG if (news := place.news(line))]
    assert first + again == [b"a\n", b"b\n", b"c\n", b"d\n"]


def test_a_line_that_was_cut_is_completed() -> None:
    place = LogPosition({"timestamps": "true"})
    assert place.news(LOG[0]) == LOG[0]
    assert place.news(LOG[1][:-2]) == LOG[1][:-2]
    place.start_again()
    assert [place.news(line) for line in LOG[:2]] == [b"", LOG[1][-2:]]
    assert place.news(b"no time\n") == b"no time\n"
