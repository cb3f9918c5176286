"""Validation of built-in kinds: the fields of the errors."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kyu.api.meta import Json
from kyu.server import errors
from kyu.server.builtin.cron_jobs import validate_cron_job
from kyu.server.builtin.limits import validate_disruption_budget, validate_limit_range
from kyu.server.exchange import Response
from kyu.server.schema.published import load
from kyu.server.verbs.strategic_merge import strategic_patch
from tests.support.servers import ask, serving

JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
TEMPLATE: Json = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
DEPLOYMENT: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
}


@pytest.mark.parametrize(
    ("spec", "blamed"),
    [
        ({"schedule": "0 0 */2 * 1"}, []),
        ({"schedule": "*-5 * * * *", "timeZone": "Europe/Berlin"}, []),
        ({"schedule": "nonsense"}, ["spec.schedule: expected exactly 5 fields, found 1: [nonsense]"]),
        (
            {"schedule": "TZ=UTC @daily"},
            ["spec.schedule: cannot use TZ or CRON_TZ in schedule, use timeZone field instead"],
        ),
        ({"schedule": "@daily", "timeZone": "Moon/Base"}, ["spec.timeZone: unknown time zone Moon/Base"]),
        ({"schedule": "@daily", "timeZone": "../Moon"}, ["spec.timeZone: unknown time zone ../Moon"]),
    ],
)
def test_schedules_and_zones_of_cron_jobs(spec: Json, blamed: list[str]) -> None:
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}
    cron_job = {
        "metadata": {"name": "c"},
        "spec": {"concurrencyPolicy": "Allow", "jobTemplate": template, **spec},
    }
    found = [fault for fault in validate_cron_job(cron_job) if "jobTemplate" not in fault.field]
    assert [f"{fault.field}: {fault.detail}" for fault in found] == blamed


@pytest.mark.parametrize(
    ("item", "blamed"),
    [
        ({"type": "Container", "min": {"cpu": "500m"}, "max": {"cpu": "1"}}, []),
        ({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}, ["min[cpu]"]),
        ({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}, ["defaultRequest[cpu]"]),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}}, ["maxLimitRequestRatio[cpu]"]),
        ({"type": "Pod", "default": {"cpu": "1"}}, ["default"]),
        ({"type": "PersistentVolumeClaim"}, [""]),
    ],
)
def test_bounds_of_a_limit_range_do_not_contradict_each_other(item: Json, blamed: list[str]) -> None:
    found = validate_limit_range({"spec": {"limits": [item]}})
    assert [error.field for error in found] == [f"spec.limits[0].{name}".rstrip(".") for name in blamed]


@pytest.mark.parametrize(
    ("spec", "blamed"),
    [
        ({"minAvailable": "50%"}, []),
        ({"minAvailable": 1, "maxUnavailable": 1}, ["spec"]),
        ({"minAvailable": -1}, ["spec.minAvailable"]),
        ({"maxUnavailable": "101%"}, ["spec.maxUnavailable"]),
        ({"maxUnavailable": "10"}, ["spec.maxUnavailable"]),
    ],
)
def test_a_disruption_budget_has_one_bound_that_makes_sense(spec: Json, blamed: list[str]) -> None:
    assert [error.field for error in validate_disruption_budget({"spec": spec})] == blamed


def test_a_merged_list_holds_one_sort_of_values() -> None:
    schema = load("", "v1").schema("", "v1", "ConfigMap")
    with pytest.raises(errors.StatusError, match="not identical"):
        strategic_patch(schema, {"metadata": {"finalizers": ["x.io/a"]}}, {"metadata": {"finalizers": [{"a": "b"}]}})


async def test_a_manager_that_scales_owns_the_replicas(tmp_path: Path) -> None:
    async with serving(tmp_path) as (api, _):

        async def send(path: str, body: Json, content_type: str) -> Response:
            return await ask(api, "PATCH", DEPLOYMENTS + path, msgspec.json.encode(body), content_type=content_type)

        assert (await send("/d?fieldManager=one", DEPLOYMENT, APPLY)).status == 201
        assert (await send("/d/scale?fieldManager=hpa", {"spec": {"replicas": 5}}, MERGE)).status == 200
        refused = await send("/d?fieldManager=one", DEPLOYMENT, APPLY)
        assert refused.status == 409
        assert isinstance(refused.body, bytes)
        message = msgspec.json.decode(refused.body)["message"]
        assert 'conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas' in message
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 2}}
        assert (await send("/d/scale?fieldManager=one&force=true", scale, APPLY)).status == 200
        assert (await send("/d?fieldManager=one", DEPLOYMENT, APPLY)).status == 200
