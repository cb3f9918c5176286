"""
Asks the server for the tokens of pods, and renews those in the volumes of running pods before they end.

A token is asked for in the name of its pod, so that it ends with it.

Called by: agent.py, embedded.py. Kubernetes: pkg/kubelet/token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from kyu import log
from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors
from kyu.kube.client import Client
from kyu.runtime.identity import service_account
from kyu.runtime.identity.service_account import ServerAccess, ServerAddress, TokenFile

SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
# The part of its time after which a token is renewed, and the longest time, as the kubelet does.
RENEW_AFTER = 0.8
LONGEST_SECONDS = 24 * 3600.0
CHECK_SECONDS = 60.0


class TokenHolder(Protocol):
    """The runtime, as far as it holds tokens of running pods."""

    def tokens(self) -> Iterator[tuple[Json, TokenFile, float]]:
        """Yield the pods with each of their tokens, and the time at which it was written."""

    def put_token(self, uid: str, file: TokenFile, token: str) -> None:
        """Write a new token in the place of the old one."""


class AccountAccess:
    """The ServiceAccounts of pods, as the server knows them. ``server``: its address, if pods can reach it."""

    def __init__(self, client: Client, server: ServerAddress | None) -> None:
        self._client = client
        self._server = server

    async def find(self, pod: Json) -> ServerAccess:
        """Return all that the pod needs to call the server."""
        name = service_account.account_name(pod)
        key = Key(pod["metadata"].get("namespace", ""), name)
        needs_account = name and (self._server is not None or next(service_account.token_files(pod), None))
        account = await self._client.find(SERVICE_ACCOUNT, key) if needs_account else None
        access = ServerAccess(self._server, account)
        if account is None:
            return access
        wanted = list(service_account.token_files(service_account.with_volume(pod, access)))
        tokens = {(file.audience, file.seconds): await self._request(pod, file) for file in wanted}
        return ServerAccess(self._server, account, tokens)

    async def _request(self, pod: Json, file: TokenFile) -> str:
        meta = pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        spec: Json = {"expirationSeconds": file.seconds, "boundObjectRef": bound}
        if file.audience:
            spec["audiences"] = [file.audience]
        account = {"name": service_account.account_name(pod), "namespace": meta.get("namespace", "")}
        # The answer is a TokenRequest; the metadata of the body gives the path.
        body = {"metadata": account, "spec": spec}
        answer = await self._client.create(SERVICE_ACCOUNT, body, subresource="token")
        return str(answer["status"]["token"])

    async def renew(self, holder: TokenHolder, now: float) -> None:
        """Renew the tokens that have used up most of their time."""
        for pod, file, written_at in list(holder.tokens()):
            if now - written_at < min(RENEW_AFTER * file.seconds, LONGEST_SECONDS):
                continue
            uid = pod["metadata"]["uid"]
            try:
                holder.put_token(uid, file, await self._request(pod, file))
            except (errors.ApiError, OSError) as error:
                log.warning("token not renewed", uid=uid, error=error)

    async def keep_renewed(self, holder: TokenHolder, clock: Callable[[], float]) -> None:
        """Look after the tokens until cancelled."""
        while True:
            await self.renew(holder, clock())
            await asyncio.sleep(CHECK_SECONDS)
