"""ServiceAccounts: their tokens, what ends a token, reviews of tokens, and the objects that every namespace has."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from kyu.api.meta import Json, Key, Kind
from kyu.app import running_parts
from kyu.kube.client import Client
from kyu.kube.requests import encode
from kyu.server import errors
from kyu.server.api import Api
from kyu.server.auth.signing import KEY_FILE
from kyu.server.background.namespace_objects import NamespaceObjects
from kyu.server.exchange import User
from tests.support.servers import CONFIG_MAP, NAMESPACE, POD, ask, serving, until

ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
JSON = "application/json"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def create_account(client: Client, name: str = "robot") -> Json:
    return await client.create(ACCOUNT, {"metadata": {"name": name, "namespace": "default"}})


async def create_pod(client: Client, name: str, account: str = "robot") -> Json:
    spec = {"serviceAccountName": account, "containers": [{"name": "c", "image": "busybox"}]}
    return await client.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


async def request_token(api: Api, name: str = "robot", *, user: User | None = None, **spec: object) -> tuple[int, Json]:
    path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
    given = {"user": user} if user is not None else {}
    answer = await ask(api, "POST", path, encode({"spec": spec}), content_type=JSON, **given)
    assert isinstance(answer.body, bytes)
    return answer.status, msgspec.json.decode(answer.body)


async def token_of(api: Api, name: str = "robot", **spec: object) -> str:
    code, answer = await request_token(api, name, **spec)
    assert code == 201, answer
    return str(answer["status"]["token"])


def is_let_in(api: Api, token: str) -> bool:
    try:
        api.tokens.authenticate(f"Bearer {token}")
    except errors.StatusError:
        return False
    return True


async def test_a_token_is_its_account_until_the_account_is_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        account = await create_account(client)
        token = await token_of(api)
        user = api.tokens.authenticate(f"Bearer {token}")
        assert user == User("system:serviceaccount:default:robot", GROUPS, account["metadata"]["uid"])
        assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
        await client.delete(ACCOUNT, Key("default", "robot"))
        assert not is_let_in(api, token)
        # Another account of the same name is not the same account.
        await create_account(client)
        assert not is_let_in(api, token)


async def test_a_token_ends_with_its_pod(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await create_account(client)
        pod = await create_pod(client, "p")
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"]}
        token = await token_of(api, boundObjectRef=bound)
        assert is_let_in(api, token)
        await client.delete(POD, Key("default", "p"), grace_seconds=0)
        assert not is_let_in(api, token)
        await create_pod(client, "p")
        assert not is_let_in(api, token)


async def test_a_token_ends_with_its_time(tmp_path: Path) -> None:
    now = [NOW]
    async with serving(tmp_path, clock=lambda: now[0]) as (api, client):
        await create_account(client)
        _, answer = await request_token(api, expirationSeconds=600)
        assert answer["status"]["expirationTimestamp"] == "2026-01-01T00:10:00Z"
        token = answer["status"]["token"]
        now[0] += timedelta(seconds=599)
        assert is_let_in(api, token)
        now[0] += timedelta(seconds=1)
        assert not is_let_in(api, token)


async def test_tokens_survive_a_restart_and_are_refused_by_other_servers(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with serving(tmp_path) as (api, client):
        await create_account(client)
        token = await token_of(api)
    async with serving(tmp_path) as (api, _):
        assert is_let_in(api, token)
    async with serving(other) as (api, client):
        assert not is_let_in(api, token)
        await create_account(client)
        await token_of(api)
        assert not is_let_in(api, token)


async def test_forged_tokens_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await create_account(client)
        header, claims, signature = (await token_of(api)).split(".")
        content = base64.urlsafe_b64decode(claims + "==").replace(b"default:robot", b"kyu-system:robot")
        other_claims = base64.urlsafe_b64encode(content).rstrip(b"=").decode()
        unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
        for forged in (
            f"{header}.{other_claims}.{signature}",
            f"{unsigned}.{claims}.",
            f"{unsigned}.{claims}.{signature}",
            f"{header}.{claims}.",
            f"{header}.{claims}.{'A' * 86}",
            f"{header}.{claims}.{signature}A",
            "..",
            f"{header}.é.{signature}",
            "a" * 100_000 + ".b.c",
        ):
            assert not is_let_in(api, forged), forged[:80]


async def test_a_token_for_another_audience_does_not_let_in(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await create_account(client)
        vault = await token_of(api, audiences=["vault"])
        assert not is_let_in(api, vault)
        assert (await review(api, vault, "vault"))["audiences"] == ["vault"]
        assert "authenticated" not in await review(api, vault)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"expirationSeconds": 599}, 422),
        ({"expirationSeconds": 1 << 33}, 422),
        ({"expirationSeconds": "long"}, 422),
        ({"audiences": "vault"}, 422),
        ({"boundObjectRef": {"kind": "Job", "name": "j"}}, 400),
        ({"boundObjectRef": {"kind": "Pod", "name": "missing"}}, 404),
        ({"boundObjectRef": {"kind": "Pod", "name": "p", "uid": "another"}}, 409),
        ({"boundObjectRef": {"kind": "Pod", "name": "of-another"}}, 403),
    ],
)
async def test_wrong_requests_are_refused(tmp_path: Path, spec: Json, code: int) -> None:
    async with serving(tmp_path) as (api, client):
        await create_account(client)
        await create_account(client, "other")
        await create_pod(client, "p")
        await create_pod(client, "of-another", "other")
        assert (await request_token(api, **spec))[0] == code


async def test_only_users_with_the_right_get_tokens(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await create_account(client)
        assert (await request_token(api, user=User("ana", ("system:authenticated",))))[0] == 403
        assert (await request_token(api, "missing"))[0] == 404


async def review(api: Api, token: str, *audiences: str) -> Json:
    spec: Json = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    answer = await ask(api, "POST", path, encode({"spec": spec}), content_type=JSON)
    assert (answer.status, isinstance(answer.body, bytes)) == (201, True)
    status: Json = msgspec.json.decode(answer.body)["status"]  # type: ignore[arg-type]
    return status


async def test_a_review_names_the_account_and_its_pod(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await create_account(client)
        await create_pod(client, "p")
        status = await review(api, await token_of(api, boundObjectRef={"kind": "Pod", "name": "p"}))
        assert (status["authenticated"], status["user"]["username"], tuple(status["user"]["groups"])) == (
            True,
            "system:serviceaccount:default:robot",
            GROUPS,
        )
        assert status["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
        assert (await review(api, "nonsense"))["error"] == "invalid bearer token"


async def test_an_account_may_discover_and_nothing_else_until_it_is_bound(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await create_account(client)
        user = api.tokens.authenticate(f"Bearer {await token_of(api)}")
        pods = "/api/v1/namespaces/default/pods"
        assert (await ask(api, "GET", "/apis", user=user)).status == 200
        assert (await ask(api, "GET", pods, user=user)).status == 403
        group = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
        role = {"apiGroup": group, "kind": "ClusterRole", "name": "view"}
        binding = {"metadata": {"name": "b", "namespace": "default"}, "roleRef": role, "subjects": [subject]}
        await client.create(Kind(group, "v1", "RoleBinding", "rolebindings"), binding)
        assert (await ask(api, "GET", pods, user=user)).status == 200
        assert (await ask(api, "GET", pods.replace("default", "kube-system"), user=user)).status == 403


async def test_an_impersonated_account_has_its_groups(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        named = {"impersonate_user": "system:serviceaccount:default:robot", "content_type": JSON}
        answer = await ask(api, "POST", path, b"{}", **named)
        assert isinstance(answer.body, bytes)
        info = msgspec.json.decode(answer.body)["status"]["userInfo"]
        assert tuple(info["groups"]) == GROUPS
        plain = await ask(api, "POST", path, b"{}", user=User("ana", ("system:authenticated",)), **named)
        assert plain.status == 403


async def test_every_namespace_keeps_its_account_and_the_authority(tmp_path: Path) -> None:
    async with serving(tmp_path, controllers=True) as (api, client):
        objects = NamespaceObjects(api.store, api.add, api.merge, "PEM")

        def authority(namespace: str) -> str:
            found = api.store.find("configmaps", namespace, "kube-root-ca.crt")
            return str(msgspec.json.decode(found.value)["data"]["ca.crt"]) if found else ""

        def is_whole(namespace: str) -> bool:
            account = api.store.find("serviceaccounts", namespace, "default")
            return account is not None and authority(namespace) == "PEM"

        async with running_parts(objects.run):
            await until(api, lambda: is_whole("default") and is_whole("kube-system"))
            await client.create(NAMESPACE, {"metadata": {"name": "team"}})
            await until(api, lambda: is_whole("team"))
            await client.delete(ACCOUNT, Key("team", "default"))
            await client.merge(CONFIG_MAP, Key("team", "kube-root-ca.crt"), {"data": {"ca.crt": "another"}})
            await until(api, lambda: is_whole("team"))
            # A namespace that goes takes them along.
            await client.delete(NAMESPACE, Key("", "team"))
            await until(api, lambda: api.store.find("namespaces", "", "team") is None)
            assert api.store.find("serviceaccounts", "team", "default") is None
