"""Validation of Services, volume claims, quotas and other kinds that Kyu stores without acting on them."""

from __future__ import annotations

import pytest

from kyu.api.meta import Json
from kyu.server.builtin import apps, limits, services
from kyu.server.builtin.pods import volumes


def service(**spec: object) -> Json:
    made: Json = {"metadata": {"name": "a"}, "spec": spec}
    services.default_service(made)
    services.prepare_service(made)
    return made


@pytest.mark.parametrize(
    ("spec", "blamed"),
    [
        ({"ports": [{"port": 80}]}, []),
        ({"clusterIP": "None"}, []),
        ({}, ["ports"]),
        ({"type": "ExternalName"}, ["externalName"]),
        ({"type": "Odd", "ports": [{"port": 80}]}, ["type"]),
        ({"ports": [{"port": 80}, {"port": 81}]}, ["ports[0].name", "ports[1].name"]),
        ({"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}, ["ports[1].name"]),
        ({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}, ["ports[1]"]),
        ({"ports": [{"port": 80, "protocol": "ICMP"}]}, ["ports[0].protocol"]),
        ({"ports": [{"port": 80, "targetPort": "8"}]}, ["ports[0].targetPort"]),
        ({"ports": [{"port": 80}], "selector": {"a": "b c"}}, ["selector"]),
        ({"ports": [{"port": 80}], "externalTrafficPolicy": "Local"}, ["externalTrafficPolicy"]),
        ({"ports": [{"port": 80}], "clusterIP": "x"}, ["clusterIPs[0]"]),
        ({"ports": [{"port": 80}], "externalIPs": ["x"]}, ["externalIPs[0]"]),
        (
            {
                "ports": [{"port": 80}],
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}},
            },
            ["sessionAffinityConfig.clientIP.timeoutSeconds"],
        ),
    ],
)
def test_rules_of_services(spec: Json, blamed: list[str]) -> None:
    found = services.validate_service(service(**spec))
    assert [fault.field for fault in found] == [f"spec.{name}" for name in blamed]


@pytest.mark.parametrize(
    ("selector", "families", "policy"),
    [({"a": "b"}, ["IPv4"], "SingleStack"), (None, ["IPv4", "IPv6"], "RequireDualStack")],
)
def test_a_headless_service_is_completed(
    selector: Json | None, families: list[str], policy: str
) -> None:
    spec = service(clusterIP="None", **({"selector": selector} if selector else {}))["spec"]
    assert (spec["clusterIPs"], spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["None"], families, policy)


def test_an_update_may_leave_out_what_the_server_has_decided() -> None:
    old, new = service(clusterIP="None"), service(ports=[{"port": 80}])
    services.prepare_service_update(new, old)
    assert (new["spec"]["clusterIP"], new["spec"]["clusterIPs"]) == ("None", ["None"])


@pytest.mark.parametrize(
    ("spec", "blamed"),
    [
        ({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}, []),
        ({}, ["spec.accessModes", "spec.resources[storage]"]),
        ({"accessModes": ["Odd"], "resources": {"requests": {"storage": "0"}}, "volumeMode": "X"},
         ["spec.accessModes", "spec.resources[storage]", "spec.volumeMode"]),
    ],
)  # fmt: skip
def test_rules_of_claims(spec: Json, blamed: list[str]) -> None:
    assert [fault.field for fault in volumes.validate_claim({"spec": spec})] == blamed


@pytest.mark.parametrize(
    ("spec", "details"),
    [
        ({"hard": {"pods": "5", "requests.cpu": "1", "count/jobs.batch": "1", "requests.nvidia.com/gpu": "1"}}, []),
        ({"hard": {"pods": "-1"}}, ["must be greater than or equal to 0"]),
        ({"hard": {"pods": "1500m"}}, ["must be an integer"]),
        ({"hard": {"odd": "1"}},
         ["must be a standard resource type or fully qualified", "must be a standard resource for quota"]),
        ({"scopes": ["Odd"]}, ["unsupported scope"]),
        ({"scopes": ["BestEffort"], "hard": {"cpu": "1"}}, ["unsupported scope applied to resource"]),
    ],
)  # fmt: skip
def test_rules_of_quotas(spec: Json, details: list[str]) -> None:
    assert [fault.detail for fault in limits.validate_quota({"spec": spec})] == details


@pytest.mark.parametrize(
    ("update", "blamed"),
    [
        ({"maxSurge": "125%", "maxUnavailable": 0}, []),
        ({"maxSurge": 1, "maxUnavailable": "125%"}, ["maxUnavailable"]),
        ({"maxSurge": 0, "maxUnavailable": "0%"}, ["maxUnavailable"]),
        ({"maxSurge": "x", "maxUnavailable": 1}, ["maxSurge"]),
        ({"maxSurge": 1, "maxUnavailable": -1}, ["maxUnavailable"]),
    ],
)
def test_a_rolling_update_moves(update: Json, blamed: list[str]) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "strategy": {"rollingUpdate": update}}
    deployment: Json = {"metadata": {"name": "a"}, "spec": spec}
    apps.default_deployment(deployment)
    found = apps.validate_deployment(deployment)
    assert [fault.field for fault in found] == [f"spec.strategy.rollingUpdate.{name}" for name in blamed]


def test_revisions_have_data() -> None:
    assert [fault.field for fault in apps.validate_controller_revision({"revision": -1})] == [
        "data",
        "revision",
    ]
