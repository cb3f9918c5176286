"""
The socket at which local accounts log in: the kernel names the account that connects, and the answer is a token for it.

    a connection ──► {"server": …, "authority": …, "user": "unix:ana", "namespaces": ["physics"], "token": …, …}

Nothing is read from the client, so there is nothing to forge. All further requests go to the server as those of any
other client.

Called by: app.py. Read by: kube/kubeconfig.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import pwd
import socket
import stat
import struct
from pathlib import Path

from kyu import log
from kyu.api.meta import Json
from kyu.server.auth import rbac
from kyu.server.auth.unix_tokens import UnixAccount, UnixTokens
from kyu.server.exchange import User, encode
from kyu.server.metadata import timestamp

BACKLOG = 256
# Connections that are answered at once. A client that does not read its answer is dropped after a while.
ANSWERED_AT_ONCE = 64
SEND_SECONDS = 5.0
RETRY_SECONDS = 0.1
CREDENTIALS = struct.Struct("3i")


class UnsafeSocket(Exception):
    """The socket cannot be made where it should be; the message says why."""


class LoginSocket:
    """Answers each connection with a token of the account that has made it."""

    def __init__(
        self, path: Path, tokens: UnixTokens, authorizer: rbac.Authorizer, server: str, authority: str
    ) -> None:
        self._path = path
        self._listener = listen(path)
        self._tokens = tokens
        self._authorizer = authorizer
        self._server = server
        self._authority = authority
        self._slots = asyncio.Semaphore(ANSWERED_AT_ONCE)

    async def serve(self) -> None:
        """Serve until cancelled; the socket goes with the server."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._slots.acquire()
                    try:
                        connected, _ = await loop.sock_accept(self._listener)
                    except OSError as error:
                        self._slots.release()
                        log.warning("login not accepted", error=error)
                        await asyncio.sleep(RETRY_SECONDS)
                        continue
                    group.create_task(self._answer(connected))
        finally:
            self._listener.close()
            self._path.unlink(missing_ok=True)

    async def _answer(self, connected: socket.socket) -> None:
        try:
            with connected, contextlib.suppress(OSError, TimeoutError):
                uid = peer_of(connected)
                # Accounts may come from a directory service, which takes its time.
                account = await asyncio.to_thread(find_account, uid)
                async with asyncio.timeout(SEND_SECONDS):
                    await asyncio.get_running_loop().sock_sendall(connected, encode(self.answer(uid, account)))
        finally:
            self._slots.release()

    def answer(self, uid: int, account: UnixAccount | None) -> Json:
        """Return the login of an account, or the reason why there is none."""
        if account is None:
            return {"error": f"the user id {uid} has no account on this machine"}
        token, ends = self._tokens.sign(account)
        return {
            "server": self._server,
            "authority": self._authority,
            "user": account.user.name,
            "namespaces": namespaces_of(self._authorizer, account.user),
            "token": token,
            "expires": timestamp(ends),
        }


def namespaces_of(authorizer: rbac.Authorizer, user: User) -> list[str]:
    """Return the namespaces in which a user has rights of its own."""
    return sorted({grant.namespace for grant in authorizer.grants(user) if grant.namespace})


def peer_of(connected: socket.socket) -> int:
    """Return the user id of the process that has connected, as the kernel knows it."""
    _, uid, _ = CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return int(uid)


def find_account(uid: int) -> UnixAccount | None:
    """Return the account of a user id with its groups; None if it has none."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    groups = []
    for number in os.getgrouplist(entry.pw_name, entry.pw_gid):
        with contextlib.suppress(KeyError):
            groups.append(grp.getgrgid(number).gr_name)
    return UnixAccount(uid, entry.pw_name, tuple(sorted(set(groups))))


def listen(path: Path) -> socket.socket:
    """Return a socket that all accounts may connect to, in a folder that only this user can change."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder = path.parent.stat()
        if folder.st_uid != os.geteuid() or folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnsafeSocket(f"{path.parent} can be changed by other users; choose a folder of root for --socket")
        if path.is_socket():
            # Left by a server that was killed: the lock of the data folder keeps a second one away.
            path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(BACKLOG)
    except OSError as error:
        raise UnsafeSocket(f"cannot make the socket {path}: {error.strerror or error}") from error
    listener.setblocking(False)
    return listener
