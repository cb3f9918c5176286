"""Corner cases of the validation of pods, Jobs and custom objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from kyu.api.meta import Json
from kyu.server.crd import custom
from tests.support.answers import JOBS, PODS, QUEUES, make_queue, send
from tests.support.servers import serving

MAIN = {"name": "main", "image": "busybox:1"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"


def with_rule(**rule: object) -> Json:
    terms = [{"matchExpressions": [{"key": "k", **rule}]}]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


@pytest.mark.parametrize(
    ("container", "blamed"),
    [
        ({"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]}, "ports[1].name"),
        ({"env": [{"name": "a=b"}]}, "env[0].name"),
        (
            {"env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "bogus"}}}]},
            "env[0].valueFrom.fieldRef.fieldPath",
        ),
        ({"env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x']"}}}]}, None),
        ({"livenessProbe": {"periodSeconds": 5}}, "livenessProbe"),
        ({"readinessProbe": {"exec": {"command": ["true"]}}}, None),
        ({"lifecycle": {"preStop": {}}}, "lifecycle.preStop"),
        ({"securityContext": {"runAsUser": -1}}, "securityContext.runAsUser"),
    ],
)
async def test_rules_of_containers(tmp_path: Path, container: Json, blamed: str | None) -> None:
    await expect(tmp_path, {"containers": [{**MAIN, **container}]}, blamed and f"spec.containers[0].{blamed}")


@pytest.mark.parametrize(
    ("spec", "blamed"),
    [
        ({"hostname": "UPPER"}, "spec.hostname"),
        ({"hostname": "a.b"}, "spec.hostname"),
        ({"subdomain": "a.b"}, "spec.subdomain"),
        ({"hostname": "a", "subdomain": "b"}, None),
        ({"serviceAccountName": "no name"}, "spec.serviceAccountName"),
        ({"os": {"name": "plan9"}}, "spec.os"),
        ({"dnsPolicy": "None"}, "spec.dnsConfig"),
        ({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.1"]}}, None),
        ({"readinessGates": [{"conditionType": "no name"}]}, "spec.readinessGates[0].conditionType"),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}]},
            "spec.topologySpreadConstraints[0].whenUnsatisfiable",
        ),
        ({"shareProcessNamespace": True, "hostPID": True}, "spec.securityContext.shareProcessNamespace"),
        ({"ephemeralContainers": [{"name": "e", "image": "i"}]}, "spec.ephemeralContainers"),
        (with_rule(operator="Near"), f"{TERMS}.operator"),
        (with_rule(operator="In"), f"{TERMS}.values"),
        (with_rule(operator="Exists", values=["v"]), f"{TERMS}.values"),
        (with_rule(operator="Gt", values=["1"]), None),
    ],
)
async def test_rules_of_pods(tmp_path: Path, spec: Json, blamed: str | None) -> None:
    await expect(tmp_path, {"containers": [MAIN], **spec}, blamed)


async def expect(tmp_path: Path, spec: Json, blamed: str | None) -> None:
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"POST {PODS}", {"metadata": {"name": "a"}, "spec": spec})
        causes = status["details"]["causes"] if response.status == 422 else []
        assert [cause["field"] for cause in causes] == ([blamed] if blamed else [])


RULE = "spec.podFailurePolicy.rules[0]"


@pytest.mark.parametrize(
    ("rule", "blamed"),
    [
        ({"action": "Dance", "onExitCodes": {"operator": "In", "values": [1]}}, f"{RULE}.action"),
        ({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}}, f"{RULE}.action"),
        ({"action": "FailJob"}, RULE),
        ({"action": "FailJob", "onExitCodes": {"operator": "In", "values": []}}, f"{RULE}.onExitCodes.values"),
        ({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}, f"{RULE}.onExitCodes.values[0]"),
        ({"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}}, None),
        ({"action": "FailJob", "onExitCodes": {"operator": "Is", "values": [1]}}, f"{RULE}.onExitCodes.operator"),
        (
            {"action": "FailJob", "onExitCodes": {"containerName": "other", "operator": "In", "values": [1]}},
            f"{RULE}.onExitCodes.containerName",
        ),
        ({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}, None),
    ],
)
async def test_rules_about_failures(tmp_path: Path, rule: Json, blamed: str | None) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [MAIN]}}
    body = {"metadata": {"name": "a"}, "spec": {"template": template, "podFailurePolicy": {"rules": [rule]}}}
    async with serving(tmp_path) as (api, _):
        response, status = await send(api, f"POST {JOBS}", body)
        causes = status["details"]["causes"] if response.status == 422 else []
        assert [cause["field"] for cause in causes] == ([blamed] if blamed else [])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replicas": 3}, None),
        ({}, None),
        ({"replicas": -1}, "Invalid value: -1: should be a non-negative integer"),
        ({"replicas": 2**31}, "Invalid value: 2147483648: should be less than or equal to 2147483647"),
        (
            {"replicas": "x"},
            "Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
        ),
        (
            [],
            "Invalid value: 0: .spec.replicas accessor error: [] is of the type []interface {}, expected"
            " map[string]interface{}",
        ),
    ],
)
def test_the_number_that_a_scale_shows(spec: object, message: str | None) -> None:
    found = [fault.message for fault in custom.replica_faults({"spec": spec}, ".spec.replicas")]
    assert found == ([message] if message else [])


def test_the_selector_that_a_scale_shows() -> None:
    def found(status: object) -> list[str]:
        return [str(fault) for fault in custom.selector_faults({"status": status}, ".status.selector")]

    assert found({}) == found({"selector": "a=b"}) == []
    text = ".status.selector accessor error: 5 is of the type int64, expected string"
    assert found({"selector": 5}) == [f'.status.selector: Invalid value: "": {text}']


async def test_a_custom_object_of_another_kind(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "a"}}
        response, status = await send(api, f"POST {QUEUES}", body)
        assert response.status == 422
        text = 'Workload.kueue.x-k8s.io "a" is invalid: kind: Invalid value: "Workload": must be LocalQueue'
        assert status["message"] == text


async def test_a_verb_that_a_subresource_of_a_custom_kind_has_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):
        await make_queue(api)
        response, status = await send(api, f"DELETE {QUEUES}/a/status")
        assert response.status == 405
        assert status["message"] == 'delete is not supported on resources of kind "localqueues.kueue.x-k8s.io"'
