"""The client of the commands: network errors are one error, and a read is repeated if that can help."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from kyu.kube.blocking import BlockingClient, Unreachable
from kyu.kube.kubeconfig import Credentials

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def server(*answers: list[bytes]) -> Iterator[str]:
    """Serve each list of answers on one connection, then close it."""

    def serve() -> None:
        for connection_answers in answers:
            connection, _ = listening.accept()
            with closing(connection):
                for answer in connection_answers:
                    connection.recv(65536)
                    connection.sendall(answer)

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def client(address: str) -> BlockingClient:
    return BlockingClient(Credentials(server=address))


def test_a_server_that_closes_without_an_answer_does_not_answer() -> None:
    with server([b""]) as address, pytest.raises(Unreachable, match=r"127\.0\.0\.1:\d+ does not answer: "):
        client(address).raw("/version")


def test_an_answer_that_breaks_off_is_none() -> None:
    with server([ANSWER[:-1]]) as address, pytest.raises(Unreachable):
        client(address).raw("/version")


def test_no_server_listens() -> None:
    # The port is taken, so that no other process listens there.
    with closing(socket.socket()) as deaf:
        deaf.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable):
            client(f"http://127.0.0.1:{deaf.getsockname()[1]}").raw("/version")


def test_a_read_on_a_connection_that_was_closed_meanwhile_is_asked_again() -> None:
    with server([ANSWER], [ANSWER]) as address:
        asking = client(address)
        assert asking.raw("/version") == b"{}"
        assert asking.raw("/version") == b"{}"
        asking.close()
