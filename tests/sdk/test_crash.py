"""kill -9 of the server: every future resolves, each call is made once, and submissions wait for the server."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import kyu
from kyu.sdk.submitter import Submitter
from tests.support.local_kyu import local_kyu

LONG = 120.0


def note_and_wait(folder: str, number: int) -> int:
    """Note the call, then wait until the test lets it end."""
    with open(os.path.join(folder, "calls"), "a") as file:
        file.write(f"{number}\n")
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.05)
    if number == 3:
        raise ValueError("three")
    return number


def test_every_future_resolves_after_a_crash_of_the_server(tmp_path: Path) -> None:
    folder, calls = str(tmp_path), tmp_path / "calls"
    with local_kyu(tmp_path / "data") as server:
        submitter = Submitter(data=server.data, folder=tmp_path / "functions")
        array = submitter.map(note_and_wait, [folder] * 4, range(4), cpu=0.1)
        single = submitter.submit(note_and_wait, folder, 9, cpu=0.1)
        # It waits for quota when the server dies.
        queued = submitter.submit(abs, -5, cpu=os.cpu_count() or 1)
        server.wait("all calls have begun", lambda: calls.exists() and len(calls.read_text().split()) == 5)
        server.kill()
        (tmp_path / "go").touch()
        late: list[kyu.Future[int]] = []
        thread = threading.Thread(target=lambda: late.append(submitter.submit(abs, -6, cpu=0.1)))
        thread.start()
        server.start()
        thread.join(LONG)
        assert single.result(LONG) == 9
        assert [future.result(LONG) for future in array[:3]] == [0, 1, 2]
        assert isinstance(array[3].exception(LONG), ValueError)
        assert queued.result(LONG) == 5
        assert late[0].result(LONG) == 6
        assert sorted(calls.read_text().split()) == ["0", "1", "2", "3", "9"], "each call is made once"
