"""Probes and metrics of controllers on a cluster, and the permission to read metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from kyu import endpoints
from kyu.api.config.config import ControllerHealth
from kyu.kube import errors, kubeconfig
from kyu.server.exchange import Handler, Request
from tests.support.controller_process import Controller, controller, fetch
from tests.support.local_kyu import local_kyu

TOKEN = {"authorization": "Bearer good"}


async def ask(handler: Handler, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    answer = await handler(Request("GET", path, headers=headers or {}))
    assert isinstance(answer.body, bytes)
    return answer.status, answer.body


async def test_ready_without_an_obstacle_and_alive_if_answering() -> None:
    obstacles = ["nothing is listed"]
    pages = endpoints.health_pages(ControllerHealth(), lambda: "".join(obstacles))
    assert await ask(pages, "/healthz") == (200, b"ok")
    assert await ask(pages, "/readyz") == (503, b"not ready: nothing is listed\n")
    obstacles.clear()
    assert await ask(pages, "/readyz") == (200, b"ok")


async def test_probes_are_asked_where_the_settings_say() -> None:
    settings = ControllerHealth(readiness_endpoint_name="up", liveness_endpoint_name="alive")
    pages = endpoints.health_pages(settings, lambda: "")
    assert [(await ask(pages, f"/{name}"))[0] for name in ("up", "alive", "readyz", "healthz")] == [200, 200, 404, 404]


async def allow(path: str, token: str) -> bool:
    return (path, token) == ("/metrics", "good")


async def refuse(path: str, token: str) -> bool:
    raise errors.ApiError(401, "Unauthorized", "Unauthorized")


async def fail(path: str, token: str) -> bool:
    raise errors.NoAnswer("no route")


def metrics(shown: bytes, may_read: Callable[[str, str], Awaitable[bool]]) -> Handler:
    return endpoints.guarded_pages({"/metrics": endpoints.GuardedPage(lambda: shown, "text/plain")}, may_read)


async def test_metrics_are_for_tokens_that_may_read_them() -> None:
    page = metrics(b"up 1\n", allow)
    assert await ask(page, "/metrics", TOKEN) == (200, b"up 1\n")
    assert (await ask(page, "/metrics", {"authorization": "Bearer other"}))[0] == 403
    assert (await ask(page, "/metrics"))[0] == 401
    assert (await ask(page, "/metrics", {"authorization": "Basic good"}))[0] == 401
    assert (await ask(page, "/", TOKEN))[0] == 404


async def test_an_unknown_token_differs_from_a_server_that_does_not_answer() -> None:
    assert (await ask(metrics(b"", refuse), "/metrics", TOKEN))[0] == 401
    assert (await ask(metrics(b"", fail), "/metrics", TOKEN))[0] == 500


@pytest.mark.parametrize(
    ("address", "split"),
    [(":8081", (None, 8081)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80)), ("here:1", ("here", 1))],
)
def test_addresses_are_written_as_in_go(address: str, split: tuple[str | None, int]) -> None:
    assert endpoints.split_address(address) == split


@pytest.mark.parametrize("address", ["8081", "here:", "here:http", ":65536", ":-1"])
async def test_an_address_that_is_none_is_refused_by_the_name_of_its_setting(address: str) -> None:
    pages = endpoints.health_pages(ControllerHealth(), lambda: "")
    with pytest.raises(endpoints.CannotListen, match=f"^a.setting '{address}': must be a host and a port"):
        async with endpoints.serving("a.setting", address, pages):
            pass


async def test_an_address_that_is_taken_is_refused_and_one_that_is_zero_is_not_listened_on() -> None:
    pages = endpoints.health_pages(ControllerHealth(), lambda: "")
    taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with taken:
        address = f"127.0.0.1:{taken.sockets[0].getsockname()[1]}"
        with pytest.raises(endpoints.CannotListen, match="Address already in use"):
            async with endpoints.serving("a.setting", address, pages):
                pass
        async with endpoints.serving("a.setting", "0", pages), endpoints.serving_securely("another", "", pages):
            pass


# With processes and sockets.


def is_ready(one: Controller) -> bool:
    return fetch(f"{one.health}/readyz") == (200, "ok")


def test_the_leader_shows_its_queues_and_the_standby_is_ready(tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = stack.enter_context(local_kyu(tmp_path / "data", "--server-only"))
        token = kubeconfig.load(running.data / "kubeconfig").token
        acting = stack.enter_context(controller(running))
        acting.told("(holding the lease)")
        running.make_queue("team", "4")

        waiting = stack.enter_context(controller(running))
        waiting.told("(waiting for the lease)")
        for one in (acting, waiting):
            assert fetch(f"{one.health}/healthz") == (200, "ok")
            running.wait("it is ready", partial(is_ready, one))
            assert fetch(one.metrics)[0] == 401
            assert fetch(one.metrics, "wrong")[0] == 401
        sample = 'kueue_pending_workloads{cluster_queue="team",replica_role="leader",status="active"} 0.0'
        running.wait("the queue is shown", lambda: sample in fetch(acting.metrics, token)[1])
        shown = fetch(waiting.metrics, token)
        assert shown[0] == 200
        assert "process_cpu_seconds_total" in shown[1]
        assert 'cluster_queue="team"' not in shown[1]
        (tmp_path / "ann").write_text(running.kyu("user", "add", "ann", "--namespace", "default").stdout)
        assert fetch(acting.metrics, kubeconfig.load(tmp_path / "ann").token)[0] == 403
