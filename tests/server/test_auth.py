"""Authentication and authorization."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kyu.api.meta import Json, Key, Kind
from kyu.kube.client import Client
from kyu.kube.requests import encode
from kyu.server import bootstrap, errors
from kyu.server.api import Api
from kyu.server.auth import rbac, tokens
from kyu.server.exchange import ANONYMOUS, User
from tests.support.servers import SECRET, ask, config_map, serving, workload

ANA = User("ana", ("system:authenticated",))
GROUP = "rbac.authorization.k8s.io"
ROLE = Kind(GROUP, "v1", "Role", "roles")
CLUSTER_ROLE = Kind(GROUP, "v1", "ClusterRole", "clusterroles", namespaced=False)
ROLE_BINDING = Kind(GROUP, "v1", "RoleBinding", "rolebindings")
JSON = "application/json"


async def bind(client: Client, role: str, *, kind: str = "ClusterRole", namespace: str = "default") -> None:
    body = {
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "ana"}],
    }
    await client.create(ROLE_BINDING, body)


async def status(api: Api, method: str, path: str, body: Json | None = None, user: User = ANA) -> int:
    answer = await ask(api, method, path, encode(body) if body else b"", user=user, content_type=JSON)
    return answer.status


async def test_a_token_lets_in_until_its_secret_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        token = tokens.new_token()
        await client.create(SECRET, tokens.token_secret("ana", ("team",), token))
        user = api.tokens.authenticate(f"Bearer {token}")
        assert (user.name, user.groups) == ("ana", ("team", "system:authenticated"))
        stored = await client.get(SECRET, Key(tokens.NAMESPACE, "token-ana"))
        assert token not in str(stored)
        await client.delete(SECRET, Key(tokens.NAMESPACE, "token-ana"))
        with pytest.raises(errors.StatusError, match="Unauthorized"):
            api.tokens.authenticate(f"Bearer {token}")


async def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    token = tokens.new_token()
    async with serving(tmp_path) as (_, client):
        await client.create(SECRET, tokens.token_secret("ana", (), token))
    async with serving(tmp_path) as (api, _):
        assert api.tokens.authenticate(f"bearer {token}").name == "ana"
        assert api.tokens.authenticate("") is ANONYMOUS


async def test_a_batch_user_submits_in_one_namespace_and_sees_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        maps = "/api/v1/namespaces/{}/configmaps"
        assert await status(api, "GET", maps.format("default")) == 403
        await bind(client, "batch-user")
        assert await status(api, "POST", maps.format("default"), config_map("a")) == 201
        assert await status(api, "GET", maps.format("default")) == 200
        assert await status(api, "GET", maps.format("kube-public")) == 403
        assert await status(api, "GET", "/api/v1/configmaps") == 403
        assert await status(api, "GET", "/api/v1/namespaces/default/secrets") == 403
        assert await status(api, "GET", "/metrics") == 403
        assert await status(api, "GET", "/version", user=ANONYMOUS) == 200


async def test_a_batch_user_cannot_decide_what_the_queue_decides(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await bind(client, "batch-user")
        workloads = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
        await client.create(Kind("kueue.x-k8s.io", "v1beta2", "Workload", "workloads"), workload("w"))
        assert await status(api, "GET", f"{workloads}/w") == 200
        assert await status(api, "POST", workloads, workload("x")) == 403
        assert await status(api, "PUT", f"{workloads}/w/status", workload("w")) == 403
        assert await status(api, "GET", "/apis/kueue.x-k8s.io/v1beta2/cohorts") == 403
        pod: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}}
        pods = "/api/v1/namespaces/default/pods"
        refused = await ask(api, "POST", pods, encode(pod), user=ANA, content_type=JSON)
        assert refused.status == 403
        assert isinstance(refused.body, bytes)
        assert "spec.nodeName" in msgspec.json.decode(refused.body)["message"]
        del pod["spec"]["nodeName"]
        assert await status(api, "POST", pods, pod) == 201


async def test_a_batch_user_reads_neither_pools_nor_secrets_and_sets_no_status(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await bind(client, "batch-user")
        for namespace in ("default", "kube-public"):
            await client.create(SECRET, {"metadata": {"name": "s", "namespace": namespace}})
            assert await status(api, "GET", f"/api/v1/namespaces/{namespace}/secrets/s") == 403
        assert await status(api, "GET", "/api/v1/secrets") == 403
        assert await status(api, "GET", "/apis/vk.io/v1alpha1/masterqueues") == 403
        assert await status(api, "GET", "/apis/vk.io/v1alpha1/namespaces/default/masterqueues/m") == 403
        jobs = "/apis/batch/v1/namespaces/default/jobs"
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        assert await status(api, "POST", jobs, {"metadata": {"name": "j"}, "spec": {"template": template}}) == 201
        assert await status(api, "PUT", f"{jobs}/j/status", {"metadata": {"name": "j"}, "status": {}}) == 403
        pods = "/api/v1/namespaces/default/pods"
        assert await status(api, "POST", f"{pods}/p/binding", {"target": {"name": "n"}}) == 403


async def test_a_change_of_a_role_counts_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["mine"]}
        await client.create(ROLE, {"metadata": {"name": "reader", "namespace": "default"}, "rules": [rule]})
        await bind(client, "reader", kind="Role")
        path = "/api/v1/namespaces/default/configmaps"
        assert await status(api, "GET", f"{path}/mine") == 404
        assert await status(api, "GET", f"{path}/other") == 403
        rule["resourceNames"] = ["other"]
        await client.patch(ROLE, Key("default", "reader"), {"rules": [rule]})
        assert await status(api, "GET", f"{path}/mine") == 403
        assert await status(api, "GET", f"{path}/other") == 404


async def test_a_role_may_be_the_sum_of_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
        part = {"metadata": {"name": "part", "labels": {"sum": "yes"}}, "rules": [rule]}
        await client.create(CLUSTER_ROLE, part)
        selector = {"clusterRoleSelectors": [{"matchLabels": {"sum": "yes"}}]}
        await client.create(CLUSTER_ROLE, {"metadata": {"name": "sum"}, "aggregationRule": selector, "rules": []})
        await bind(client, "sum")
        assert await status(api, "GET", "/api/v1/namespaces/default/configmaps") == 200


async def test_reviews_agree_with_requests(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await bind(client, "batch-user")

        async def can(verb: str, resource: str, namespace: str) -> bool:
            attributes = {"verb": verb, "group": "batch", "resource": resource, "namespace": namespace}
            body = {"spec": {"resourceAttributes": attributes}}
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            answer = await ask(api, "POST", path, encode(body), user=ANA, content_type=JSON)
            assert isinstance(answer.body, bytes)
            allowed: bool = msgspec.json.decode(answer.body)["status"]["allowed"]
            return allowed

        assert await can("create", "jobs", "default")
        assert not await can("create", "jobs", "kube-system")
        assert not await can("create", "secrets", "default")


async def test_impersonation_needs_permission(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await bind(client, "batch-user")
        path = "/api/v1/namespaces/{}/configmaps"
        as_ana = await ask(api, "GET", path.format("default"), impersonate_user="ana")
        assert as_ana.status == 200
        assert (await ask(api, "GET", path.format("kube-public"), impersonate_user="ana")).status == 403
        as_admin = await ask(api, "GET", path.format("kube-public"), user=ANA, impersonate_user="admin")
        assert as_admin.status == 403
        in_group = await ask(api, "GET", path.format("kube-public"), user=ANA, impersonate_group="system:masters")
        assert in_group.status == 400
        with_extra = await ask(api, "GET", path.format("default"), impersonate_user="ana", impersonate_uid="u")
        assert with_extra.status == 400


async def test_users_cannot_grant_rights_that_they_do_not_have(tmp_path: Path) -> None:
    bindings = f"/apis/{GROUP}/v1/namespaces/default/rolebindings"
    roles = f"/apis/{GROUP}/v1/namespaces/default/roles"

    def binding(role: str) -> Json:
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}
        subject = {"apiGroup": GROUP, "kind": "User", "name": "bob"}
        return {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}

    def role(name: str, *resources: str) -> Json:
        rule = {"apiGroups": [""], "resources": list(resources), "verbs": ["get"]}
        return {"metadata": {"name": name}, "rules": [rule]}

    async with serving(tmp_path) as (api, client):
        await bind(client, "admin")
        assert await status(api, "POST", bindings, binding("batch-user")) == 201
        assert await status(api, "POST", bindings, binding("cluster-admin")) == 403
        assert await status(api, "POST", roles, role("fine", "pods", "configmaps")) == 201
        assert await status(api, "POST", roles, role("more", "pods", "nodes")) == 403
        assert await status(api, "PUT", f"{roles}/fine", role("fine", "*")) == 403


RULE = rbac.PolicyRule(verbs=("get",), api_groups=("",), resources=("pods", "*/status"))


@pytest.mark.parametrize(
    ("attributes", "allowed"),
    [
        (rbac.Attributes("get", "", "pods"), True),
        (rbac.Attributes("list", "", "pods"), False),
        (rbac.Attributes("get", "apps", "pods"), False),
        (rbac.Attributes("get", "", "pods", "log"), False),
        (rbac.Attributes("get", "", "nodes", "status"), True),
        (rbac.Attributes("get", path="/metrics"), False),
    ],
)
def test_a_rule_allows_what_it_names(attributes: rbac.Attributes, allowed: bool) -> None:
    assert rbac.allows(RULE, attributes) is allowed


@pytest.mark.parametrize(
    ("url", "allowed"), [("/healthz", True), ("/healthz/*", False), ("*", True), ("/health*", True)]
)
def test_a_rule_for_paths(url: str, allowed: bool) -> None:
    rule = rbac.PolicyRule(verbs=("get",), non_resource_urls=(url,))
    assert rbac.allows(rule, rbac.Attributes("get", path="/healthz")) is allowed


async def test_a_role_of_an_earlier_version_that_gave_too_much_is_replaced(tmp_path: Path) -> None:
    key = Key("", "batch-admin")
    async with serving(tmp_path) as (api, client):
        old = (await client.get(CLUSTER_ROLE, key))["rules"]
        former = bootstrap.former_roles()["batch-admin"]
        assert any("*" in rule["resources"] for rule in former)
        await client.patch(CLUSTER_ROLE, key, {"rules": former})
        await bootstrap.ensure(api)
        assert (await client.get(CLUSTER_ROLE, key))["rules"] == old
        # One that an administrator has edited is kept.
        await client.patch(CLUSTER_ROLE, key, {"rules": former[:1]})
        await bootstrap.ensure(api)
        assert (await client.get(CLUSTER_ROLE, key))["rules"] == former[:1]
