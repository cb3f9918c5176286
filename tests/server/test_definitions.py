"""A CustomResourceDefinition on a server: its kind is served, and deleted with its objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from kyu.api.meta import Json, Key, Kind
from kyu.kube import errors
from kyu.server import representations
from kyu.server.api import Api
from tests.support.answers import APPLY, send
from tests.support.servers import DEFINITION, ask, serving, until

OVEN = Kind("kitchen.example.com", "v1", "Oven", "ovens")
NAME = Key("", "ovens.kitchen.example.com")
HELD = {"metadata": {"name": "held", "namespace": "default", "finalizers": ["example.com/hold"]}}


def definition(plural: str = "ovens", kind: str = "Oven", **names: object) -> Json:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "metadata": {"name": f"{plural}.kitchen.example.com"},
        "spec": {
            "group": "kitchen.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, **names},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def conditions(api: Api, name: str = NAME.name) -> dict[str, str]:
    record = api.store.find("customresourcedefinitions.apiextensions.k8s.io", "", name)
    status = representations.decode(record.value).get("status") or {} if record is not None else {}
    return {each["type"]: each["reason"] for each in status.get("conditions") or ()}


async def test_discovery_names_the_status_before_the_scale(tmp_path: Path) -> None:
    made = definition()
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    made["spec"]["versions"][0]["subresources"] = {"scale": scale, "status": {}}
    async with serving(tmp_path) as (api, client):
        await client.create(DEFINITION, made)
        answer = await ask(api, "GET", "/apis/kitchen.example.com/v1")
        assert isinstance(answer.body, bytes)
        names = [each["name"] for each in representations.decode(answer.body)["resources"]]
        assert names == ["ovens", "ovens/status", "ovens/scale"]


async def test_the_scale_of_a_custom_object_is_claimed_and_not_changed_by_an_apply(tmp_path: Path) -> None:
    made = definition()
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    made["spec"]["versions"][0]["subresources"] = {"scale": scale}
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"] = True
    path = "/apis/kitchen.example.com/v1/namespaces/default/ovens/a/scale?fieldManager=cook"
    async with serving(tmp_path) as (api, client):
        await client.create(DEFINITION, made)
        await client.create(OVEN, {"metadata": {"name": "a", "namespace": "default"}, "spec": {"n": 2}})

        async def apply(count: int, more: str = "") -> tuple[int, Json]:
            body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": count}}
            response, answer = await send(api, f"PATCH {path}{more}", body, kind=APPLY)
            return response.status, answer

        status, answer = await apply(2)
        assert (status, answer["spec"]) == (200, {"replicas": 2})
        assert (await apply(3))[0] == 409
        status, answer = await apply(3, "&force=true")
        assert status == 500
        assert "use another kind of patch" in answer["message"]


async def test_a_name_is_given_when_it_gets_free(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(DEFINITION, definition(shortNames=["ov"]))
        await client.create(DEFINITION, definition("ovals", "Oval", shortNames=["ov"]))
        second = "ovals.kitchen.example.com"
        await until(api, lambda: "NamesAccepted" in conditions(api, second))
        assert conditions(api, second) == {"NamesAccepted": "ShortNamesConflict", "Established": "NotAccepted"}
        await client.delete(DEFINITION, NAME)
        await until(api, lambda: conditions(api, second).get("Established") == "InitialNamesAccepted")


async def test_nothing_is_created_while_a_definition_is_terminating(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(DEFINITION, definition())
        await client.create(OVEN, HELD)
        await client.delete(DEFINITION, NAME)
        await until(api, lambda: conditions(api).get("Terminating") == "InstanceDeletionInProgress")
        with pytest.raises(errors.ApiError, match="create not allowed while custom resource definition is terminating"):
            await client.create(OVEN, {"metadata": {"name": "new", "namespace": "default"}})
        await client.patch(OVEN, Key("default", "held"), {"metadata": {"finalizers": None}})
        await until(api, lambda: not conditions(api))


async def test_a_terminating_definition_is_finalized_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, client):
        await client.create(DEFINITION, definition())
        await client.create(OVEN, HELD)
        await client.delete(DEFINITION, NAME)
        await until(api, lambda: conditions(api).get("Terminating") == "InstanceDeletionInProgress")
    async with serving(tmp_path) as (api, client):
        await client.patch(OVEN, Key("default", "held"), {"metadata": {"finalizers": None}})
        await until(api, lambda: not conditions(api))
