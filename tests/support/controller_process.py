"""`kyu controller` as a process beside a local server, with its log and its endpoints."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import IO
from urllib.error import HTTPError

from tests.support.local_kyu import LocalKyu


class Controller:
    def __init__(self, log: IO[str]) -> None:
        self._log = log
        self.health = f"http://127.0.0.1:{self._port('health.healthProbeBindAddress')}"
        self.secure = f"https://127.0.0.1:{self._port('metrics.bindAddress')}"
        self.metrics = f"{self.secure}/metrics"

    def _port(self, setting: str) -> str:
        return self.told(rf"listening setting={setting} host=127.0.0.1 port=(\d+)")

    def told(self, pattern: str) -> str:
        """Return the group of the pattern from the next matching line of the log."""
        for line in self._log:
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(f"the controller ended without saying {pattern}")


@contextmanager
def controller(running: LocalKyu, *options: str) -> Iterator[Controller]:
    words = ["--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"]
    command = [sys.executable, "-m", "kyu", "controller", "--data", str(running.data), *words, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield Controller(process.stderr)
        finally:
            process.kill()


def fetch(url: str, token: str = "") -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"} if token else {})
    context = ssl.create_default_context()
    # The certificate is self-signed.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        answer: HTTPResponse
        with urllib.request.urlopen(request, context=context) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
